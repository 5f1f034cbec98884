"""Pickles of arrays, text and numbers are read; all others are refused, and nothing in them is run."""

from __future__ import annotations

import contextlib
import copyreg
import os
import pickle
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samekind.data.hub.pickles import MAX_INSTRUCTIONS, read_pickle
from samekind.errors import DataError

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 12)
BATCH: dict[str, Any] = {
    "batch_label": "training batch 1 of 1",
    "labels": [6, 9],
    "data": PIXELS,
    "filenames": ["a.png", "b.png"],
}


def python2(text: str | bytes) -> bytes:
    """Return the pickle instruction for text of Python 2."""
    raw = text.encode() if isinstance(text, str) else text
    return b"U" + bytes([len(raw)]) + raw


def as_in_2009() -> bytes:
    """Return the batch as its authors pickled it, with Python 2 and an old numpy."""
    dtype = (
        b"cnumpy\ndtype\n"
        + python2("u1")
        + b"K\x00K\x01\x87R(K\x03"
        + python2("|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nK\x00\x85" + python2("b") + b"\x87R"
    state = b"(K\x01K\x02K\x0c\x86" + dtype + b"\x89" + b"T" + struct.pack("<I", 24) + PIXELS.tobytes() + b"tb"
    return (
        b"\x80\x02}q\x01("
        + (python2("batch_label") + b"q\x02" + python2("training batch 1 of 1"))
        + (python2("labels") + b"]q\x03(K\x06K\x09e")
        + (python2("data") + array + state)
        + (python2("filenames") + b"](" + python2("a.png") + python2("b.png") + b"eu.")
    )


def refused(blob: bytes) -> str:
    with pytest.raises(DataError) as caught:
        read_pickle(blob, "data_batch_1")
    sentence = str(caught.value)
    assert sentence.startswith("data_batch_1 ") and "Get a fresh copy" in sentence
    assert "\n" not in sentence and len(sentence) < 300
    return sentence


def test_a_batch_of_python_2_is_read() -> None:
    read = read_pickle(as_in_2009(), "data_batch_1")
    assert list(read) == ["batch_label", "labels", "data", "filenames"]
    np.testing.assert_array_equal(read["data"], PIXELS)
    assert read["data"].dtype == np.uint8
    assert read["labels"] == [6, 9]
    assert read["filenames"] == [b"a.png", b"b.png"]


def test_the_python_2_batch_equals_the_result_of_pickle() -> None:
    theirs = pickle.loads(as_in_2009(), encoding="bytes")
    assert theirs[b"labels"] == [6, 9]
    np.testing.assert_array_equal(theirs[b"data"], PIXELS)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("texts", [str, str.encode])
def test_a_batch_pickled_again_gives_the_same(protocol: int, order: Any, texts: Any) -> None:
    again = {texts(key): value for key, value in BATCH.items()} | {texts("data"): np.asarray(PIXELS, order=order)}
    read = read_pickle(pickle.dumps(again, protocol), "data_batch_1")
    np.testing.assert_array_equal(read["data"], PIXELS)
    assert read["labels"] == [6, 9]


@pytest.mark.parametrize("kind", ["u1", ">i2", "<i4", "<u8", "i8"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_integers_of_any_size_and_byte_order_are_read(kind: str, protocol: int) -> None:
    labels = np.array([0, 1, 100], kind)
    read = read_pickle(pickle.dumps({"labels": labels}, protocol), "x")
    np.testing.assert_array_equal(read["labels"], labels)
    assert read["labels"].dtype == labels.dtype


# what would run


class Calls:
    """Becomes a call when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def wicked(canary: Path) -> dict[str, bytes]:
    """Return pickles that would create a file, each in another way."""
    command = f"touch {canary}"
    system = Calls(os.system, command)
    text = f"S'{command}'\n".encode()
    word = b"\x8c" + bytes([len(command)]) + command.encode()
    by_protocol = {f"a call, protocol {n}": pickle.dumps({"data": system}, n) for n in range(pickle.HIGHEST_PROTOCOL + 1)}
    return by_protocol | {
        "alone": pickle.dumps(system, 2),
        "deep inside": pickle.dumps({"labels": [[{"x": (1, [system])}]]}, 4),
        "as a key": b"\x80\x02}cposix\nsystem\n(" + text + b"tRK\x01s.",
        "after the batch": as_in_2009()[:-1] + b"0cposix\nsystem\n(" + text + b"tR.",
        "behind the end": as_in_2009() + b"cposix\nsystem\n(" + text + b"tR.",
        "in an array of objects": pickle.dumps({"data": np.array([system, 1], dtype=object)}, 2),
        "in an array of objects, protocol 5": pickle.dumps({"data": np.array([system, 1], dtype=object)}, 5),
        "as the state of a dtype": b"\x80\x02cnumpy\ndtype\nU\x02u1K\x00K\x01\x87Rcposix\nsystem\n(" + text + b"tRb.",
        "instead of an array": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncposix\nsystem\n" + text + b"\x86R.",
        "eval": pickle.dumps({"data": Calls(eval, f"__import__('os').system('{command}')")}, 4),
        "exec": pickle.dumps({"data": Calls(exec, f"import os; os.system('{command}')")}, 2),
        "getattr": b"\x80\x02c__builtin__\ngetattr\n(cos\npath\nU\x06systemtR.",
        "stack global": b"\x80\x04\x8c\x05posix\x8c\x06system\x93" + word + b"\x85R.",
        "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__init__\x93.",
        "numpy's own runner": b"\x80\x02cnumpy.testing\nrundocs\n" + text + b"\x85R.",
        "copyreg": b"\x80\x02ccopyreg\n_reconstructor\n(cposix\nsystem\nc__builtin__\nobject\nNtR.",
        "inst": b"(" + text + b"iposix\nsystem\n.",
        "obj": b"(cposix\nsystem\n" + text + b"o.",
        "newobj": b"\x80\x02csubprocess\nPopen\n" + text + b"\x85\x81.",
        "newobj with keywords": b"\x80\x04\x8c\nsubprocess\x8c\x05Popen\x93" + word + b"\x85}\x92.",
        "extension": b"\x80\x02\x82\xf0" + text + b"\x85R.",
        "extension of two bytes": b"\x80\x02\x83\xf0\x00" + text + b"\x85R.",
        "persistent": b"\x80\x02" + text + b"Q.",
        "persistent by name": b"Psomething\n.",
        "build on a name": b"\x80\x02cnumpy\ndtype\n}U\x08__init__cposix\nsystem\nsb.",
        "out of band": b"\x80\x05\x97.",
    }


@pytest.fixture
def extension() -> Iterator[None]:
    """Register os.system as a pickle extension, and load it once into the cache of extensions."""
    copyreg.add_extension("posix", "system", 240)
    with contextlib.suppress(Exception):
        pickle.loads(b"\x80\x02\x82\xf0.")
    yield
    copyreg.remove_extension("posix", "system", 240)
    copyreg.clear_extension_cache()


@pytest.mark.parametrize("way", wicked(Path("nowhere")))
@pytest.mark.usefixtures("extension")
def test_a_pickle_that_would_run_something_is_refused_and_runs_nothing(way: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    refused(wicked(canary)[way])
    assert not canary.exists()


@pytest.mark.parametrize("way", ["a call, protocol 2", "stack global", "extension", "in an array of objects", "inst", "eval"])
@pytest.mark.usefixtures("extension")
def test_the_same_pickles_run_code_with_pickle_load(way: str, tmp_path: Path) -> None:
    with contextlib.suppress(Exception):
        pickle.loads(wicked(tmp_path / "canary")[way])
    assert (tmp_path / "canary").exists()


def test_the_error_names_the_forbidden_function() -> None:
    reason = refused(pickle.dumps(Calls(os.system, "true"), 2))
    assert "refers to the Python object 'posix.system', which is not allowed; expected a pickle of arrays" in reason
    assert "Nothing in it was run." in reason
    assert "holds the pickle instruction BINPERSID" in refused(b"\x80\x02K\x01Q.")
    assert "has 3 bytes after the end of the pickle" in refused(as_in_2009() + b"abc")
    assert "holds no dict" in refused(pickle.dumps([1]))


def test_a_long_name_with_special_characters_is_shortened_and_quoted() -> None:
    name = "\x1b[31m\n" + "x" * 10_000
    assert r"\x1b[31m\n" in refused(b"\x80\x04" + pickle.dumps(name, 4)[2:-2] + b"\x8c\x01y\x93.")


# what would fill the memory

ABSURD = {
    "more bytes than there are": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"abc.",
    "a longer word than there is": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"abc.",
    "a number of a gigabyte": b"\x80\x02\x8b" + struct.pack("<I", 1 << 30) + b"abc.",
    "an array of a petabyte": b"\x80\x02}U\x04data"
    + as_in_2009()
    .split(b"data", 1)[1]
    .split(b"U\x09filenames")[0]
    .replace(b"K\x02K\x0c\x86", b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86")
    + b"s.",
    "lists in lists in lists": b"\x80\x02" + b"]" * 20_000 + b"a" * 19_999 + b".",
}


@pytest.mark.parametrize("bomb", ABSURD)
def test_absurd_sizes_are_refused_before_any_allocation(bomb: str) -> None:
    tracemalloc.start()
    refused(ABSURD[bomb])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10e6


@pytest.mark.parametrize("blob", [b"\x80\x02}r\xff\xff\xff\xff.", b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"}."])
def test_a_huge_memo_index_or_frame_size_allocates_nothing(blob: bytes) -> None:
    assert read_pickle(blob, "x") == {}


def test_more_instructions_than_any_batch_has_are_refused() -> None:
    assert f"has more than {MAX_INSTRUCTIONS} pickle instructions" in refused(b"\x80\x02" + b"N" * MAX_INSTRUCTIONS)


@pytest.mark.parametrize("shape", [(3, 12), (2, 11), (2, -12), (1 << 70, 0), (0,)])
def test_an_array_whose_shape_does_not_fit_its_bytes_is_refused(shape: tuple[int, ...]) -> None:
    from_buffer = PIXELS.__reduce_ex__(5)[0]
    refused(pickle.dumps({"data": Calls(from_buffer, PIXELS.tobytes(), np.dtype("u1"), shape, "C")}, 4))


@pytest.mark.parametrize(
    "value", [1.5, None.__class__, {1, 2}, 1 << 80, np.float32(1), np.array([1.5]), np.array(["a"]), "a" < "b"]
)
def test_other_pickle_content_is_refused_or_a_harmless_value(value: Any) -> None:
    blob = pickle.dumps({"labels": [value]}, 4)
    if isinstance(value, bool):
        assert read_pickle(blob, "x") == {"labels": [True]}
    else:
        refused(blob)


# what is damaged


@pytest.mark.parametrize("end", range(0, len(as_in_2009()), 7))
def test_a_truncated_batch_is_a_clear_error(end: int) -> None:
    refused(as_in_2009()[:end])


def read_or_refused(blob: bytes) -> None:
    with contextlib.suppress(DataError):
        assert isinstance(read_pickle(blob, "data_batch_1"), dict)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([as_in_2009(), *(pickle.dumps(BATCH, n) for n in range(6))]), st.data())
def test_changed_bytes_are_read_or_refused_and_nothing_else(blob: bytes, data: st.DataObject) -> None:
    changed = bytearray(blob)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not changed:
            break
    read_or_refused(bytes(changed))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([*"}](tReusb.K0q\x85\x86\x87\x93\x94NTU", "cnumpy\ndtype\n", "cnumpy\nndarray\n", "U\x02u1", "K\x01"])
    )
)
def test_instructions_in_any_order_are_read_or_refused(texts: list[str]) -> None:
    read_or_refused(b"\x80\x04" + "".join(texts).encode("latin-1") + b".")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(blob: bytes) -> None:
    read_or_refused(blob)
