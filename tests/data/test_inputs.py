"""Inputs of the estimator: what is accepted, and the message for each mistake."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from samekind.data.inputs import read_inputs, read_labels
from samekind.errors import DataError, LabelError

# ---------------------------------------------------------------- X that is taken


@pytest.mark.parametrize(
    "X", [[[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], dtype=np.uint8), np.array([[1, 2], [3, 4]], dtype=object)]
)
def test_lists_integers_and_objects_that_are_numbers_become_float32(X: Any) -> None:
    rows = read_inputs(X)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_text_that_reads_as_numbers_is_accepted() -> None:
    assert read_inputs([["1.5", "2"], ["-3", "1e2"]]).tolist() == [[1.5, 2.0], [-3.0, 100.0]]


def test_grey_images_get_a_channel() -> None:
    X = np.arange(24).reshape(2, 3, 4)
    rows = read_inputs(X)
    assert rows.shape == (2, 1, 3, 4)
    assert np.array_equal(rows[:, 0], X)


def test_colour_images_get_their_channels_first() -> None:
    X = np.arange(72).reshape(2, 3, 4, 3)
    rows = read_inputs(X)
    assert rows.shape == (2, 3, 3, 4)
    assert np.array_equal(rows[:, 2], X[..., 2])
    assert rows.flags.c_contiguous


def test_the_array_that_was_given_is_not_changed_or_shared() -> None:
    X = np.ones((3, 2), dtype=np.float32)
    read_inputs(X)[0, 0] = 9.0
    assert X[0, 0] == 1.0


def test_samples_of_the_shape_at_fit_are_accepted() -> None:
    assert read_inputs([[1, 2]], shape=(2,)).shape == (1, 2)
    assert read_inputs(np.zeros((1, 4, 5, 3)), shape=(3, 4, 5)).shape == (1, 3, 4, 5)


# ---------------------------------------------------------------- X that is refused, each kind in its own words


MISTAKES: list[tuple[Any, str]] = [
    (5.0, r"Expected 2D array, got 0D array"),
    ([1.0, 2.0, 3.0], r"Expected 2D array, got 1D array of shape \(3,\) instead.*X\.reshape\(-1, 1\)"),
    (np.zeros((1, 1, 1, 1, 1)), r"X has 5 dimensions .*expected \(n, d\), \(n, H, W\) or \(n, H, W, C\)"),
    (np.zeros((0, 3)), r"X is empty: found array with 0 sample\(s\)"),
    (np.zeros((3, 0)), r"X has samples without values: 0 feature\(s\)"),
    (
        [[1.0, 2.0], [3.0, float("nan")]],
        r"X contains NaN: 1 such value\(s\), the first in sample 1 at position \(1,\).*SimpleImputer",
    ),
    (
        [[1.0], [float("inf")], [float("-inf")]],
        r"X contains infinity or a value too large for float32: 2 such value\(s\).*sample 1",
    ),
    ([[1.0], [1e39]], r"X contains infinity or a value too large for float32: 1 such"),
    ([[1.0, None]], r"X contains NaN: 1 such"),
    (csr_array(np.eye(3)), r"X is a sparse matrix.*X\.toarray\(\).*TruncatedSVD"),
    ([[1.0, 2.0], [3.0]], r"X cannot be made into one array .*Give every sample the same length"),
    (np.array([[1.0 + 2.0j]]), r"Complex data not supported.*real and imaginary columns"),
    ([["red", "green"]], r"X holds values that are not numbers .*OneHotEncoder"),
    (np.array([[{}, 1.0]], dtype=object), r"X holds values that are not numbers"),
]


@pytest.mark.parametrize(("X", "message"), MISTAKES)
def test_each_kind_of_unusable_x_has_its_own_message(X: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_inputs(X)


def test_other_columns_than_at_fit_are_refused() -> None:
    with pytest.raises(DataError, match="X has 2 features, but SemiSupervisedClassifier is expecting 3 features"):
        read_inputs([[1.0, 2.0]], shape=(3,))


@pytest.mark.parametrize("X", [np.zeros((1, 8, 8)), np.zeros((1, 64))])
def test_another_kind_of_input_than_at_fit_is_refused(X: Any) -> None:
    with pytest.raises(DataError, match=r"X has samples of shape .*but the model was fitted on samples of shape \(3, 8, 8\)"):
        read_inputs(X, shape=(3, 8, 8))


# ---------------------------------------------------------------- y that is taken


@pytest.mark.parametrize(
    ("y", "classes", "codes"),
    [
        ([3, -1, 7, 3], [3, 7], [0, -1, 1, 0]),
        ([3.0, float("nan"), 7.0, -1.0], [3, 7], [0, -1, 1, -1]),
        (np.array([3, 1, 7, 3], dtype=np.uint8), [1, 3, 7], [1, 0, 2, 1]),
        ([True, False, True, True], [False, True], [1, 0, 1, 1]),
        (["dog", "cat", "", "dog"], ["cat", "dog"], [1, 0, -1, 1]),
        (["dog", None, "cat", "dog"], ["cat", "dog"], [1, -1, 0, 1]),
        (np.array(["dog", np.nan, -1, "cat"], dtype=object), ["cat", "dog"], [1, -1, -1, 0]),
        (np.array([5, None, 2, -1], dtype=object), [2, 5], [1, -1, 0, -1]),
    ],
)
def test_labels_of_any_type_become_class_indices(y: Any, classes: list[Any], codes: list[int]) -> None:
    labels = read_labels(y, 4)
    assert labels.classes.tolist() == classes
    assert labels.codes.tolist() == codes
    assert labels.codes.dtype == np.int64


def test_a_column_vector_of_labels_is_accepted_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="column-vector y was passed"):
        labels = read_labels([[3], [-1], [7]], 3)
    assert labels.codes.tolist() == [0, -1, 1]


@settings(max_examples=25, deadline=None)
@given(y=st.lists(st.integers(-1, 5), min_size=2, max_size=20).filter(lambda y: len({v for v in y if v >= 0}) >= 2))
def test_classes_of_the_codes_are_the_given_labels(y: list[int]) -> None:
    labels = read_labels(y, len(y))
    back = [int(labels.classes[code]) if code >= 0 else -1 for code in labels.codes]
    assert back == y


@pytest.mark.parametrize("missing", [float("nan"), None, "", -1])
def test_in_a_list_of_strings_nan_none_and_minus_one_mean_unlabelled(missing: Any) -> None:
    labels = read_labels(["dog", missing, "cat"], 3)
    assert labels.classes.tolist() == ["cat", "dog"]
    assert labels.codes.tolist() == [1, -1, 0]


# ---------------------------------------------------------------- y that is refused


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, r"y is missing: this estimator requires y to be passed.*Use -1"),
        ([[0, 1], [1, 0], [0, 1]], r"y should be a 1d array, got an array of shape \(3, 2\)"),
        (1, r"y should be a 1d array, got an array of shape \(\)"),
        ([0, 1], r"X has 3 samples and y has 2 labels: inconsistent numbers of samples"),
        ([0.5, 1.0, 2.0], r"Unknown label type: y holds fractions or infinity"),
        ([0.0, 1.0, float("inf")], r"Unknown label type: y holds fractions or infinity"),
        ([-1, -1, -1], r"y holds no label \(all 3 samples are unlabelled\)"),
        ([None, "", None], r"y holds no label"),
        ([float("nan")] * 3, r"y holds no label"),
        (np.array(["dog", 3, None], dtype=object), r"y mixes types of labels .*integers only, or strings only"),
        ([4, -1, 4], r"y holds one class only \(.*4.* on 2 sample\(s\)\); .*two"),
        ([[0], [0, 1], [1]], r"one label per sample"),
    ],
)
def test_each_kind_of_unusable_y_has_its_own_message(y: Any, message: str) -> None:
    with pytest.raises(LabelError, match=message):
        read_labels(y, 3)
