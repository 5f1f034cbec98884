"""Gaussian mixtures fitted by expectation maximization (EM) to labelled and unlabelled samples, one Gaussian for each class.

With one covariance for all classes this is linear discriminant analysis (Fisher 1936) that also learns from unlabelled samples;
with a covariance of its own for each class, quadratic discriminant analysis. Labelled samples keep their class in each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from samekind.graphs.linear_systems import Floats, Labels, normalize_rows
from samekind.stacking.kernel_logistic import softmax

SHARED = "shared_covariance"  # names of the two mixtures
OWN = "own_covariances"
ITERATIONS = 5  # steps of EM
MIN_VARIANCE = 1e-8  # components with less than this fraction of the largest variance are dropped
NOISE = 0.01  # of the mean variance, added to each variance before components are scaled to variance 1
SHARED_SHRINKAGE = 0.1  # of the shared covariance, towards a multiple of the identity
OWN_SHRINKAGE = 0.3  # of the covariance of a class, towards the mean covariance of all classes
OWN_ROUNDING = 0.05  # of the covariance of a class, towards a multiple of the identity
OWN_COMPONENTS = 20  # components that covariances of single classes use: the first ones
OWN_PRIOR = 1.0  # samples, as a fraction of all, that are added to each class before its fraction is estimated
MIN_FRACTION = 1e-6  # least known class fraction
MAX_SAMPLES = 4000  # that EM sees, if no more are labelled
CHUNK = 1024  # samples that are predicted together
TINY = 1e-9


class LabelledSamples(NamedTuple):
    """Positions of the labelled samples among the samples of a mixture, and their classes."""

    samples: Labels
    y: Labels


class QuadraticForm(NamedTuple):
    """Log-densities of the classes, up to a common constant: phi(x) @ coefficients + bias.

    phi(x) is x for a shared covariance, and `quadratic_terms(x)` for a covariance of each class.
    """

    coefficients: Floats  # (p or p + p^2, C)
    bias: Floats  # (C,)

    def probabilities(self, terms: NDArray[Any]) -> Floats:
        """Return the class probabilities (n, C) of samples with the given terms phi(x)."""
        return softmax(terms @ self.coefficients.astype(terms.dtype) + self.bias)


def whiten(points: Floats) -> Floats:
    """Return the principal components of points (n, d), each scaled to variance 1, the one with the largest variance first."""
    centred = points - points.mean(axis=0)
    variances, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = variances > MIN_VARIANCE * max(float(variances[-1]), TINY)
    if not kept.any():
        return np.zeros((len(points), 1))
    variances, vectors = variances[kept][::-1], vectors[:, kept][:, ::-1]
    return np.asarray(centred @ (vectors / np.sqrt(variances + NOISE * variances.mean())))


def quadratic_terms(W: NDArray[Any]) -> NDArray[Any]:
    """Return the components of W (n, p) and all products of two of them, (n, p + p^2)."""
    return np.concatenate([W, (W[:, :, None] * W[:, None, :]).reshape(len(W), -1)], axis=1)


def fit_shared_covariance(
    W: Floats, start: Floats, labelled: LabelledSamples, fractions: Floats | None = None
) -> QuadraticForm:
    """Return the mixture whose classes share one covariance, fitted to whitened samples W (n, p).

    `start` (n, C) holds the class probabilities that EM starts from. `fractions` (C,) are the class fractions; without them EM
    estimates them.
    """
    total, R = W.T @ W / len(W), start
    for _ in range(ITERATIONS):
        R = _with_labels(R, labelled)
        counts = R.sum(axis=0) + TINY
        means, shares = (R.T @ W) / counts[:, None], counts / counts.sum()
        within = _rounded(total - (means.T * shares) @ means, SHARED_SHRINKAGE)
        coefficients = np.linalg.solve(within, means.T)
        bias = np.log(shares if fractions is None else fractions) - 0.5 * (means.T * coefficients).sum(axis=0)
        form = QuadraticForm(coefficients, bias)
        R = form.probabilities(W)
    return form


def fit_own_covariances(
    terms: Floats, start: Floats, labelled: LabelledSamples, fractions: Floats | None = None
) -> QuadraticForm:
    """Return the mixture whose classes have a covariance each, fitted to the `quadratic_terms` (n, p + p^2) of the samples.

    `start` and `fractions` are those of `fit_shared_covariance`. Estimated fractions are moved towards equal ones.
    """
    p = int(np.sqrt(terms.shape[1] + 0.25))
    R = start
    for _ in range(ITERATIONS):
        R = _with_labels(R, labelled)
        counts = R.sum(axis=0) + TINY
        moments = (R.T @ terms) / counts[:, None]
        means, products = moments[:, :p], moments[:, p:].reshape(-1, p, p)
        prior = counts + OWN_PRIOR * len(R)
        shares = prior / prior.sum() if fractions is None else fractions
        form = _quadratic_form(means, products - means[:, :, None] * means[:, None, :], shares)
        R = form.probabilities(terms)
    return form


def _quadratic_form(means: Floats, covariances: Floats, shares: Floats) -> QuadraticForm:
    """Return the log-densities of Gaussians with means (C, p), covariances (C, p, p) and class fractions (C,)."""
    common = np.tensordot(shares, covariances, axes=1)
    shrunk = np.stack([_rounded((1.0 - OWN_SHRINKAGE) * S + OWN_SHRINKAGE * common, OWN_ROUNDING) for S in covariances])
    inverse = np.linalg.inv(shrunk)
    linear = np.einsum("cpq,cq->cp", inverse, means)
    bias = np.log(shares) - 0.5 * np.linalg.slogdet(shrunk)[1] - 0.5 * (linear * means).sum(axis=1)
    return QuadraticForm(np.concatenate([linear, -0.5 * inverse.reshape(len(means), -1)], axis=1).T, bias)


def _rounded(S: Floats, shrinkage: float) -> Floats:
    """Return a covariance (p, p) moved by `shrinkage` towards the multiple of the identity with the same trace."""
    p = len(S)
    round_part = shrinkage * max(float(np.trace(S)) / p, 0.0) + TINY
    return np.asarray((1.0 - shrinkage) * S + round_part * np.eye(p))


def _with_labels(R: Floats, labelled: LabelledSamples) -> Floats:
    fixed = R.copy()
    fixed[labelled.samples] = 0.0
    fixed[labelled.samples, labelled.y] = 1.0
    return fixed


@dataclass(frozen=True)
class MixtureFitter:
    """Fits both mixtures to some of the samples, which include all labelled ones, and predicts any sample.

    Known class fractions (C,) stay fixed while EM runs. `predict` then converts the predictions to the class fractions
    `assumed` (C,) that the other candidates of the ensemble assume.
    """

    W: NDArray[np.float32]  # (n, p): whitened samples
    rows: Labels  # positions of the samples that EM sees, in ascending order

    @classmethod
    def choose(cls, points: Floats, labelled: Labels, rng: np.random.Generator) -> MixtureFitter:
        """Return the fitter for points (n, d) that sees the labelled samples and, up to MAX_SAMPLES, random others."""
        others = rng.permutation(np.setdiff1d(np.arange(len(points)), labelled))[: max(0, MAX_SAMPLES - len(labelled))]
        return cls(whiten(points).astype(np.float32), np.sort(np.concatenate([labelled, others])))

    def including(self, labelled: Labels) -> MixtureFitter:
        """Return the fitter that also sees the given samples."""
        return replace(self, rows=np.union1d(self.rows, labelled))

    def fit(self, name: str, start: Floats, index: Labels, y: Labels, known: Floats | None) -> QuadraticForm:
        """Return the mixture `name` of the samples `rows`, from class probabilities `start`, with the labels y at `index`."""
        labelled = LabelledSamples(np.searchsorted(self.rows, index), y)
        fractions = None if known is None else _positive(known)
        terms = self._terms(name, self.rows).astype(np.float64)
        fit_one = fit_shared_covariance if name == SHARED else fit_own_covariances
        return fit_one(terms, start, labelled, fractions)

    def predict(
        self, name: str, form: QuadraticForm, samples: Labels, known: Floats | None = None, assumed: Floats | None = None
    ) -> Floats:
        """Return the class probabilities (m, C) of some samples by the mixture `name`."""
        factors = 1.0 if known is None or assumed is None else assumed / _positive(known)
        found = []
        for start in range(0, len(samples), CHUNK):
            terms = self._terms(name, samples[start : start + CHUNK])
            found.append(normalize_rows(form.probabilities(terms) * factors))
        return np.concatenate(found)

    def _terms(self, name: str, samples: Labels) -> NDArray[np.float32]:
        return self.W[samples] if name == SHARED else quadratic_terms(self.W[samples, :OWN_COMPONENTS])


class FittedMixtures(NamedTuple):
    """The mixtures of a fitted ensemble, and what fitted them."""

    fitter: MixtureFitter
    forms: Mapping[str, QuadraticForm]

    def refit(
        self,
        names: Sequence[str],
        start: Callable[[Labels], Floats],
        index: Labels,
        y: Labels,
        known: Floats | None,
        assumed: Floats | None,
    ) -> dict[str, NDArray[Any]]:
        """Return the probabilities (n, C) of all samples by some mixtures, fitted to the labels y (m,) of the samples `index`.

        `start` returns for some samples the class probabilities that EM starts from.
        """
        fitter = self.fitter.including(index)
        begin, found = start(fitter.rows), {}
        for name in names:
            form = fitter.fit(name, begin, index, y, known)
            found[name] = np.asfortranarray(fitter.predict(name, form, np.arange(len(fitter.W)), known, assumed))
        return found


def _positive(fractions: Floats) -> Floats:
    return np.maximum(fractions, MIN_FRACTION)
