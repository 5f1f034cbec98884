"""Labels and test rows are drawn by seed, and every class gets its share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samekind.data.splits import show_labels, train_test
from samekind.errors import SettingError

Y = np.array([0] * 60 + [1] * 30 + [2] * 10)


def test_each_class_shows_as_many_labels_as_asked_and_they_are_true() -> None:
    shown = show_labels(Y, 4, seed=0)
    rows = np.flatnonzero(shown != -1)
    assert np.bincount(shown[rows]).tolist() == [4, 4, 4]
    np.testing.assert_array_equal(shown[rows], Y[rows])


def test_a_class_with_too_few_rows_shows_them_all() -> None:
    assert np.bincount(show_labels(Y, 20, seed=0) + 1).tolist() == [50, 20, 20, 10]


def test_the_same_seed_shows_the_same_labels_and_another_seed_others() -> None:
    np.testing.assert_array_equal(show_labels(Y, 4, seed=7), show_labels(Y, 4, seed=7))
    assert (show_labels(Y, 4, seed=7) != show_labels(Y, 4, seed=8)).any()


def test_showing_no_label_is_refused() -> None:
    with pytest.raises(SettingError, match="per_class is 0"):
        show_labels(Y, 0, seed=0)


def test_the_test_rows_hold_each_class_in_its_share() -> None:
    train, test = train_test(Y, 20, seed=0)
    assert np.bincount(Y[test]).tolist() == [12, 6, 2]
    assert np.bincount(Y[train]).tolist() == [48, 24, 8]


@given(n_test=st.integers(0, len(Y)), seed=st.integers(0, 99))
def test_every_row_is_in_exactly_one_part(n_test: int, seed: int) -> None:
    train, test = train_test(Y, n_test, seed)
    assert len(test) == n_test
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(Y)))


def test_more_test_rows_than_rows_are_refused() -> None:
    with pytest.raises(SettingError, match="expected 0 to 100"):
        train_test(Y, 101, seed=0)
