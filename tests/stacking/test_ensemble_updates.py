"""Updates of the ensemble, against a full solve with the same weights of the candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from samekind.stacking import ensemble_updates
from samekind.stacking.ensemble_candidates import MIXTURE_GRAPH, MIXTURES, Candidate, Weighting
from samekind.stacking.ensemble_fit import EnsembleFit
from samekind.stacking.ensemble_updates import EnsembleUpdater
from samekind.stacking.stacked_ensemble import fit_stacked_ensemble

Array = NDArray[Any]
N = 40


def samples(n_features: int, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    centers = 3.0 * rng.standard_normal((4, n_features))
    X = centers[np.arange(N) % 4] + rng.standard_normal((N, n_features)) + 2.0
    return torch.from_numpy(X.astype(np.float32))


def spread_evenly(fit: EnsembleFit) -> Weighting:
    """Return a weighting in which every candidate of the ensemble counts, and no temperature is 1."""
    names = [part.base.name for part in fit.bases] + [*fit.trees, "average"]
    candidates = [*map(Candidate, names)]
    candidates += [Candidate("average", graph, alpha) for graph in ("unit", "standardized") for alpha in (0.5, 0.9)]
    candidates += [Candidate("potential", graph, 0.99) for graph in ("unit", "standardized", "both")]
    candidates += [Candidate(name, MIXTURE_GRAPH) for name in MIXTURES]
    return Weighting({c: 1 / len(candidates) for c in candidates}, dict.fromkeys(candidates, 1.5), 0.7)


def renumber(labels: Mapping[int, int]) -> tuple[Array, list[int]]:
    """Return y (N,) with the classes of the labels numbered from 0, and these classes."""
    present = sorted(set(labels.values()))
    y = np.full(N, -1)
    for i, c in labels.items():
        y[i] = present.index(c)
    return y, present


def fit(
    X: torch.Tensor, y: Array, weighting: Weighting | None = None, prior: Array | None = None, *, table: bool = False
) -> EnsembleFit:
    C = int(y.max()) + 1
    return fit_stacked_ensemble(X.double(), y, C, seed=0, weighting=weighting, class_prior=prior, table=table)


START = {0: 0, 4: 0, 1: 1, 5: 1, 2: 2, 6: 2}
changes = st.lists(st.tuples(st.integers(0, N - 1), st.integers(-1, 3)), min_size=1, max_size=6)


@given(st.lists(changes, min_size=1, max_size=4), st.sampled_from([2, 7, 60]))
@settings(max_examples=25, deadline=None)
def test_any_sequence_of_changes_gives_the_answer_of_a_full_solve_with_the_same_weights(steps: Any, n_features: int) -> None:
    X, labels = samples(n_features), dict(START)
    y, present = renumber(labels)
    first = fit(X, y)
    weighting = spread_evenly(first)
    updater = EnsembleUpdater(y, fit(X, y, weighting))
    for step in steps:
        after = dict(labels)
        for i, c in step:
            after.pop(i, None)
            if c >= 0:
                after[i] = c
        if len(set(after.values())) < 2:
            continue
        labels, before = after, present
        y, present = renumber(labels)
        found = updater.update(X, y, [before.index(c) if c in before else -1 for c in present])
        expected = fit(X, y, weighting)
        difference = np.abs(found.probabilities - expected.probabilities)
        assert np.sqrt(np.square(difference).mean()) < 0.004
        assert difference.max() < 0.01


def test_an_update_of_a_table_grows_the_trees_again() -> None:
    X, y = samples(7), renumber(START)[0]
    weighting = spread_evenly(fit(X, y, table=True))
    updater = EnsembleUpdater(y, fit(X, y, weighting, table=True))
    y = y.copy()
    y[[3, 7, 9, 13, 0]] = [3, 3, 1, 1, -1]
    found, expected = updater.update(X, y, [0, 1, 2, -1]), fit(X, y, weighting, table=True)
    assert torch.equal(found.trees["bagged_trees"].value, expected.trees["bagged_trees"].value)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=0.01)


def test_trees_without_weight_are_not_grown_again() -> None:
    X, y = samples(7), renumber(START)[0]
    only = Candidate("boosted_trees")
    weighting = Weighting({only: 1.0}, dict.fromkeys(spread_evenly(fit(X, y, table=True)).weights, 1.0), 1.0)
    y_after = y.copy()
    y_after[9] = 1
    found = EnsembleUpdater(y, fit(X, y, weighting, table=True)).update(X, y_after, [0, 1, 2])
    assert len(found.trees["bagged_trees"].feature) == 0
    np.testing.assert_allclose(found.probabilities, fit(X, y_after, weighting, table=True).probabilities, atol=1e-6)


def test_with_tight_tolerances_the_answer_is_that_of_the_full_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble_updates, "TOLERANCE", 1e-6)
    monkeypatch.setattr(ensemble_updates, "POTENTIAL_TOLERANCE", 1e-6)
    X, y = samples(7), renumber(START)[0]
    potentials = {Candidate("potential", graph, 0.99): 0.5 for graph in ("unit", "standardized")}
    weighting = Weighting(potentials, dict.fromkeys(spread_evenly(fit(X, y)).weights, 1.0), 1.0)
    updater = EnsembleUpdater(y, fit(X, y, weighting))
    y = y.copy()
    y[[7, 8, 0]] = [1, 0, -1]
    found, expected = updater.update(X, y, [0, 1, 2]).probabilities, fit(X, y, weighting).probabilities
    np.testing.assert_allclose(found, expected, atol=2e-4)  # the full solve has a relative residual of 1e-4


def test_a_known_class_prior_is_kept() -> None:
    X, y, prior = samples(7), renumber(START)[0], np.array([0.6, 0.3, 0.1])
    first = fit(X, y, prior=prior)
    y = y.copy()
    y[[8, 12]] = 0
    expected = fit(X, y, first.weighting, prior)
    found = EnsembleUpdater(renumber(START)[0], first, prior).update(X, y, [0, 1, 2])
    np.testing.assert_allclose(found.class_factors, expected.class_factors)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=0.01)


def test_duplicates_of_labelled_samples_and_constant_columns_are_no_new_directions() -> None:
    X = samples(7)
    X[20:] = X[:20]
    X[:, 3] = 5.0
    y = renumber(START)[0]
    first = fit(X, y)
    updater = EnsembleUpdater(y, first)
    y = y.copy()
    y[[20, 24]] = 0  # equal to the labelled samples 0 and 4
    found = updater.update(X, y, [0, 1, 2]).probabilities
    np.testing.assert_allclose(found, fit(X, y, first.weighting).probabilities, atol=0.01)


def test_fifty_labels_of_digits_in_a_row_stay_close_to_the_full_solve() -> None:
    images, truth = load_digits(return_X_y=True)
    X = torch.from_numpy(images.astype(np.float32))
    rng = np.random.default_rng(0)
    y = np.full(len(truth), -1)
    for c in range(10):
        y[rng.choice(np.flatnonzero(truth == c), 4, replace=False)] = c
    first = fit(X, y)
    updater = EnsembleUpdater(y, first)
    for i in rng.choice(len(truth), 50, replace=False):
        y = y.copy()
        y[i] = truth[i]
        found = updater.update(X, y, range(10)).probabilities
    expected = fit(X, y, first.weighting).probabilities
    assert (found.argmax(1) == expected.argmax(1)).mean() > 0.998
    assert np.sqrt(np.square(found - expected).mean()) < 0.002


def test_an_interrupted_update_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = samples(60), renumber(START)[0]
    first = fit(X, y)
    updater, untouched = EnsembleUpdater(y, first), EnsembleUpdater(y, first)
    updater.update(X, y, [0, 1, 2])
    later = y.copy()
    later[[3, 7, 11]] = [0, 1, 2]

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ensemble_updates, "mixed_probabilities", interrupted)
        with pytest.raises(KeyboardInterrupt):
            updater.update(X, later, [0, 1, 2])
    later[12] = 0
    found = updater.update(X, later, [0, 1, 2]).probabilities
    np.testing.assert_allclose(found, untouched.update(X, later, [0, 1, 2]).probabilities, atol=0.003)
