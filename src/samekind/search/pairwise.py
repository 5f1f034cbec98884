"""Similarities of all pairs, computed in blocks of bounded memory. The results do not depend on the size of the blocks."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from samekind.search.pair_scores import PairScore, mean_log_odds

MAX_PAIRS = 2**20  # largest number of pairs in a block
MAX_COLUMNS = 4096  # largest number of columns of a block
# number of rows whose halves of the score are in memory at a time; the halves of the columns are computed anew for each such
# group of rows
MAX_HALVES = 2**15


def pairwise_similarity(
    score: PairScore, z_a: Tensor, z_b: Tensor, *, symmetric: bool = False, max_pairs: int = MAX_PAIRS
) -> Tensor:
    """Return the similarities W (n_a, n_b) of all pairs; with `symmetric`, the means of W_ij and W_ji."""
    if symmetric and z_a is z_b:  # the matrix then contains both W_ij and W_ji
        return _symmetrize(pairwise_similarity(score, z_a, z_b, max_pairs=max_pairs), max(1, int(max_pairs**0.5)))
    return pairwise_log_odds(score, z_a, z_b, symmetric=symmetric, max_pairs=max_pairs).sigmoid_()


def pairwise_log_odds(
    score: PairScore, z_a: Tensor, z_b: Tensor, *, symmetric: bool = False, max_pairs: int = MAX_PAIRS
) -> Tensor:
    """Return the log-odds (n_a, n_b) of the similarities W; with `symmetric`, of the means of W_ij and W_ji."""
    log_odds = z_a.new_empty((len(z_a), len(z_b)))
    for rows, columns, block in pairwise_blocks(score, z_a, z_b, symmetric=symmetric, max_pairs=max_pairs):
        log_odds[rows, columns] = block
    return log_odds


def pairwise_blocks(
    score: PairScore, z_a: Tensor, z_b: Tensor, *, symmetric: bool = False, max_pairs: int = MAX_PAIRS
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield (rows, columns, log-odds) of one block after the other, for matrices that do not fit into memory.

    The similarity is W = sigmoid(log-odds).
    """
    n_columns = max(1, min(len(z_b), MAX_COLUMNS, max_pairs))
    n_rows = max(1, max_pairs // n_columns)
    orders = [(score.left, score.right)] + ([(score.right, score.left)] if symmetric else [])
    for top in range(0, len(z_a), MAX_HALVES):
        halves = [own(z_a[top : top + MAX_HALVES]) for own, _ in orders]
        for start in range(0, len(z_b), n_columns):
            columns = slice(start, min(start + n_columns, len(z_b)))
            others = [other(z_b[columns]) for _, other in orders]
            for at in range(0, len(halves[0]), n_rows):
                ij, *ji = (score.matrix(own[at : at + n_rows], other) for own, other in zip(halves, others, strict=True))
                yield slice(top + at, top + at + len(ij)), columns, mean_log_odds(ij, *ji) if ji else ij


def top_k(values: Tensor, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values in each row of `values` (n, c), and their `indices`, largest first.

    Equal values keep their order.
    """
    # torch.topk is not used, because it does not define the order of equal values
    order = values.argsort(dim=1, descending=True, stable=True)[:, :k]
    return values.gather(1, order), indices.gather(1, order)


def _symmetrize(W: Tensor, side: int) -> Tensor:
    """Replace W (n, n) by (W + W^T) / 2 in place, in square blocks of `side` rows, and return W."""
    for top in range(0, len(W), side):
        rows = slice(top, top + side)
        for start in range(top, len(W), side):
            columns = slice(start, start + side)
            mean = (W[rows, columns] + W[columns, rows].T) / 2
            W[rows, columns], W[columns, rows] = mean, mean.T
    return W
