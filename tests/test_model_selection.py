"""Cross-validation and grid search on partial labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from samekind import PartialLabelKFold, SemiSupervisedClassifier
from samekind.errors import LabelError, SettingError

X, TRUTH = make_blobs(90, n_features=4, centers=3, random_state=3)
SHOWN = np.where(np.arange(90) < 24, TRUTH, -1)
NAMES = np.array(["ant", "bee", "cat", None], dtype=object)
LABELS: dict[str, Any] = {
    "integers": SHOWN,
    "strings with None": NAMES[SHOWN],
    "a list": NAMES[SHOWN].tolist(),
    "empty strings": np.array(["ant", "bee", "cat", ""])[SHOWN],
}


@pytest.mark.parametrize("kind", LABELS)
def test_score_leaves_unlabelled_samples_out(kind: str) -> None:
    model = SemiSupervisedClassifier().fit(X, LABELS[kind])
    assert model.score(X, LABELS[kind]) == 1.0
    assert model.score(X[:30], LABELS[kind][:30], sample_weight=np.arange(30)) == 1.0


def test_score_counts_the_labels_that_are_not_predicted() -> None:
    model = SemiSupervisedClassifier().fit(X, SHOWN)
    predicted = model.predict(X[:4])
    y = [*predicted[:2], (predicted[2] + 1) % 3, -1]
    assert model.score(X[:4], y) == pytest.approx(2 / 3)
    assert model.score(X[:4], y, sample_weight=[1, 1, 2, 5]) == 0.5


def test_score_without_any_label_and_with_labels_of_another_length_is_refused() -> None:
    model = SemiSupervisedClassifier().fit(X, SHOWN)
    with pytest.raises(LabelError, match="all 3 samples are unlabelled"):
        model.score(X[:3], [-1, -1, -1])
    with pytest.raises(LabelError, match=r"3 samples and y has the shape \(2,\)"):
        model.score(X[:3], [0, 1])


@pytest.mark.parametrize("kind", LABELS)
def test_folds_hold_out_labelled_samples_only_and_keep_every_class_in_training(kind: str) -> None:
    tested = []
    for train, test in PartialLabelKFold(4).split(X, LABELS[kind]):
        assert len(np.intersect1d(train, test)) == 0 and len(train) + len(test) == len(X)
        assert (SHOWN[test] != -1).all() and set(np.flatnonzero(SHOWN == -1)) <= set(train)
        assert set(SHOWN[train]) == {-1, 0, 1, 2}
        counts = np.bincount(SHOWN[test], minlength=3)
        assert np.abs(counts - np.bincount(SHOWN[SHOWN >= 0]) / 4).max() <= 1, "stratified"
        tested += test.tolist()
    assert sorted(tested) == np.flatnonzero(SHOWN != -1).tolist()


def test_a_class_with_one_label_stays_in_training() -> None:
    y = np.array([0, 0, 0, 1, 1, 1, 2, -1, -1])
    assert all(6 in train for train, _ in PartialLabelKFold(3).split(np.zeros((9, 2)), y))


def test_too_few_labels_or_folds_are_refused() -> None:
    with pytest.raises(SettingError, match=r"n_splits is 5, but y has only 4 labels"):
        next(PartialLabelKFold(5).split(np.zeros((6, 2)), [0, 0, 1, 1, -1, -1]))
    with pytest.raises(SettingError, match="n_splits is 1; expected a whole number of 2 or more"):
        PartialLabelKFold(1)


@pytest.mark.parametrize("kind", LABELS)
def test_cross_val_score_and_grid_search_work_on_partial_labels(kind: str) -> None:
    y, cv = LABELS[kind], PartialLabelKFold(3)
    assert cross_val_score(SemiSupervisedClassifier(), X, y, cv=cv).tolist() == [1.0, 1.0, 1.0]
    grid = {"settings": [{"n_neighbors": 3}, {"n_neighbors": 8}]}
    search = GridSearchCV(SemiSupervisedClassifier(), grid, cv=cv, error_score="raise").fit(X, y)
    assert search.best_score_ == 1.0 and search.score(X, y) == 1.0


def test_other_metrics_and_pipelines_work_too() -> None:
    y, cv = NAMES[SHOWN], PartialLabelKFold(3)
    pipeline = make_pipeline(StandardScaler(), SemiSupervisedClassifier())
    assert cross_val_score(pipeline, X, y, cv=cv, scoring="balanced_accuracy").min() == 1.0
    with pytest.raises(ValueError, match="only works for partitions"):
        cross_val_predict(pipeline, X, y, cv=cv)
