"""Restricted reader of pickles: CIFAR is distributed as Python pickles, and unpickling can run any code.

pickle.Unpickler calls whatever functions a file names, so it is not used. The interpreter here has only the instructions that
build arrays, text, integers, lists and dicts. Names such as numpy.dtype remain text, and the interpreter builds the arrays
itself. An array is a view of bytes in the file, so that a wrong shape cannot allocate memory.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.errors import DataError

Array = npt.NDArray[Any]

MAX_INSTRUCTIONS = 1_000_000  # a pickle with more instructions is refused; the longest official file has about 200,000
NUMBERS = frozenset("u1 u2 u4 u8 i1 i2 i4 i8".split())
NDARRAY, DTYPE, ENCODE = "numpy ndarray", "numpy dtype", "_codecs encode"
EMPTY_ARRAY = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
WHOLE_ARRAY = ("numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer")
NAMES = frozenset((NDARRAY, DTYPE, ENCODE, *EMPTY_ARRAY, *WHOLE_ARRAY))


def read_pickle(blob: bytes, what: str) -> dict[str, Any]:
    """Return the dict in a pickle of protocol 2 to 5.

    Its keys are strings. `what` is the name of the file in error messages.
    """
    reader, stream = _PickleInterpreter(), io.BytesIO(blob)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count == MAX_INSTRUCTIONS:
                raise _Refused(f"the file has more than {MAX_INSTRUCTIONS} pickle instructions")
            reader.execute(opcode.name, argument)
        if rest := stream.read():
            raise _Refused(f"the file has {len(rest)} bytes after the end of the pickle")
        return reader.result()
    except _Refused as reason:
        raise DataError(
            f"{what} is refused: {reason}; expected a pickle of arrays, text and numbers. Nothing in it was run. Get "
            "a fresh copy of it."
        ) from None
    except Exception as error:  # the bytes can be anything, so any exception can occur
        raise DataError(
            f"{what} is damaged: it cannot be read as a pickle ({type(error).__name__}). Get a fresh copy of it."
        ) from None


class _Refused(Exception):
    """A pickle that is refused. The text of the error is the reason."""


class _Name:
    """Name of a function or class in the file. It is never imported."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Dtype:
    """Integer dtype of an array: its code, such as u1, and its byte order."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "|"


class _Array:
    """Placeholder for an array, whose content comes with a later instruction of the pickle."""

    def __init__(self) -> None:
        self.array: Array | None = None


class _PickleInterpreter:
    """Interpreter of pickles: a stack, a memo, and a method for each instruction that is allowed."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def execute(self, instruction: str, argument: Any) -> None:
        if instruction not in INSTRUCTIONS:
            raise _Refused(f"the file holds the pickle instruction {instruction}, which is not allowed")
        INSTRUCTIONS[instruction](self, argument)

    def result(self) -> dict[str, Any]:
        (result_dict,) = self.stack
        if not isinstance(result_dict, dict):
            raise _Refused("the file holds no dict")
        return result_dict

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop_to_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def pop_last(self, count: int) -> tuple[Any, ...]:
        return tuple(self.stack.pop() for _ in range(count))[::-1]

    def memoize(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def extend(self, items: list[Any]) -> None:
        _require_type(self.stack[-1], list).extend(_require_value(item) for item in items)

    def update(self, items: list[Any]) -> None:
        result_dict = _require_type(self.stack[-1], dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            result_dict[_text(key)] = _require_value(value)

    def push_name(self, name: str) -> None:
        if name not in NAMES:
            raise _Refused(f"the file refers to the Python object {name.replace(' ', '.')[:80]!r}, which is not allowed")
        self.push(_Name(name))

    def reduce(self) -> None:
        called, arguments = self.pop_last(2)
        self.push(_call(_require_type(called, _Name).name, _require_type(arguments, tuple)))

    def build(self) -> None:
        state = _require_type(self.stack.pop(), tuple)
        target = self.stack[-1]
        if isinstance(target, _Dtype):
            target.order = _order(state)
        else:
            version, shape, dtype, by_column, content = state
            if version != 1:
                raise _Refused("the file holds an array of an unknown pickle version")
            _require_type(target, _Array).array = _array(content, dtype, shape, "F" if by_column else "C")


def _call(name: str, arguments: tuple[Any, ...]) -> Any:
    """Return the result of the function `name`, without calling any code of the file; refuse all but a few functions."""
    if name == DTYPE and _text(arguments[0]) in NUMBERS:
        return _Dtype(_text(arguments[0]))
    if name == ENCODE and _text(arguments[1]) in ("latin1", "latin-1"):
        return _require_type(arguments[0], str).encode("latin-1")
    if name in EMPTY_ARRAY and _require_type(arguments[0], _Name).name == NDARRAY:
        return _Array()
    if name in WHOLE_ARRAY:
        made = _Array()
        made.array = _array(*arguments)
        return made
    raise _Refused(f"the file calls {name.replace(' ', '.')!r} with arguments that are not allowed")


def _order(state: tuple[Any, ...]) -> str:
    """Return the byte order from the state of a dtype. Structured dtypes are refused."""
    order = _text(state[1])
    if order not in "<>|=" or any(part is not None for part in state[2:5]):
        raise _Refused("the file holds an array of records, which is not allowed")
    return order


def _array(content: Any, dtype: Any, shape: Any, order: Any) -> Array:
    """Return an array on the given bytes. A shape that needs more or fewer bytes is refused."""
    kind = np.dtype(f"{_require_type(dtype, _Dtype).order}{dtype.code}")
    dimensions = [_require_type(side, int) for side in _require_type(shape, tuple)]
    if (
        len(dimensions) > 4
        or min(dimensions, default=0) < 0
        or math.prod(dimensions) * kind.itemsize != len(_require_type(content, bytes))
    ):
        raise _Refused("the file holds an array with more or fewer bytes than its shape needs")
    return np.frombuffer(content, kind).reshape(dimensions, order="F" if _text(order) == "F" else "C")


def _require_value(value: Any) -> Any:
    """Return a value that may be in a list or a dict. Names, dtypes and unfilled arrays are refused."""
    if isinstance(value, _Array) and value.array is not None:
        return value.array
    if isinstance(value, (_Array, _Name, _Dtype)):
        raise _Refused("the file holds a name or a dtype in a place where only a value is allowed")
    return value


def _require_type(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _Refused(
            f"the file holds an object of type {type(value).__name__.strip('_').lower()} where type "
            f"{kind.__name__.strip('_').lower()} is expected"
        )
    return value


def _text(value: Any) -> str:
    """Return a text as str. Python 2 wrote texts as bytes."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(_require_type(value, str))


def _push_name_from_stack(reader: _PickleInterpreter) -> None:
    module, name = reader.pop_last(2)
    reader.push_name(f"{_text(module)} {_text(name)}")


INSTRUCTIONS: dict[str, Callable[[_PickleInterpreter, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda r, a: None),
    **dict.fromkeys(("BININT", "BININT1", "BININT2"), lambda r, a: r.push(a)),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), lambda r, a: r.push(a)),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), lambda r, a: r.push(a.encode("latin-1"))),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), lambda r, a: r.push(bytes(a))),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda r, a: r.memoize(a)),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda r, a: r.push(r.memo[a])),
    "MEMOIZE": lambda r, a: r.memoize(len(r.memo)),
    "NONE": lambda r, a: r.push(None),
    "NEWTRUE": lambda r, a: r.push(True),
    "NEWFALSE": lambda r, a: r.push(False),
    "EMPTY_TUPLE": lambda r, a: r.push(()),
    "EMPTY_LIST": lambda r, a: r.push([]),
    "EMPTY_DICT": lambda r, a: r.push({}),
    "MARK": lambda r, a: r.marks.append(len(r.stack)),
    "TUPLE": lambda r, a: r.push(tuple(r.pop_to_mark())),
    "TUPLE1": lambda r, a: r.push(r.pop_last(1)),
    "TUPLE2": lambda r, a: r.push(r.pop_last(2)),
    "TUPLE3": lambda r, a: r.push(r.pop_last(3)),
    "APPEND": lambda r, a: r.extend([r.stack.pop()]),
    "APPENDS": lambda r, a: r.extend(r.pop_to_mark()),
    "SETITEM": lambda r, a: r.update(list(r.pop_last(2))),
    "SETITEMS": lambda r, a: r.update(r.pop_to_mark()),
    "GLOBAL": lambda r, a: r.push_name(a),
    "STACK_GLOBAL": lambda r, a: _push_name_from_stack(r),
    "REDUCE": lambda r, a: r.reduce(),
    "BUILD": lambda r, a: r.build(),
}
