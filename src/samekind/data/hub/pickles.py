"""CIFAR comes as Python pickles, and a pickle is a program that may call anything. This reader calls nothing it is told to.

It knows the instructions that build arrays, words, whole numbers, lists and dicts, and has no code for any other. The few
names that such a file must mention, numpy.dtype for one, are words to it, from which it makes the array by itself. Nothing is
allocated on the word of the file: an array is a view of bytes that are there.
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

MOST_STEPS = 1_000_000  # the longest official file takes about 200,000
NUMBERS = frozenset("u1 u2 u4 u8 i1 i2 i4 i8".split())
NDARRAY, DTYPE, ENCODE = "numpy ndarray", "numpy dtype", "_codecs encode"
EMPTY_ARRAY = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
WHOLE_ARRAY = ("numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer")
NAMES = frozenset((NDARRAY, DTYPE, ENCODE, *EMPTY_ARRAY, *WHOLE_ARRAY))


def read_pickle(blob: bytes, what: str) -> dict[str, Any]:
    """The dict in a pickle of protocol 2 to 5, its keys as str; `what` is what a message calls the file."""
    reader, stream = _Reader(), io.BytesIO(blob)
    try:
        for steps, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if steps == MOST_STEPS:
                raise _Refused(f"has more than {MOST_STEPS} instructions")
            reader.follow(opcode.name, argument)
        if stream.tell() < len(blob):
            raise _Refused(f"goes on for {len(blob) - stream.tell()} bytes after its end")
        return reader.result()
    except _Refused as reason:
        raise DataError(
            f"{what} {reason}; expected a pickle of arrays, words and numbers. Nothing in it was run. Get a fresh copy of it."
        ) from None
    except Exception as error:  # the bytes are arbitrary, so anything may be wrong with them
        raise DataError(
            f"{what} is damaged: it cannot be read as a pickle ({type(error).__name__}). Get a fresh copy of it."
        ) from None


class _Refused(Exception):
    """What the file holds or asks for, said so that it can follow the name of the file."""


class _Name:
    """A name that the file mentions. Only a word: nothing is looked up."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Dtype:
    """A kind of whole number, named by code and byte order."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "|"


class _Array:
    """An array whose content comes in a later instruction."""

    def __init__(self) -> None:
        self.array: Array | None = None


class _Reader:
    """A stack, a memo, and a method for each known instruction."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def follow(self, instruction: str, argument: Any) -> None:
        if instruction not in STEPS:
            raise _Refused(f"holds the pickle instruction {instruction}")
        STEPS[instruction](self, argument)

    def result(self) -> dict[str, Any]:
        (whole,) = self.stack
        if not isinstance(whole, dict):
            raise _Refused("holds no dict")
        return whole

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def last(self, count: int) -> tuple[Any, ...]:
        return tuple(self.stack.pop() for _ in range(count))[::-1]

    def remember(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def extend(self, items: list[Any]) -> None:
        _of(self.stack[-1], list).extend(_plain(item) for item in items)

    def update(self, items: list[Any]) -> None:
        whole = _of(self.stack[-1], dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            whole[_text(key)] = _plain(value)

    def mention(self, name: str) -> None:
        if name not in NAMES:
            raise _Refused(f"asks for {name.replace(' ', '.')[:80]!r}")
        self.push(_Name(name))

    def reduce(self) -> None:
        called, arguments = self.last(2)
        self.push(_made(_of(called, _Name).name, _of(arguments, tuple)))

    def build(self) -> None:
        state = _of(self.stack.pop(), tuple)
        target = self.stack[-1]
        if isinstance(target, _Dtype):
            target.order = _order(state)
        else:
            version, shape, dtype, by_column, content = state
            if version != 1:
                raise _Refused("holds an array of an unknown version")
            _of(target, _Array).array = _array(content, dtype, shape, "F" if by_column else "C")


def _made(name: str, arguments: tuple[Any, ...]) -> Any:
    """What the file wants made by calling `name`."""
    if name == DTYPE and _text(arguments[0]) in NUMBERS:
        return _Dtype(_text(arguments[0]))
    if name == ENCODE and _text(arguments[1]) in ("latin1", "latin-1"):
        return _of(arguments[0], str).encode("latin-1")
    if name in EMPTY_ARRAY and _of(arguments[0], _Name).name == NDARRAY:
        return _Array()
    if name in WHOLE_ARRAY:
        made = _Array()
        made.array = _array(*arguments)
        return made
    raise _Refused(f"asks for {name.replace(' ', '.')!r} of something else than whole numbers")


def _order(state: tuple[Any, ...]) -> str:
    """The byte order in the state of a dtype that has no fields and no shape of its own."""
    order = _text(state[1])
    if order not in "<>|=" or any(part is not None for part in state[2:5]):
        raise _Refused("holds an array of records")
    return order


def _array(content: Any, dtype: Any, shape: Any, order: Any) -> Array:
    """An array on bytes that are there; a shape that asks for more or fewer is refused before anything is made."""
    kind = np.dtype(f"{_of(dtype, _Dtype).order}{dtype.code}")
    sides = [_of(side, int) for side in _of(shape, tuple)]
    if len(sides) > 4 or min(sides, default=0) < 0 or math.prod(sides) * kind.itemsize != len(_of(content, bytes)):
        raise _Refused("holds an array whose shape does not fit its bytes")
    return np.frombuffer(content, kind).reshape(sides, order="F" if _text(order) == "F" else "C")


def _plain(value: Any) -> Any:
    """What may stand in a list or a dict."""
    if isinstance(value, _Array) and value.array is not None:
        return value.array
    if isinstance(value, (_Array, _Name, _Dtype)):
        raise _Refused("holds a name or a kind of number where a value belongs")
    return value


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _Refused(f"holds {type(value).__name__.strip('_').lower()} where {kind.__name__.strip('_').lower()} belongs")
    return value


def _text(value: Any) -> str:
    """Words of Python 2 are bytes, those of Python 3 are str."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(_of(value, str))


def _mention_from_stack(reader: _Reader) -> None:
    module, name = reader.last(2)
    reader.mention(f"{_text(module)} {_text(name)}")


STEPS: dict[str, Callable[[_Reader, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda r, a: None),
    **dict.fromkeys(("BININT", "BININT1", "BININT2"), lambda r, a: r.push(a)),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), lambda r, a: r.push(a)),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), lambda r, a: r.push(a.encode("latin-1"))),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), lambda r, a: r.push(bytes(a))),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda r, a: r.remember(a)),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda r, a: r.push(r.memo[a])),
    "MEMOIZE": lambda r, a: r.remember(len(r.memo)),
    "NONE": lambda r, a: r.push(None),
    "NEWTRUE": lambda r, a: r.push(True),
    "NEWFALSE": lambda r, a: r.push(False),
    "EMPTY_TUPLE": lambda r, a: r.push(()),
    "EMPTY_LIST": lambda r, a: r.push([]),
    "EMPTY_DICT": lambda r, a: r.push({}),
    "MARK": lambda r, a: r.marks.append(len(r.stack)),
    "TUPLE": lambda r, a: r.push(tuple(r.since_mark())),
    "TUPLE1": lambda r, a: r.push(r.last(1)),
    "TUPLE2": lambda r, a: r.push(r.last(2)),
    "TUPLE3": lambda r, a: r.push(r.last(3)),
    "APPEND": lambda r, a: r.extend([r.stack.pop()]),
    "APPENDS": lambda r, a: r.extend(r.since_mark()),
    "SETITEM": lambda r, a: r.update(list(r.last(2))),
    "SETITEMS": lambda r, a: r.update(r.since_mark()),
    "GLOBAL": lambda r, a: r.mention(a),
    "STACK_GLOBAL": lambda r, a: _mention_from_stack(r),
    "REDUCE": lambda r, a: r.reduce(),
    "BUILD": lambda r, a: r.build(),
}
