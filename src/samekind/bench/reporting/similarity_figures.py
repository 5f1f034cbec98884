"""Figures 3 and 4 of the paper, for any fitted model: nearest neighbours, similarity matrices, and metrics of them.

    report = similarity_report(clf, x_test, y_test, other_labels=other.predict(x_test))
    print_table(report.table)
    for figure in report.figures(x_test): ...

The learned similarity W is compared with three others: the cosine of the learned features z; a Gaussian kernel on pixels, which
ranks pairs in the same order for any width; and "same predicted label", 0 or 1, which is the graph of the method SNTG.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.bench.reporting.html_report import ReportFigure
from samekind.bench.reporting.text_table import TextTable
from samekind.estimator import SemiSupervisedClassifier
from samekind.evaluation.metrics import (
    MatrixErrors,
    RankingMetrics,
    error_rate,
    matrix_errors,
    most_similar,
    pixel_similarity,
    ranking_metrics,
    same_class,
)

Array = npt.NDArray[Any]
LEARNED, SYMMETRIC, COSINE, GAUSSIAN = "learned W", "learned W, symmetric", "cosine of z", "Gaussian kernel on pixels"
OWN_LABELS, OTHER_LABELS, ZEROS = "0/1 by its own predicted labels", "0/1 by the predicted labels of SNTG", "all 0"


@dataclass(frozen=True)
class SimilaritySizes:
    """Numbers of queries, of samples in the matrix, of neighbours of each query (`k`), and of queries in the figure
    (`drawn`).
    """

    queries: int = 1000
    matrix: int = 500
    k: int = 9
    drawn: int = 10


@dataclass(frozen=True)
class SimilarityReport:
    """Metrics of several similarities on the same samples, and arrays for the figures."""

    y: Array
    k: int
    n_queries: int
    error: float  # error of the model's predictions on x, in percent
    rankings: Mapping[str, RankingMetrics]
    errors: Mapping[str, MatrixErrors]
    rows: Array  # indices of the samples in the matrices, sorted by class
    matrices: Mapping[str, Array]
    drawn: Array  # indices of the queries in the figure
    # indices (drawn, k) of the nearest neighbours of these queries, by the name of the similarity
    found: Mapping[str, Array] = field(default_factory=dict)

    @property
    def table(self) -> TextTable:
        """Return a table with a line for each similarity, and all its metrics."""
        header = ("similarity", f"precision@{self.k} %", "mAP %", "ROC AUC", "MSE", "RMSE", "balanced MSE")
        names = [*self.rankings, *(name for name in self.errors if name not in self.rankings)]
        return TextTable(header, tuple((name, *self._format_metrics(name)) for name in names), numeric=frozenset(range(1, 7)))

    def _format_metrics(self, name: str) -> tuple[str, ...]:
        order, errors = self.rankings.get(name), self.errors.get(name)
        first = ("–",) * 3 if order is None else (f"{order[0]:.2f}", f"{order[1]:.2f}", f"{order[2]:.4f}")
        return first + (("–",) * 3 if errors is None else tuple(f"{value:.4f}" for value in errors))

    def figures(self, images: Array) -> list[ReportFigure]:
        """Return Figure 3 and Figure 4. `images` (n, H, W) or (n, H, W, C) are the samples x of the report."""
        from samekind.bench.reporting import figures

        titles = {name: f"{name}, precision@{self.k} {self.rankings[name].precision:.1f} %" for name in self.found}
        panels = {
            titles[name]: figures.build_query_panel(images, self.y, self.drawn, found) for name, found in self.found.items()
        }
        caption = (
            f"{len(self.drawn)} random queries (blue), and the {self.k} most similar of {len(self.y)} images; images of "
            f"another class are framed in red. Precision is over {self.n_queries} queries."
        )
        panel = figures.query_panel_png(panels)
        matrices = {
            f"{name}, MSE {self.errors[name].mse:.4f}" if name in self.errors else name: matrix
            for name, matrix in self.matrices.items()
        }
        matrices_image = figures.matrices_png(self.y[self.rows], matrices)
        return [
            ReportFigure("queries.png", "Nearest neighbours", caption, "; ".join(panels), panel),
            ReportFigure(
                "matrices.png",
                "Similarity matrices",
                f"{len(self.rows)} images sorted by class.",
                "; ".join(matrices),
                matrices_image,
            ),
        ]


def similarity_report(
    clf: SemiSupervisedClassifier,
    x: Array,
    y: Array,
    *,
    sizes: SimilaritySizes | None = None,
    other_labels: Array | None = None,
    seed: int = 0,
) -> SimilarityReport:
    """Return the report on samples x with true classes y. `other_labels` (n,) are labels of x that another model predicts."""
    sizes = sizes or SimilaritySizes()
    rng = np.random.default_rng(seed)
    queries = np.sort(rng.choice(len(y), min(sizes.queries, len(y)), replace=False))
    rows = np.sort(rng.choice(len(y), min(sizes.matrix, len(y)), replace=False))
    rows = rows[np.argsort(y[rows], kind="stable")]
    drawn = rng.choice(len(queries), min(sizes.drawn, len(queries)), replace=False)
    scores = _scores(clf, x, queries)
    found = {name: most_similar(scores[name][drawn], queries[drawn], sizes.k) for name in (LEARNED, GAUSSIAN)}
    predicted = clf.predict(x)
    matrices = _matrices(clf, x[rows], y[rows], predicted[rows], None if other_labels is None else other_labels[rows])
    compared = {name: matrix for name, matrix in matrices.items() if name != "ideal"}
    compared[SYMMETRIC] = (matrices[LEARNED] + matrices[LEARNED].T) / 2
    compared[ZEROS] = np.zeros((len(rows), len(rows)))
    return SimilarityReport(
        y=y,
        k=sizes.k,
        n_queries=len(queries),
        error=error_rate(predicted, y),
        rankings={name: ranking_metrics(score, queries, y, sizes.k) for name, score in scores.items()},
        errors={name: matrix_errors(matrix, y[rows]) for name, matrix in compared.items()},
        rows=rows,
        matrices=matrices,
        drawn=queries[drawn],
        found=found,
    )


def _scores(clf: SemiSupervisedClassifier, x: Array, queries: Array) -> dict[str, Array]:
    """Return scores (q, n) by which each similarity ranks the samples for each query.

    For W these are the log-odds, which still differ where W is rounded to 1.
    """
    z = clf.transform(x)
    unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    return {
        LEARNED: clf.log_odds(x[queries], x),
        SYMMETRIC: clf.log_odds(x[queries], x, symmetric=True),
        COSINE: unit[queries] @ unit.T,
        GAUSSIAN: pixel_similarity(x, queries),
    }


def _matrices(clf: SemiSupervisedClassifier, x: Array, y: Array, own: Array, other_labels: Array | None) -> dict[str, Array]:
    found: dict[str, Array] = {"ideal": same_class(y, y), LEARNED: clf.similarity(x), OWN_LABELS: same_class(own, own)}
    return found if other_labels is None else {**found, OTHER_LABELS: same_class(other_labels, other_labels)}
