"""Rows of arrays and tables: their images and the values of their columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from samekind.data.readers.reader import Encoding
from samekind.errors import RequestError
from samekind.server.media.array_images import ArrayImages
from samekind.server.media.table_rows import format_number


def test_rows_whose_data_is_gone_say_so(tmp_path: Path) -> None:
    images = ArrayImages(
        {"config": {"data": str(tmp_path / "gone.npz")}}, Encoding("vectors", "array", (6,), "float64"), tmp_path
    )
    with pytest.raises(RequestError, match="does not exist any more"):
        images.source(0)
    with pytest.raises(RequestError, match="cannot be read as before"):
        images.fields(0, 3)


def test_a_whole_number_has_no_fraction() -> None:
    assert [format_number(v) for v in (3.0, -0.25, 1234567.0, 1e20, np.float32(0.1))] == [
        "3",
        "-0.25",
        "1234567",
        "1e+20",
        "0.1",
    ]
