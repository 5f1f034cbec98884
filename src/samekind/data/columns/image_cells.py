"""Table cells that name image files: recognized by the suffix of the file name. Relative paths begin in the table's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from samekind.data.columns.cells import is_missing
from samekind.data.columns.typed_table import Column

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".avif")
MAX_PATH = 4096  # a longer text is not the path of a file


def names_images(cells: Sequence[str], folder: Path) -> bool:
    """Return whether at least half of the cells end like an image file.

    One of the first ten such files must be in the folder.
    """
    present = [cell for cell in cells if not is_missing(cell)]
    named = [cell for cell in present if cell.strip().lower().endswith(SUFFIXES) and len(cell) <= MAX_PATH]
    if not named or 2 * len(named) < len(present):
        return False
    return any((folder / cell.strip()).is_file() for cell in named[:10])


def with_folder(column: Column, folder: Path) -> Column:
    """Return a column of images with its relative paths appended to the folder. Other columns are returned unchanged."""
    if column.kind != "image":
        return column
    values = np.empty(len(column), dtype=object)
    values[:] = [_resolved(value, folder) for value in column.values]
    return replace(column, values=values)


def _resolved(value: Any, folder: Path) -> Any:
    return str(folder / value.strip()) if isinstance(value, str) else value
