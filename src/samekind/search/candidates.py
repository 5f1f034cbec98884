"""Who might be most alike, found without asking Phi about everybody.

The most alike by Phi are not the nearest in z, so its margins are guessed, in two steps:

1. Of all items by a product of matrices. Phi is asked about a few hundred items against a few hundred others; the table T of
   its margins is cut to the RANK largest singular values, and both sides of it are carried over to all items by least squares
   on what an item brings to Phi's first layer: margin(i, j) ~ a_i . b_j.
2. Of the best of those by the first layer itself and a plane behind it: margin(i, j) ~ g_i . leaky(left_i + right_j), where
   g_i is the mean slope of Phi at the few items that are best so far. The first layer is where the pairs differ; behind it,
   and among what is much alike, Phi is close to a plane.

Phi has the last word on those that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from samekind.search.pair_scores import PhiScore

ASKERS, PROBES = 256, 512  # items on the two sides of T
RANK = 64
RIDGE = 1e-2  # times the number of rows that are fitted
ROWS = 8192  # items worked on at a time
QUERIES = 32  # whose items are looked up together
HELD = 2**26  # numbers: halves of all items are kept up to here
LEAST = 1e-6  # spread of a feature that carries anything


class FirstLayerHalves:
    """What all items bring as one side of a pair: kept, or made again for those that are looked at."""

    def __init__(self, make: Callable[[Tensor], Tensor], z: Tensor) -> None:
        self._make, self._z = make, z
        self._keep = len(z) * make(z[:1]).shape[1] <= HELD
        self._kept: Tensor | None = None

    def of(self, ids: Tensor) -> Tensor:
        """(m, h) of these items."""
        kept = self._all()
        return self._make(self._z[ids]) if kept is None else kept[ids]

    def some(self, n: int) -> Tensor:
        """Of n items, or of all if there are not more, drawn by a seed of their own."""
        ids = torch.randperm(len(self._z), generator=torch.Generator().manual_seed(n))[:n]
        return self._make(self._z[ids.sort().values])

    def _all(self) -> Tensor | None:
        if self._keep and self._kept is None:
            self._kept = self._make(self._z)
        return self._kept

    def parts(self) -> Iterator[Tensor]:
        """Of all items, some at a time."""
        for ids in torch.split(torch.arange(len(self._z)), ROWS):
            yield self.of(ids)

    def asked(self, function: Callable[..., Tensor], chosen: Tensor, *rows: Tensor) -> Tensor:
        """function(rows of the queries, halves of items, chosen), where chosen (q, c) are items for each query."""
        kept = self._all()
        if kept is not None:
            return function(*rows, kept, chosen)
        answers = []
        for which in torch.split(torch.arange(len(chosen)), QUERIES):
            looked_at, where = torch.unique(chosen[which], return_inverse=True)
            answers.append(function(*(part[which] for part in rows), self.of(looked_at), where))
        return torch.cat(answers)


class LowRankLogOdds:
    """Guessed margins of any query with all items, for one of the two ways round."""

    def __init__(self, score: PhiScore, own: FirstLayerHalves, others: FirstLayerHalves) -> None:
        """`own` is the side on which items would be queries, `others` that on which they are found."""
        askers, probes = own.some(ASKERS), others.some(PROBES)
        self._own, to_items = _Side(score.slope, own, others), _Side(score.slope, others, own)
        U, s, Vh = torch.linalg.svd(score.grid(askers, probes).double(), full_matrices=False)
        rank = min(RANK, len(s))
        self._to_query = self._own.carried(askers, U[:, :rank] * s[:rank]).to(askers.dtype)
        to_item = to_items.carried(probes, Vh[:rank].T).to(askers.dtype)
        self._items = torch.cat([to_items.basis(part) @ to_item for part in others.parts()])

    def __call__(self, own: Tensor) -> Tensor:
        """(q, n) from what queries bring (q, h)."""
        return (self._own.basis(own) @ self._to_query) @ self._items.T


class _Side:
    """Features of halves (n, h): behind the activation, with what the other side brings on average; spread out, and a 1."""

    def __init__(self, slope: float, halves: FirstLayerHalves, opposite: FirstLayerHalves) -> None:
        self._slope = slope
        self._shift = opposite.some(ROWS).mean(0)
        seen = self._activated(halves.some(ROWS))
        self._mean, self._scale = seen.mean(0), seen.std(0, correction=0).clamp_min(LEAST)

    def _activated(self, halves: Tensor) -> Tensor:
        return F.leaky_relu(halves + self._shift, self._slope)

    def basis(self, halves: Tensor) -> Tensor:
        seen = (self._activated(halves) - self._mean) / self._scale
        return torch.cat([seen, torch.ones_like(seen[:, :1])], dim=1)

    def carried(self, halves: Tensor, values: Tensor) -> Tensor:
        """The linear map (h + 1, r) from features to values (n, r) by ridge regression."""
        P = self.basis(halves).double()
        G = P.T @ P
        G.diagonal().add_(RIDGE * len(P))
        fitted: Tensor = torch.linalg.solve(G, P.T @ values)
        return fitted
