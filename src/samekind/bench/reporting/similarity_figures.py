"""Figures 3 and 4 of the paper for any fitted model: queries, similarity matrices, and the numbers behind them.

report = similarity_report(clf, x_test, y_test, rival=other.predict(x_test))
tables.show(report.table)
for picture in report.pictures(x_test): ...

W is compared with the cosine of the learned features z, with a Gaussian kernel on pixels (whose order does not depend on its
width), and with the 0/1 matrix of predicted labels, which is what SNTG has for a graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.bench.reporting.html_report import ReportFigure
from samekind.bench.reporting.tables import TextTable
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
LEARNED, BOTH_WAYS, COSINE, GAUSSIAN = "learned W", "learned W, both ways", "cosine of z", "Gaussian kernel on pixels"
OWN_LABELS, RIVAL, ZEROS = "0/1 by its own predicted labels", "0/1 by the predicted labels of SNTG", "nothing alike (all 0)"


@dataclass(frozen=True)
class SimilaritySizes:
    """How much is looked at: queries against all of x, rows of the matrix, neighbours, queries that are drawn."""

    queries: int = 1000
    matrix: int = 500
    k: int = 9
    drawn: int = 10


@dataclass(frozen=True)
class SimilarityReport:
    """What was measured, and what the figures need."""

    y: Array
    k: int
    n_queries: int
    error: float  # of the model's classes on x, in per cent
    rankings: Mapping[str, RankingMetrics]
    errors: Mapping[str, MatrixErrors]
    rows: Array  # of the matrices, sorted by class
    matrices: Mapping[str, Array]
    drawn: Array  # queries of the panel
    found: Mapping[str, Array] = field(default_factory=dict)  # what is most alike to each of them (drawn, k)

    @property
    def table(self) -> TextTable:
        """One line for each way to tell what is alike."""
        header = ("similarity", f"precision@{self.k} %", "mAP %", "ROC AUC", "MSE", "RMSE", "balanced MSE")
        names = [*self.rankings, *(name for name in self.errors if name not in self.rankings)]
        return TextTable(header, tuple((name, *self._cells(name)) for name in names), numeric=frozenset(range(1, 7)))

    def _cells(self, name: str) -> tuple[str, ...]:
        order, errors = self.rankings.get(name), self.errors.get(name)
        first = ("–",) * 3 if order is None else (f"{order[0]:.2f}", f"{order[1]:.2f}", f"{order[2]:.4f}")
        return first + (("–",) * 3 if errors is None else tuple(f"{value:.4f}" for value in errors))

    def figures(self, images: Array) -> list[ReportFigure]:
        """Figure 3 and Figure 4; `images` (n, H, W) or (n, H, W, C) are the x of the report."""
        from samekind.bench.reporting import figures

        titles = {name: f"{name}, precision@{self.k} {self.rankings[name].precision:.1f} %" for name in self.found}
        blocks = {
            titles[name]: figures.build_query_panel(images, self.y, self.drawn, found) for name, found in self.found.items()
        }
        caption = (
            f"{len(self.drawn)} queries drawn at random (blue), and the {self.k} most alike of {len(self.y)} images; those of "
            f"another class are framed in red. Precision is over {self.n_queries} queries."
        )
        panel = figures.query_panel_png(blocks)
        matrices = {
            f"{name}, MSE {self.errors[name].mse:.4f}" if name in self.errors else name: matrix
            for name, matrix in self.matrices.items()
        }
        square = figures.matrices_png(self.y[self.rows], matrices)
        return [
            ReportFigure("queries.png", "More like this one", caption, "; ".join(blocks), panel),
            ReportFigure(
                "matrices.png", "Which are alike", f"{len(self.rows)} images sorted by class.", "; ".join(matrices), square
            ),
        ]


def similarity_report(
    clf: SemiSupervisedClassifier,
    x: Array,
    y: Array,
    *,
    sizes: SimilaritySizes | None = None,
    rival: Array | None = None,
    seed: int = 0,
) -> SimilarityReport:
    """Compares similarities on x with true classes y; `rival` are labels of x predicted by another model."""
    sizes = sizes or SimilaritySizes()
    rng = np.random.default_rng(seed)
    queries = np.sort(rng.choice(len(y), min(sizes.queries, len(y)), replace=False))
    rows = np.sort(rng.choice(len(y), min(sizes.matrix, len(y)), replace=False))
    rows = rows[np.argsort(y[rows], kind="stable")]
    drawn = rng.choice(len(queries), min(sizes.drawn, len(queries)), replace=False)
    scores = _scores(clf, x, queries)
    found = {name: most_similar(scores[name][drawn], queries[drawn], sizes.k) for name in (LEARNED, GAUSSIAN)}
    predicted = clf.predict(x)
    matrices = _matrices(clf, x[rows], y[rows], predicted[rows], None if rival is None else rival[rows])
    compare_runs = {name: matrix for name, matrix in matrices.items() if name != "ideal"}
    compare_runs[BOTH_WAYS] = (matrices[LEARNED] + matrices[LEARNED].T) / 2
    compare_runs[ZEROS] = np.zeros((len(rows), len(rows)))
    return SimilarityReport(
        y=y,
        k=sizes.k,
        n_queries=len(queries),
        error=error_rate(predicted, y),
        rankings={name: ranking_metrics(score, queries, y, sizes.k) for name, score in scores.items()},
        errors={name: matrix_errors(matrix, y[rows]) for name, matrix in compare_runs.items()},
        rows=rows,
        matrices=matrices,
        drawn=queries[drawn],
        found=found,
    )


def _scores(clf: SemiSupervisedClassifier, x: Array, queries: Array) -> dict[str, Array]:
    """What items are sorted by, (q, n) for each way; of W the log-odds, which go on where W is 1."""
    z = clf.transform(x)
    angle = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    return {
        LEARNED: clf.log_odds(x[queries], x),
        BOTH_WAYS: clf.log_odds(x[queries], x, symmetric=True),
        COSINE: angle[queries] @ angle.T,
        GAUSSIAN: pixel_similarity(x, queries),
    }


def _matrices(clf: SemiSupervisedClassifier, x: Array, y: Array, own: Array, rival: Array | None) -> dict[str, Array]:
    found: dict[str, Array] = {"ideal": same_class(y, y), LEARNED: clf.similarity(x), OWN_LABELS: same_class(own, own)}
    return found if rival is None else {**found, RIVAL: same_class(rival, rival)}
