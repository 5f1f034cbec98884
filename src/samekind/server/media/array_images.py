"""Images for items that are rows of an array or a table: image rows as they are, vectors as line plots on a common scale."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from samekind.data.readers.reader import Encoding
from samekind.server.media.thumbnails import ImageSource, draw_line_plot

MAX_POINTS = 512  # points of a line plot


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names with the row number appended to those that repeat an earlier one."""
    seen: set[str] = set()
    unique: list[str] = []
    for number, name in enumerate(names):
        unique.append(name if name not in seen else f"{name}#{number}")
        seen.add(unique[-1])
    return unique


class ArrayImages:
    """Images of the rows of a run on an array or a table. The data is read when the first image is needed."""

    def __init__(self, manifest: Mapping[str, Any], encoding: Encoding, cache: Path) -> None:
        self._data, self._encoding, self._cache = manifest["config"]["data"], encoding, cache
        self._lock = threading.Lock()

    @cached_property
    def _x(self) -> npt.NDArray[Any]:
        from samekind.data.user_data import open_like

        return open_like(self._data, self._encoding, cache=self._cache).x

    @cached_property
    def _range(self) -> tuple[float, float]:
        some = np.asarray(self._x[: 2**14], dtype=np.float64)
        return float(np.quantile(some, 0.005)), float(np.quantile(some, 0.995))

    def source(self, item: int) -> ImageSource:
        """Return the image source of one row of the data."""
        stat = Path(self._data).stat()
        return ImageSource(f"{item}\0{stat.st_size}\0{stat.st_mtime_ns}", lambda side: self._draw(item, side))

    def _draw(self, item: int, side: int) -> Any:
        with self._lock:
            x, (low, high) = self._x, self._range
        row = np.asarray(x[item])
        if self._encoding.kind == "vectors":
            step = max(1, -(-len(row) // MAX_POINTS))
            return draw_line_plot(np.clip(row[::step], low, high), side, low, high)
        if row.dtype != np.uint8:
            row = (255 * np.clip((row - low) / ((high - low) or 1.0), 0, 1)).astype(np.uint8)
        if row.ndim == 3 and row.shape[2] != 3:
            row = row[:, :, 0] if row.shape[2] == 1 else row[:, :, :3] if row.shape[2] > 3 else row.mean(2).astype(np.uint8)
        return Image.fromarray(np.ascontiguousarray(row))
