"""What people pass in, turned into what the package works on: X as float32 rows or as bytes, y as class numbers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import DataConversionWarning

from samekind.data.dataset import UNLABELLED
from samekind.data.image_layout import array_sample_shape, to_channels_first_floats
from samekind.errors import DataError, LabelError, NonNumericError

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Anything = npt.NDArray[Any]


def read_inputs(X: Any, *, shape: tuple[int, ...] | None = None) -> Floats | Bytes:
    """X as float32: vectors (n, d), or images (n, C, H, W) from (n, H, W) or (n, H, W, C). Images of bytes stay (n, H, W, C).

    Bytes are not copied, so they may be a map of a file larger than memory. `shape` is that of one row at fit time, (d,) or
    (C, H, W); another one is refused.
    """
    return to_channels_first_floats(read_images(X, shape=shape))


def read_images(X: Any, *, shape: tuple[int, ...] | None = None) -> Floats | Bytes:
    """X checked: vectors (n, d) as float32, images (n, H, W, C) as float32 or as bytes, which are not copied."""
    array = _as_array(X)
    if array.ndim < 2:
        raise DataError(
            f"Expected 2D array, got {array.ndim}D array of shape {array.shape} instead. X needs a row for each item. "
            "Reshape your data with X.reshape(-1, 1) if it is a single column, or X.reshape(1, -1) if it is a single row."
        )
    if array.ndim > 4:
        raise DataError(f"X has {array.ndim} dimensions {array.shape}; expected (n, d), (n, H, W) or (n, H, W, C).")
    if array.shape[0] == 0:
        raise DataError(f"X is empty: found array with 0 sample(s) (shape={array.shape}) while a minimum of 1 is required.")
    if 0 in array.shape[1:]:
        raise DataError(f"X has rows without content: 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    found = array_sample_shape(array)
    if shape is not None and found != shape:
        raise DataError(_other_shape(found, shape))
    if array.ndim > 2 and array.dtype == np.uint8:
        return _bytes(array)
    rows = _finite(array)
    return np.ascontiguousarray(rows[..., None] if rows.ndim == 3 else rows)


def _bytes(array: Anything) -> Bytes:
    """The same memory, unless it runs backwards, which tensors cannot."""
    images = array if array.ndim == 4 else array[..., None]
    return np.asarray(images if min(images.strides) >= 0 else images.copy())


def _as_array(X: Any) -> Anything:
    if hasattr(X, "toarray") and hasattr(X, "tocsr"):
        raise DataError("X is a sparse matrix, and dense input is needed. Use X.toarray(), or reduce it with TruncatedSVD.")
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise DataError(f"X cannot be made into one array ({error}). Give every row the same length.") from error
    if array.dtype.kind == "c":
        raise DataError("Complex data not supported: X holds complex numbers. Split them into real and imaginary columns.")
    if array.dtype.kind in "OSUV":
        return _numbers(array)
    return array


def _numbers(array: Anything) -> Anything:
    """Object arrays are taken when every entry is a number."""
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise NonNumericError(
            f"X holds things that are not numbers ({error}); argument must be a string or a number that reads as one. "
            "Encode text and categories as numbers first, for example with OneHotEncoder."
        ) from error


def _finite(array: Anything) -> Floats:
    with np.errstate(over="ignore"):
        rows = array.astype(np.float32)
    wrong = ~np.isfinite(rows)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        what = "NaN" if np.isnan(rows[at]) else "infinity or a value too large for float32"
        raise DataError(
            f"X contains {what}: {int(wrong.sum())} such value(s), the first at row {at[0]}, position {at[1:]}. "
            "Expected finite numbers. Fill gaps first, for example with SimpleImputer, or drop the rows."
        )
    return np.asarray(rows)


def _other_shape(found: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if len(found) == len(expected) == 1:
        return (
            f"X has {found[0]} features, but SemiSupervisedClassifier is expecting {expected[0]} features as input, as at fit. "
            "Pass the same columns in the same order."
        )
    return f"X has rows of shape {found}, but the model was fitted on rows of shape {expected}. Pass the same kind of input."


@dataclass(frozen=True)
class Labels:
    """Labels as given (`classes`) and as numbers (`codes`, UNLABELLED where there is none)."""

    classes: Anything
    codes: Integers


def read_labels(y: Any, n_rows: int) -> Labels:
    """y as class numbers. Integers: -1 means no label yet. Strings: None, '' or nan means no label yet."""
    if y is None:
        raise LabelError(
            "y is missing: this estimator requires y to be passed, but the target y is None. Use -1 for rows without a label."
        )
    given = _as_labels(y)
    if given.ndim == 2 and given.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; it is read as y.ravel().",
            DataConversionWarning,
            stacklevel=3,
        )
        given = given.ravel()
    if given.ndim != 1:
        raise LabelError(f"y should be a 1d array, got an array of shape {given.shape} instead. Pass one label per row.")
    if len(given) != n_rows:
        raise LabelError(
            f"X has {n_rows} rows and y has {len(given)}: inconsistent numbers of samples. Pass one label per row."
        )
    if given.dtype.kind == "f":
        given = _whole(given)
    known = _known(given)
    if not known.any():
        raise LabelError(f"y holds no label at all (all {n_rows} rows are unlabelled). Label at least one row of each class.")
    try:
        classes, codes = np.unique(given[known], return_inverse=True)
    except TypeError as error:
        raise LabelError(f"y mixes kinds of labels ({error}). Use integers only, or strings only.") from error
    if len(classes) < 2:
        raise LabelError(
            f"y holds one class only ({classes.tolist()[0]!r} on {int(known.sum())} row(s)); two are needed. Label another one."
        )
    if given.dtype.kind == "O":
        classes = np.array(classes.tolist())
    everyone = np.full(n_rows, UNLABELLED, dtype=np.int64)
    everyone[known] = codes
    return Labels(classes, everyone)


def _as_labels(y: Any) -> Anything:
    """One array; words stay words, as numpy would make words of the numbers and gaps beside them."""
    try:
        given = np.asarray(y)
    except ValueError as error:
        raise LabelError(f"y cannot be made into one array ({error}). Pass one label per row.") from error
    return np.asarray(y, dtype=object) if given.dtype.kind in "SU" and not isinstance(y, np.ndarray) else given


def _whole(given: Anything) -> Anything:
    """Floats are taken when they are whole numbers (nan: no label)."""
    missing = np.isnan(given)
    if np.isinf(given).any() or not np.equal(np.floor(given), given, where=~missing, out=np.ones(len(given), bool)).all():
        raise LabelError(
            "Unknown label type: y holds fractions or infinity, like a regression target. Pass classes as integers or strings."
        )
    return np.where(missing, UNLABELLED, given).astype(np.int64)


def _known(given: Anything) -> npt.NDArray[np.bool_]:
    if given.dtype.kind in "iu":
        return np.asarray(given != UNLABELLED)
    if given.dtype.kind == "b":
        return np.ones(len(given), bool)
    return np.array([not (v is None or v == "" or v != v or (not isinstance(v, str) and v == UNLABELLED)) for v in given])
