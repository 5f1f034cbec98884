"""User data from files to arrays, and new data read in the same way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samekind.data.readers.reader import Encoding, Skipped, UserData
from samekind.data.target_shape import PreferredSide
from samekind.data.user_data import open_data, open_like
from samekind.errors import DataError, LabelError, SettingError


def plant(root: Path, sizes: dict[str, tuple[int, int]], mode: str = "RGB") -> Path:
    """Write images of one grey level each, by name and (width, height)."""
    for i, (name, size) in enumerate(sizes.items()):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, i * 10 if mode == "L" else (i * 10, 0, 0)).save(root / name)
    return root


def image_folder(root: Path, n: int = 4, size: tuple[int, int] = (6, 5), mode: str = "RGB") -> Path:
    return plant(root, {f"{i}.png": size for i in range(n)}, mode)


def opened(path: Path, **how: Any) -> UserData:
    return open_data(path, cache=path.parent / "cache", **how)


# ---------------------------------------------------------------- images


def test_a_folder_with_fifty_labels_and_the_rest_without(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "photos")
    (root / "labels.csv").write_text("path,label\n2.png,cat\n0.png,dog\n")
    data = opened(root)
    assert data.kind == "images" and len(data) == 4
    assert data.x.shape == (4, 5, 6, 3) and data.x.dtype == np.uint8 and isinstance(data.x, np.memmap)
    assert data.x[:, 0, 0, 0].tolist() == [0, 10, 20, 30]
    assert data.y.tolist() == ["dog", None, "cat", None]
    assert data.names == ("0.png", "1.png", "2.png", "3.png")
    assert data.skipped == ()


def test_labels_from_elsewhere_replace_those_in_the_folder(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "photos")
    (root / "labels.csv").write_text("path,label\n2.png,cat\n")
    (tmp_path / "mine.tsv").write_text("label\tpath\nowl\tphotos/1.png\n")
    assert opened(root, labels=tmp_path / "mine.tsv").y.tolist() == [None, "owl", None, None]
    assert opened(root, labels=str(tmp_path / "mine.tsv")).y.tolist() == [None, "owl", None, None]


def test_class_folders_and_a_folder_of_unlabelled_images(tmp_path: Path) -> None:
    root = plant(tmp_path / "p", dict.fromkeys(["cat/1.png", "dog/1.png", "unlabelled/1.png", "2.png"], (3, 3)))
    data = opened(root)
    assert dict(zip(data.names, data.y, strict=True)) == {
        "2.png": None,
        "cat/1.png": "cat",
        "dog/1.png": "dog",
        "unlabelled/1.png": None,
    }


def test_unreadable_images_are_skipped_and_labels_stay_with_their_images(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "photos")
    (root / "1.png").write_text("no image")
    (root / "b.png").symlink_to("gone")
    (root / "labels.csv").write_text("path,label\n1.png,owl\n2.png,cat\n9.png,dog\n")
    data = opened(root)
    assert data.names == ("0.png", "2.png", "3.png") and data.y.tolist() == [None, "cat", None]
    assert data.skipped == (
        Skipped("b.png", "a link that leads nowhere ('gone')"),
        Skipped("1.png", "text, not an image"),
        Skipped("9.png", "listed in line 4 of labels.csv, but there is no such image"),
    )


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("trouble", ["file", "link", "label"])
def test_strict_raises_for_the_first_skipped_file_also_from_the_cache(tmp_path: Path, trouble: str, warm: bool) -> None:
    root = image_folder(tmp_path / "photos")
    if trouble == "file":
        (root / "1.png").write_bytes(b"")
    elif trouble == "link":
        (root / "1b.png").symlink_to("gone")
    else:
        (root / "labels.csv").write_text("path,label\n0.png,cat\n1c.png,cat\n")
    if warm:
        opened(root)
    with pytest.raises(DataError, match=r"'1.?\.png': .*Repair or remove it, or read without strict"):
        opened(root, strict=True)


def test_a_folder_without_readable_images_is_refused_with_the_first_reason(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=r"none of the 1 images can be read; the first is 'a\.jpg': empty file"):
        opened(tmp_path / "p")


# ---------------------------------------------------------------- size and channels


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(28, 28)] * 3, (28, 28)),
        ([(96, 20)] * 3, (20, 96)),
        ([(1, 1)] * 2, (1, 1)),
        ([(97, 97)] * 3, (64, 64)),
        ([(30, 40), (40, 30), (47, 200)], (32, 32)),
        ([(48, 100), (100, 48), (300, 200)], (64, 64)),
        ([(28, 28)] * 9 + [(500, 400)], (28, 28)),
        ([(28, 28)] * 8 + [(500, 400)], (32, 32)),
    ],
)
def test_the_size_is_chosen_from_the_images(tmp_path: Path, sizes: list[tuple[int, int]], expected: tuple[int, int]) -> None:
    root = plant(tmp_path / "p", {f"{i}.png": size for i, size in enumerate(sizes)})
    assert opened(root).x.shape[1:3] == expected


def test_a_size_can_be_given(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "p")
    assert opened(root, size=8).x.shape == (4, 8, 8, 3)
    assert opened(root, size=(4, 7), channels=1).x.shape == (4, 4, 7, 1)


def test_grey_images_have_one_channel_unless_one_is_in_colour(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "p", mode="L")
    assert opened(root).x.shape == (4, 5, 6, 1)
    assert opened(root, channels=3).x.shape == (4, 5, 6, 3)
    Image.new("RGB", (6, 5)).save(root / "z.png")
    assert opened(root).x.shape == (5, 5, 6, 3)


@pytest.mark.parametrize("how", [{"size": 0}, {"size": "big"}, {"size": (3, 4, 5)}, {"size": 2.5}, {"channels": 2}])
def test_settings_out_of_range_are_refused(tmp_path: Path, how: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=r"(size|channels) is .*; expected 'auto'"):
        opened(image_folder(tmp_path / "p"), **how)


# ---------------------------------------------------------------- arrays and tables


def test_open_data_reads_arrays_and_tables(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.eye(3), y=np.array([0, 1, -1]))
    (tmp_path / "a.csv").write_text("name,u,v,w,label\na,1,0,0,x\nb,0,1,0,\nc,,1,0,x\n")
    array, table = opened(tmp_path / "a.npz"), opened(tmp_path / "a.csv")
    assert array.kind == table.kind == "vectors"
    assert array.y.tolist() == [0, 1, None] and table.y.tolist() == ["x", None, "x"]
    assert table.names == ("a", "b", "c") and table.skipped == ()
    (tmp_path / "a.csv").write_text("name,u,v,label\na,1,0,x\nb,0,1,,7\n")
    with pytest.raises(DataError, match="'b': line 3: 5 cells; expected 4"):
        opened(tmp_path / "a.csv", strict=True)
    assert not (tmp_path / "cache").exists()


def test_an_array_of_images_is_images(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 8, 8), np.uint8))
    data = opened(tmp_path / "a.npy")
    assert data.kind == "images" and data.x.shape == (2, 8, 8, 1) and data.encoding.dtype == "uint8"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone", "does not exist. Expected a folder of images"),
        ("a.png", "It is one image: pass the folder that holds it"),
        ("a.zip", "Unpack it, and pass the folder"),
        ("a.xlsx", "Save the table as CSV UTF-8"),
        ("a.doc", "cannot be read; expected a folder of images"),
    ],
)
def test_unknown_formats_are_refused_with_advice(tmp_path: Path, name: str, message: str) -> None:
    if name != "gone":
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError) as error:
        opened(tmp_path / name)
    assert message in str(error.value)


def test_size_and_channels_are_for_images_only(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(SettingError, match="size and channels apply only to a folder of images"):
        opened(tmp_path / "a.csv", size=8)


def test_the_label_column_of_a_table_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,kind\n1,x\n2,y\n")
    assert opened(tmp_path / "a.csv", label_column="kind").y.tolist() == ["x", "y"]
    with pytest.raises(LabelError, match="no column 'sort'"):
        opened(tmp_path / "a.csv", label_column="sort")


# ---------------------------------------------------------------- the same way again


def test_new_images_are_read_in_the_size_and_colours_of_the_fit(tmp_path: Path) -> None:
    encoding = opened(image_folder(tmp_path / "p", mode="L")).encoding
    new = plant(tmp_path / "new", {"cat/a.png": (60, 50), "b.jpg": (7, 7)})
    for cache in (None, tmp_path / "cache"):
        data = open_like(new, encoding, cache=cache)
        assert data.x.shape == (2, 5, 6, 1) and data.encoding == encoding
        assert data.names == ("b.jpg", "cat/a.png") and data.y.tolist() == [None, None]
        assert isinstance(data.x, np.memmap) == (cache is not None)


def test_one_image_and_a_list_of_images_are_read_too(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "p")
    data = opened(root)
    one = open_like(root / "2.png", data.encoding)
    assert np.array_equal(one.x, data.x[2:3]) and one.names == (str(root / "2.png"),)
    some = open_like([str(root / "3.png"), root / "gone.png", root / "0.png"], data.encoding)
    assert np.array_equal(some.x, data.x[[3, 0]])
    assert [str(one) for one in some.skipped] == [f"{str(root / 'gone.png')!r}: no such file or directory"]
    with pytest.raises(DataError, match="list of images is empty"):
        open_like([], data.encoding)
    with pytest.raises(DataError, match=r"gone.png': no such file"):
        open_like([root / "gone.png", root / "0.png"], data.encoding, strict=True)


def test_labels_of_new_images_are_read_from_a_given_file(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "p")
    (root / "labels.csv").write_text("path,label\n0.png,cat\n")
    encoding = opened(root).encoding
    assert open_like(root, encoding).y.tolist() == [None] * 4
    assert open_like(root, encoding, labels=root / "labels.csv").y.tolist() == ["cat", None, None, None]


def test_new_rows_of_a_table_are_read_by_their_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,colour,label\n1,red,x\n2,blue,y\n")
    encoding = opened(tmp_path / "a.csv").encoding
    (tmp_path / "b.csv").write_text("colour,a\nblue,5\n")
    (tmp_path / "c.csv").write_text("a,b\n1,2\n")
    new = open_like(tmp_path / "b.csv", encoding).x
    assert new.columns["a"].values.tolist() == [5] and new.columns["colour"].values.tolist() == ["blue"]
    assert open_like(tmp_path / "b.csv", encoding).encoding == encoding
    with pytest.raises(DataError, match="lacks 1 of the 2 columns that the model was fitted on: colour"):
        open_like(tmp_path / "c.csv", encoding)


def test_new_rows_of_an_array_must_have_the_same_width(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 7)))
    np.save(tmp_path / "b.npy", np.ones((2, 7), np.int8))
    np.save(tmp_path / "c.npy", np.ones((2, 6)))
    encoding = opened(tmp_path / "a.npy").encoding
    assert open_like(tmp_path / "b.npy", encoding).x.shape == (2, 7)
    with pytest.raises(DataError, match=r"fitted on an array with 7 columns, and .*c.npy holds an array with 6 columns"):
        open_like(tmp_path / "c.npy", encoding)


def test_uint8_and_float_images_are_not_mixed(tmp_path: Path) -> None:
    encoding = opened(image_folder(tmp_path / "p")).encoding
    np.save(tmp_path / "bytes.npy", np.zeros((2, 5, 6, 3), np.uint8))
    np.save(tmp_path / "fractions.npy", np.zeros((2, 5, 6, 3), np.float32))
    assert len(open_like(tmp_path / "bytes.npy", encoding)) == 2
    with pytest.raises(DataError, match=r"fitted on images of 5 x 6 pixels, colour, and .* holds an array of float32 images"):
        open_like(tmp_path / "fractions.npy", encoding)
    fractions = opened(tmp_path / "fractions.npy").encoding
    with pytest.raises(DataError, match=r"fitted on an array of float32 images .*, but .* holds uint8 images"):
        open_like(tmp_path / "p", fractions)
    assert len(open_like(tmp_path / "p", opened(tmp_path / "bytes.npy").encoding)) == 4


def test_another_kind_of_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    table, images = opened(tmp_path / "a.csv").encoding, opened(image_folder(tmp_path / "p")).encoding
    with pytest.raises(DataError, match=r"fitted on a table with 1 columns, but .*p holds uint8 images"):
        open_like(tmp_path / "p", table)
    with pytest.raises(DataError, match=r"fitted on images of 5 x 6 pixels, colour, and .*a.csv is a table"):
        open_like(tmp_path / "a.csv", images)
    with pytest.raises(DataError, match="does not exist"):
        open_like(tmp_path / "gone", images)


def test_the_encoding_survives_json(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,a,colour,label\nu,1,red,x\nv,2,blue,y\n")
    for path in (tmp_path / "a.csv", image_folder(tmp_path / "p")):
        encoding = opened(path).encoding
        assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding
    with pytest.raises(DataError, match="the description of the data is not valid"):
        Encoding.from_json({"kind": "images"})


# ---------------------------------------------------------------- beside torch


def test_reading_data_does_not_load_torch() -> None:
    code = "import sys, samekind.data.user_data; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_side_of_an_encoder_is_ignored_for_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 9, 9), np.uint8))
    assert open_data(tmp_path / "x.npy", size=PreferredSide(4), cache=tmp_path / "cache").x.shape[1:3] == (9, 9)


@pytest.mark.parametrize("name", ["a" * 300, "nul\0name", "a/" * 3000])
def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"cannot be opened \(.*\)\. Expected a folder of images") as raised:
        open_data(tmp_path / name, cache=tmp_path / "cache")
    assert len(str(raised.value)) < 600
