"""Cells that name image files: recognized only if such a file exists, and resolved against the folder of the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from samekind.data.columns.image_cells import names_images, with_folder
from samekind.data.columns.typed_table import Column


def test_cells_name_images_if_most_end_like_one_and_one_exists(tmp_path: Path) -> None:
    assert not names_images(["a.png", "b.png", ""], tmp_path)
    (tmp_path / "b.png").touch()
    assert names_images(["a.png", "b.png", ""], tmp_path)
    assert not names_images(["b.png", "a text", "another"], tmp_path)


def test_relative_paths_begin_in_the_folder_and_bytes_stay(tmp_path: Path) -> None:
    values = np.array(["b.png", b"bytes", None], dtype=object)
    assert with_folder(Column("image", values), tmp_path).values.tolist() == [str(tmp_path / "b.png"), b"bytes", None]
    assert with_folder(Column("text", values[:1]), tmp_path).values.tolist() == ["b.png"]
