"""Splits by seed, stratified by class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samekind import SemiSupervisedClassifier
from samekind.data.hub.toys import digits
from samekind.data.splits import draw_split, hide_labels, labels_at_random, make_split, train_test_indices
from samekind.errors import LabelError, SettingError

Y = np.array([0] * 60 + [1] * 30 + [2] * 10)


def test_each_class_keeps_the_given_number_of_true_labels() -> None:
    shown = hide_labels(Y, 4, seed=0)
    rows = np.flatnonzero(shown != -1)
    assert np.bincount(shown[rows]).tolist() == [4, 4, 4]
    np.testing.assert_array_equal(shown[rows], Y[rows])


def test_a_class_with_too_few_samples_keeps_all_labels() -> None:
    assert np.bincount(hide_labels(Y, 20, seed=0) + 1).tolist() == [50, 20, 20, 10]


def test_the_same_seed_keeps_the_same_labels_and_another_seed_others() -> None:
    np.testing.assert_array_equal(hide_labels(Y, 4, seed=7), hide_labels(Y, 4, seed=7))
    assert (hide_labels(Y, 4, seed=7) != hide_labels(Y, 4, seed=8)).any()


def test_keeping_no_label_is_refused() -> None:
    with pytest.raises(SettingError, match="per_class is 0"):
        hide_labels(Y, 0, seed=0)


@given(n_labels=st.integers(2, len(Y)), seed=st.integers(0, 99))
def test_labels_at_random_are_true_and_of_two_classes_or_more(n_labels: int, seed: int) -> None:
    shown = labels_at_random(Y, n_labels, seed)
    known = shown != -1
    assert known.sum() == n_labels and len(np.unique(shown[known])) >= 2
    np.testing.assert_array_equal(shown[known], Y[known])
    np.testing.assert_array_equal(labels_at_random(Y, n_labels, seed), shown)


def test_labels_at_random_follow_the_class_fractions() -> None:
    counts = sum(np.bincount(labels_at_random(Y, 10, seed) + 1, minlength=4)[1:] for seed in range(200))
    np.testing.assert_allclose(counts / 2000, [0.6, 0.3, 0.1], atol=0.03)


@pytest.mark.parametrize(("y", "n_labels"), [(Y, 1), (Y, len(Y) + 1), (np.zeros(20, np.int64), 5)])
def test_random_labels_that_cannot_be_of_two_classes_are_refused(y: npt.NDArray[np.int64], n_labels: int) -> None:
    with pytest.raises(SettingError, match=f"n_labels is {n_labels}.*2 or more classes"):
        labels_at_random(y, n_labels, seed=0)


def test_the_test_set_is_stratified() -> None:
    train, test = train_test_indices(Y, 20, seed=0)
    assert np.bincount(Y[test]).tolist() == [12, 6, 2]
    assert np.bincount(Y[train]).tolist() == [48, 24, 8]


@given(n_test=st.integers(0, len(Y)), seed=st.integers(0, 99))
def test_every_sample_is_in_exactly_one_part(n_test: int, seed: int) -> None:
    train, test = train_test_indices(Y, n_test, seed)
    assert len(test) == n_test
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(Y)))


def test_a_test_set_larger_than_the_dataset_is_refused() -> None:
    with pytest.raises(SettingError, match="expected 0 to 100"):
        train_test_indices(Y, 101, seed=0)


labels = st.lists(st.integers(0, 4), min_size=8, max_size=60).map(np.array)


@given(y=labels, n=st.integers(5, 60), seed=st.integers(0, 99))
def test_labels_are_even_over_classes_unless_a_class_is_too_small(y: Any, n: int, seed: int) -> None:
    n = min(n, len(y))
    split = draw_split(y, n, seed)
    shown, there = np.bincount(split.labels, minlength=5), np.bincount(y, minlength=5)
    assert shown.sum() == n
    np.testing.assert_array_equal(split.labels, y[split.labelled])
    assert all(shown[c] == there[c] or shown[c] >= shown.max() - 1 for c in range(5))


@given(y=labels, n=st.integers(5, 30), n_validation=st.integers(0, 30), seed=st.integers(0, 99))
def test_every_sample_is_labelled_unlabelled_or_for_validation(y: Any, n: int, n_validation: int, seed: int) -> None:
    n = min(n, len(y))
    split = draw_split(y, n, seed, n_validation=min(n_validation, len(y) - n))
    together = np.concatenate([split.labelled, split.unlabelled, split.validation])
    np.testing.assert_array_equal(np.sort(together), np.arange(len(y)))
    np.testing.assert_array_equal(split.train, np.setdiff1d(np.arange(len(y)), split.validation))


@given(y=labels, seed=st.integers(0, 99))
def test_the_same_seed_draws_the_same_split(y: Any, seed: int) -> None:
    one, other = draw_split(y, 5, seed, n_validation=3), draw_split(y.copy(), 5, seed, n_validation=3)
    assert one.hash == other.hash
    np.testing.assert_array_equal(one.y, other.y)
    np.testing.assert_array_equal(one.labelled, draw_split(y, 5, seed).labelled)  # validation rows change no label


def test_y_of_a_split_holds_the_visible_labels_and_minus_one() -> None:
    split = draw_split(Y, 6, seed=0, n_validation=10)
    assert len(split.y) == len(split.train) == 90
    np.testing.assert_array_equal(split.y[split.y != -1], Y[split.train[split.y != -1]])
    np.testing.assert_array_equal(split.train[split.y != -1], split.labelled)
    assert np.bincount(split.y + 1).tolist() == [84, 2, 2, 2]


def test_the_validation_set_is_stratified() -> None:
    split = draw_split(np.array([0] * 62 + [1] * 32 + [2] * 12), 6, seed=3, n_validation=20)
    assert np.bincount(np.array([0] * 62 + [1] * 32 + [2] * 12)[split.validation]).tolist() == [12, 6, 2]


def test_the_hash_differs_between_seeds_and_sizes() -> None:
    splits = [draw_split(Y, 6, 0), draw_split(Y, 6, 1), draw_split(Y, 7, 0), draw_split(Y, 6, 0, n_validation=1)]
    assert len({split.hash for split in splits}) == 4
    assert all(len(split.hash) == 16 and int(split.hash, 16) >= 0 for split in splits)


def test_the_split_of_a_seed_never_changes() -> None:
    """Keep the splits of published runs."""
    split = draw_split(Y, 6, seed=0)
    assert (split.labelled.tolist(), split.hash) == (
        [20, 36, 72, 82, 93, 94],
        "7805d8482d69d933",
    )


def test_a_json_record_is_enough_to_draw_the_split_again() -> None:
    split = draw_split(Y, 6, seed=4, n_validation=10)
    record = json.loads(json.dumps(split.record()))
    assert record == {"seed": 4, "labelled": 6, "unlabelled": 84, "validation": 10, "hash": split.hash}
    again = draw_split(Y, record["labelled"], record["seed"], n_validation=record["validation"])
    assert again.hash == record["hash"]


@pytest.mark.parametrize(("n", "n_validation", "message"), [(2, 0, "expected 3"), (101, 0, "at most 100"), (90, 11, "0 to 10")])
def test_impossible_sizes_are_refused(n: int, n_validation: int, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        draw_split(Y, n, 0, n_validation=n_validation)


def test_a_split_of_unlabelled_samples_is_refused() -> None:
    with pytest.raises(LabelError, match="without one"):
        draw_split(np.array([0, 1, -1]), 2, 0)


def poisoned(y: npt.NDArray[np.int64], shown: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.int64]:
    """Return y with wrong labels except for these samples."""
    wrong = (y + np.random.default_rng(0).integers(1, 10, len(y))) % 10 if kind == "wrong" else np.full(len(y), 10**6)
    wrong[shown] = y[shown]
    return wrong


@pytest.mark.parametrize("kind", ["wrong", "out of range"])
@pytest.mark.parametrize("method", ["mean_teacher", "learned_graph", "label_propagation"])
def test_hidden_labels_change_nothing_that_training_does(method: str, kind: str, tmp_path: Path) -> None:
    images, y = (part[:300] for part in digits())
    split = draw_split(y, 20, seed=0)
    poison = poisoned(y, split.labelled, kind)
    assert (poison != y).sum() == 280
    with_poison = make_split(poison, split.labelled, split.validation, seed=0)
    assert with_poison.hash == split.hash

    models = [
        SemiSupervisedClassifier(method, random_state=0, epochs=2).fit(images[split.train], fits)
        for fits in (split.y, with_poison.y)
    ]
    for name, model in zip("ab", models, strict=True):
        model.save(tmp_path / name)
    files = {file.name for file in tmp_path.glob("*/weights-*.safetensors")}
    assert len(files) == 1  # weights are named by their bytes
    np.testing.assert_array_equal(models[0].predict_proba(images), models[1].predict_proba(images))
