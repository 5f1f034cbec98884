"""Views of vectors, by values that one can check by hand, and properties for any input."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samekind.stacking.input_views import column_statistics, fit_projection, make_view, unit_rows


def test_standardized_rows_have_a_mean_squared_length_of_one() -> None:
    X = torch.randn(200, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5 + 3
    view = make_view(X, column_statistics(X), "standardized")
    assert view.square().sum(1).mean().item() == pytest.approx(1.0)


def test_a_constant_column_becomes_zero_and_not_infinite() -> None:
    X = torch.tensor([[1.0, 5.0], [3.0, 5.0]], dtype=torch.float64)
    view = make_view(X, column_statistics(X), "standardized")
    torch.testing.assert_close(view, torch.tensor([[-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64) / 2**0.5)


def test_unit_rows_have_length_one_and_a_row_of_zeros_stays_zero() -> None:
    rows = unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    torch.testing.assert_close(rows, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


@settings(deadline=None)
@given(st.integers(3, 30), st.integers(1, 40), st.integers(0, 5))
def test_a_projection_keeps_the_variance_of_the_first_components(n: int, d: int, seed: int) -> None:
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    columns = column_statistics(X)
    projected = fit_projection(X, columns, 4, unit=False)(X)
    standardized = (X - columns.mean) / columns.scale
    largest = torch.linalg.svdvals(standardized).square()[:4].sum() if d > 4 else standardized.square().sum()
    assert projected.square().sum().item() == pytest.approx(largest.item(), rel=1e-6)
