"""Arrow arrays as columns. Only this module imports pyarrow, and only when there is an Arrow array."""

from __future__ import annotations

from typing import Any

import numpy as np

from samekind.data.columns.typed_table import Column
from samekind.errors import DataError


def arrow_column(values: Any, name: str, where: str) -> Column:
    """Return an Arrow array as a column. Texts are not parsed. `where` is the name of the table in messages."""
    from pyarrow import types  # type: ignore[import-untyped]

    kind = values.type
    if types.is_dictionary(kind):
        kind = kind.value_type
        if is_text(kind):
            return Column("category", _objects(values))
        values = values.cast(kind)
    if is_text(kind) or types.is_null(kind):
        return Column("text", _objects(values))
    if types.is_boolean(kind):
        return Column("boolean", _floats(values.cast("int8")))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return Column("number", _floats(values))
    if types.is_timestamp(kind) or types.is_date(kind):
        return Column("date", np.asarray(values.cast("timestamp[us]", safe=False).to_numpy(zero_copy_only=False)))
    if types.is_duration(kind) or types.is_time(kind):
        return Column("number", _floats(values.cast("int64")))
    if is_image(kind):
        return Column("image", _images(values, kind))
    raise DataError(
        f"{where}: column {name!r} is of type {values.type}; expected numbers, text, dates or images. "
        "Convert it to numbers, or remove it. Save lists of numbers as one array, in a .npy file."
    )


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is a type of text."""
    from pyarrow import types

    is_view = getattr(types, "is_string_view", lambda _: False)
    return bool(types.is_string(kind) or types.is_large_string(kind) or is_view(kind))


def is_image(kind: Any) -> bool:
    """Return whether an Arrow type can contain images: bytes, or a struct with bytes and path, as in Hugging Face datasets."""
    from pyarrow import types

    if types.is_struct(kind):
        return bool({kind.field(i).name for i in range(kind.num_fields)} & {"bytes", "path"})
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _floats(values: Any) -> Any:
    return np.asarray(values.cast("float64", safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _objects(values: Any) -> Any:
    found = np.empty(len(values), dtype=object)
    found[:] = values.to_pylist()
    return found


def _images(values: Any, kind: Any) -> Any:
    from pyarrow import types

    found = _objects(values)
    if types.is_struct(kind):
        found[:] = [None if one is None else one.get("bytes") or one.get("path") for one in found]
    return found
