"""`SemiSupervisedClassifier.update`: labels of training samples that are added, corrected and removed after the fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris, make_blobs

from samekind import SemiSupervisedClassifier
from samekind.errors import LabelError, SettingError

Array = NDArray[Any]


def clusters(n: int = 120) -> tuple[Array, Array]:
    X, y = make_blobs(n, centers=[[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]], cluster_std=0.7, random_state=0)
    return X, y


def fitted(labels: dict[int, Any], X: Array, *, unlabelled: Any = -1, **options: Any) -> SemiSupervisedClassifier:
    y = np.full(len(X), unlabelled, dtype=object if unlabelled is None else np.int64)
    for i, label in labels.items():
        y[i] = label
    return SemiSupervisedClassifier(random_state=0, **options).fit(X, y)


def first(y: Array, c: int, k: int = 0) -> int:
    """Return the position of the k-th sample of class c."""
    return int(np.flatnonzero(y == c)[k])


def test_a_corrected_label_changes_the_answer_and_not_only_its_own_sample() -> None:
    X, y = clusters()
    wrong = {first(y, 0): 0, first(y, 0, 1): 0, first(y, 1): 1, first(y, 1, 1): 1, first(y, 2): 0, first(y, 2, 1): 2}
    clf = fitted(wrong, X)
    assert clf.update(first(y, 2), 2) is clf
    np.testing.assert_array_equal(clf.transduction_, y)
    np.testing.assert_array_equal(clf.predict(X), y)


def test_new_samples_and_training_samples_get_the_same_probabilities_after_an_update() -> None:
    X = load_iris().data
    clf = fitted({0: 0, 1: 0, 50: 1, 51: 1, 100: 2, 101: 2}, X)
    clf.update([2, 52, 102], [0, 1, 2])
    np.testing.assert_allclose(clf.predict_proba(X), clf.fitted_proba(), atol=5e-3)
    np.testing.assert_array_equal(clf.classes_[clf.predict_proba(X).argmax(1)], clf.predict(X))
    assert (clf.transduction_[[2, 52, 102]] == [0, 1, 2]).all()


def test_a_new_class_appears_in_its_place_and_its_cluster_follows_the_first_label() -> None:
    X, y = clusters()
    names = np.array(["cat", "dog", "bird"])
    clf = fitted({first(y, c, k): str(names[c]) for c in (0, 1) for k in (0, 1)}, X, unlabelled=None)
    assert clf.classes_.tolist() == ["cat", "dog"]
    clf.update([first(y, 2), first(y, 2, 1)], "bird")
    assert clf.classes_.tolist() == ["bird", "cat", "dog"]
    assert (clf.transduction_ == names[y]).mean() > 0.95
    assert clf.predict_proba(X[:3]).shape == (3, 3)


def test_a_class_without_labels_is_left_out_and_can_return() -> None:
    X, y = clusters()
    clf = fitted({first(y, c, k): c for c in range(3) for k in (0, 1)}, X)
    before = clf.fitted_proba()
    clf.update([first(y, 2), first(y, 2, 1)], -1)
    assert clf.classes_.tolist() == [0, 1]
    assert clf.fitted_proba().shape == (len(X), 2)
    clf.update([first(y, 2), first(y, 2, 1)], [2, 2])
    assert clf.classes_.tolist() == [0, 1, 2]
    np.testing.assert_allclose(clf.fitted_proba(), before, atol=0.01)


def test_labelled_samples_keep_their_labels_in_the_transduction() -> None:
    X, y = clusters()
    clf = fitted({first(y, c, k): c for c in range(3) for k in (0, 1)}, X)
    odd = first(y, 0, 7)
    assert clf.update(odd, 1).transduction_[odd] == 1
    assert clf.update(odd, -1).transduction_[odd] == 0


def test_an_update_without_labels_only_prepares() -> None:
    X, y = clusters()
    clf = fitted({first(y, c, k): c for c in range(3) for k in (0, 1)}, X)
    before = clf.fitted_proba()
    np.testing.assert_allclose(clf.update([], []).fitted_proba(), before, atol=5e-3)


def test_an_updated_model_is_saved_and_loaded_with_its_new_labels(tmp_path: Path) -> None:
    X, y = clusters()
    clf = fitted({first(y, c, k): c for c in (0, 1) for k in (0, 1)}, X).update(first(y, 2), 2)
    clf.save(tmp_path / "model")
    loaded = SemiSupervisedClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transduction_, clf.transduction_)
    np.testing.assert_allclose(loaded.predict_proba(X), clf.predict_proba(X))
    with pytest.raises(LabelError, match=r"loaded from a file.*Call fit with all labels"):
        loaded.update(0, 1)


def test_a_refit_is_a_fit_with_the_new_labels() -> None:
    X, y = clusters()
    labels = {first(y, c, k): c for c in (0, 1) for k in (0, 1)}
    clf = fitted(labels, X)
    changes = {first(y, 2, k): 2 for k in range(3)} | {first(y, 0, k): 0 for k in range(2, 6)}
    clf.update(list(changes), list(changes.values()))
    assert clf.refit() is clf
    expected = fitted(labels | changes, X)
    np.testing.assert_array_equal(clf.fitted_proba(), expected.fitted_proba())
    np.testing.assert_array_equal(clf.predict_proba(X), expected.predict_proba(X))
    assert clf.quality_ == expected.quality_
    assert clf.quality_.n_labels == 11
    clf.update(first(y, 1, 9), 1)  # a refitted model is updated in turn
    assert clf.transduction_[first(y, 1, 9)] == 1
    assert clf.quality_.n_labels == 11


@pytest.mark.parametrize(
    ("indices", "labels", "message"),
    [
        ([0, 1], [0], "indices name 2 samples, and labels has 1 entries"),
        ([500], [0], "index 500 is not the position of a training sample; the model was fitted on 120 samples"),
        ([-121], [0], "index -121 is not the position of a training sample"),
        ([0, -120], [0, 1], "sample 0 more than once"),
        ([0.5], [0], "indices are of type float64"),
        ([True, False], [0, 1], "For a mask, pass np.flatnonzero"),
        ([0], ["cat"], "mixes types of labels"),
        ([0], [0.5], "fractions or infinity"),
    ],
)
def test_a_wrong_update_is_refused_and_changes_nothing(indices: Any, labels: Any, message: str) -> None:
    X, y = clusters()
    clf = fitted({first(y, c, k): c for c in range(3) for k in (0, 1)}, X)
    before = clf.fitted_proba()
    with pytest.raises(LabelError, match=message):
        clf.update(indices, labels)
    np.testing.assert_array_equal(clf.fitted_proba(), before)


def test_the_last_label_of_the_second_class_cannot_be_removed() -> None:
    X, y = clusters()
    clf = fitted({first(y, 0): 0, first(y, 1): 1}, X)
    with pytest.raises(LabelError, match="one class only"):
        clf.update(first(y, 1), -1)
    with pytest.raises(LabelError, match="no sample would have a label"):
        clf.update([first(y, 0), first(y, 1)], -1)
    assert clf.classes_.tolist() == [0, 1]


def test_a_method_that_is_trained_by_steps_has_to_be_fitted_again() -> None:
    X, y = clusters()
    clf = fitted({first(y, c): c for c in range(3)}, X, method="poisson")
    with pytest.raises(LabelError, match="method is not 'ensemble'"):
        clf.update(0, 1)
    with pytest.raises(LabelError, match="method is not 'ensemble'"):
        clf.refit()


def test_a_new_class_needs_a_new_class_prior() -> None:
    X, y = clusters()
    clf = fitted({first(y, 0): 0, first(y, 1): 1}, X, settings={"class_prior": [0.3, 0.7]})
    before = clf.fitted_proba()
    with pytest.raises(SettingError, match="class_prior has 2 fractions, but the labels now have 3 classes"):
        clf.update(first(y, 2), 2)
    np.testing.assert_array_equal(clf.update(first(y, 0, 1), 0).classes_, [0, 1])
    assert clf.fitted_proba().shape == before.shape
