"""Measurement of the learned similarity W on test images, as in Figures 3 and 4 of arXiv:2002.09891.

W is compared with a Gaussian kernel on pixels, which ranks pairs in the same order for any width, and with "same predicted
class", 0 or 1, which is the graph that predicted labels give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.bench.bench_data import BenchData
from samekind.data.splits import train_test_indices
from samekind.evaluation.metrics import matrix_errors, most_similar, pixel_similarity, ranking_metrics, same_class

Array = npt.NDArray[Any]
QUERIES, MATRIX_SIZE, K = 1000, 500, 9
SHOWN_QUERIES = 10  # number of queries in the figure


def measure_similarity(
    data: BenchData, model: Any, predict: Callable[[Array], Array], seed: int
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return metrics for the record, and arrays for the figures: W of 500 images sorted by class, and 10 queries.

    `tiles` and `kinds` are the images and the classes (2, 10, 1 + 9) of the queries and their nearest neighbours, by W and by
    the Gaussian kernel. `asked` is the number of images that were searched. Result folders contain the arrays with these names.
    """
    x, y = (data.x_test, data.y_test) if len(data.y_test) else (data.x, data.y)
    searched = _stratified_sample(y, min(QUERIES, len(y)), seed)
    W, pixels = model.similarity(x[searched]), pixel_similarity(x[searched], np.arange(len(searched)))
    metrics: dict[str, float] = {}
    for suffix, scores in (("", W), ("_gaussian", pixels)):
        ranking = ranking_metrics(scores, np.arange(len(searched)), y[searched], K)
        metrics |= {f"precision_at_{K}{suffix}": ranking.precision, f"auc{suffix}": ranking.auc}
    samples = searched[np.sort(_stratified_sample(y[searched], min(MATRIX_SIZE, len(searched)), seed))]
    position = np.searchsorted(searched, samples)
    order = np.argsort(y[samples], kind="stable")
    samples, position = samples[order], position[order]
    matrix, predicted = W[np.ix_(position, position)], predict(x[samples])
    for name, one in (("mse", matrix), ("mse_labels", same_class(predicted, predicted))):
        errors = matrix_errors(one, y[samples])
        metrics |= {name: errors.mse, f"{name}_balanced": errors.balanced}
    quantized = np.round(255 * matrix).astype(np.uint8)
    arrays = {"rows": samples, "W": quantized, "given": predicted.astype(np.int64), "y": y[samples]}
    if x.ndim > 2:
        shown = _stratified_sample(y[searched], min(SHOWN_QUERIES, len(searched)), seed)
        found = np.stack([np.column_stack([shown, most_similar(one[shown], shown, K)]) for one in (W, pixels)])
        arrays |= {"tiles": x[searched][found], "kinds": y[searched][found], "asked": np.array(len(searched))}
    return {"similarity": metrics}, arrays


def _stratified_sample(y: Array, n: int, seed: int) -> Array:
    """Return n sorted indices of samples, in which each class has the same fraction as in y."""
    return train_test_indices(y, n, seed)[1]
