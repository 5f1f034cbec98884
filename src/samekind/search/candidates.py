"""Candidates of a search: items that are probably the most similar, found without applying the similarity network to all pairs.

The most similar items by the similarity network (Phi) are not the nearest neighbours by distance. So the log-odds ln(W/(1 - W))
of its similarity W are approximated, in two steps:

1. For all items, by a matrix product. Phi is applied to a few hundred random items against a few hundred others. The matrix T
   of their log-odds is reduced to its RANK largest singular values. Ridge regression on the input of Phi's first layer extends
   both factors to all items: log_odds(i, j) ~ a_i . b_j.
2. For the best items of step 1, by Phi's first layer and a linear function in place of its other layers:
   log_odds(i, j) ~ g_i . leaky_relu(left_i + right_j), where g_i is the mean gradient of Phi at the few best items so far.

Phi itself then ranks the items that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from samekind.search.pair_scores import PhiScore

N_QUERIES, N_ITEMS = 256, 512  # numbers of random items on the two sides of the matrix T of log-odds
RANK = 64
RIDGE = 1e-2  # penalty of ridge regression, as a multiple of the number of fitted samples
CHUNK = 8192  # number of items processed at a time
QUERY_CHUNK = 32  # number of queries processed at a time
MAX_CACHED = 2**26  # largest number of values in the cached outputs of the network's first layer, for all items together
MIN_STD = 1e-6  # least standard deviation of a feature, so that a constant feature is not divided by 0


class FirstLayerHalves:
    """Outputs of the first layer of the similarity network (halves) for all items, as the left or as the right of a pair.

    The halves are kept in memory, or computed again at each use if they are too large.
    """

    def __init__(self, make: Callable[[Tensor], Tensor], z: Tensor) -> None:
        self._make, self._z = make, z
        self._keep = len(z) * make(z[:1]).shape[1] <= MAX_CACHED
        self._kept: Tensor | None = None

    def of(self, ids: Tensor) -> Tensor:
        """Return the halves (m, h) of the items with these indices."""
        kept = self._all()
        return self._make(self._z[ids]) if kept is None else kept[ids]

    def sample(self, n: int) -> Tensor:
        """Return the halves of n random items, or of all items if there are fewer. The random seed is n."""
        ids = torch.randperm(len(self._z), generator=torch.Generator().manual_seed(n))[:n]
        return self._make(self._z[ids.sort().values])

    def _all(self) -> Tensor | None:
        if self._keep and self._kept is None:
            self._kept = self._make(self._z)
        return self._kept

    def chunks(self) -> Iterator[Tensor]:
        """Yield the halves of all items, CHUNK items at a time."""
        for ids in torch.split(torch.arange(len(self._z)), CHUNK):
            yield self.of(ids)

    def apply(self, function: Callable[..., Tensor], chosen: Tensor, *queries: Tensor) -> Tensor:
        """Return function(*queries, halves of items, chosen), where chosen (q, c) holds the indices of c items for each query.

        If the halves are not in memory, the function is called for QUERY_CHUNK queries at a time, with only the halves that
        they need.
        """
        kept = self._all()
        if kept is not None:
            return function(*queries, kept, chosen)
        results = []
        for which in torch.split(torch.arange(len(chosen)), QUERY_CHUNK):
            needed, where = torch.unique(chosen[which], return_inverse=True)
            results.append(function(*(part[which] for part in queries), self.of(needed), where))
        return torch.cat(results)


class LowRankLogOdds:
    """Low-rank approximation of the log-odds of any query with all items.

    The query is always the left sample of a pair, or always the right one.
    """

    def __init__(self, score: PhiScore, own: FirstLayerHalves, others: FirstLayerHalves) -> None:
        """Fit the approximation. `own` are the halves for the side of the queries, `others` those for the side of the items."""
        queries, items = own.sample(N_QUERIES), others.sample(N_ITEMS)
        self._own, of_items = _HalfFeatures(score.slope, own, others), _HalfFeatures(score.slope, others, own)
        U, s, Vh = torch.linalg.svd(score.matrix(queries, items).double(), full_matrices=False)
        rank = min(RANK, len(s))
        self._query_map = self._own.fit_ridge(queries, U[:, :rank] * s[:rank]).to(queries.dtype)
        item_map = of_items.fit_ridge(items, Vh[:rank].T).to(queries.dtype)
        self._items = torch.cat([of_items.basis(chunk) @ item_map for chunk in others.chunks()])

    def __call__(self, own: Tensor) -> Tensor:
        """Return the approximate log-odds (q, n) of q queries with all items, from the halves `own` (q, h) of the queries."""
        return (self._own.basis(own) @ self._query_map) @ self._items.T


class _HalfFeatures:
    """Regression features computed from halves (n, h) of one side.

    The mean half of the other side is added, then follow the activation of the network, scaling to mean 0 and deviation 1, and
    a column of ones.
    """

    def __init__(self, slope: float, halves: FirstLayerHalves, opposite: FirstLayerHalves) -> None:
        self._slope = slope
        self._shift = opposite.sample(CHUNK).mean(0)
        active = self._activate(halves.sample(CHUNK))
        self._mean, self._scale = active.mean(0), active.std(0, correction=0).clamp_min(MIN_STD)

    def _activate(self, halves: Tensor) -> Tensor:
        return F.leaky_relu(halves + self._shift, self._slope)

    def basis(self, halves: Tensor) -> Tensor:
        standardized = (self._activate(halves) - self._mean) / self._scale
        return torch.cat([standardized, torch.ones_like(standardized[:, :1])], dim=1)

    def fit_ridge(self, halves: Tensor, values: Tensor) -> Tensor:
        """Return the matrix (h + 1, r) that maps the features of the halves to the values (n, r), by ridge regression."""
        P = self.basis(halves).double()
        G = P.T @ P
        G.diagonal().add_(RIDGE * len(P))
        fitted: Tensor = torch.linalg.solve(G, P.T @ values)
        return fitted
