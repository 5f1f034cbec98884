"""How good a similarity is: the 9 most alike, and all pairs, of test images (Figures 3 and 4 of arXiv:2002.09891).

W is held against a Gaussian kernel on pixels, whose order does not depend on its width, and against 0/1 by given classes, which
is all that a graph made of predicted labels can say.
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
QUERIES, MATRIX_ROWS, K = 1000, 500, 9
DRAWN = 10  # queries that are shown


def alike(
    problem: BenchData, model: Any, answers: Callable[[Array], Array], seed: int
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Numbers for the record; for the figures the matrix of 500 images, sorted by class, and what is found for 10 of them.

    `tiles` and `kinds` are images and classes (2, 10, 1 + 9): by W and by the kernel, each query before what was found;
    `asked` is how many images it was found among.
    """
    x, y = (problem.x_test, problem.y_test) if len(problem.y_test) else (problem.x, problem.y)
    asked = _drawn(y, min(QUERIES, len(y)), seed)
    W, pixels = model.similarity(x[asked]), pixel_similarity(x[asked], np.arange(len(asked)))
    numbers: dict[str, float] = {}
    for after, one in (("", W), ("_gaussian", pixels)):
        ranked = ranking_metrics(one, np.arange(len(asked)), y[asked], K)
        numbers |= {f"precision_at_{K}{after}": ranked.precision, f"auc{after}": ranked.auc}
    rows = asked[np.sort(_drawn(y[asked], min(MATRIX_ROWS, len(asked)), seed))]
    place = np.searchsorted(asked, rows)
    order = np.argsort(y[rows], kind="stable")
    rows, place = rows[order], place[order]
    matrix, given = W[np.ix_(place, place)], answers(x[rows])
    for name, one in (("mse", matrix), ("mse_labels", same_class(given, given))):
        errors = matrix_errors(one, y[rows])
        numbers |= {name: errors.mse, f"{name}_balanced": errors.balanced}
    arrays = {"rows": rows, "W": np.round(255 * matrix).astype(np.uint8), "given": given.astype(np.int64), "y": y[rows]}
    if x.ndim > 2:
        drawn = _drawn(y[asked], min(DRAWN, len(asked)), seed)
        found = np.stack([np.column_stack([drawn, most_similar(one[drawn], drawn, K)]) for one in (W, pixels)])
        arrays |= {"tiles": x[asked][found], "kinds": y[asked][found], "asked": np.array(len(asked))}
    return {"similarity": numbers}, arrays


def _drawn(y: Array, n: int, seed: int) -> Array:
    """n rows in rising order, each class in its share."""
    return train_test_indices(y, n, seed)[1]
