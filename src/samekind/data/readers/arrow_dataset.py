"""Reader of Arrow files, .arrow, and of the folders that the library `datasets` of Hugging Face writes; needs pyarrow.

    reviews/
      state.json                   the Arrow files, in their order
      dataset_info.json            the names of the classes
      data-00000-of-00001.arrow    the rows

A folder of several splits (dataset_dict.json) gives its split "train".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samekind.data.columns.frames import require_unique
from samekind.data.readers.parquet_file import ArrowBlock
from samekind.data.readers.reader import require_regular_file, shorten
from samekind.data.readers.table import BLOCK_ROWS, TableBlock, TableBlocks, table_reader
from samekind.errors import DataError

SPLITS, STATE, INFO = "dataset_dict.json", "state.json", "dataset_info.json"


@dataclass(frozen=True)
class ClassBlock(ArrowBlock):
    """Rows of an Arrow record batch whose class numbers stand for names."""

    classes: Mapping[str, list[str]]  # Rows of an Arrow record batch in which class numbers are replaced by class names.

    def values(self, column: str) -> list[Any]:
        found = super().values(column)
        names = self.classes.get(column)
        return found if names is None else [_name_of(value, names) for value in found]


@dataclass(frozen=True)
class _ArrowFiles:
    path: Path
    files: tuple[Path, ...]
    header: list[str]
    classes: Mapping[str, list[str]]
    comma_decimals: bool = False

    def __iter__(self) -> Iterator[TableBlock]:
        first = 0
        for file in self.files:
            with _opened(file) as reader:
                for batch in _batches(reader, file):
                    for start in range(0, batch.num_rows, BLOCK_ROWS):
                        part = batch.slice(start, BLOCK_ROWS)
                        yield ClassBlock(self.path, part, first, {}, self.classes)
                        first += part.num_rows


def is_arrow_dataset(path: Path) -> bool:
    """Return whether a folder was written by the library `datasets`."""
    return any((path / name).is_file() for name in (SPLITS, STATE)) and path.is_dir()


def open_arrow_dataset(path: Path) -> TableBlocks:
    """Return an Arrow file or a folder of the library `datasets` as a table."""
    folder = _split(path) if path.is_dir() else path
    files = _files(folder) if folder.is_dir() else (folder,)
    with _opened(files[0]) as reader:
        header = list(reader.schema.names)
    require_unique(header, str(path))
    return _ArrowFiles(folder if folder.is_dir() else path, files, header, _classes(folder) if folder.is_dir() else {})


def _split(path: Path) -> Path:
    """Return the folder of the split to read: the folder itself, or "train" if the folder holds several splits."""
    if not (path / SPLITS).is_file():
        return path
    names = _json(path / SPLITS).get("splits") or []
    if "train" in names and is_arrow_dataset(path / "train"):
        return path / "train"
    shown = ", ".join(map(str, names))
    raise DataError(f"{path} has no split named train, only {shorten(shown) or 'none'}. Pass the folder of one split.")


def _files(folder: Path) -> tuple[Path, ...]:
    listed = _json(folder / STATE).get("_data_files")
    named = [one.get("filename") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    names = [name for name in named if isinstance(name, str) and Path(name).name == name]
    if not names or len(names) < len(named):
        raise DataError(f"{folder / STATE} lists no Arrow files. Save the dataset again with save_to_disk.")
    return tuple(folder / name for name in names)


def _classes(folder: Path) -> dict[str, list[str]]:
    """Return {column: class names} for each column of class numbers; {} if the folder has no dataset_info.json."""
    if not (folder / INFO).is_file():
        return {}
    features = _json(folder / INFO).get("features")
    found: dict[str, list[str]] = {}
    for name, feature in features.items() if isinstance(features, dict) else ():
        with suppress(AttributeError):
            if feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list):
                found[name] = [str(one) for one in feature["names"]]
    return found


def _name_of(value: Any, names: list[str]) -> Any:
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value


def _json(path: Path) -> dict[str, Any]:
    require_regular_file(path)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({error}). Save the dataset again with save_to_disk.") from error
    return content if isinstance(content, dict) else {}


def _opened(path: Path) -> Any:
    """Return a reader of an Arrow file in the stream format or the file format. The file is memory-mapped."""
    require_regular_file(path)
    try:
        from pyarrow import ArrowInvalid, ipc, memory_map  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(f"reading {path.name} needs pyarrow, which is not installed. Install samekind[parquet].") from error
    try:
        try:
            return ipc.open_stream(memory_map(str(path)))
        except ArrowInvalid:
            return ipc.open_file(memory_map(str(path)))
    except Exception as error:  # pyarrow's exceptions have no narrower base class in common
        raise DataError(_unreadable(path, error)) from error


def _batches(reader: Any, path: Path) -> Iterator[Any]:
    try:
        if hasattr(reader, "num_record_batches"):
            for i in range(reader.num_record_batches):
                yield _valid(reader.get_batch(i))
            return
        for batch in reader:
            yield _valid(batch)
    except DataError:
        raise
    except Exception as error:
        raise DataError(_unreadable(path, error)) from error


def _valid(batch: Any) -> Any:
    batch.validate(full=True)  # a damaged file may hold offsets beyond its end
    return batch


def _unreadable(path: Path, error: Exception) -> str:
    return f"{path} cannot be read as Arrow ({shorten(error)}). Save the dataset again."


READER = table_reader((".arrow",), open_arrow_dataset)
