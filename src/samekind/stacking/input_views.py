"""Views: scaled forms of the vectors, which the classifiers and graphs of the ensemble take as input."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

ViewName = Literal["standardized", "unit", "unit_standardized", "unscaled"]
CONSTANT = 1e-7  # a column is constant if its standard deviation is below this fraction of its mean


class ColumnStatistics(NamedTuple):
    """Mean and standard deviation of each column, both (d,). The deviation of a constant column is set to 1."""

    mean: Tensor
    scale: Tensor


def column_statistics(X: Tensor) -> ColumnStatistics:
    """Return the mean and the standard deviation of each column of X (n, d)."""
    mean, std = X.mean(0), X.std(0, unbiased=False)
    constant = std <= CONSTANT * mean.abs().clamp_min(1e-30)
    return ColumnStatistics(mean, torch.where(constant, torch.ones_like(std), std))


def unit_rows(X: Tensor) -> Tensor:
    """Return X (n, d) with each row scaled to length 1; a row of zeros stays zero."""
    return torch.nn.functional.normalize(X, dim=1, eps=1e-30)


def make_view(X: Tensor, columns: ColumnStatistics, name: ViewName) -> Tensor:
    """Return a scaled form of X (n, d).

    "standardized": columns have mean 0 and variance 1/d, so that rows have a mean squared length of 1 for any d. "unit": rows
    have length 1. "unit_standardized": first standardized, then each row is scaled to length 1. "unscaled": X itself.
    """
    if name == "unscaled":
        return X
    if name == "unit":
        return unit_rows(X)
    standardized = (X - columns.mean) / (columns.scale * X.shape[1] ** 0.5)
    return unit_rows(standardized) if name == "unit_standardized" else standardized


class GraphProjection(NamedTuple):
    """Linear map to the coordinates of a graph: (x - center) @ basis; with `unit`, each row is then scaled to length 1."""

    center: Tensor
    basis: Tensor
    unit: bool

    def __call__(self, X: Tensor) -> Tensor:
        projected = (X - self.center) @ self.basis
        return unit_rows(projected) if self.unit else projected


def fit_projection(X: Tensor, columns: ColumnStatistics, n_components: int, *, unit: bool) -> GraphProjection:
    """Return the projection of X (n, d) on its principal components, at most `n_components`.

    With `unit`, columns keep their scale and projected rows are scaled to length 1, which suits embeddings. Otherwise columns
    are standardized first, which suits tables.
    """
    scale = torch.ones_like(columns.scale) if unit else columns.scale
    d = X.shape[1]
    if d <= n_components:
        return GraphProjection(columns.mean, torch.diag(1.0 / scale), unit)
    standardized = (X - columns.mean) / scale
    gram = standardized.T @ standardized if d <= len(X) else standardized @ standardized.T
    squares, vectors = torch.linalg.eigh(gram)
    kept = min(n_components, int((squares > 1e-9 * squares[-1].clamp_min(1e-300)).sum()))
    top = vectors[:, -max(kept, 1) :].flip(1)
    if d > len(X):
        top = torch.nn.functional.normalize(standardized.T @ top, dim=0)
    return GraphProjection(columns.mean, top / scale[:, None], unit)
