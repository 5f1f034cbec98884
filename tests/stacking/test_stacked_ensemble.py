"""The whole ensemble: what it weighs, class fractions, degenerate input, and that it beats labels alone on clusters."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from samekind.errors import ClassFractionWarning
from samekind.methods.ensemble import check_fractions
from samekind.methods.ensemble_predictor import EnsemblePredictor
from samekind.stacking.ensemble_candidates import WITHOUT_HELD_OUT, Candidate
from samekind.stacking.ensemble_fit import ValidationLabels
from samekind.stacking.stacked_ensemble import fit_stacked_ensemble, label_fractions

Array = NDArray[Any]


def hide(y: Array, per_class: int, seed: int = 0) -> Array:
    """Return y with all but `per_class` labels of each class set to -1."""
    shown, rng = np.full(len(y), -1), np.random.default_rng(seed)
    for c in np.unique(y):
        chosen = rng.choice(np.flatnonzero(y == c), per_class, replace=False)
        shown[chosen] = c
    return shown


def fit(X: Array, y: Array, **options: Any) -> Any:
    return fit_stacked_ensemble(torch.from_numpy(np.asarray(X, dtype=np.float64)), y, int(y.max()) + 1, seed=0, **options)


def test_moons_are_separated_with_ten_labels_a_class() -> None:
    X, y = make_moons(400, noise=0.08, random_state=0)
    fitted = fit(X, hide(y, 10))
    assert (fitted.probabilities.argmax(1) == y).mean() > 0.97


def test_digits_have_fewer_errors_than_each_linear_classifier_alone() -> None:
    X, y = load_digits(return_X_y=True)
    shown = hide(y, 5)
    fitted = fit(X, shown)
    scaled = StandardScaler().fit_transform(X)
    linear = LogisticRegression(max_iter=1000).fit(scaled[shown >= 0], shown[shown >= 0]).predict(scaled)
    assert (fitted.probabilities.argmax(1) != y).mean() < (linear != y).mean() - 0.02


def test_candidates_that_held_out_labels_contradict_get_no_weight() -> None:
    X, y = make_moons(400, noise=0.08, random_state=0)
    weights = fit(X, hide(y, 10)).weights
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights.get(Candidate("unit"), 0.0) < 0.01  # rows of length 1 mix the two moons


def test_a_base_without_weight_is_not_stored_and_new_samples_get_the_same_predictions() -> None:
    X, y = load_digits(return_X_y=True)
    fitted = fit(X, hide(y, 10))
    known = np.array([name in ("unit", "rbf") for name in (part.base.name for part in fitted.bases)])
    weights = np.append(np.where(known, 0.5, 0.0), 0.0)  # the last one is the weight of the average of all bases
    dropped = EnsemblePredictor.from_fit(replace(fitted, base_weights=weights))
    # a positive weight of the average, too small to change a sum in double precision, stores all bases
    stored = EnsemblePredictor.from_fit(replace(fitted, base_weights=np.append(weights[:-1], 1e-300)))
    z = torch.from_numpy(X[::7]).double()
    assert torch.equal(dropped.probabilities(z), stored.probabilities(z))
    empty = {name for name, shape in dropped.shapes().items() if name.endswith("_coefficients") and shape[0] == 0}
    assert empty == {f"{part.base.name}_coefficients" for part, used in zip(fitted.bases, known, strict=True) if not used}


def test_without_a_second_label_in_any_class_the_graphs_decide() -> None:
    X, y = make_moons(100, noise=0.08, random_state=0)
    fitted = fit(X, hide(y, 1))
    assert fitted.held_out is None
    assert set(fitted.weights) == set(WITHOUT_HELD_OUT)
    potential, average = (fitted.weights[c] for c in (Candidate("potential", "both", 0.99), Candidate("average")))
    assert potential > average  # a line cuts the moons, the potential does not


def test_a_smaller_cut_counts_more_with_fewer_labels() -> None:
    candidate = Candidate("unit")
    gains = [candidate.log_prior(0.1, labels) - candidate.log_prior(0.3, labels) for labels in (1, 2, 10)]
    assert gains[0] > gains[1] > gains[2] > 0
    assert str(Candidate("potential", "both", 0.99)) == "potential on both graphs, alpha 0.99"
    assert str(Candidate("own_covariances", "standardized")) == "own_covariances"


def test_gaussians_of_different_width_around_one_centre_are_separated() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 200)
    X = rng.standard_normal((400, 8)) * np.where(y == 0, 0.4, 2.0)[:, None]
    fitted = fit(X, hide(y, 5))
    assert (fitted.probabilities.argmax(1) != y).mean() < 0.03
    assert fitted.weights[Candidate("own_covariances", "standardized")] > 0.2


def test_a_known_class_prior_moves_the_class_fractions_towards_it() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [450, 50])
    X = y[:, None] * 1.5 + rng.standard_normal((500, 2))
    shown = hide(y, 5)
    without, known = fit(X, shown), fit(X, shown, class_prior=np.array([0.9, 0.1]))
    errors = [(one.probabilities.argmax(1) != y).mean() for one in (without, known)]
    assert errors[1] < errors[0]
    assert known.probabilities.mean(0)[1] < without.probabilities.mean(0)[1]


def test_label_fractions_are_shrunk_towards_equal_ones() -> None:
    np.testing.assert_allclose(label_fractions(np.array([0, 0, 1, 1]), 2), [0.5, 0.5])
    fractions = label_fractions(np.repeat([0, 1], [90, 10]), 2)
    assert 0.8 < fractions[0] < 0.9


def duplicates(rng: np.random.Generator) -> Array:
    return np.repeat(rng.standard_normal((4, 3)), 5, axis=0)


def wide(rng: np.random.Generator) -> Array:
    return rng.standard_normal((20, 300))


def constant_columns(rng: np.random.Generator) -> Array:
    return np.concatenate([np.full((20, 2), 7.0), rng.standard_normal((20, 1))], axis=1)


def all_equal(rng: np.random.Generator) -> Array:
    return np.zeros((20, 3))


def far_outlier(rng: np.random.Generator) -> Array:
    X = rng.standard_normal((20, 3))
    X[7] = 1e8
    return X


def without_neighbours(rng: np.random.Generator) -> Array:
    """Return samples of which the first three are far from all others and from each other."""
    X = rng.standard_normal((20, 3))
    X[:3] += 1e4 * np.eye(3)
    return X


@given(
    st.sampled_from([duplicates, wide, constant_columns, all_equal, far_outlier, without_neighbours]),
    st.lists(st.integers(-1, 2), min_size=20, max_size=20).filter(lambda y: len(set(y) - {-1}) >= 2),
)
@settings(max_examples=40, deadline=None)
def test_degenerate_input_gives_probabilities(make: Any, labels: list[int]) -> None:
    y = np.array(labels)
    present = np.unique(y[y >= 0])
    codes = np.where(y >= 0, np.searchsorted(present, y), -1)
    P = fit(make(np.random.default_rng(0)), codes).probabilities
    assert np.isfinite(P).all() and (P >= 0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0)


def test_the_same_seed_gives_the_same_probabilities() -> None:
    X, y = make_moons(60, noise=0.1, random_state=0)
    np.testing.assert_array_equal(fit(X, hide(y, 2)).probabilities, fit(X, hide(y, 2)).probabilities)


def test_predicted_fractions_far_from_every_estimate_warn() -> None:
    X, y = make_moons(100, noise=0.08, random_state=0)
    shown = hide(y, 2)
    fitted = fit(X, shown)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_fractions(fitted, shown)
    collapsed = replace(fitted, probabilities=np.tile([0.9, 0.1], (100, 1)), fraction_estimates=(np.array([0.2, 0.8]),))
    with pytest.warns(ClassFractionWarning, match="differ by 80 points"):
        check_fractions(collapsed, shown)


def validation_case() -> tuple[Tensor, Array, Array]:
    """Return two overlapping blobs, their labels, of which five per class are known, and their classes."""
    truth = np.arange(80) % 2
    X = torch.from_numpy(np.random.default_rng(0).normal(0.0, 1.0, (80, 4)) + 1.5 * truth[:, None])
    return X, np.where(np.arange(80) < 10, truth, -1), truth


def test_validation_labels_weigh_the_models_and_train_none_of_them() -> None:
    X, y, truth = validation_case()
    index = np.arange(20, 40)
    right, wrong = (
        fit_stacked_ensemble(X, y, 2, seed=0, validation=ValidationLabels(index, labels[index]))
        for labels in (truth, 1 - truth)
    )
    assert all(torch.equal(a.coefficients, b.coefficients) for a, b in zip(right.bases, wrong.bases, strict=True))
    assert right.weights != wrong.weights
    assert right.held_out is not None and np.array_equal(right.held_out[1], truth[index])


def test_the_probabilities_of_validation_samples_are_those_of_the_whole_fit() -> None:
    X, y, truth = validation_case()
    index = np.arange(20, 40)
    fitted = fit_stacked_ensemble(X, y, 2, seed=0, validation=ValidationLabels(index, truth[index]))
    assert fitted.held_out is not None
    np.testing.assert_allclose(fitted.held_out[0], fitted.probabilities[index])
