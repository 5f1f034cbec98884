"""Results of readers, and the registry of readers by file suffix.

A new file format needs one module in this package that defines READER, and its test. `find_reader` finds the module by itself.
"""

from __future__ import annotations

import pkgutil
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from samekind.data.columns.typed_table import ColumnKind
from samekind.errors import DataError, SamekindError

Objects = npt.NDArray[np.object_]
Kind = Literal["images", "vectors", "texts"]
Source = Literal["images", "array", "table", "text_table", "text_folder"]
MAX_SHOWN = 300  # largest number of characters of a text from a file that an error message shows


# ---------------------------------------------------------------- results of a reader


@dataclass(frozen=True)
class Skipped:
    """A file, row or column that could not be used, with the reason. `path` is its name."""

    path: str
    reason: str

    def __str__(self) -> str:
        # repr, because file names may contain newlines and bytes that are no valid text
        return f"{self.path!r}: {self.reason}"


def raise_on_skipped(skipped: Iterable[Skipped]) -> None:
    """Raise DataError for the first file, row or column that was skipped, if there is one. This is the strict mode."""
    for one in skipped:
        raise DataError(f"{one}. Repair or remove it, or read without strict to leave it out.")


def require_regular_file(path: Path, error: type[SamekindError] = DataError) -> None:
    """Raise an error if a file does not exist, or is not a regular file. A pipe, for example, would block the reader for
    ever.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as reason:  # ValueError is raised if the path contains a NUL character
        raise error(
            f"{shorten(path)} cannot be opened ({getattr(reason, 'strerror', None) or reason}). Check the path."
        ) from reason
    if not stat.S_ISREG(mode):
        raise error(f"{shorten(path)} is not a regular file. Expected a file, not a folder, a pipe or a device.")


def shorten(text: object, limit: int = MAX_SHOWN) -> str:
    """Return a text from a file, cut to `limit` characters for an error message."""
    shown = str(text)
    return shown if len(shown) <= limit else f"{shown[:limit]}…"


@dataclass(frozen=True)
class FeatureColumn:
    """A column of a table: its name, its kind, and the format of its dates if these were read from text."""

    name: str
    kind: ColumnKind = "number"
    date_format: str = ""


@dataclass(frozen=True)
class TableLayout:
    """Columns of a table: the feature columns, and the names of the label column and the name column, if there are any."""

    columns: tuple[FeatureColumn, ...]
    label: str | None
    name: str | None


@dataclass(frozen=True)
class TextLayout:
    """Names of the columns of a table of texts: the text column, the label column and the name column.

    For a folder of texts, all are None.
    """

    text: str | None = None
    label: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Encoding:
    """How data was read at fit, so that new data is read in the same way. `shape` is that of a sample, (H, W, C) or (d,)."""

    kind: Kind
    source: Source
    shape: tuple[int, ...]
    dtype: str
    layout: TableLayout | None = None  # columns of a table; None for other data
    text: TextLayout | None = None  # of texts

    def __str__(self) -> str:
        if self.text is not None:
            return "a folder of texts" if self.text.text is None else f"texts in the column {self.text.text!r} of a table"
        if self.source == "table":
            return f"a table with {len(self.layout.columns) if self.layout else 0} columns"
        if self.kind == "vectors":
            return f"an array with {self.shape[0]} columns"
        height, width, channels = self.shape
        color = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
        what = "images" if self.source == "images" else f"an array of {self.dtype} images"
        return f"{what} of {height} x {width} pixels, {color}"

    @property
    def name_column(self) -> str:
        """Return the header of the name column in result files: the same as in the table, and "path" for other data."""
        layout = self.text or self.layout
        return layout.name if layout is not None and layout.name is not None else "path"

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as a dict of JSON values, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Encoding:
        """Return the encoding that `to_json` returned as a dict; raise DataError if it is invalid."""
        try:
            layout = _layout_from_json(content["layout"]) if content["layout"] else None
            text = TextLayout(**content["text"]) if content.get("text") else None
            return cls(content["kind"], content["source"], tuple(content["shape"]), content["dtype"], layout, text)
        except (KeyError, TypeError) as error:
            raise DataError(
                f"the description of the data is not valid ({error!r}). Expected the result of Encoding.to_json."
            ) from error


def _layout_from_json(content: Mapping[str, Any]) -> TableLayout:
    columns = (FeatureColumn(column["name"], column["kind"], column["date_format"]) for column in content["columns"])
    return TableLayout(tuple(columns), content["label"], content["name"])


@dataclass(frozen=True)
class UserData:
    """Samples x (n, ...), a label or None for each, a name for each, and what was skipped.

    Images are uint8 (n, H, W, C), usually a memory-mapped file. Vectors are (n, d), texts are a TextArray (n,), and the rows of
    a table are a TypedTable (n rows).
    """

    x: Any
    y: Objects
    names: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    encoding: Encoding

    def __len__(self) -> int:
        return len(self.x)

    @property
    def kind(self) -> Kind:
        """Return "images", "vectors" or "texts", the kind of the samples."""
        return self.encoding.kind


# ---------------------------------------------------------------- readers by file suffix


@dataclass(frozen=True)
class Reader:
    """Two functions that read files with certain suffixes.

    `read(path, labels, label_column)` reads a file; `labels` is the path of a label file, or None. `read_like(path, encoding,
    labels)` reads another file in the same way, and raises DataError if that is not possible. For tables,
    `open_table(path)` returns the rows in blocks; for other formats it is None.
    """

    suffixes: tuple[str, ...]
    read: Callable[[Path, Path | None, str | None], UserData]
    read_like: Callable[[Path, Encoding, Path | None], UserData]
    open_table: Callable[[Path], Any] | None = None


def find_reader(path: Path) -> Reader | None:
    """Return the reader for the suffix of a file; None if there is no such reader."""
    return readers_by_suffix().get(path.suffix.lower())


@cache
def readers_by_suffix() -> dict[str, Reader]:
    """Import all modules of this package, and return their readers by suffix, in alphabetical order."""
    found: dict[str, Reader] = {}
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        reader = getattr(import_module(f"{package}.{module.name}"), "READER", None)
        found |= dict.fromkeys(reader.suffixes, reader) if reader else {}
    return dict(sorted(found.items()))
