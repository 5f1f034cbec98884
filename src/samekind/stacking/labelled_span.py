"""All samples in coordinates of the span of the labelled samples, which grows by one coordinate for each new labelled sample.

Every solution of a regularized classifier lies in this span. So the classifiers train on few coordinates, and a new label
costs one product of all samples with one vector. Everything of length n is in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from torch import Tensor

from samekind.graphs.linear_systems import Floats, Labels
from samekind.stacking.input_views import ColumnStatistics
from samekind.stacking.kernel_logistic import MAX_CENTERS, RIDGE

Singles = NDArray[Any]  # arrays in single precision

BLOCK_ROWS = 512  # samples that are multiplied with several vectors while they are in the cache
FEW_VECTORS = 4  # from this number of vectors on, one product of matrices is faster
NEW_DIRECTION = (
    1e-5  # length of the part of a row outside the span, as a fraction of the row, from which it is a new coordinate
)
SPARE = 64  # coordinates for which there is room when a span is made or enlarged


class CenteredSamples:
    """Samples (n, d) less their mean: products of the raw and of the standardized samples with any vector."""

    def __init__(self, X: Tensor, columns: ColumnStatistics) -> None:
        self.mean = columns.mean.numpy()
        self.divisor = columns.scale.numpy() * X.shape[1] ** 0.5  # of the standardized view
        self.X: Singles = (X - columns.mean.to(X.dtype)).float().numpy()
        self.raw_norms = np.empty(len(X), dtype=np.float32)
        self.standardized_norms = np.empty(len(X), dtype=np.float32)
        for start in range(0, len(X), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            self.raw_norms[block] = np.linalg.norm(self.rows(np.arange(len(X))[block], standardized=False), axis=1)
            self.standardized_norms[block] = np.linalg.norm(self.rows(np.arange(len(X))[block], standardized=True), axis=1)

    def __len__(self) -> int:
        return len(self.X)

    def rows(self, index: Labels, *, standardized: bool) -> Floats:
        """Return the rows (m, d) of the raw or the standardized samples in double precision."""
        rows = self.X[index].astype(np.float64)
        return np.asarray(rows / self.divisor if standardized else rows + self.mean)

    def products(self, vectors: Floats, *, standardized: bool) -> Singles:
        """Return the products (k, n) of all raw or standardized samples with the vectors (k, d)."""
        directions = np.ascontiguousarray(vectors / self.divisor if standardized else vectors, dtype=np.float32)
        if len(directions) >= FEW_VECTORS:
            found = directions @ self.X.T
        else:
            found = np.empty((len(directions), len(self.X)), dtype=np.float32)
            for start in range(0, len(self.X), BLOCK_ROWS):
                block = self.X[start : start + BLOCK_ROWS]
                for k, direction in enumerate(directions):
                    np.dot(block, direction, out=found[k, start : start + BLOCK_ROWS])
        if not standardized:
            found += (vectors @ self.mean)[:, None].astype(np.float32)
        return found


class Coordinates:
    """Coordinates (r, n) of all samples, to which rows can be added without copying the others."""

    def __init__(self, values: Singles) -> None:
        self._values, self.r = values, len(values)

    @property
    def values(self) -> Singles:
        """Return the coordinates (r, n)."""
        return self._values[: self.r]

    def append(self, rows: Singles) -> None:
        """Add coordinates (k, n)."""
        needed = self.r + len(rows)
        if needed > len(self._values):
            enlarged = np.empty((needed + SPARE, rows.shape[1]), dtype=np.float32)
            enlarged[: self.r] = self.values
            self._values = enlarged
        self._values[self.r : needed] = rows
        self.r = needed

    def of(self, index: Labels) -> Floats:
        """Return the coordinates (m, r) of some samples in double precision."""
        return np.asarray(self.values[:, index].T, dtype=np.float64)


class LinearSpan:
    """Span of the labelled rows of the raw or the standardized samples, with an orthonormal basis (d, r)."""

    def __init__(self, samples: CenteredSamples, labelled: Labels, *, standardized: bool) -> None:
        self.samples, self.standardized = samples, standardized
        d = samples.X.shape[1]
        rows = samples.rows(labelled, standardized=standardized)
        self.basis: Floats = np.eye(d) if d <= len(labelled) else np.linalg.qr(rows.T)[0]
        self.coordinates = Coordinates(samples.products(self.basis.T, standardized=standardized))

    def extend(self, labelled: Labels) -> None:
        """Add the directions of newly labelled samples."""
        new = []
        basis = self.basis
        for row in self.samples.rows(labelled, standardized=self.standardized):
            outside = row - basis @ (basis.T @ row)
            outside -= basis @ (basis.T @ outside)  # once more, against rounding
            length = float(np.linalg.norm(outside))
            if basis.shape[1] < len(row) and length > NEW_DIRECTION * float(np.linalg.norm(row)):
                new.append(outside / length)
                basis = np.column_stack([basis, new[-1]])
        if new:
            self.coordinates.append(self.samples.products(np.array(new), standardized=self.standardized))
            self.basis = basis

    def primal(self, weights: Floats) -> Floats:
        """Return the coefficients (d, C) of the samples that weights (r, C) of the coordinates stand for."""
        return np.asarray(self.basis @ weights)

    def weights(self, primal: Floats) -> Floats:
        """Return the weights (r, C) of the coordinates for coefficients (d, C) in the span."""
        return np.asarray(self.basis.T @ primal)


class RbfSpan:
    """Span of the RBF kernel at centres, in coordinates K(x, centres) L^-T with K(centres, centres) + RIDGE I = L L^T."""

    def __init__(self, linear: LinearSpan, centers: Floats) -> None:
        self.linear, self.centers = linear, centers
        self.factor = np.linalg.cholesky(_rbf(centers, centers) + RIDGE * np.eye(len(centers)))
        products = linear.samples.products(centers, standardized=True)
        kernel = self._kernel(products, centers)
        self.coordinates = Coordinates(solve_triangular(self.factor.astype(np.float32), kernel, lower=True))

    def extend(self, labelled: Labels) -> None:
        """Add newly labelled samples to the centres, as long as there are fewer than MAX_CENTERS.

        Call this after the extension of the linear span, from whose coordinates the kernel is computed.
        """
        for center in self.linear.samples.rows(labelled, standardized=True)[: max(0, MAX_CENTERS - len(self.centers))]:
            products = (self.linear.basis.T @ center).astype(np.float32)[None, :] @ self.linear.coordinates.values
            kernel = self._kernel(products, center[None, :])
            border = solve_triangular(self.factor, _rbf(self.centers, center[None, :])[:, 0], lower=True)
            corner = max(1.0 + RIDGE - float(border @ border), RIDGE) ** 0.5
            kernel -= border.astype(np.float32)[None, :] @ self.coordinates.values
            self.coordinates.append(kernel / np.float32(corner))
            self.factor = np.block([[self.factor, np.zeros((len(border), 1))], [border[None, :], np.array([[corner]])]])
            self.centers = np.concatenate([self.centers, center[None, :]])

    def _kernel(self, products: Singles, centers: Floats) -> Singles:
        """Return exp(-||x - c||^2) (k, n) from the products (k, n) of all samples with the centres (k, d)."""
        exponent = 2.0 * products
        exponent -= np.square(self.linear.samples.standardized_norms)
        exponent -= np.square(centers).sum(axis=1, keepdims=True).astype(np.float32)
        return np.asarray(np.exp(np.minimum(exponent, 0.0, out=exponent), out=exponent))

    def primal(self, weights: Floats) -> Floats:
        """Return the coefficients (r, C) of the kernel values that weights (r, C) of the coordinates stand for."""
        return np.asarray(solve_triangular(self.factor, weights, lower=True, trans="T"))

    def weights(self, primal: Floats) -> Floats:
        """Return the weights (r, C) of the coordinates for coefficients (r, C) of the kernel values."""
        return np.asarray(self.factor.T @ primal)


def _rbf(A: Floats, B: Floats) -> Floats:
    squared = np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1) - 2.0 * A @ B.T
    return np.asarray(np.exp(-np.maximum(squared, 0.0)))


def pad(values: Floats, rows: int, columns: Sequence[int]) -> Floats:
    """Return an array (rows, C): the columns `columns` of `values`, zeros where the number is -1, and zeros as further rows."""
    padded = np.zeros((rows, len(columns)), dtype=values.dtype)
    kept = [(at, column) for at, column in enumerate(columns) if column >= 0]
    padded[: len(values), [at for at, _ in kept]] = values[:, [column for _, column in kept]]
    return padded
