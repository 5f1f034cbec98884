"""All similarities, in blocks of bounded memory. What comes out does not depend on the blocks."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from samekind.search.pair_scores import Score, between

PAIRS = 2**20  # pairs in the air at a time
WIDE = 4096  # of them in a row of a block
HALVES = 2**15  # rows whose halves are held at a time; beyond, those of the other side are made once more for each so many


def pairwise_similarity(score: Score, z_a: Tensor, z_b: Tensor, *, symmetric: bool = False, pairs: int = PAIRS) -> Tensor:
    """W (n_a, n_b); with `symmetric` the mean of W_ij and W_ji."""
    if symmetric and z_a is z_b:  # both ways are there already
        return _fold(pairwise_similarity(score, z_a, z_b, pairs=pairs), max(1, int(pairs**0.5)))
    return pairwise_log_odds(score, z_a, z_b, symmetric=symmetric, pairs=pairs).sigmoid_()


def pairwise_log_odds(score: Score, z_a: Tensor, z_b: Tensor, *, symmetric: bool = False, pairs: int = PAIRS) -> Tensor:
    """The log-odds of W (n_a, n_b)."""
    margins = z_a.new_empty((len(z_a), len(z_b)))
    for rows, columns, block in blocks(score, z_a, z_b, symmetric=symmetric, pairs=pairs):
        margins[rows, columns] = block
    return margins


def blocks(
    score: Score, z_a: Tensor, z_b: Tensor, *, symmetric: bool = False, pairs: int = PAIRS
) -> Iterator[tuple[slice, slice, Tensor]]:
    """(rows, columns, their margins), block by block, for whoever can not hold all of them. W = sigmoid(margin)."""
    wide = max(1, min(len(z_b), WIDE, pairs))
    tall = max(1, pairs // wide)
    ways = [(score.left, score.right)] + ([(score.right, score.left)] if symmetric else [])
    for top in range(0, len(z_a), HALVES):
        halves = [own(z_a[top : top + HALVES]) for own, _ in ways]
        for start in range(0, len(z_b), wide):
            columns = slice(start, min(start + wide, len(z_b)))
            others = [other(z_b[columns]) for _, other in ways]
            for at in range(0, len(halves[0]), tall):
                there, *back = (score.grid(own[at : at + tall], other) for own, other in zip(halves, others, strict=True))
                yield slice(top + at, top + at + len(there)), columns, between(there, *back) if back else there


def first(margins: Tensor, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest margins of each row (n, c) and their indices, largest first; equals in the order they come in."""
    order = margins.argsort(dim=1, descending=True, stable=True)[:, :k]
    return margins.gather(1, order), indices.gather(1, order)


def _fold(W: Tensor, side: int) -> Tensor:
    """(W + W^T) / 2 of a matrix (n, n), in place, square by square."""
    for top in range(0, len(W), side):
        rows = slice(top, top + side)
        for start in range(top, len(W), side):
            columns = slice(start, start + side)
            both = (W[rows, columns] + W[columns, rows].T) / 2
            W[rows, columns], W[columns, rows] = both, both.T
    return W
