"""Images given as a list of paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samekind.data.readers.path_list import LazyImages, parse_path_list, read_path_list
from samekind.data.target_shape import PreferredSide, target_shape
from samekind.errors import DataError


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Return five images of 6 x 4 pixels with constant grey levels 0, 10, 20, 30 and 40."""
    paths = [tmp_path / f"{k}.png" for k in range(5)]
    for k, path in enumerate(paths):
        Image.fromarray(np.full((4, 6), 10 * k, np.uint8)).save(path)
    return paths


def test_paths_are_recognized_in_lists_tuples_and_arrays(files: list[Path]) -> None:
    strings = [str(path) for path in files]
    for X in (files, tuple(files), strings, np.array(strings), np.array(files, dtype=object)):
        assert parse_path_list(X) == files


def test_an_existing_file_without_suffix_is_a_path(files: list[Path]) -> None:
    bare = files[0].rename(files[0].with_suffix(""))
    assert parse_path_list([bare]) == [bare]


@pytest.mark.parametrize("X", [[[1.0, 2.0]], np.zeros((3, 2)), np.zeros(3), [1, 2], [], ["a.png", None], [["a.png"]]])
def test_other_inputs_are_not_path_lists(X: Any) -> None:
    assert parse_path_list(X) is None


@pytest.mark.parametrize("X", [["good", "bad"], ["see x.jpg", "no", "yes"], ["http://a.b/c", "http://d"], ["a" * 9999], ["\0"]])
def test_other_strings_are_texts(X: Any) -> None:
    assert parse_path_list(X) is None


def test_missing_files_and_a_single_path_are_refused_with_advice(files: list[Path]) -> None:
    with pytest.raises(DataError, match=r"list of 2 paths that do not lead to images; the first is 'photos/1'"):
        parse_path_list(["photos/1", "photos/2"])
    with pytest.raises(DataError, match=r"X is one path .* expected a list"):
        parse_path_list(files[0])


def test_slices_are_decoded_on_access(files: list[Path]) -> None:
    images = LazyImages(files, (4, 4, 1))
    files[4].unlink()
    assert len(images) == 5
    assert images[1:3].shape == (2, 4, 4, 1)
    assert images[1:3][:, 0, 0, 0].tolist() == [10, 20]
    with pytest.raises(DataError, match=r"4\.png': no such file"):
        images[3:5]


def test_cached_images_are_a_memory_map_with_the_size_chosen_for_folders(files: list[Path], tmp_path: Path) -> None:
    x = read_path_list(files, target_shape("auto", "auto"), tmp_path / "cache")
    assert isinstance(x, np.memmap) and x.shape == (5, 4, 6, 1) and x.dtype == np.uint8
    assert x[:, 0, 0, 0].tolist() == [0, 10, 20, 30, 40]


def test_an_unreadable_image_raises_its_reason_and_nothing_is_cached(files: list[Path], tmp_path: Path) -> None:
    files[2].write_text("no image")
    with pytest.raises(DataError, match=r"2\.png': text, not an image\. Repair the file"):
        read_path_list(files, target_shape("auto", "auto"), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("images-*"))


def test_an_image_that_an_earlier_call_skipped_is_still_an_error(files: list[Path], tmp_path: Path) -> None:
    from samekind.data.user_data import open_data

    files[2].write_text("no image")
    open_data(tmp_path, cache=tmp_path / "cache")
    with pytest.raises(DataError, match=r"2\.png': text, not an image"):
        read_path_list(files, target_shape("auto", "auto"), tmp_path / "cache")


@pytest.mark.parametrize(("side", "expected"), [(8, (4, 6, 1)), (6, (4, 6, 1)), (5, (5, 5, 1))])
def test_for_an_encoder_small_images_keep_their_size_and_others_get_its_side(
    files: list[Path], tmp_path: Path, side: int, expected: tuple[int, int, int]
) -> None:
    assert read_path_list(files, target_shape(PreferredSide(side), "auto"), tmp_path / "cache").shape[1:] == expected


def test_for_an_encoder_images_of_many_sizes_get_its_side(files: list[Path], tmp_path: Path) -> None:
    for k, path in enumerate(files):
        Image.fromarray(np.zeros((10 + k, 20), np.uint8)).save(path)
    assert read_path_list(files, target_shape(PreferredSide(16), "auto"), tmp_path / "cache").shape[1:] == (16, 16, 1)
