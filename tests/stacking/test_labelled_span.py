"""Coordinates in the span of the labelled samples: their inner products are those of the views and of the RBF kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from samekind.stacking import labelled_span
from samekind.stacking.input_views import column_statistics, make_view
from samekind.stacking.kernel_logistic import rbf_kernel
from samekind.stacking.labelled_span import CenteredSamples, LabelledSpans, pad

N = 30


def spans(d: int, labelled: list[int], *, mean: float = 2.0) -> tuple[LabelledSpans, dict[str, NDArray[Any]]]:
    X = mean + torch.randn(N, d, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    columns = column_statistics(X.double())
    views = {"raw": X.double().numpy(), "standardized": make_view(X.double(), columns, "standardized").numpy()}
    first = np.array(labelled)
    return LabelledSpans(CenteredSamples(X, columns), first, {"rbf": views["standardized"][first]}), views


@pytest.mark.parametrize("d", [3, 8, 60])
def test_after_new_labels_the_inner_products_with_labelled_samples_are_those_of_the_views(d: int) -> None:
    found, views = spans(d, [0, 1, 2, 3])
    labelled = np.array([0, 1, 2, 3, 7, 9, 20])
    found.extend(labelled)
    found.extend(labelled)  # known labels change nothing
    for name, span in (("raw", found.raw), ("standardized", found.standardized)):
        coordinates = span.coordinates.values.astype(np.float64)
        np.testing.assert_allclose(
            coordinates.T @ coordinates[:, labelled], views[name] @ views[name][labelled].T, rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(span.basis.T @ span.basis, np.eye(span.basis.shape[1]), atol=1e-9)
    standardized = torch.from_numpy(views["standardized"])
    kernel = found.rbf["rbf"].coordinates.values
    expected = rbf_kernel(standardized, standardized[torch.from_numpy(labelled)]).numpy()
    np.testing.assert_allclose(kernel.T @ kernel[:, labelled], expected, atol=1e-3)


def test_coefficients_of_the_samples_give_the_values_of_the_coordinates() -> None:
    found, views = spans(40, [0, 1, 2])
    found.extend(np.array([5, 6]))
    weights = np.random.default_rng(0).standard_normal((5, 2))
    for name, span in (("raw", found.raw), ("standardized", found.standardized)):
        np.testing.assert_allclose(views[name] @ span.primal(weights), span.coordinates.values.T @ weights, atol=1e-4)
        np.testing.assert_allclose(span.weights(span.primal(weights)), weights, atol=1e-9)
    rbf = found.rbf["rbf"]
    kernel = rbf_kernel(torch.from_numpy(views["standardized"]), torch.from_numpy(rbf.centers)).numpy()
    np.testing.assert_allclose(kernel @ rbf.primal(weights), rbf.coordinates.values.T @ weights, atol=1e-3)
    np.testing.assert_allclose(rbf.weights(rbf.primal(weights)), weights, atol=1e-9)


def test_columns_far_from_zero_lose_no_digits_of_the_standardized_samples() -> None:
    found, views = spans(6, [0, 1, 2], mean=1e4)
    found.extend(np.array([4, 5]))
    coordinates = found.standardized.coordinates.values
    expected = views["standardized"] @ views["standardized"][[4, 5]].T
    np.testing.assert_allclose(coordinates.T @ coordinates[:, [4, 5]], expected, atol=1e-4)


def test_the_number_of_rbf_centres_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelled_span, "MAX_CENTERS", 5)
    found, _ = spans(10, [0, 1, 2])
    found.extend(np.arange(9))
    assert len(found.rbf["rbf"].centers) == 5
    assert found.standardized.basis.shape[1] == 9


def test_room_for_new_coordinates_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelled_span, "SPARE", 1)
    found, views = spans(60, [0, 1])
    for k in range(2, 9):
        found.extend(np.arange(k + 1))
    coordinates = found.raw.coordinates.values
    np.testing.assert_allclose(coordinates.T @ coordinates[:, :9], views["raw"] @ views["raw"][:9].T, rtol=1e-4, atol=1e-3)


def test_pad_moves_columns_and_fills_with_zeros() -> None:
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(pad(values, 3, [-1, 1]), [[0, 2], [0, 4], [0, 0]])
    np.testing.assert_array_equal(pad(values, 2, [0, 1]), values)
