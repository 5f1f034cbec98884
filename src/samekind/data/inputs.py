"""Input pipeline of the estimator: X becomes float32 vectors or images, or uint8 images; y becomes class indices."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import DataConversionWarning

from samekind.data.dataset import UNLABELLED
from samekind.errors import DataError, LabelError, NonNumericError
from samekind.image_layout import array_sample_shape, to_channels_first_floats

Floats = npt.NDArray[np.float32]
Uint8Images = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


def read_inputs(X: Any, *, shape: tuple[int, ...] | None = None) -> Floats | Uint8Images:
    """Return X in the form that the model takes: float32 vectors (n, d) or images (n, C, H, W), or uint8 images (n, H, W, C).

    Uint8 images are not copied, so they can be a memory-mapped file that is larger than memory. `shape` is the shape of a
    sample at fit, (d,) or (C, H, W); samples of another shape raise DataError.
    """
    return to_channels_first_floats(read_images(X, shape=shape))


def read_images(X: Any, *, shape: tuple[int, ...] | None = None) -> Floats | Uint8Images:
    """Check X and return it: float32 vectors (n, d), or images (n, H, W, C) as float32, or as uint8 without copying them."""
    array = _as_array(X)
    if array.ndim < 2:
        raise DataError(
            f"Expected 2D array, got {array.ndim}D array of shape {array.shape} instead. X needs one row for each sample. "
            "Reshape your data with X.reshape(-1, 1) if it is a single column, or X.reshape(1, -1) if it is a single row."
        )
    if array.ndim > 4:
        raise DataError(f"X has {array.ndim} dimensions {array.shape}; expected (n, d), (n, H, W) or (n, H, W, C).")
    if array.shape[0] == 0:
        raise DataError(f"X is empty: found array with 0 sample(s) (shape={array.shape}) while a minimum of 1 is required.")
    if 0 in array.shape[1:]:
        raise DataError(f"X has samples without values: 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    found = array_sample_shape(array)
    if shape is not None and found != shape:
        raise DataError(_shape_mismatch(found, shape))
    if array.ndim > 2 and array.dtype == np.uint8:
        return _uint8_images(array)
    floats = _finite(array)
    return np.ascontiguousarray(floats[..., None] if floats.ndim == 3 else floats)


def _uint8_images(array: Array) -> Uint8Images:
    """Return images (n, H, W, C). They are copied only if a stride is negative, which torch does not support."""
    images = array if array.ndim == 4 else array[..., None]
    return np.asarray(images if min(images.strides) >= 0 else images.copy())


def _as_array(X: Any) -> Array:
    if hasattr(X, "toarray") and hasattr(X, "tocsr"):
        raise DataError("X is a sparse matrix, and dense input is needed. Use X.toarray(), or reduce it with TruncatedSVD.")
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise DataError(f"X cannot be made into one array ({error}). Give every sample the same length.") from error
    if array.dtype.kind == "c":
        raise DataError("Complex data not supported: X holds complex numbers. Split them into real and imaginary columns.")
    if array.dtype.kind in "OSUV":
        return _numbers(array)
    return array


def _numbers(array: Array) -> Array:
    """Return an array of objects or texts as floats; raise NonNumericError if an entry is not a number."""
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise NonNumericError(
            f"X holds values that are not numbers ({error}); argument must be a string or a number that reads as one. "
            "Encode text and categories as numbers first, for example with OneHotEncoder."
        ) from error


def _finite(array: Array) -> Floats:
    with np.errstate(over="ignore"):
        floats = array.astype(np.float32)
    invalid = ~np.isfinite(floats)
    if invalid.any():
        at = tuple(int(i) for i in np.argwhere(invalid)[0])
        what = "NaN" if np.isnan(floats[at]) else "infinity or a value too large for float32"
        raise DataError(
            f"X contains {what}: {int(invalid.sum())} such value(s), the first in sample {at[0]} at position {at[1:]}. "
            "Expected finite numbers. Impute missing values first, for example with SimpleImputer, or drop the samples."
        )
    return np.asarray(floats)


def _shape_mismatch(found: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if len(found) == len(expected) == 1:
        return (
            f"X has {found[0]} features, but SemiSupervisedClassifier is expecting {expected[0]} features as input, as at fit. "
            "Pass the same columns in the same order."
        )
    return (
        f"X has samples of shape {found}, but the model was fitted on samples of shape {expected}. Pass the same kind of input."
    )


def n_samples(X: Any) -> int:
    """Return the number of samples of an array, a data frame, or a list of samples or paths."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def select_samples(X: Any, indices: Integers) -> Any:
    """Return the samples with these indices, from an array, a data frame, or a list of samples or paths."""
    if hasattr(X, "iloc"):
        return X.iloc[indices]
    if hasattr(X, "take") and hasattr(X, "column_names"):  # an Arrow table
        return X.take(indices)
    return X[indices] if hasattr(X, "shape") else [X[i] for i in indices]


@dataclass(frozen=True)
class Labels:
    """Labels as integers: `codes` (n,) holds the position of each sample's class in `classes`, or UNLABELLED."""

    classes: Array
    codes: Integers


def read_labels(y: Any, n_samples: int) -> Labels:
    """Return y as class indices. Missing labels are -1 in integers; in strings and objects also None, '', nan and pandas.NA."""
    if y is None:
        raise LabelError(
            "y is missing: this estimator requires y to be passed, but the target y is None. Use -1 for unlabelled samples."
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
        raise LabelError(f"y should be a 1d array, got an array of shape {given.shape} instead. Pass one label per sample.")
    if len(given) != n_samples:
        raise LabelError(
            f"X has {n_samples} samples and y has {len(given)} labels: inconsistent numbers of samples. "
            "Pass one label per sample."
        )
    if given.dtype.kind == "f":
        given = _float_labels_to_int(given)
    is_labelled = _is_labelled(given)
    if not is_labelled.any():
        raise LabelError(f"y holds no label (all {n_samples} samples are unlabelled). Label at least one sample of each class.")
    try:
        classes, codes = np.unique(given[is_labelled], return_inverse=True)
    except TypeError as error:
        raise LabelError(f"y mixes types of labels ({error}). Use integers only, or strings only.") from error
    if len(classes) < 2:
        raise LabelError(
            f"y holds one class only ({classes.tolist()[0]!r} on {int(is_labelled.sum())} sample(s)); two are needed. "
            "Label a sample of another class."
        )
    if given.dtype.kind == "O":
        classes = np.array(classes.tolist())
    all_codes = np.full(n_samples, UNLABELLED, dtype=np.int64)
    all_codes[is_labelled] = codes
    return Labels(classes, all_codes)


def _as_labels(y: Any) -> Array:
    """Return y as one array. A list with strings becomes an array of objects: as text, numpy would change None and numbers."""
    try:
        given = np.asarray(y)
    except ValueError as error:
        raise LabelError(f"y cannot be made into one array ({error}). Pass one label per sample.") from error
    return np.asarray(y, dtype=object) if given.dtype.kind in "SU" and not isinstance(y, np.ndarray) else given


def _float_labels_to_int(given: Array) -> Array:
    """Return float labels as integers, with UNLABELLED for nan; raise LabelError if a label is not a whole number."""
    missing = np.isnan(given)
    if np.isinf(given).any() or not np.equal(np.floor(given), given, where=~missing, out=np.ones(len(given), bool)).all():
        raise LabelError(
            "Unknown label type: y holds fractions or infinity, like a regression target. Pass classes as integers or strings."
        )
    return np.where(missing, UNLABELLED, given).astype(np.int64)


def read_given_labels(y: Any, n_samples: int) -> tuple[Integers, Array]:
    """Return the indices of the labelled samples, and their labels as objects. y may have no label, or only one class."""
    given = _as_labels(y)
    if given.shape != (n_samples,):
        raise LabelError(f"X has {n_samples} samples and y has the shape {given.shape}. Pass one label per sample.")
    labelled = np.flatnonzero(_is_labelled(given))
    return labelled, given[labelled].astype(object)


def without_class(labels: Array, rejected: npt.NDArray[np.bool_]) -> Array:
    """Return a copy of the class labels without a class where `rejected` is True: -1 for integer labels, else None."""
    marked = labels.astype(np.int64 if labels.dtype.kind == "i" else object)
    marked[rejected] = UNLABELLED if labels.dtype.kind == "i" else None
    return marked


def _is_labelled(given: Array) -> npt.NDArray[np.bool_]:
    if given.dtype.kind in "iu":
        return np.asarray(given != UNLABELLED)
    if given.dtype.kind == "b":
        return np.ones(len(given), bool)
    # pandas is optional, and its NA must be compared by identity, because NA == NA is not True
    missing = getattr(sys.modules.get("pandas"), "NA", None)
    return np.array([v is not None and v is not missing and v == v and v != "" and not _is_minus_one(v) for v in given], bool)


def _is_minus_one(label: Any) -> bool:
    return not isinstance(label, str) and bool(label == UNLABELLED)
