"""Array files: accepted names and shapes, and refused pickled objects."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samekind.data.readers import array_file
from samekind.data.readers.array_file import read_array_file
from samekind.errors import DataError, LabelError

X = np.arange(12, dtype=np.float32).reshape(4, 3)


class Trap:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["TRAP"],)


@pytest.mark.parametrize(("x", "y"), [("X", "y"), ("x", "y"), ("images", "labels"), ("data", "target"), ("arr_0", "arr_1")])
def test_the_usual_array_names_are_accepted(tmp_path: Path, x: str, y: str) -> None:
    parts: dict[str, Any] = {x: X, y: np.array([0, 1, -1, -1]), "other": np.zeros(2)}
    np.savez(tmp_path / "a.npz", **parts)
    read = read_array_file(tmp_path / "a.npz")
    assert np.array_equal(read.x, X)
    assert read.y.tolist() == [0, 1, None, None]
    assert read.names == ("0", "1", "2", "3")


def test_sample_names_are_kept_and_used_by_a_label_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X, y=np.zeros(4), names=np.array(["a", "b", "c", "d"]))
    (tmp_path / "l.csv").write_text("id,label\nc,cat\n")
    read = read_array_file(tmp_path / "a.npz", tmp_path / "l.csv")
    assert read.names == ("a", "b", "c", "d")
    assert read.y.tolist() == [None, None, "cat", None]


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.array(["cat", "", "dog", "-1"]), ["cat", None, "dog", None]),
        (np.array([b"cat", b"", b"dog", b""]), ["cat", None, "dog", None]),
        (np.array([1.0, np.nan, 0.0, -1.0]), [1, None, 0, None]),
        (np.array([[1], [0], [-1], [1]]), [1, 0, None, 1]),
        (np.array([True, False, True, True]), [True, False, True, True]),
    ],
)
def test_y_holds_text_or_integers_with_missing_labels(tmp_path: Path, y: Any, expected: list[Any]) -> None:
    np.savez(tmp_path / "a.npz", X=X, y=y)
    assert read_array_file(tmp_path / "a.npz").y.tolist() == expected


def test_a_npy_file_is_memory_mapped_and_gets_labels_from_a_csv_file_or_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "l.csv").write_text("row,label\n2,cat\n9,dog\n")
    np.save(tmp_path / "y.npy", np.array([0, -1, -1, 1]))
    read = read_array_file(tmp_path / "a.npy", tmp_path / "l.csv")
    assert isinstance(read.x, np.memmap)
    assert read.y.tolist() == [None, None, "cat", None]
    assert [one.path for one in read.skipped] == ["9"]
    assert read_array_file(tmp_path / "a.npy", tmp_path / "y.npy").y.tolist() == [0, None, None, 1]
    assert read_array_file(tmp_path / "a.npy").y.tolist() == [None] * 4


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((4, 9), (9,)), ((4, 5, 6), (5, 6, 1)), ((4, 5, 6, 3), (5, 6, 3)), ((4, 3, 5, 6), (5, 6, 3)), ((4, 1, 5, 5), (5, 5, 1))],
)
def test_images_come_out_with_channels_last(tmp_path: Path, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    images = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    np.save(tmp_path / "a.npy", images)
    read = read_array_file(tmp_path / "a.npy").x
    assert read.shape == (4, *expected)
    if shape == (4, 3, 5, 6):
        assert read[1, 2, 3, 0] == images[1, 0, 2, 3]


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_pickled_objects_are_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TRAP", str(tmp_path / "sprung"))
    trapped = np.array([[Trap()]], dtype=object)
    if name == "a.npy":
        np.save(tmp_path / name, trapped)
    else:
        np.savez(tmp_path / name, X=trapped)
    with pytest.raises(DataError, match=r"objects are not loaded.*Save numbers as numbers"):
        read_array_file(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"a": X, "b": X}, "holds a, b; expected X and y"),
        ({"X": np.array([["a"]])}, "is of type <U1; expected numbers"),
        ({"X": np.arange(3)}, "has the shape (3,); expected samples"),
        ({"X": np.zeros((0, 3))}, "has the shape (0, 3); expected samples"),
        ({"X": np.zeros((1, 1, 1, 1, 1))}, "expected samples"),
        ({"X": X, "y": np.zeros(3)}, "y in A has the shape (3,), but X has 4 samples"),
        ({"X": X, "y": np.full(4, 0.5)}, "holds fractions, like a regression target"),
        ({"X": X, "names": np.array(["a"])}, "names of shape (1,)"),
    ],
)
def test_unusable_arrays_are_a_clear_error(tmp_path: Path, parts: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **parts)
    with pytest.raises((DataError, LabelError)) as error:
        read_array_file(tmp_path / "a.npz")
    assert message in str(error.value).replace(str(tmp_path / "a.npz"), "A")


@pytest.mark.parametrize("blob", [b"", b"text", b"\x93NUMPY\x01\x00", b"PK\x03\x04broken"])
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_damaged_files_are_refused(tmp_path: Path, blob: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(blob)
    with pytest.raises(DataError, match=r"cannot be read|or no array"):
        read_array_file(tmp_path / name)


def test_npy_and_npz_files_are_recognized_with_the_wrong_suffix(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X)
    np.save(tmp_path / "b.npy", X)
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    assert np.array_equal(read_array_file(tmp_path / "a.npy").x, X)
    assert np.array_equal(read_array_file(tmp_path / "b.npz").x, X)


def npy(header: str, data: bytes = bytes(96)) -> bytes:
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode() + data


@pytest.mark.parametrize(
    "header",
    [
        "{'descr':'<f8','fortran_order':False,'shape':(4611686018427387904,4)}",
        "{'descr':'<f8','fortran_order':False,'shape':(True,3)}",
        "{'descr':'<f8','fortran_order':False,'shape':(-1,3)}",
        "{'descr':'<f8','fortran_order':False,'shape':(" + "9" * 4500 + ",)}",
        "{'descr':(),'fortran_order':False,'shape':(4,3)}",
        "{[]:1}",
        "{'a':" * 300,
        "1+" * 3000 + "1",
    ],
)
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_an_odd_header_is_refused_before_memory_is_taken(tmp_path: Path, header: str, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "npy":
        path.write_bytes(npy(header))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("X.npy", npy(header))
    with pytest.raises(DataError, match=r"a\.np. cannot be read") as raised:
        read_array_file(path)
    assert len(str(raised.value)) < 800


def test_a_zip_bomb_is_refused_by_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 100)))
    assert read_array_file(tmp_path / "a.npz").x.shape == (1000, 100)
    monkeypatch.setattr(array_file, "MAX_UNCHECKED", 1000)
    with pytest.raises(DataError, match="unpack to 800128, like a zip bomb"):
        read_array_file(tmp_path / "a.npz")


def test_a_member_that_is_no_array_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X", b"text")
    with pytest.raises(DataError, match=r"cannot be read \(the member X is not an array\)"):
        read_array_file(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["pipe.npy", "folder.npy", "a" * 300 + ".npy", "a\0.npy", "loop.npy"])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "loop.npy").symlink_to("loop.npy")
    with pytest.raises(DataError, match=r"is not a regular file|cannot be opened"):
        read_array_file(tmp_path / name)
