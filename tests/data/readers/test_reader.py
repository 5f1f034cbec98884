"""The readers by suffix: a module that defines READER is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from samekind.data.readers.reader import Skipped, find_reader, raise_on_skipped, readers_by_suffix
from samekind.errors import DataError


def test_every_format_is_found_by_its_suffix() -> None:
    assert {".csv", ".npy", ".npz", ".parquet", ".pq", ".tsv"} <= set(readers_by_suffix())
    for suffix, reader in readers_by_suffix().items():
        assert suffix in reader.suffixes
        assert find_reader(Path(f"folder/DATA{suffix.upper()}")) is reader


def test_a_file_of_another_type_has_no_reader() -> None:
    assert find_reader(Path("notes.doc")) is None
    assert find_reader(Path("folder.npy/file")) is None


def test_the_first_skipped_file_raises_with_its_reason() -> None:
    raise_on_skipped([])
    with pytest.raises(DataError, match=r"'a\\nb.png': empty file\. Repair or remove it"):
        raise_on_skipped([Skipped("a\nb.png", "empty file"), Skipped("c.png", "damaged")])
