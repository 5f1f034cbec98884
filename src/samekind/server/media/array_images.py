"""Rows of arrays and tables as items: small images are shown as they are, vectors as line plots, or with their values."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from samekind.data.columns.typed_table import TypedTable
from samekind.data.readers.image_decoder import decode_for_display
from samekind.data.readers.reader import Encoding
from samekind.errors import DataError, RequestError
from samekind.server.media.table_rows import FieldValue, format_number, image_of_row, numbers_of_row, table_fields
from samekind.server.media.thumbnails import ImageSource, draw_line_plot

MAX_POINTS = 512  # largest number of points in a line plot
MAX_SAMPLE = 2**14  # number of rows from which the vertical scale of the plots is chosen
MAX_RANKED = 2048  # number of rows among which the rank of a value is measured
MAX_CARD = 12  # largest number of columns that a tile shows as text
MAX_FIELDS = 400  # largest number of columns of a row that are listed
GONE = "The data of this item does not exist any more."
CHANGED = "The data was changed and cannot be read as before. Restore it, or make a new run."


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names; a name that occurred before gets its row number appended."""
    seen: set[str] = set()
    unique: list[str] = []
    for number, name in enumerate(names):
        unique.append(name if name not in seen else f"{name}#{number}")
        seen.add(unique[-1])
    return unique


class ArrayImages:
    """Images and values of the rows of an array or a table. The data is read when it is first needed."""

    def __init__(self, manifest: Mapping[str, Any], encoding: Encoding, cache: Path) -> None:
        self._data, self._encoding, self._cache = manifest["config"]["data"], encoding, cache
        self._lock = threading.Lock()
        self._x: npt.NDArray[Any] | TypedTable | None = None
        self._failed = False
        self._range = (0.0, 1.0)
        self._sorted: dict[int, npt.NDArray[Any]] = {}

    @property
    def n_columns(self) -> int:
        """Return the number of columns of the data; 0 for images and texts."""
        layout = self._encoding.layout
        if self._encoding.kind != "vectors":
            return 0
        return len(layout.columns) if layout is not None else self._encoding.shape[0]

    @property
    def fits_on_a_card(self) -> bool:
        """Return whether a tile shows column names and values, instead of a plot or an image.

        It does so for a table without images, because the columns differ in their units, and for vectors with few columns.
        """
        layout = self._encoding.layout
        if layout is not None and any(column.kind == "image" for column in layout.columns):
            return False
        return self._encoding.source == "table" or 0 < self.n_columns <= MAX_CARD

    def source(self, item: int) -> ImageSource:
        """Return the source of the image that shows one row of the data."""
        try:
            stat = Path(self._data).stat()
        except OSError as error:
            raise RequestError(404, GONE) from error
        key = hashlib.sha1(f"{item}\0{stat.st_size}\0{stat.st_mtime_ns}".encode()).hexdigest()
        return ImageSource(key, lambda side: self._draw(item, side))

    def fields(self, item: int, limit: int) -> list[FieldValue]:
        """Return the first `limit` columns of a row with their values; an empty list for an image or a text."""
        if self._encoding.kind != "vectors":
            return []
        x = self._read()
        found = table_fields(x, self._within(item), self._rank) if isinstance(x, TypedTable) else self._numbered_fields(item)
        return list(islice(found, limit))

    def _numbered_fields(self, item: int) -> Iterator[FieldValue]:
        x = np.asarray(self._read())
        for at, value in enumerate(x[self._within(item)]):
            yield {"name": str(at), "value": format_number(value), "rank": self._rank(at, x[:, at], value)}

    def _rank(self, column: int, values: npt.NDArray[Any], value: Any) -> float:
        """Return the fraction of rows that have a smaller value in this column. Rows with an equal value count half."""
        with self._lock:
            if column not in self._sorted:
                some = np.asarray(values[:: max(1, len(values) // MAX_RANKED)])
                self._sorted[column] = np.sort(some[~np.isnan(some)])
            known = self._sorted[column]
        below = int(np.searchsorted(known, value, "left")) + int(np.searchsorted(known, value, "right"))
        return round(below / (2 * max(1, len(known))), 3)

    def _read(self) -> npt.NDArray[Any] | TypedTable:
        """Return the data, read at the first call."""
        with self._lock:
            if self._x is None and not self._failed:
                from samekind.data.user_data import open_like

                try:
                    self._x = open_like(self._data, self._encoding, cache=self._cache).x
                except (DataError, OSError):
                    self._failed = True
                if isinstance(self._x, np.ndarray):
                    some = np.asarray(self._x[:MAX_SAMPLE], dtype=np.float64)
                    self._range = float(np.quantile(some, 0.005)), float(np.quantile(some, 0.995))
            if self._x is None:
                raise RequestError(404, CHANGED)
            return self._x

    def _within(self, item: int) -> int:
        if item >= len(self._read()):
            raise RequestError(404, CHANGED)
        return item

    def _draw(self, item: int, side: int) -> Any:
        x = self._read()
        if isinstance(x, TypedTable) and (image := image_of_row(x, self._within(item))) is not None:
            found = decode_for_display(image, side)
            return Image.new("L", (side, side)) if isinstance(found, str) else found
        row = numbers_of_row(x, self._within(item)) if isinstance(x, TypedTable) else np.asarray(x[self._within(item)])
        low, high = self._range
        if self._encoding.kind == "vectors":
            step = max(1, -(-len(row) // MAX_POINTS))
            return draw_line_plot(np.clip(row[::step], low, high), side, low, high)
        if row.dtype != np.uint8:
            row = (255 * np.clip((row - low) / ((high - low) or 1.0), 0, 1)).astype(np.uint8)
        if row.ndim == 3 and row.shape[2] != 3:
            row = row[:, :, 0] if row.shape[2] == 1 else row[:, :, :3] if row.shape[2] > 3 else row.mean(2).astype(np.uint8)
        return Image.fromarray(np.ascontiguousarray(row))
