"""Reader of WebDataset shards: .tar files, or a folder of .tar files.

shards/train-000.tar
  0001.jpg  0001.cls  0001.json     image, class, and further columns
  0002.jpg  0002.cls  0002.json

Nothing is unpacked to the disk; links, devices and files with other suffixes are ignored.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from samekind.data.columns.typed_table import Column
from samekind.data.readers.image_decoder import SUFFIXES
from samekind.data.readers.reader import require_regular_file, shorten
from samekind.data.readers.table import Cells, TableBlock, TableBlocks, table_reader
from samekind.errors import DataError

KEY, IMAGE, LABEL, TEXT = "key", "image", "label", "text"
LABEL_SUFFIXES, TEXT_SUFFIXES = (".cls", ".label"), (".txt", ".text")
BLOCK_SAMPLES = 256
MAX_BYTES = 200 << 20  # largest size of a file in a shard, in bytes; a larger one is refused
Sample = dict[str, Any]


@dataclass(frozen=True)
class _SampleBlock:
    rows: list[Sample]
    ragged: dict[int, str]

    def __len__(self) -> int:
        return len(self.rows)

    def features(self, column: str) -> Cells:
        if column == IMAGE:
            images = np.empty(len(self.rows), dtype=object)
            images[:] = self.values(IMAGE)
            return Column("image", images)
        return [_as_cell(value) for value in self.values(column)]

    def values(self, column: str) -> list[Any]:
        return [row.get(column) for row in self.rows]

    def where(self, i: int) -> str:
        return f"sample {shorten(self.rows[i][KEY], 80)}"


def _as_cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class _Shards:
    path: Path
    files: tuple[Path, ...]
    header: list[str]
    comma_decimals: bool = False

    def __iter__(self) -> Iterator[TableBlock]:
        samples = (sample for file in self.files for sample in read_samples(file))
        while block := list(islice(samples, BLOCK_SAMPLES)):
            yield _SampleBlock(block, {})


def is_shard_folder(path: Path) -> bool:
    """Return whether a folder holds .tar files and nothing else, except .json, .txt and .md files and hidden files."""
    names = [one.name.lower() for one in path.iterdir() if not one.name.startswith(".")]
    return any(name.endswith(".tar") for name in names) and all(
        name.endswith((".tar", ".json", ".txt", ".md")) for name in names
    )


def open_shards(path: Path) -> TableBlocks:
    """Return a .tar file, or the .tar files of a folder in the order of their names, as a table."""
    files = tuple(sorted(path.glob("*.tar"))) if path.is_dir() else (path,)
    header: dict[str, None] = {}
    for file in files:
        for sample in read_samples(file):
            header |= dict.fromkeys(sample)
    if set(header) <= {KEY}:
        raise DataError(f"{path} holds no samples. Expected files such as 0001.jpg and 0001.cls in each .tar file.")
    return _Shards(path, files, list(header))


def read_samples(path: Path) -> Iterator[Sample]:
    """Yield the samples of a .tar file. Files that have the same name up to the first dot are one sample."""
    require_regular_file(path)
    sample: Sample = {}
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                base, dot, suffix = name.partition(".")
                if not member.isreg() or not base or not dot:
                    continue
                key = f"{folder}/{base}" if folder else base
                if sample and sample[KEY] != key:
                    yield sample
                    sample = {}
                sample.setdefault(KEY, key)
                sample |= _fields(path, archive, member, f".{suffix.lower()}")
    except (tarfile.TarError, EOFError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{path} cannot be read as a .tar file of samples ({shorten(reason)}). Write the file again, without compression."
        ) from error
    if sample:
        yield sample


def _fields(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, suffix: str) -> Sample:
    """Return {column: value} from one file of a sample.

    A JSON file can give several columns, and an ignored file gives none.
    """
    is_image = suffix[suffix.rfind(".") :] in SUFFIXES
    if not is_image and suffix not in (*LABEL_SUFFIXES, *TEXT_SUFFIXES, ".json"):
        return {}
    if member.size > MAX_BYTES:
        raise DataError(
            f"{path}: {shorten(member.name, 80)} has {member.size >> 20} MB; expected at most {MAX_BYTES >> 20} MB. "
            "Make this file smaller."
        )
    file = archive.extractfile(member)
    blob = b"" if file is None else file.read()
    if len(blob) < member.size:
        raise DataError(f"{path} is cut short: it ends in the middle of {shorten(member.name, 80)}. Copy the file again.")
    if is_image:
        return {IMAGE: blob}
    try:
        text = blob.decode("utf-8")
        if suffix in LABEL_SUFFIXES:
            return {LABEL: text.strip()}
        if suffix in TEXT_SUFFIXES:
            return {TEXT: text}
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: {shorten(member.name, 80)} cannot be read ({shorten(error)}). Expected UTF-8 text, or JSON in a "
            ".json file."
        ) from error
    return {name: value for name, value in content.items() if name != KEY} if isinstance(content, dict) else {LABEL: content}


READER = table_reader((".tar",), open_shards)
