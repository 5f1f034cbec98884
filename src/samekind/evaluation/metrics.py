"""Metrics: error rate of predictions, squared error of a similarity matrix, and precision, mAP and AUC of rankings."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def error_rate(predicted: Array, true: Array) -> float:
    """Return the percentage of wrong predictions; lower is better."""
    return 100.0 * float(np.mean(predicted != true))


def same_class(y_a: Array, y_b: Array) -> npt.NDArray[np.bool_]:
    """Return the ideal similarity matrix (n_a, n_b): True where two samples have the same class."""
    return np.asarray(y_a[:, None] == y_b[None, :])


class MatrixErrors(NamedTuple):
    """Squared errors of a similarity matrix W (n, n) against the ideal matrix, over all entries; lower is better.

    With ten classes, nine of ten pairs have different classes, so a matrix of zeros has a small mean squared error. In the
    balanced error, same-class pairs have the same total weight as other pairs. Within each of these two groups, every
    combination of two classes has the same weight.
    """

    mse: float
    rmse: float
    balanced: float


class RankingMetrics(NamedTuple):
    """Metrics of rankings, without the query item itself; higher is better.

    Precision among the first k and mean average precision (mAP) are percentages. `auc`, from 0 to 1, is the area under the ROC
    curve over all pairs of a query and an item.
    """

    precision: float
    mean_average_precision: float
    auc: float


def matrix_errors(W: Array, y: Array) -> MatrixErrors:
    """Return the squared errors of similarities W (n, n) for samples with classes y (n,)."""
    ideal = same_class(y, y)
    squared = np.square(np.asarray(W, dtype=np.float64) - ideal)
    classes, codes = np.unique(y, return_inverse=True)
    members = np.eye(len(classes))[codes]
    counts = members.sum(0)
    per_block = (members.T @ squared @ members) / np.outer(counts, counts)
    diagonal = np.eye(len(classes), dtype=bool)
    same = per_block[diagonal].mean()
    balanced = same if len(classes) == 1 else (same + per_block[~diagonal].mean()) / 2
    mse = float(squared.mean())
    return MatrixErrors(mse, mse**0.5, float(balanced))


def ranking_metrics(scores: Array, queries: Array, y: Array, k: int) -> RankingMetrics:
    """Return how well the scores (q, n) of q queries rank items of the query's class first.

    y (n,) are the classes of all items, and `queries` (q,) the indices of the query items. Precision is among the first k
    items.
    """
    from sklearn.metrics import roc_auc_score

    relevant = same_class(y[queries], y)
    not_self = np.ones_like(relevant)
    not_self[np.arange(len(queries)), queries] = False
    # the query has the lowest score, comes last and is cut off
    order = np.argsort(-np.where(not_self, scores, -np.inf), axis=1, kind="stable")[:, :-1]
    hits = np.take_along_axis(relevant, order, axis=1)
    # Ties are ranked by index, and many similarities are tied at 1. scikit-learn's average_precision_score groups ties instead.
    precision_at = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    n_relevant = hits.sum(1)
    average_precision = (precision_at * hits).sum(1)[n_relevant > 0] / n_relevant[n_relevant > 0]
    auc = float(roc_auc_score(relevant[not_self], scores[not_self]))
    return RankingMetrics(100.0 * float(hits[:, :k].mean()), 100.0 * float(average_precision.mean()), auc)


def pixel_similarity(x: Array, queries: Array) -> Array:
    """Return minus the squared distances (q, n) between the samples `queries` of x (n, ...) and all samples.

    A Gaussian kernel of any width ranks pairs in the same order.
    """
    flat = x.reshape(len(x), -1).astype(np.float64)
    flat -= flat.mean(0)
    squares = np.square(flat).sum(1)
    return np.asarray(2.0 * flat[queries] @ flat.T - squares - squares[queries, None])


def most_similar(scores: Array, queries: Array, k: int) -> Array:
    """Return the indices (q, k) of the k highest scores (q, n) of each query, highest first, without the query itself."""
    scores = scores.copy()
    scores[np.arange(len(queries)), queries] = -np.inf
    return np.asarray(np.argsort(-scores, axis=1, kind="stable")[:, :k])
