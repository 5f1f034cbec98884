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

# names of the mixture with one covariance for all classes, and of the mixture with a covariance for each class
SHARED = "shared_covariance"
OWN = "own_covariances"
ITERATIONS = 5  # number of EM steps
MIN_VARIANCE = 1e-8  # principal components are dropped if their variance is less than this fraction of the largest variance
NOISE = 0.01  # this fraction of the mean variance is added to each variance before the components are scaled to variance 1
SHARED_SHRINKAGE = 0.1  # weight of a multiple of the identity in the shared covariance
OWN_SHRINKAGE = 0.3  # weight of the mean covariance of all classes in the covariance of each class
OWN_ROUNDING = 0.05  # weight of a multiple of the identity in the covariance of each class
OWN_COMPONENTS = 20  # number of principal components, the leading ones, for the mixture with a covariance for each class
# before the class fractions are estimated, each class gets this many further samples, as a fraction of all samples
OWN_PRIOR = 1.0
MIN_FRACTION = 1e-6  # class fractions given by the user are raised to at least this
MAX_SAMPLES = 4000  # largest number of samples in EM, unless more are labelled
CHUNK = 1024  # number of samples that are predicted at a time
TINY = 1e-9


class LabelledSamples(NamedTuple):
    """Positions of the labelled samples among the samples in EM, and their classes."""

    samples: Labels
    y: Labels


class QuadraticForm(NamedTuple):
    """Log-densities of the classes at a sample x: phi(x) @ coefficients + bias, up to a constant that all classes share.

    phi(x) is x if all classes share one covariance, and `quadratic_terms(x)` if each class has its own.
    """

    coefficients: Floats  # (p, C), or (p + p^2, C) with quadratic terms
    bias: Floats  # (C,)

    def probabilities(self, terms: NDArray[Any]) -> Floats:
        """Return the class probabilities (n, C) of samples, from their terms phi(x)."""
        return softmax(terms @ self.coefficients.astype(terms.dtype) + self.bias)


def whiten(points: Floats) -> Floats:
    """Return the principal components of points (n, d), each scaled to variance 1.

    The component of largest variance comes first.
    """
    centred = points - points.mean(axis=0)
    variances, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = variances > MIN_VARIANCE * max(float(variances[-1]), TINY)
    if not kept.any():
        return np.zeros((len(points), 1))
    variances, vectors = variances[kept][::-1], vectors[:, kept][:, ::-1]
    return np.asarray(centred @ (vectors / np.sqrt(variances + NOISE * variances.mean())))


def quadratic_terms(W: NDArray[Any]) -> NDArray[Any]:
    """Return the p components of each sample W (n, p), followed by all products of two components: (n, p + p^2)."""
    return np.concatenate([W, (W[:, :, None] * W[:, None, :]).reshape(len(W), -1)], axis=1)


def fit_shared_covariance(
    W: Floats, start: Floats, labelled: LabelledSamples, fractions: Floats | None = None
) -> QuadraticForm:
    """Return the mixture of Gaussians with one covariance for all classes, fitted to whitened samples W (n, p).

    EM starts from the class probabilities `start` (n, C). `fractions` (C,) are the class fractions. If they are None, EM
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
    """Return the mixture of Gaussians with a covariance for each class.

    `terms` (n, p + p^2) are the samples' `quadratic_terms`.

    EM starts from the class probabilities `start` (n, C). `fractions` (C,) are the class fractions. If they are None, EM
    estimates them, and moves the estimates towards equal fractions.
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
    """Return the log-densities of Gaussians with `means` (C, p), `covariances` (C, p, p) and class fractions `shares` (C,)."""
    common = np.tensordot(shares, covariances, axes=1)
    shrunk = np.stack([_rounded((1.0 - OWN_SHRINKAGE) * S + OWN_SHRINKAGE * common, OWN_ROUNDING) for S in covariances])
    inverse = np.linalg.inv(shrunk)
    linear = np.einsum("cpq,cq->cp", inverse, means)
    bias = np.log(shares) - 0.5 * np.linalg.slogdet(shrunk)[1] - 0.5 * (linear * means).sum(axis=1)
    return QuadraticForm(np.concatenate([linear, -0.5 * inverse.reshape(len(means), -1)], axis=1).T, bias)


def _rounded(S: Floats, shrinkage: float) -> Floats:
    """Return a covariance S (p, p), moved by `shrinkage` towards the multiple of the identity with the same trace."""
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
    """Fits both Gaussian mixtures to a part of the samples, which includes all labelled ones, and predicts any sample.

    If the class fractions are known, they stay fixed during EM. `predict` then converts its probabilities to the class
    fractions `assumed` (C,), because all other models of the ensemble assume those.
    """

    W: NDArray[np.float32]  # (n, p): whitened samples
    rows: Labels  # positions of the samples in EM, in ascending order

    @classmethod
    def choose(cls, points: Floats, labelled: Labels, rng: np.random.Generator) -> MixtureFitter:
        """Return the fitter for points (n, d).

        Its EM uses the labelled samples and, up to MAX_SAMPLES, random other samples.
        """
        others = rng.permutation(np.setdiff1d(np.arange(len(points)), labelled))[: max(0, MAX_SAMPLES - len(labelled))]
        return cls(whiten(points).astype(np.float32), np.sort(np.concatenate([labelled, others])))

    def including(self, labelled: Labels) -> MixtureFitter:
        """Return the fitter whose EM also uses these labelled samples."""
        return replace(self, rows=np.union1d(self.rows, labelled))

    def fit(self, name: str, start: Floats, index: Labels, y: Labels, known: Floats | None) -> QuadraticForm:
        """Return the mixture `name`, fitted to the samples in `rows`, where the samples `index` have the labels `y`.

        EM starts from the class probabilities `start`. `known` (C,) are the class fractions, or None.
        """
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
    """The Gaussian mixtures of a fitted ensemble, and the object that fitted them."""

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
        """Return the probabilities (n, C) of all samples by each mixture in `names`, fitted again to the labels y (m,).

        `index` (m,) are the positions of the labelled samples. `start` returns the class probabilities that EM starts from, for
        samples at given positions.
        """
        fitter = self.fitter.including(index)
        begin, found = start(fitter.rows), {}
        for name in names:
            form = fitter.fit(name, begin, index, y, known)
            found[name] = np.asfortranarray(fitter.predict(name, form, np.arange(len(fitter.W)), known, assumed))
        return found


def _positive(fractions: Floats) -> Floats:
    return np.maximum(fractions, MIN_FRACTION)
