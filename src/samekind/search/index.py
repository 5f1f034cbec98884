"""Index of items: finds the items that are most similar by the learned similarity, exhaustively or among candidates.

    index = SimilarityIndex(z, score)
    index.search([3, 17], k=9)           # queries are indices of items; an item does not find itself
    index.search(z_new, k=9)             # queries are features of new samples
    index.search_by_example([3, 17], not_ids=[5], k=60)   # one ranking of items: similar to 3 and 17, but not to 5

Libraries for approximate search (faiss, hnswlib) need a metric or an inner product. The learned similarity is neither, so no
such library is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from samekind.errors import SettingError
from samekind.search.candidates import FirstLayerHalves, LowRankLogOdds
from samekind.search.pair_scores import PairScore, PhiScore, mean_log_odds
from samekind.search.pairwise import top_k

Candidates = int | Literal["auto", "all"]
Side = Literal["left", "right"]
Ids = Sequence[int] | npt.NDArray[Any] | Tensor
# from log-odds (q, n) to values for ranking: (q, n), or (1, n) for one ranking by several examples
Combine = Callable[[Tensor], Tensor]

AUTO_CANDIDATES = 128  # default number of candidates to which the similarity network is applied for each query
CANDIDATES_PER_RESULT = 4  # for k results, the similarity network is applied to at least this times k candidates
# the low-rank approximation selects max(MIN_SHORTLIST, n / SHORTLIST_DIVISOR) of n items
MIN_SHORTLIST, SHORTLIST_DIVISOR = 4096, 12
N_RANKED = 32  # of the selected items, the similarity network scores this many: those with the highest approximate scores
# around this many of the scored items, the best ones, the network is approximated linearly to score all other selected items
N_LINEARIZED = 16
EXHAUSTIVE_UP_TO = 4096  # largest number of items for which an exhaustive search is fast
MAX_EXAMPLES = 16  # number of examples that represent a larger selection
MAX_EXAMPLE_PAIRS = 16_384  # largest product of the numbers of candidates and examples in one search
MAX_COLUMNS = 4096  # number of items scored at a time
MAX_APPROXIMATED = 2**24  # largest number of approximate log-odds in memory at a time


@dataclass(frozen=True)
class SearchResult:
    """Most similar items of each of q queries: their indices (q, k) and their similarities W (q, k), best first.

    Places for which no item was found have index -1 and similarity 0.
    """

    ids: Tensor
    similarity: Tensor
    exact: bool  # True if the score was computed for all items, False if only for candidates
    log_odds: Tensor  # (q, k); log-odds of the similarities, which still differ where similarities are rounded to 1

    def ranked(self, query: int = 0) -> list[tuple[int, float, float]]:
        """Return [(item, similarity, log-odds), ...] of one query, best first, without empty places."""
        found = zip(*(part[query].tolist() for part in (self.ids, self.similarity, self.log_odds)), strict=True)
        return [one for one in found if one[0] >= 0]

    def pairs(self, query: int = 0) -> list[tuple[int, float]]:
        """Return [(item, similarity), ...] of one query, best first, without empty places."""
        both = zip(self.ids[query].tolist(), self.similarity[query].tolist(), strict=True)
        return [(item, W) for item, W in both if item >= 0]

    def first(self, n: int) -> SearchResult:
        """Return the results of the first n queries only."""
        return SearchResult(self.ids[:n], self.similarity[:n], self.exact, self.log_odds[:n])

    def recall(self, true: SearchResult) -> float:
        """Return which fraction of the items in `true`, a result for the same queries, is also in this result."""
        there = (self.ids[:, :, None] == true.ids[:, None, :]).any(1)
        return float(there[true.ids >= 0].double().mean())


class QueryBatch(NamedTuple):
    """Queries of a search: their outputs of the first layer of the similarity network, and their own indices.

    `left` (q, h) are the outputs for the query as the left of a pair. `right` (q, h) are those as the right of a pair; None
    unless the mean of both orders is searched. `own` (q,) are the indices of items that must not find themselves; None for
    other queries.
    """

    left: Tensor
    right: Tensor | None
    own: Tensor | None

    def part(self, which: slice) -> QueryBatch:
        right, own = (part if part is None else part[which] for part in (self.right, self.own))
        return QueryBatch(self.left[which], right, own)


class SimilarityIndex:
    """Searchable items: their features z (n, d), and a score for pairs of them. An index never changes after it is built."""

    def __init__(self, z: Tensor, score: PairScore) -> None:
        if z.ndim != 2 or len(z) == 0:
            raise SettingError(f"the features of the items have the shape {tuple(z.shape)}; expected (n, d) with n >= 1.")
        self._z, self._score = z.detach().contiguous(), score
        self._halves: dict[Side, FirstLayerHalves] = {}
        self._approximations: dict[Side, LowRankLogOdds] = {}

    def __len__(self) -> int:
        return len(self._z)

    def features(self, ids: Ids) -> Tensor:
        """Return the features z of the items with these indices."""
        return self._z[self._ids(ids)]

    # ---------------------------------------------------------------- searches for similar items

    @torch.inference_mode()
    def search(
        self,
        queries: Ids | Tensor,
        k: int = 9,
        *,
        candidates: Candidates = "auto",
        symmetric: bool = False,
        only: Ids | None = None,
        min_sim: float = 0.0,
        include_self: bool = False,
    ) -> SearchResult:
        """Return the k most similar items of each query. A query is the index of an item, or the features (d,) of a new sample.

        `only` restricts which items may be found. With `include_self`, an item may find itself. `candidates` is the number of
        items to which the similarity network is applied for each query: "all" makes the search exact, "auto" makes it exact if
        there are few items.
        """
        _require_k(k)
        batch = self._query_batch(queries, symmetric=symmetric, include_self=include_self)
        allowed = self._allowed(only)
        count = self._n_candidates(candidates, k, allowed, n_examples=1)
        size = max(1, min(1024, MAX_APPROXIMATED // len(self)))
        parts = [
            self._search(batch.part(slice(start, start + size)), k, count, allowed, _unchanged)
            for start in range(0, len(batch.left), size)
        ]
        log_odds = torch.cat([values for values, _ in parts] or [self._z.new_empty(0, k)])
        ids = torch.cat([ids for _, ids in parts] or [torch.empty(0, k, dtype=torch.long)])
        return _result(log_odds.sigmoid(), ids, min_sim, exact=count is None, log_odds=log_odds)

    @torch.inference_mode()
    def search_by_example(
        self,
        ids: Ids,
        k: int = 9,
        *,
        not_ids: Ids = (),
        how: Literal["all", "any"] = "all",
        candidates: Candidates = "auto",
        symmetric: bool = False,
        only: Ids | None = None,
        min_sim: float = 0.0,
    ) -> SearchResult:
        """Return one ranking (1, k) for several examples: items that are similar to `ids` and not similar to `not_ids`.

        The similarity of the ranking is the geometric mean of W over `ids` (with how="any" the largest W), times the geometric
        mean of 1 - W over `not_ids`. The examples themselves are not found. A selection of more than 16 examples is represented
        by 16 that are far apart.
        """
        _require_k(k)
        positive, negative = self._ids(ids), self._ids(not_ids)
        if len(positive) == 0:
            raise SettingError("no example was given. Pass the index of at least one item.")
        allowed = self._allowed(only, without=torch.cat([positive, negative]))
        positive, negative = self._representatives(positive), self._representatives(negative)
        batch = self._query_batch(torch.cat([positive, negative]), symmetric=symmetric, include_self=True)
        count = self._n_candidates(candidates, k, allowed, n_examples=len(batch.left))
        logs, found = self._search(batch, k, count, allowed, _combine_examples(len(positive), how))
        log_odds = logs - torch.log(-torch.expm1(logs))
        return _result(logs.exp(), found, min_sim, exact=count is None, log_odds=log_odds)

    def recall(self, queries: Ids | Tensor, k: int = 9, *, candidates: Candidates = "auto", symmetric: bool = False) -> float:
        """Return which fraction of the true k most similar items of these queries is found by a search among candidates."""
        found = self.search(queries, k, candidates=candidates, symmetric=symmetric)
        return found.recall(self.search(queries, k, candidates="all", symmetric=symmetric))

    # ---------------------------------------------------------------- ways of searching

    def _search(
        self, batch: QueryBatch, k: int, count: int | None, allowed: Tensor | None, combine: Combine
    ) -> tuple[Tensor, Tensor]:
        """Return values for ranking and the indices of the items, both (q, k) for q queries, or (1, k) for several examples."""
        if count is None:
            found = self._exhaustive(batch, k, allowed, combine)
        else:
            found = self._among_candidates(batch, count, allowed, combine)
        values, ids = top_k(*found, k)
        missing = k - ids.shape[1]
        ids = F.pad(ids.masked_fill(values == -torch.inf, -1), (0, missing), value=-1)
        return F.pad(values, (0, missing), value=-torch.inf), ids

    def _exhaustive(self, batch: QueryBatch, k: int, allowed: Tensor | None, combine: Combine) -> tuple[Tensor, Tensor]:
        """Return the k largest values over all allowed items, and the indices of these items."""
        ids = torch.arange(len(self)) if allowed is None else allowed
        rows = len(combine(batch.left[:, :1]))
        best, where = torch.empty(rows, 0, dtype=self._z.dtype), torch.empty(rows, 0, dtype=torch.long)
        for columns in torch.split(ids, MAX_COLUMNS):
            here = columns.expand(rows, -1)
            values = _exclude_self(combine(self._matrix(batch, columns)), here, batch.own)
            best, where = top_k(torch.cat([best.to(values.dtype), values], 1), torch.cat([where, here], 1), k)
        return best, where

    def _among_candidates(
        self, batch: QueryBatch, count: int, allowed: Tensor | None, combine: Combine
    ) -> tuple[Tensor, Tensor]:
        """Return the values of `count` candidates by the similarity network, and their indices.

        A low-rank approximation selects a shortlist of items. A linear approximation of the network chooses the candidates from
        it.
        """
        values = combine(self._both_orders(batch, lambda side, own: self._approximation(side)(own)))
        if allowed is not None:
            values.masked_fill_(torch.ones(len(self), dtype=torch.bool).index_fill_(0, allowed, False), -torch.inf)
        if batch.own is not None:
            values.scatter_(1, batch.own[:, None], -torch.inf)
        n_short = max(MIN_SHORTLIST, len(self) // SHORTLIST_DIVISOR) // math.ceil(len(batch.left) / len(values) / 4)
        n_allowed = (len(self) if allowed is None else len(allowed)) - (batch.own is not None)
        size = min(max(n_short, 2 * count), n_allowed)
        values, shortlist = values.topk(size, dim=1, sorted=False)
        start = shortlist.gather(1, values.topk(min(N_RANKED, size), dim=1).indices)
        ranked = combine(self._selected(batch, start))
        best = start.gather(1, ranked.topk(min(N_LINEARIZED, size), dim=1).indices)
        linearized = combine(self._linearized_pairs(batch, best, shortlist))
        # sorted by index, so that items with equal values are ranked by index
        chosen = shortlist.gather(1, linearized.topk(count, dim=1).indices).sort(dim=1).values
        return _exclude_self(combine(self._selected(batch, chosen)), chosen, batch.own), chosen

    # ---------------------------------------------------------------- log-odds

    def _both_orders(self, batch: QueryBatch, log_odds: Callable[[Side, Tensor], Tensor]) -> Tensor:
        """Return the log-odds of W_ij; if the batch has right halves, those of the mean of W_ij and W_ji.

        `log_odds` is called with the side on which the items are, and the halves of the queries.
        """
        ij = log_odds("right", batch.left)
        return ij if batch.right is None else mean_log_odds(ij, log_odds("left", batch.right))

    def _matrix(self, batch: QueryBatch, ids: Tensor) -> Tensor:
        return self._both_orders(batch, lambda side, own: self._score.matrix(own, self._side(side).of(ids)))

    def _selected(self, batch: QueryBatch, chosen: Tensor) -> Tensor:
        chosen = chosen.expand(len(batch.left), -1)  # the examples of one ranking share one list of items
        return self._both_orders(batch, lambda side, own: self._side(side).apply(self._score.selected, chosen, own))

    def _linearized_pairs(self, batch: QueryBatch, best: Tensor, shortlist: Tensor) -> Tensor:
        """Return approximate log-odds of the items on the shortlist, by linear approximations of the network at the best
        items.
        """
        score, n = cast(PhiScore, self._score), len(batch.left)

        def one_order(side: Side, own: Tensor) -> Tensor:
            planes = self._side(side).apply(score.linearize, best.expand(n, -1), own)
            return self._side(side).apply(score.linearized_pairs, shortlist.expand(n, -1), own, planes)

        return self._both_orders(batch, one_order)

    def _side(self, side: Side) -> FirstLayerHalves:
        if side not in self._halves:
            self._halves[side] = FirstLayerHalves(self._score.left if side == "left" else self._score.right, self._z)
        return self._halves[side]

    def _approximation(self, side: Side) -> LowRankLogOdds:
        if side not in self._approximations:
            opposite = self._side("left" if side == "right" else "right")
            self._approximations[side] = LowRankLogOdds(cast(PhiScore, self._score), opposite, self._side(side))
        return self._approximations[side]

    # ---------------------------------------------------------------- checks of the arguments

    def _query_batch(self, queries: Ids | Tensor, *, symmetric: bool, include_self: bool) -> QueryBatch:
        given = _tensor(queries)
        if given.is_floating_point() and given.ndim == 2:
            own, z = None, given.to(self._z.dtype)
            if z.shape[1] != self._z.shape[1]:
                raise SettingError(f"queries have the shape {tuple(z.shape)}; expected features (q, {self._z.shape[1]}).")
        else:
            own = self._ids(given)
            z = self._z[own]
        right = self._score.right(z) if symmetric else None
        return QueryBatch(self._score.left(z), right, None if include_self else own)

    def _ids(self, ids: Ids) -> Tensor:
        given = _tensor(ids)
        if given.is_floating_point() and given.numel():
            raise SettingError(f"items are given as {given.dtype} {tuple(given.shape)}; expected integer indices.")
        indices = given.long().flatten()
        if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= len(self)):
            raise SettingError(
                f"items {int(indices.min())} to {int(indices.max())} were requested, but the index holds items 0 to "
                f"{len(self) - 1}."
            )
        return indices

    def _allowed(self, only: Ids | None, without: Tensor | None = None) -> Tensor | None:
        """Return the sorted indices of the items that may be found; None if all may be found."""
        if only is None and without is None:
            return None
        given = _tensor(only) if only is not None else torch.arange(len(self))
        if given.dtype == torch.bool and len(given) != len(self):
            raise SettingError(f"the mask `only` has {len(given)} entries; expected {len(self)}, one per item, or indices.")
        allowed = given.nonzero()[:, 0] if given.dtype == torch.bool else torch.unique(self._ids(given))
        return allowed if without is None else allowed[~torch.isin(allowed, without)]

    def _n_candidates(self, candidates: Candidates, k: int, allowed: Tensor | None, n_examples: int) -> int | None:
        """Return the number of candidates per query; None for an exhaustive search."""
        available = len(self) if allowed is None else len(allowed)
        if candidates == "all" or len(self) <= EXHAUSTIVE_UP_TO or not isinstance(self._score, PhiScore):
            return None  # any other similarity is cheap enough for an exhaustive search
        if candidates == "auto":
            count = max(CANDIDATES_PER_RESULT * k, min(AUTO_CANDIDATES, MAX_EXAMPLE_PAIRS // n_examples))
            return None if available <= max(EXHAUSTIVE_UP_TO, count) else count
        if not isinstance(candidates, int) or candidates < max(2, k):
            raise SettingError(
                f"candidates is {candidates!r}; expected 'auto', 'all', or a whole number of {max(2, k)} or more."
            )
        return None if available <= candidates + 1 else candidates

    def _representatives(self, ids: Tensor) -> Tensor:
        """Return at most MAX_EXAMPLES of these items, chosen by farthest-first traversal, so that they are far apart."""
        if len(ids) <= MAX_EXAMPLES:
            return ids
        z, chosen = self._z[ids], [0]
        apart = (z - z[0]).square().sum(1)
        for _ in range(MAX_EXAMPLES - 1):
            chosen.append(int(apart.argmax()))
            apart = torch.minimum(apart, (z - z[chosen[-1]]).square().sum(1))
        return ids[chosen]


def _require_k(k: int) -> None:
    if not isinstance(k, int) or k < 1:
        raise SettingError(f"k is {k!r}; expected a whole number of 1 or more.")


def _tensor(given: Ids) -> Tensor:
    return given if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given))


def _unchanged(log_odds: Tensor) -> Tensor:
    return log_odds


def _combine_examples(n_positive: int, how: Literal["all", "any"]) -> Combine:
    """Return a function that ranks n items by their similarity to several examples at once.

    It maps log-odds (n_positive + n_negative, n) to one value (1, n) for each item. Row i of the log-odds says how likely each
    item has the class of example i. With how="all" an item should be similar to every positive example, with "any" to one of
    them; similarity to the negative examples, which are the last rows, lowers the value.
    """
    if how not in ("all", "any"):
        raise SettingError(f"how is {how!r}; expected 'all' or 'any'.")

    def combine(log_odds: Tensor) -> Tensor:
        same = F.logsigmoid(log_odds[:n_positive].double())
        logs = same.mean(0, keepdim=True) if how == "all" else same.amax(0, keepdim=True)
        negative = log_odds[n_positive:].double()
        return logs + F.logsigmoid(-negative).mean(0, keepdim=True) if len(negative) else logs

    return combine


def _exclude_self(values: Tensor, ids: Tensor, own: Tensor | None) -> Tensor:
    return values if own is None else values.masked_fill(ids == own[:, None], -torch.inf)


def _result(W: Tensor, ids: Tensor, min_sim: float, *, exact: bool, log_odds: Tensor) -> SearchResult:
    empty = (ids < 0) | (min_sim > W)
    return SearchResult(ids.masked_fill(empty, -1), W.masked_fill(empty, 0.0), exact, log_odds.masked_fill(empty, -torch.inf))
