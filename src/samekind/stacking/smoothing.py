"""Smoothing of predictions over a graph: F = (1 - alpha) (I - alpha S)^-1 Q with S = D^-1/2 W D^-1/2.

Q (n, C) holds the predictions of a base classifier: Zhou et al. 2004 with predictions in place of labels. Labels alone become
sources of a potential: Calder et al. 2020, with alpha just below 1 so that a graph of several components needs no special case.
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
        self.inverse_root = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
        root = diags_array(self.inverse_root)
        self.S = csr_array(root @ W @ root)

    def solve(self, Q: Floats, alpha: float, tolerance: float = TOLERANCE) -> Floats:
        """Return (1 - alpha) (I - alpha S)^-1 Q for all columns of Q (n, C), in the precision of Q."""
        A = csr_array(diags_array(np.ones(len(Q))) - alpha * self.S, dtype=Q.dtype)
        return (1.0 - alpha) * conjugate_gradients(A, Q, tolerance)

    def smooth(self, Q: Floats, alpha: float) -> Floats:
        """Return the smoothed predictions with rows that sum to 1."""
        return normalize_rows(self.solve(Q, alpha))

    def potential(self, sources: Floats, alpha: float) -> Floats:
        """Return U = (1 - alpha) D^-1/2 (I - alpha S)^-1 D^-1/2 B for the sources B (n, C) of `label_sources`."""
        root = self.inverse_root[:, None]
        return np.asarray(root * self.solve(root * sources, alpha))

    def potential_of(self, samples: Labels, responses: Floats, sources: Floats) -> Floats:
        """Return the rows (m, C) of the potential for some samples, from their `responses` (m, n) with the same alpha."""
        return np.asarray(self.inverse_root[samples][:, None] * (responses @ (self.inverse_root[:, None] * sources)))

    def responses(self, samples: Labels, alpha: float) -> Floats:
        """Return the rows (m, n) of (1 - alpha) (I - alpha S)^-1 for some samples, in single precision.

        The product of these rows with any Q is the smoothed prediction for the samples, so many Q need only one linear solve.
        """
        units = np.zeros((self.S.shape[0], len(samples)), dtype=np.float32)
        units[samples, np.arange(len(samples))] = 1.0
        return self.solve(units, alpha).T


def with_labels(Q: Floats, labelled: Labels, y: Labels) -> Floats:
    """Return Q (n, C) with one-hot rows for the labelled samples."""
    fixed = Q.copy()
    fixed[labelled] = 0.0
    fixed[labelled, y] = 1.0
    return fixed


def label_sources(n: int, labelled: Labels, y: Labels, fractions: Floats) -> Floats:
    """Return B (n, C): sources at the labelled samples whose sum is 0 in each column.

    The labels of class c share the mass fractions_c; the mean over the labelled samples is subtracted, so that classes differ
    and what all of them have in common cancels.
    """
    B = np.zeros((n, len(fractions)))
    counts = np.bincount(y, minlength=len(fractions))
    np.add.at(B, (labelled, y), (fractions / np.maximum(counts, 1))[y])
    B[labelled] -= B[labelled].mean(axis=0)
    return B


def root_mean_square(U: Floats) -> float:
    """Return the root mean square of a potential; the smallest positive number for a potential of zeros."""
    return max(float(np.sqrt(np.square(U).mean())), float(np.finfo(float).tiny))
