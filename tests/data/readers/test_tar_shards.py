"""WebDataset shards: files of one name are one sample, and nothing outside the shard is read or written."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from samekind.data.readers.tar_shards import is_shard_folder, open_shards, read_samples
from samekind.errors import DataError


def shard(path: Path, files: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, blob in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(blob)
            archive.addfile(member, io.BytesIO(blob))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return path


def test_files_of_one_name_are_one_sample(tmp_path: Path) -> None:
    files = {"a/1.jpg": b"J", "a/1.cls": b"3\n", "a/1.json": b'{"age": 4, "key": 9}', "a/2.txt": b"hello", "a/2.seg.png": b"P"}
    samples = list(read_samples(shard(tmp_path / "s.tar", files)))
    assert samples == [
        {"key": "a/1", "image": b"J", "label": "3", "age": 4},
        {"key": "a/2", "text": "hello", "image": b"P"},
    ]


def test_links_and_other_files_are_ignored(tmp_path: Path) -> None:
    path = shard(tmp_path / "s.tar", {"1.png": b"P", "1.bin": b"B", "README": b"R"}, {"1.cls": "../secret", "2.png": "/secret"})
    assert list(read_samples(path)) == [{"key": "1", "image": b"P"}]


def test_the_shards_of_a_folder_are_one_table_in_the_order_of_their_names(tmp_path: Path) -> None:
    shard(tmp_path / "b.tar", {"2.txt": b"second", "2.cls": b"x"})
    shard(tmp_path / "a.tar", {"1.txt": b"first"})
    assert is_shard_folder(tmp_path)
    blocks = open_shards(tmp_path)
    (block,) = blocks
    assert blocks.header == ["key", "text", "label"]
    assert block.features("text") == ["first", "second"] and block.values("label") == [None, "x"]


def test_a_folder_with_images_beside_the_shards_is_no_shard_folder(tmp_path: Path) -> None:
    shard(tmp_path / "a.tar", {"1.txt": b"first"})
    (tmp_path / "1.png").touch()
    assert not is_shard_folder(tmp_path)


def test_a_cut_shard_is_refused(tmp_path: Path) -> None:
    path = shard(tmp_path / "s.tar", {"1.png": bytes(5000)})
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"s\.tar"):
        list(read_samples(path))
