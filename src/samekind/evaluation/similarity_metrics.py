"""How good a similarity is: as a matrix beside the ideal one, and as an order of what is most alike."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from samekind.evaluation.metrics import same_class

Array = npt.NDArray[Any]


class MatrixErrors(NamedTuple):
    """Squared errors of W (n, n) to the ideal matrix, 1 for pairs of one class and 0 for others; all entries count.

    Nine of ten pairs of ten classes are different, so that a matrix of zeros has a small MSE. In the balanced one, pairs of
    one class and pairs of different classes count alike, and so does every class among them.
    """

    mse: float
    rmse: float
    balanced: float


class Ranking(NamedTuple):
    """Of the items sorted for each query, itself left out, in per cent: right ones among the first k, and mean average
    precision; and the area under the ROC curve over all pairs of a query and an item."""

    precision: float
    mean_average_precision: float
    auc: float


def matrix_errors(W: Array, y: Array) -> MatrixErrors:
    """W (n, n) of items of the classes y (n,)."""
    ideal = same_class(y, y)
    squared = np.square(np.asarray(W, dtype=np.float64) - ideal)
    classes, codes = np.unique(y, return_inverse=True)
    members = np.eye(len(classes))[codes]
    counts = members.sum(0)
    per_block = (members.T @ squared @ members) / np.outer(counts, counts)
    own = np.eye(len(classes), dtype=bool)
    balanced = per_block[own].mean() if len(classes) == 1 else (per_block[own].mean() + per_block[~own].mean()) / 2
    mse = float(squared.mean())
    return MatrixErrors(mse, mse**0.5, float(balanced))


def ranking(scores: Array, queries: Array, y: Array, k: int) -> Ranking:
    """Scores (q, n) of items of the classes y (n,), of which `queries` (q,) are the ones asked about."""
    right = same_class(y[queries], y)
    apart = np.ones_like(right)
    apart[np.arange(len(queries)), queries] = False
    hidden = np.where(apart, scores, -np.inf)
    order = np.argsort(-hidden, axis=1, kind="stable")[:, :-1]  # the query itself comes last
    hits = np.take_along_axis(right, order, axis=1)
    so_far = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    n_right = hits.sum(1)
    average = (so_far * hits).sum(1)[n_right > 0] / n_right[n_right > 0]
    auc = _auc(scores[apart], right[apart])
    return Ranking(100.0 * float(hits[:, :k].mean()), 100.0 * float(average.mean()), auc)


def pixel_scores(x: Array, rows: Array) -> Array:
    """Minus the squared distance of these rows of x (n, ...) to all, (q, n): sorts pairs as a Gaussian kernel of any width."""
    flat = x.reshape(len(x), -1).astype(np.float64)
    flat -= flat.mean(0)
    squares = np.square(flat).sum(1)
    return np.asarray(2.0 * flat[rows] @ flat.T - squares - squares[rows, None])


def most_alike(scores: Array, queries: Array, k: int) -> Array:
    """(q, k): the items of the highest scores (q, n), highest first, the queries themselves left out."""
    hidden = scores.copy()
    hidden[np.arange(len(queries)), queries] = -np.inf
    return np.asarray(np.argsort(-hidden, axis=1, kind="stable")[:, :k])


def _auc(scores: Array, right: Array) -> float:
    from scipy.stats import rankdata

    ranks = rankdata(scores)
    n_right = int(right.sum())
    n_wrong = right.size - n_right
    return float((ranks[right].sum() - n_right * (n_right + 1) / 2) / (n_right * n_wrong))
