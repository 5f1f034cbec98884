"""Smoothing of predictions over a graph: F = (1 - alpha) (I - alpha S)^-1 Q with S = D^-1/2 W D^-1/2.

W are the edge weights of the graph and D its degrees. Q (n, C) are the predictions of a base classifier; in Zhou et al. 2004
they are labels. Labels without a classifier become the sources of a potential, as in Calder et al. 2020. There alpha is just
below 1, so that a graph of several components needs no special case.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, diags_array

from samekind.graphs.linear_systems import Floats, Labels, conjugate_gradients, degrees, normalize_rows

TOLERANCE = 1e-4  # relative residual at which conjugate gradients stop; the smoothed probabilities are about as exact


class Smoother:
    """Smooths predictions over one graph with edge weights W (n, n)."""

    def __init__(self, W: csr_array) -> None:
        degree = degrees(W)
        self.inverse_root = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
        root = diags_array(self.inverse_root)
        self.S = csr_array(root @ W @ root)

    def solve(self, Q: Floats, alpha: float, tolerance: float = TOLERANCE) -> Floats:
        """Return (1 - alpha) (I - alpha S)^-1 Q for Q (n, C), in the dtype of Q."""
        A = csr_array(diags_array(np.ones(len(Q))) - alpha * self.S, dtype=Q.dtype)
        return (1.0 - alpha) * conjugate_gradients(A, Q, tolerance)

    def smooth(self, Q: Floats, alpha: float) -> Floats:
        """Return the smoothed predictions (n, C) with rows that sum to 1."""
        return normalize_rows(self.solve(Q, alpha))

    def potential(self, sources: Floats, alpha: float) -> Floats:
        """Return the potential U = (1 - alpha) D^-1/2 (I - alpha S)^-1 D^-1/2 B for sources B (n, C) from `label_sources`."""
        root = self.inverse_root[:, None]
        return np.asarray(root * self.solve(root * sources, alpha))

    def potential_of(self, samples: Labels, responses: Floats, sources: Floats) -> Floats:
        """Return the potential (m, C) at some samples only, from their rows (m, n) that `responses` returned for the same
        alpha.
        """
        return np.asarray(self.inverse_root[samples][:, None] * (responses @ (self.inverse_root[:, None] * sources)))

    def potential_from(self, samples: Labels, responses: Floats, sources: Floats, at: Labels) -> Floats:
        """Return the potential (k, C) at the samples `at`, from the sources (m, C) at `samples`.

        `responses` (m, n) are the rows of `samples` that the method `responses` returned. They suffice, because the response of
        sample i at sample j equals that of j at i.
        """
        scaled = self.inverse_root[samples][:, None] * sources
        return np.asarray(self.inverse_root[at][:, None] * (responses[:, at].T @ scaled))

    def cut(self, classes: Labels, n_classes: int) -> float:
        """Return the normalized cut of the given classes: the weight of the edges from one class to other classes.

        The weight is a fraction of the total weight of the edges of the class, averaged over all classes. The cut is 0 if no
        edge joins two classes. A class without samples counts as 1.
        """
        pairs = self.S.tocoo()
        first, second = classes[pairs.coords[0]], classes[pairs.coords[1]]
        total = np.bincount(first, weights=pairs.data, minlength=n_classes)
        inside = np.bincount(first, weights=pairs.data * (first == second), minlength=n_classes)
        return float(np.mean(1.0 - np.divide(inside, total, out=np.zeros_like(inside), where=total > 0)))

    def responses(self, samples: Labels, alpha: float) -> Floats:
        """Return the rows (m, n) of the matrix (1 - alpha) (I - alpha S)^-1 that belong to some samples, in single precision.

        These rows times any Q are the smoothed predictions of the samples. So for many different Q, one linear solve is enough.
        """
        units = np.zeros((self.S.shape[0], len(samples)), dtype=np.float32)
        units[samples, np.arange(len(samples))] = 1.0
        return self.solve(units, alpha).T


def with_labels(Q: Floats, labelled: Labels, y: Labels) -> Floats:
    """Return predictions Q (n, C), in which the rows of the labelled samples are replaced by their one-hot labels y."""
    fixed = Q.copy()
    fixed[labelled] = 0.0
    fixed[labelled, y] = 1.0
    return fixed


def label_sources(n: int, labelled: Labels, y: Labels, fractions: Floats) -> Floats:
    """Return the sources B (n, C) of a potential: nonzero at labelled samples, and with sum 0 in each column.

    The labels of class c share the mass `fractions`[c]. Then the mean over the labelled samples is subtracted, because a
    potential needs sources and sinks that cancel.
    """
    B = np.zeros((n, len(fractions)))
    counts = np.bincount(y, minlength=len(fractions))
    np.add.at(B, (labelled, y), (fractions / np.maximum(counts, 1))[y])
    B[labelled] -= B[labelled].mean(axis=0)
    return B


def root_mean_square(U: Floats) -> float:
    """Return the root mean square of a potential; for a potential of zeros, the smallest positive number."""
    return max(float(np.sqrt(np.square(U).mean())), float(np.finfo(float).tiny))
