"""Coordinates of all samples in the linear span of the labelled samples. Each new labelled sample adds one coordinate.

The weight vectors of every regularized linear classifier are sums of multiples of the labelled samples, so they lie in this
span. So classifiers are trained on few coordinates, and a new label costs one product of all samples with one vector. All
arrays of length n, the number of samples, are in single precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from torch import Tensor

from samekind.graphs.linear_systems import Floats, Labels
from samekind.stacking.input_views import ColumnStatistics
from samekind.stacking.kernel_logistic import MAX_CENTERS, RIDGE

Singles = NDArray[Any]  # arrays in single precision

BLOCK_ROWS = 512  # number of samples that are multiplied with several vectors while they are in the CPU cache
FEW_VECTORS = 4  # number of vectors from which a product of matrices is faster
NEW_DIRECTION = 1e-5  # a row is a new direction if the part of it outside the span is longer than this fraction of its length
SPARE = 64  # number of further coordinates for which there is room when the array is enlarged


class CenteredSamples:
    """Samples (n, d) minus their mean, for products of the raw and of the standardized samples with any vector."""

    def __init__(self, X: Tensor, columns: ColumnStatistics) -> None:
        self.mean = columns.mean.numpy()
        self.divisor = columns.scale.numpy() * X.shape[1] ** 0.5  # divisor of each column in the standardized view
        self.X: Singles = np.empty(tuple(X.shape), dtype=np.float32)
        self.raw_norms = np.empty(len(X), dtype=np.float32)
        self.standardized_norms = np.empty(len(X), dtype=np.float32)
        for start in range(0, len(X), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            self.X[block] = (X[block].double() - columns.mean).numpy()
            self.raw_norms[block] = np.linalg.norm(self.rows(np.arange(len(X))[block], standardized=False), axis=1)
            self.standardized_norms[block] = np.linalg.norm(self.rows(np.arange(len(X))[block], standardized=True), axis=1)

    def __len__(self) -> int:
        return len(self.X)

    def rows(self, index: Labels, *, standardized: bool) -> Floats:
        """Return the rows (m, d) of the raw or of the standardized samples, in double precision."""
        rows = self.X[index].astype(np.float64)
        return np.asarray(rows / self.divisor if standardized else rows + self.mean)

    def products(self, raw: Floats, standardized: Floats) -> tuple[Singles, Singles]:
        """Return the products (k, n) of all raw samples with the vectors `raw` (k, d), and of all standardized ones with
        `standardized`.
        """
        directions = np.concatenate([raw, standardized / self.divisor]).astype(np.float32)
        if len(directions) >= FEW_VECTORS:
            found = directions @ self.X.T
        else:
            found = np.empty((len(directions), len(self.X)), dtype=np.float32)
            for start in range(0, len(self.X), BLOCK_ROWS):
                block = self.X[start : start + BLOCK_ROWS]
                for k, direction in enumerate(directions):
                    np.dot(block, direction, out=found[k, start : start + BLOCK_ROWS])
        found[: len(raw)] += (raw @ self.mean)[:, None].astype(np.float32)
        return found[: len(raw)], found[len(raw) :]


class Coordinates:
    """Coordinates (r, n) of all n samples. Rows can be added without copying the existing ones."""

    def __init__(self, values: Singles) -> None:
        self._values, self.r = values, len(values)

    @property
    def values(self) -> Singles:
        """Return the coordinates (r, n) of all samples."""
        return self._values[: self.r]

    def append(self, rows: Singles) -> None:
        """Add k coordinates, the rows (k, n)."""
        needed = self.r + len(rows)
        if needed > len(self._values):
            enlarged = np.empty((needed + SPARE, rows.shape[1]), dtype=np.float32)
            enlarged[: self.r] = self.values
            self._values = enlarged
        self._values[self.r : needed] = rows
        self.r = needed

    def of(self, index: Labels) -> Floats:
        """Return the coordinates (m, r) of the samples with these indices, in double precision."""
        return np.asarray(self.values[:, index].T, dtype=np.float64)


class LinearSpan:
    """Span of the labelled rows of the raw or the standardized samples, described by an orthonormal basis (d, r)."""

    def __init__(self, basis: Floats, coordinates: Singles) -> None:
        self.basis, self.coordinates = basis, Coordinates(coordinates)

    def new_directions(self, rows: Floats) -> Floats:
        """Return orthonormal directions (k, d) that must be added to the span so that it contains the rows (m, d)."""
        basis = self.basis
        for row in rows:
            outside = row - basis @ (basis.T @ row)
            outside -= basis @ (basis.T @ outside)  # a second time, because the first result has rounding errors
            length = float(np.linalg.norm(outside))
            if basis.shape[1] < len(row) and length > NEW_DIRECTION * float(np.linalg.norm(row)):
                basis = np.column_stack([basis, outside / length])
        return np.asarray(basis[:, self.basis.shape[1] :].T)

    def extend(self, directions: Floats, coordinates: Singles) -> None:
        """Add directions (k, d) from `new_directions` to the span, with the coordinates (k, n) of all samples."""
        if len(directions):
            self.basis = np.column_stack([self.basis, directions.T])
            self.coordinates.append(coordinates)

    def primal(self, weights: Floats) -> Floats:
        """Return the coefficients (d, C) for samples that are equivalent to weights (r, C) for coordinates."""
        return np.asarray(self.basis @ weights)

    def weights(self, primal: Floats) -> Floats:
        """Return the weights (r, C) for coordinates that are equivalent to coefficients (d, C) in the span for samples."""
        return np.asarray(self.basis.T @ primal)


class LabelledSpans:
    """The three spans: of labelled raw rows, of labelled standardized rows, and of RBF kernels at labelled samples."""

    def __init__(self, samples: CenteredSamples, labelled: Labels, centers: Mapping[str, Floats]) -> None:
        self.samples, self._known = samples, set(labelled.tolist())
        bases = [_row_basis(samples.rows(labelled, standardized=standardized)) for standardized in (False, True)]
        coordinates = samples.products(bases[0].T, bases[1].T)
        self.raw, self.standardized = (LinearSpan(*parts) for parts in zip(bases, coordinates, strict=True))
        self.rbf = {name: RbfSpan(samples, self.standardized, c) for name, c in centers.items()}

    def extend(self, labelled: Labels) -> None:
        """Add labelled samples to the spans. Samples that were added before are ignored."""
        new = np.array([i for i in labelled.tolist() if i not in self._known], dtype=np.int64)
        if not len(new):
            return
        raw = self.raw.new_directions(self.samples.rows(new, standardized=False))
        centers = self.samples.rows(new, standardized=True)
        standardized = self.standardized.new_directions(centers)
        if len(raw) + len(standardized):
            products = self.samples.products(raw, standardized)
            self.raw.extend(raw, products[0])
            self.standardized.extend(standardized, products[1])
        for span in self.rbf.values():
            span.extend(centers)
        self._known |= set(new.tolist())


def _row_basis(rows: Floats) -> Floats:
    """Return an orthonormal basis (d, r) of a space that contains the rows (m, d)."""
    m, d = rows.shape
    return np.eye(d) if d <= m else np.asarray(np.linalg.qr(rows.T)[0])


class RbfSpan:
    """Span of the RBF kernels at some centres.

    The coordinates of a sample x are K(x, centres) L^-T, where K(centres, centres) + RIDGE I = L L^T.
    """

    def __init__(self, samples: CenteredSamples, linear: LinearSpan, centers: Floats) -> None:
        self.linear, self.centers = linear, centers
        self._squares = np.square(samples.standardized_norms)
        self.factor = np.linalg.cholesky(_rbf(centers, centers) + RIDGE * np.eye(len(centers)))
        kernel = self._kernel(centers)
        self.coordinates = Coordinates(solve_triangular(self.factor.astype(np.float32), kernel, lower=True))

    def extend(self, centers: Floats) -> None:
        """Add centres (k, d) until there are MAX_CENTERS. The linear span must contain them already."""
        for center in centers[: max(0, MAX_CENTERS - len(self.centers))]:
            border = solve_triangular(self.factor, _rbf(self.centers, center[None, :])[:, 0], lower=True)
            corner = max(1.0 + RIDGE - float(border @ border), RIDGE) ** 0.5
            kernel = self._kernel(center[None, :])
            kernel -= border.astype(np.float32)[None, :] @ self.coordinates.values
            self.coordinates.append(kernel / np.float32(corner))
            self.factor = np.block([[self.factor, np.zeros((len(border), 1))], [border[None, :], np.array([[corner]])]])
            self.centers = np.concatenate([self.centers, center[None, :]])

    def _kernel(self, centers: Floats) -> Singles:
        """Return exp(-||x - c||^2) (k, n) for all standardized samples x and the centres c (k, d).

        The centres must lie in the linear span, because inner products are computed from coordinates in it.
        """
        products = (centers @ self.linear.basis).astype(np.float32) @ self.linear.coordinates.values
        exponent = np.multiply(products, np.float32(2.0), out=products)
        exponent -= self._squares
        exponent -= np.square(centers).sum(axis=1, keepdims=True).astype(np.float32)
        return np.asarray(np.exp(np.minimum(exponent, 0.0, out=exponent), out=exponent))

    def primal(self, weights: Floats) -> Floats:
        """Return the coefficients (r, C) for kernel values that are equivalent to weights (r, C) for coordinates."""
        return np.asarray(solve_triangular(self.factor, weights, lower=True, trans="T"))

    def weights(self, primal: Floats) -> Floats:
        """Return the weights (r, C) for coordinates that are equivalent to coefficients (r, C) for kernel values."""
        return np.asarray(self.factor.T @ primal)


def _rbf(A: Floats, B: Floats) -> Floats:
    squared = np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1) - 2.0 * A @ B.T
    return np.asarray(np.exp(-np.maximum(squared, 0.0)))


def pad(values: Floats, rows: int, columns: Sequence[int]) -> Floats:
    """Return an array (rows, C) with the given columns of `values`, in this order, and zeros elsewhere.

    A column number of -1 gives a column of zeros, and rows that `values` does not have are zeros too.
    """
    if len(values) == rows and list(columns) == list(range(values.shape[1])):
        return values
    padded = np.zeros((rows, len(columns)), dtype=values.dtype, order="F" if values.flags.f_contiguous else "C")
    kept = [(at, column) for at, column in enumerate(columns) if column >= 0]
    padded[: len(values), [at for at, _ in kept]] = values[:, [column for _, column in kept]]
    return padded
