"""An index of items: the most alike by learned similarity, exhaustively or among candidates.

index = SimilarityIndex(z, score)
index.search([3, 17], k=9)           # of items, by their numbers; they are left out themselves
index.search(z_new, k=9)             # of things that are not in it
index.search_by_example([3, 17], not_ids=[5], k=60)   # one answer: like all of these, and not like those
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
from samekind.search.pair_scores import PhiScore, Score, between
from samekind.search.pairwise import first

Candidates = int | Literal["auto", "all"]
Side = Literal["left", "right"]
Ids = Sequence[int] | npt.NDArray[Any] | Tensor
Blend = Callable[[Tensor], Tensor]  # margins (rows, n) -> what is sorted by, (rows or 1, n)

AUTO = 128  # candidates of a query that Phi looks at, where no number is given,
PER_WANTED = 4  # or this many for each that is wanted
SHORTLIST, SHARE = 4096, 12  # items left by the guess of all, or this part of all if that is more
LOOKED_AT, ON_PLANE = 32, 16  # the best by that guess, and of those the best by Phi, through which a plane is laid
EXHAUSTIVE_UP_TO = 4096  # items: below, looking at all of them is quick
EXAMPLES = 16  # that stand for a larger selection
PAIRS_AT_ONCE = 16_384  # candidates times examples in one answer
WIDE = 4096  # items looked at together
GUESSED = 2**24  # guesses held at a time


@dataclass(frozen=True)
class SearchResult:
    """The most alike of each query: item numbers (q, k) and W (q, k), most alike first; -1 and 0 where there were fewer."""

    ids: Tensor
    similarity: Tensor
    exact: bool  # whether all items were looked at

    def pairs(self, row: int = 0) -> list[tuple[int, float]]:
        """(item, similarity) of one query, without the empty places."""
        both = zip(self.ids[row].tolist(), self.similarity[row].tolist(), strict=True)
        return [(item, W) for item, W in both if item >= 0]

    def first(self, n: int) -> SearchResult:
        """The answers to the first n queries."""
        return SearchResult(self.ids[:n], self.similarity[:n], self.exact)

    def recall(self, true: SearchResult) -> float:
        """The share of the items in `true` that is found here, for the same queries."""
        there = (self.ids[:, :, None] == true.ids[:, None, :]).any(1)
        return float(there[true.ids >= 0].double().mean())


class QueryBatch(NamedTuple):
    """Queries: what they bring as the first of a pair, as the second where both ways count, and themselves, to leave out."""

    left: Tensor
    right: Tensor | None
    own: Tensor | None

    def rows(self, which: slice) -> QueryBatch:
        right, own = (part if part is None else part[which] for part in (self.right, self.own))
        return QueryBatch(self.left[which], right, own)


class SimilarityIndex:
    """Items by their features z (n, d) and the score of pairs. Nothing in it changes after it is made."""

    def __init__(self, z: Tensor, score: Score) -> None:
        if z.ndim != 2 or len(z) == 0:
            raise SettingError(f"an index was given features of shape {tuple(z.shape)}; expected (n, d) with n of 1 or more.")
        self._z, self._score = z.detach().contiguous(), score
        self._halves: dict[Side, FirstLayerHalves] = {}
        self._sketches: dict[Side, LowRankLogOdds] = {}

    def __len__(self) -> int:
        return len(self._z)

    def features(self, ids: Ids) -> Tensor:
        """z of these items."""
        return self._z[self._ids(ids)]

    # ---------------------------------------------------------------- questions

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
        itself: bool = False,
    ) -> SearchResult:
        """The k most alike of each query, which is the number of an item, or features (q, d) of something else.

        `only` are the items that may be found, `itself` whether an item may find itself. `candidates` is how many items Phi
        looks at for each query; "all" makes the answer exact, "auto" looks at all where there are few.
        """
        _require_k(k)
        asked = self._asked(queries, symmetric=symmetric, itself=itself)
        pool = self._pool(only)
        count = self._count(candidates, k, pool, rows=1)
        size = max(1, min(1024, GUESSED // len(self)))
        parts = [self._search(asked.rows(slice(at, at + size)), k, count, pool, _as_it_is) for at in _steps(asked.left, size)]
        margins = torch.cat([values for values, _ in parts] or [self._z.new_empty(0, k)])
        ids = torch.cat([ids for _, ids in parts] or [torch.empty(0, k, dtype=torch.long)])
        return _found(margins.sigmoid(), ids, min_sim, exact=count is None)

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
        """One answer (1, k) to several examples: items like `ids`, and unlike `not_ids`; the examples are left out.

        Its similarity is the geometric mean of W over `ids`, or with how="any" the largest, times the geometric mean of 1 - W
        over `not_ids`. Of a larger selection 16 examples that are spread over it are looked at.
        """
        _require_k(k)
        wanted, unwanted = self._ids(ids), self._ids(not_ids)
        if len(wanted) == 0:
            raise SettingError("no example was given; expected the number of at least one item.")
        pool = self._pool(only, without=torch.cat([wanted, unwanted]))
        wanted, unwanted = self._spread(wanted), self._spread(unwanted)
        asked = self._asked(torch.cat([wanted, unwanted]), symmetric=symmetric, itself=True)
        count = self._count(candidates, k, pool, rows=len(asked.left))
        logs, found = self._search(asked, k, count, pool, _blend(len(wanted), how))
        return _found(logs.exp(), found, min_sim, exact=count is None)

    def recall(self, queries: Ids | Tensor, k: int = 9, *, candidates: Candidates = "auto", symmetric: bool = False) -> float:
        """The share of the true k most alike of these queries that is found among candidates; all items are looked at."""
        found = self.search(queries, k, candidates=candidates, symmetric=symmetric)
        return found.recall(self.search(queries, k, candidates="all", symmetric=symmetric))

    # ---------------------------------------------------------------- search

    def _search(self, asked: QueryBatch, k: int, count: int | None, pool: Tensor | None, blend: Blend) -> tuple[Tensor, Tensor]:
        """(what is sorted by, items), (rows or 1, k)."""
        found = self._among_all(asked, k, pool, blend) if count is None else self._among_few(asked, count, pool, blend)
        values, ids = first(*found, k)
        short = k - ids.shape[1]
        ids = F.pad(ids.masked_fill(values == -torch.inf, -1), (0, short), value=-1)
        return F.pad(values, (0, short), value=-torch.inf), ids

    def _among_all(self, asked: QueryBatch, k: int, pool: Tensor | None, blend: Blend) -> tuple[Tensor, Tensor]:
        ids = torch.arange(len(self)) if pool is None else pool
        rows = len(blend(asked.left[:, :1]))
        best, where = torch.empty(rows, 0, dtype=self._z.dtype), torch.empty(rows, 0, dtype=torch.long)
        for columns in torch.split(ids, WIDE):
            here = columns.expand(rows, -1)
            values = _leave_out(blend(self._grid(asked, columns)), here, asked.own)
            best, where = first(torch.cat([best.to(values.dtype), values], 1), torch.cat([where, here], 1), k)
        return best, where

    def _among_few(self, asked: QueryBatch, count: int, pool: Tensor | None, blend: Blend) -> tuple[Tensor, Tensor]:
        """A guess of all items leaves a list, planes leave `count` of it, and Phi looks at those."""
        values = blend(self._both(asked, lambda side, own: self._sketch(side)(own)))
        if pool is not None:
            values.masked_fill_(torch.ones(len(self), dtype=torch.bool).index_fill_(0, pool, False), -torch.inf)
        if asked.own is not None:
            values.scatter_(1, asked.own[:, None], -torch.inf)
        wanted = max(SHORTLIST, len(self) // SHARE) // math.ceil(len(asked.left) / len(values) / 4)
        allowed = (len(self) if pool is None else len(pool)) - (asked.own is not None)
        size = min(max(wanted, 2 * count), allowed)
        values, listed = values.topk(size, dim=1, sorted=False)
        start = listed.gather(1, values.topk(min(LOOKED_AT, size), dim=1).indices)
        said = blend(self._each(asked, start))
        best = start.gather(1, said.topk(min(ON_PLANE, size), dim=1).indices)
        guessed = blend(self._on_planes(asked, best, listed))
        chosen = listed.gather(1, guessed.topk(count, dim=1).indices).sort(dim=1).values  # so that equals go by their number
        return _leave_out(blend(self._each(asked, chosen)), chosen, asked.own), chosen

    # ---------------------------------------------------------------- margins

    def _both(self, asked: QueryBatch, margins: Callable[[Side, Tensor], Tensor]) -> Tensor:
        """One way, or both as one; `margins` gets the side of the items and what the queries bring to it."""
        there = margins("right", asked.left)
        return there if asked.right is None else between(there, margins("left", asked.right))

    def _grid(self, asked: QueryBatch, ids: Tensor) -> Tensor:
        return self._both(asked, lambda side, own: self._score.grid(own, self._side(side).of(ids)))

    def _each(self, asked: QueryBatch, chosen: Tensor) -> Tensor:
        chosen = chosen.expand(len(asked.left), -1)  # one list for all rows, where they have one answer
        return self._both(asked, lambda side, own: self._side(side).asked(self._score.each, chosen, own))

    def _on_planes(self, asked: QueryBatch, best: Tensor, listed: Tensor) -> Tensor:
        """Margins with the listed items, by the planes through what Phi says of the best."""
        score, n = cast(PhiScore, self._score), len(asked.left)

        def one_way(side: Side, own: Tensor) -> Tensor:
            planes = self._side(side).asked(score.planes, best.expand(n, -1), own)
            return self._side(side).asked(score.on_planes, listed.expand(n, -1), own, planes)

        return self._both(asked, one_way)

    def _side(self, side: Side) -> FirstLayerHalves:
        if side not in self._halves:
            self._halves[side] = FirstLayerHalves(self._score.left if side == "left" else self._score.right, self._z)
        return self._halves[side]

    def _sketch(self, side: Side) -> LowRankLogOdds:
        if side not in self._sketches:
            opposite = self._side("left" if side == "right" else "right")
            self._sketches[side] = LowRankLogOdds(cast(PhiScore, self._score), opposite, self._side(side))
        return self._sketches[side]

    # ---------------------------------------------------------------- what was asked for

    def _asked(self, queries: Ids | Tensor, *, symmetric: bool, itself: bool) -> QueryBatch:
        given = _tensor(queries)
        if given.is_floating_point() and given.ndim == 2:
            own, z = None, given.to(self._z.dtype)
            if z.shape[1] != self._z.shape[1]:
                raise SettingError(f"queries have the shape {tuple(z.shape)}; expected features (q, {self._z.shape[1]}).")
        else:
            own = self._ids(given)
            z = self._z[own]
        right = self._score.right(z) if symmetric else None
        return QueryBatch(self._score.left(z), right, None if itself else own)

    def _ids(self, ids: Ids) -> Tensor:
        given = _tensor(ids)
        if given.is_floating_point() and given.numel():
            raise SettingError(f"items were asked for as {given.dtype} {tuple(given.shape)}; expected their whole numbers.")
        numbers = given.long().flatten()
        if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= len(self)):
            raise SettingError(
                f"items {int(numbers.min())} to {int(numbers.max())} were asked for; there are 0 to {len(self) - 1}."
            )
        return numbers

    def _pool(self, only: Ids | None, without: Tensor | None = None) -> Tensor | None:
        """The items that may be found, in order; None for all."""
        if only is None and without is None:
            return None
        marks = _tensor(only) if only is not None else torch.arange(len(self))
        if marks.dtype == torch.bool and len(marks) != len(self):
            raise SettingError(f"`only` marks {len(marks)} items; expected a mark for each of {len(self)}, or their numbers.")
        pool = marks.nonzero()[:, 0] if marks.dtype == torch.bool else torch.unique(self._ids(marks))
        return pool if without is None else pool[~torch.isin(pool, without)]

    def _count(self, candidates: Candidates, k: int, pool: Tensor | None, rows: int) -> int | None:
        """How many items are looked at; None for all."""
        available = len(self) if pool is None else len(pool)
        if candidates == "all" or len(self) <= EXHAUSTIVE_UP_TO or not isinstance(self._score, PhiScore):
            return None  # other similarities than Phi are cheap
        if candidates == "auto":
            few = max(PER_WANTED * k, min(AUTO, PAIRS_AT_ONCE // rows))
            return None if available <= max(EXHAUSTIVE_UP_TO, few) else few
        if not isinstance(candidates, int) or candidates < max(2, k):
            raise SettingError(f"candidates is {candidates!r}; expected k = {k} or more, at least 2, or 'auto' or 'all'.")
        return None if available <= candidates + 1 else candidates

    def _spread(self, ids: Tensor) -> Tensor:
        """At most EXAMPLES of them, each the farthest from those before it."""
        if len(ids) <= EXAMPLES:
            return ids
        z, chosen = self._z[ids], [0]
        apart = (z - z[0]).square().sum(1)
        for _ in range(EXAMPLES - 1):
            chosen.append(int(apart.argmax()))
            apart = torch.minimum(apart, (z - z[chosen[-1]]).square().sum(1))
        return ids[chosen]


def _require_k(k: int) -> None:
    if not isinstance(k, int) or k < 1:
        raise SettingError(f"k is {k!r}; expected a whole number of 1 or more.")


def _tensor(given: Ids) -> Tensor:
    return given if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given))


def _steps(rows: Tensor, size: int) -> range:
    return range(0, len(rows), size)


def _as_it_is(margins: Tensor) -> Tensor:
    return margins


def _blend(n_wanted: int, how: Literal["all", "any"]) -> Blend:
    """ln of the similarity to several examples, from margins (n_wanted + n_unwanted, n)."""
    if how not in ("all", "any"):
        raise SettingError(f"how is {how!r}; expected 'all' or 'any'.")

    def blended(margins: Tensor) -> Tensor:
        same = F.logsigmoid(margins[:n_wanted].double())
        logs = same.mean(0, keepdim=True) if how == "all" else same.amax(0, keepdim=True)
        unlike = margins[n_wanted:].double()
        return logs + F.logsigmoid(-unlike).mean(0, keepdim=True) if len(unlike) else logs

    return blended


def _leave_out(values: Tensor, ids: Tensor, own: Tensor | None) -> Tensor:
    return values if own is None else values.masked_fill(ids == own[:, None], -torch.inf)


def _found(W: Tensor, ids: Tensor, min_sim: float, *, exact: bool) -> SearchResult:
    few = (ids < 0) | (min_sim > W)
    return SearchResult(ids.masked_fill(few, -1), W.masked_fill(few, 0.0), exact)
