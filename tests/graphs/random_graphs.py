"""Random graphs and labels, for properties that hold on any graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


def random_graph(n: int, seed: int, density: float = 0.3) -> csr_array:
    """Return a graph that is connected by a chain, with random further edges."""
    g = np.random.default_rng(seed)
    W = np.triu(g.uniform(0.1, 1.0, (n, n)) * (g.uniform(size=(n, n)) < density), 1)
    W[np.arange(n - 1), np.arange(1, n)] = 0.5
    return csr_array(W + W.T)


def some_labels(n: int, n_labelled: int, n_classes: int, seed: int) -> NDArray[np.int64]:
    g = np.random.default_rng(seed)
    y = np.full(n, -1)
    y[g.choice(n, n_labelled, replace=False)] = g.integers(0, n_classes, n_labelled)
    return y
