"""Gaussian mixtures by EM: against scikit-learn's discriminant analysis, class fractions recovered, degenerate input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

from samekind.stacking import gaussian_mixtures
from samekind.stacking.gaussian_mixtures import (
    OWN,
    SHARED,
    LabelledSamples,
    MixtureFitter,
    fit_own_covariances,
    fit_shared_covariance,
    quadratic_terms,
    whiten,
)
from samekind.stacking.kernel_logistic import softmax


def one_hot(y: np.ndarray, n_classes: int) -> np.ndarray:
    return np.asarray(np.eye(n_classes)[y])


def clusters(rng: np.random.Generator, sizes: list[int], d: int, distance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return samples of Gaussian classes of the given sizes, and their classes."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    centres = distance * np.linalg.qr(rng.standard_normal((d, d)))[0][: len(sizes)]
    return centres[y] + rng.standard_normal((len(y), d)), y


def test_whitened_components_are_uncorrelated_and_have_variance_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussian_mixtures, "NOISE", 0.0)
    X = np.random.default_rng(0).standard_normal((200, 4)) @ np.array(
        [[3, 1, 0, 0], [0, 2, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1.0]]
    )
    np.testing.assert_allclose(np.cov(whiten(X).T, bias=True), np.eye(4), atol=1e-8)


def test_with_all_labels_and_no_shrinkage_it_is_linear_discriminant_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussian_mixtures, "SHARED_SHRINKAGE", 0.0)
    X, y = clusters(np.random.default_rng(0), [30, 50, 70], 5, 2.0)
    W = whiten(X)
    form = fit_shared_covariance(W, one_hot(y, 3), LabelledSamples(np.arange(len(y)), y))
    # scikit-learn divides the scatter by n - 3, the likelihood by n, so the covariance of the former is given the same scale
    expected = LinearDiscriminantAnalysis(solver="lsqr").fit(W, y)
    logits = W @ form.coefficients + form.bias - np.log(np.bincount(y) / len(y))
    of_sklearn = expected.decision_function(W) - np.log(expected.priors_)
    scale = (logits - logits[:, :1])[:, 1:] / (of_sklearn - of_sklearn[:, :1])[:, 1:]
    np.testing.assert_allclose(scale, scale[0, 0], rtol=1e-5)
    assert scale[0, 0] == pytest.approx(1.0, abs=0.05)


def test_with_all_labels_and_no_shrinkage_it_is_quadratic_discriminant_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OWN_SHRINKAGE", "OWN_ROUNDING", "OWN_PRIOR"):
        monkeypatch.setattr(gaussian_mixtures, name, 0.0)
    rng = np.random.default_rng(0)
    X, y = clusters(rng, [300, 500], 3, 1.0)
    X[y == 1] *= 2.0
    terms = quadratic_terms(X)
    form = fit_own_covariances(terms, one_hot(y, 2), LabelledSamples(np.arange(len(y)), y))
    expected = QuadraticDiscriminantAnalysis().fit(X, y).predict_proba(X)
    np.testing.assert_allclose(form.probabilities(terms), expected, atol=0.02)


@pytest.mark.parametrize("sizes", [[180, 20], [60, 120, 20], [30, 170]])
def test_class_fractions_are_recovered_from_equally_many_labels(sizes: list[int]) -> None:
    differences = []
    for seed in range(20):
        X, y = clusters(np.random.default_rng(seed), sizes, 6, 5.0)
        index = np.concatenate([np.flatnonzero(y == c)[:3] for c in range(len(sizes))])
        W = whiten(X)
        centres = np.stack([W[index[y[index] == c]].mean(axis=0) for c in range(len(sizes))])
        start = softmax(-np.square(W[:, None] - centres).sum(axis=2))
        P = fit_shared_covariance(W, start, LabelledSamples(index, y[index])).probabilities(W)
        differences.append(np.abs(P.mean(axis=0) - np.array(sizes) / sum(sizes)).max())
    assert np.median(differences) < 0.03  # three labels of a class may lie so that EM ends elsewhere


def test_known_fractions_are_kept_and_predictions_assume_equal_ones() -> None:
    X, y = clusters(np.random.default_rng(1), [180, 20], 3, 2.0)
    index = np.concatenate([np.flatnonzero(y == c)[:5] for c in range(2)])
    known = np.array([0.9, 0.1])
    fitter = MixtureFitter.choose(X, index, np.random.default_rng(0))
    start = np.full((len(fitter.rows), 2), 0.5)
    for name in (SHARED, OWN):
        P = fitter.predict(
            name, fitter.fit(name, start, index, y[index], known), np.arange(len(y)), known, np.array([0.5, 0.5])
        )
        with_known = P * known / (P * known).sum(axis=1, keepdims=True)
        assert (with_known.argmax(axis=1) == y).mean() > 0.85
        assert P[:, 1].mean() > with_known[:, 1].mean()


def test_samples_above_the_limit_are_predicted_although_em_does_not_see_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussian_mixtures, "MAX_SAMPLES", 50)
    monkeypatch.setattr(gaussian_mixtures, "CHUNK", 64)
    X, y = clusters(np.random.default_rng(2), [150, 150], 4, 6.0)
    index = np.array([0, 299])
    fitter = MixtureFitter.choose(X, index, np.random.default_rng(0))
    assert len(fitter.rows) == 50
    assert set(index) <= set(fitter.rows)
    new = np.array([i for i in range(300) if i not in set(fitter.rows)][:2])
    assert len(fitter.including(new).rows) == 52
    start = one_hot(y[fitter.rows], 2)
    P = fitter.predict(SHARED, fitter.fit(SHARED, start, index, y[index], None), np.arange(300))
    assert P.shape == (300, 2)
    assert (P.argmax(axis=1) == y).mean() > 0.97


@given(st.sampled_from(["zeros", "duplicates", "wide", "one column"]), st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_degenerate_points_give_probabilities(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = {
        "zeros": np.zeros((12, 3)),
        "duplicates": np.repeat(rng.standard_normal((2, 3)), 6, axis=0),
        "wide": rng.standard_normal((12, 40)),
        "one column": rng.standard_normal((12, 1)),
    }[kind]
    index, y = np.array([0, 6]), np.array([0, 1])
    fitter = MixtureFitter.choose(points, index, rng)
    start = rng.dirichlet(np.ones(3), len(fitter.rows))  # the third class has no label
    for name in (SHARED, OWN):
        P = fitter.predict(name, fitter.fit(name, start, index, y, None), np.arange(12))
        assert np.isfinite(P).all()
        np.testing.assert_allclose(P.sum(axis=1), 1.0)
