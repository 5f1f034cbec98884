"""Files of the data folder: which are opened, and that a swapped file never shows what is outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from samekind.errors import RequestError
from samekind.server.media.data_files import open_data_file, open_regular_file, stat_data_file
from samekind.server.media.thumbnails import file_source
from samekind.server.store.content_hashes import file_sha256

INSIDE, OUTSIDE = (0, 0, 255), (255, 0, 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with sub/a.png, beside another folder with the same file in another color."""
    for folder, color in (("photos", INSIDE), ("outside", OUTSIDE)):
        (tmp_path / folder / "sub").mkdir(parents=True)
        Image.new("RGB", (8, 8), color).save(tmp_path / folder / "sub" / "a.png")
    return tmp_path / "photos"


def refused(root: Path, name: str) -> None:
    for act in (open_data_file, stat_data_file):
        with pytest.raises(RequestError) as error:
            act(root, name)
        assert error.value.status == 404


def test_a_file_is_opened_and_has_its_size(root: Path) -> None:
    with open_data_file(root, "sub/a.png") as file:
        assert len(file.read()) == stat_data_file(root, "sub/a.png").st_size


@pytest.mark.parametrize("name", ["../outside/sub/a.png", "sub/../../outside/sub/a.png", "", ".", "sub", "a\0b", "sub/a.png/b"])
def test_a_name_that_is_no_file_of_the_folder_is_refused(root: Path, name: str) -> None:
    refused(root, name)
    refused(root, str(root.parent / "outside" / "sub" / "a.png"))


def test_a_link_to_a_file_or_folder_outside_is_refused(root: Path) -> None:
    (root / "file.png").symlink_to(root.parent / "outside" / "sub" / "a.png")
    (root / "folder").symlink_to(root.parent / "outside")
    (root / "loop.png").symlink_to("loop.png")
    for name in ("file.png", "folder/sub/a.png", "loop.png"):
        refused(root, name)


def test_a_link_that_stays_inside_is_followed_also_from_a_linked_folder(root: Path) -> None:
    (root / "file.png").symlink_to("sub/a.png")
    (root / "folder").symlink_to(root / "sub")
    (root.parent / "link").symlink_to(root)
    for name in ("file.png", "folder/a.png", "sub/a.png"):
        with open_data_file(root.parent / "link", name) as file:
            assert Image.open(file).getpixel((0, 0)) == INSIDE


def test_what_is_no_regular_file_is_refused_at_once(root: Path) -> None:
    os.mkfifo(root / "fifo.png")
    (root / "device.png").symlink_to("/dev/zero")
    for name in ("fifo.png", "device.png"):
        refused(root, name)
        assert file_sha256(str(root / name)) is None
        with pytest.raises(OSError, match="not a regular file"):
            open_regular_file(root / name)


@pytest.mark.parametrize("swapped", ["sub/a.png", "sub"])
def test_a_file_that_is_swapped_for_a_link_after_the_check_shows_nothing_from_outside(root: Path, swapped: str) -> None:
    source = file_source(root, "sub/a.png")
    (root / swapped).rename(root / "kept")
    (root / swapped).symlink_to(root.parent / "outside" / swapped)
    with pytest.raises(RequestError, match="does not exist any more"):
        source.load(64)
    (root / swapped).unlink()
    (root / "kept").rename(root / swapped)
    assert source.load(64).getpixel((0, 0)) == INSIDE


def test_a_file_that_is_replaced_after_the_check_is_not_stored_under_its_old_key(root: Path) -> None:
    source = file_source(root, "sub/a.png")
    Image.new("RGB", (9, 9), OUTSIDE).save(root / "sub" / "a.png")
    with pytest.raises(RequestError, match="was replaced"):
        source.load(64)
