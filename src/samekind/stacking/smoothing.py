"""Smoothing of predictions over a graph: F = (1 - alpha) (I - alpha S)^-1 Q with S = D^-1/2 W D^-1/2.

Q (n, C) holds the predictions of a base classifier, or labels alone. Zhou et al. 2004 with predictions in place of labels.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, diags_array

from samekind.graphs.linear_systems import Floats, Labels, conjugate_gradients, degrees, normalize_rows

TOLERANCE = 1e-4  # relative residual: the smoothed probabilities are exact to about this


class Smoother:
    """Solver of the smoothing of one graph W (n, n)."""

    def __init__(self, W: csr_array) -> None:
        degree = degrees(W)
        root = diags_array(np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
        self.S = csr_array(root @ W @ root)

    def solve(self, Q: Floats, alpha: float, tolerance: float = TOLERANCE) -> Floats:
        """Return (1 - alpha) (I - alpha S)^-1 Q for all columns of Q (n, C)."""
        A = csr_array(diags_array(np.ones(len(Q))) - alpha * self.S)
        return (1.0 - alpha) * conjugate_gradients(A, Q, tolerance)

    def smooth(self, Q: Floats, alpha: float) -> Floats:
        """Return the smoothed predictions with rows that sum to 1."""
        return normalize_rows(self.solve(Q, alpha))

    def responses(self, samples: Labels, alpha: float) -> Floats:
        """Return the rows (m, n) of (1 - alpha) (I - alpha S)^-1 for some samples.

        Their product with any Q is the smoothed prediction of these samples, so that many Q cost one solution.
        """
        units = np.zeros((self.S.shape[0], len(samples)))
        units[samples, np.arange(len(samples))] = 1.0
        return self.solve(units, alpha).T


def with_labels(Q: Floats, labelled: Labels, y: Labels) -> Floats:
    """Return Q (n, C) with one-hot rows for the labelled samples."""
    fixed = Q.copy()
    fixed[labelled] = 0.0
    fixed[labelled, y] = 1.0
    return fixed


def balanced_labels(n: int, labelled: Labels, y: Labels, n_classes: int) -> Floats:
    """Return Y (n, C) in which the labels of each class have a total mass of 1, and all other rows are almost 0.

    A tiny mass everywhere gives a sample that no label reaches equal probabilities.
    """
    Y = np.full((n, n_classes), 1e-7 / n)
    np.add.at(Y, (labelled, y), 1.0 / np.maximum(np.bincount(y, minlength=n_classes), 1)[y])
    return Y


def mass_factors(F: Floats, fractions: Floats, steps: int = 10) -> Floats:
    """Return the factor (C,) of each class with which the normalized rows of F * factor have these mean class fractions."""
    factors = np.ones(F.shape[1])
    for _ in range(steps):
        mean = normalize_rows(F * factors).mean(axis=0)
        factors *= np.divide(fractions, mean, out=np.ones_like(mean), where=mean > 0)
    return factors
