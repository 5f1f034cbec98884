"""Folders of .txt files, with labels as for images, and files that are no text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samekind.data.readers.reader import UserData
from samekind.data.user_data import open_data, open_like
from samekind.errors import DataError


def plant(root: Path, **texts: str | bytes) -> Path:
    """Write files; "a__b" stands for a/b.txt."""
    for name, text in texts.items():
        path = root / f"{name.replace('__', '/')}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def read(root: Path, *, strict: bool = False) -> UserData:
    return open_data(root, cache=root.parent / "cache", strict=strict)


def test_class_folders_give_labels(tmp_path: Path) -> None:
    data = read(plant(tmp_path / "d", cold__1="Snow", hot__1="Sun", unlabelled__1="Fog"))
    assert data.x.tolist() == ["Snow", "Sun", "Fog"] and data.y.tolist() == ["cold", "hot", None]
    assert data.names == ("cold/1.txt", "hot/1.txt", "unlabelled/1.txt") and str(data.encoding) == "a folder of texts"


def test_a_label_file_gives_labels(tmp_path: Path) -> None:
    root = plant(tmp_path / "d", a="Snow", b="Sun")
    (root / "labels.csv").write_text("path,label\nb.txt,hot\nz.txt,cold\n")
    data = read(root)
    assert data.y.tolist() == [None, "hot"]
    assert str(data.skipped[0]) == "'z.txt': listed in line 3 of labels.csv, but there is no such text"


def test_new_texts_are_a_folder_one_file_a_list_or_a_table(tmp_path: Path) -> None:
    root = plant(tmp_path / "d", cold__1="Snow", hot__1="Sun")
    encoding = read(root).encoding
    (tmp_path / "t.csv").write_text("id,text\n5,Hail\n")
    for new in (root / "hot", root / "hot" / "1.txt", [root / "hot" / "1.txt"]):
        assert open_like(new, encoding).x.tolist() == ["Sun"]
    assert open_like(root, encoding).y.tolist() == [None, None]
    assert open_like(tmp_path / "t.csv", encoding).names == ("5",)


def test_files_that_are_no_text_are_skipped_with_the_reason(tmp_path: Path) -> None:
    root = plant(tmp_path / "d", a="Grüße", b=b"\x00\x01\x02", c="Grüße".encode("latin-1"), d="Grüße".encode("utf-16"))
    data = read(root)
    assert data.x.tolist() == ["Grüße", "Grüße"] and data.names == ("a.txt", "d.txt")
    assert [str(one) for one in data.skipped] == [
        "'b.txt': the file is not a text: it holds NUL bytes, like a binary file or UTF-16 without a byte order mark",
        "'c.txt': the file is not UTF-8 text (byte 0xfc at position 2); save it as UTF-8",
    ]
    with pytest.raises(DataError, match=r"b\.txt.*NUL bytes"):
        read(root, strict=True)
    with pytest.raises(DataError, match=r"none of the 1 texts can be read; the first is 'b\.txt'"):
        read(plant(tmp_path / "e", b=b"\x00"))


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    root = plant(tmp_path / "d", a="Snow")
    encoding = read(root).encoding
    os.mkfifo(tmp_path / "pipe.txt")
    data = open_like([root / "a.txt", tmp_path / "pipe.txt"], encoding)
    assert data.x.tolist() == ["Snow"] and "not a regular file" in str(data.skipped[0])
    with pytest.raises(DataError, match="not a regular file"):
        open_like(tmp_path / "pipe.txt", encoding)


def test_a_name_that_no_file_can_have_is_skipped(tmp_path: Path) -> None:
    root = plant(tmp_path / "d", a="Snow")
    data = open_like([root / "a.txt", root / "a\0b.txt"], read(root).encoding)
    assert data.x.tolist() == ["Snow"] and "null byte" in str(data.skipped[0])


def test_a_folder_with_an_image_is_a_folder_of_images(tmp_path: Path) -> None:
    root = plant(tmp_path / "d", a="a note on 1.png")
    (root / "1.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="none of the 1 images can be read"):
        read(root)
