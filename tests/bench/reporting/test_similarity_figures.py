"""Figures 3 and 4: metrics and drawings, with a model that is fitted in seconds."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from samekind import SemiSupervisedClassifier
from samekind.bench.reporting.similarity_figures import (
    COSINE,
    GAUSSIAN,
    LEARNED,
    OTHER_LABELS,
    OWN_LABELS,
    SYMMETRIC,
    ZEROS,
    SimilarityReport,
    SimilaritySizes,
    similarity_report,
)
from samekind.bench.reporting.text_table import to_markdown

SIZES = SimilaritySizes(queries=60, matrix=50, k=4, drawn=3)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    images, y = load_digits(n_class=3, return_X_y=True)
    return images.reshape(-1, 8, 8)[:200], y[:200]


@pytest.fixture(scope="module")
def report(digits: tuple[np.ndarray, np.ndarray]) -> SimilarityReport:
    images, y = digits
    model = SemiSupervisedClassifier(epochs=60, random_state=0).fit(images, np.where(np.arange(200) < 20, y, -1))
    return similarity_report(model, images, y, sizes=SIZES, other_labels=np.zeros_like(y), seed=1)


def test_every_similarity_has_its_metrics(report: SimilarityReport) -> None:
    assert set(report.rankings) == {LEARNED, SYMMETRIC, COSINE, GAUSSIAN}
    assert set(report.errors) == {LEARNED, SYMMETRIC, OWN_LABELS, OTHER_LABELS, ZEROS}
    assert report.rankings[LEARNED].precision > 70  # by chance 33
    assert report.n_queries == 60
    lines = to_markdown(report.table).splitlines()
    assert len(lines) == 2 + 7 and "precision@4 %" in lines[0]


def test_labels_of_a_single_class_are_wrong_for_every_pair_of_different_classes(
    report: SimilarityReport, digits: tuple[np.ndarray, np.ndarray]
) -> None:
    y = digits[1][report.rows]
    assert (np.diff(y) >= 0).all()
    assert report.errors[OTHER_LABELS].mse == pytest.approx(np.mean(y[:, None] != y))
    assert report.errors[ZEROS].mse == pytest.approx(np.mean(y[:, None] == y))
    assert report.errors[LEARNED].mse < min(report.errors[OTHER_LABELS].mse, report.errors[ZEROS].mse)


def test_queries_are_not_among_their_neighbours(report: SimilarityReport) -> None:
    for found in report.found.values():
        assert found.shape == (3, 4)
        assert (found != report.drawn[:, None]).all()


@pytest.mark.parametrize("color", [False, True])
def test_both_figures_are_drawn(report: SimilarityReport, digits: tuple[np.ndarray, np.ndarray], color: bool) -> None:
    images = np.repeat(digits[0][..., None], 3, axis=3) if color else digits[0]
    queries, matrices = report.figures(images)
    assert (queries.file, matrices.file) == ("queries.png", "matrices.png")
    with Image.open(io.BytesIO(queries.png)) as one, Image.open(io.BytesIO(matrices.png)) as other:
        assert one.width > 400 and other.width > 400
