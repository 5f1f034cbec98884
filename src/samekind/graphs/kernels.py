"""Laplacian regularised least squares: kernel regression whose predictions differ little along the edges of a graph.

The result predicts for any point, not only for those of the graph. Belkin, Niyogi & Sindhwani 2006, "Manifold Regularization".
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import lstsq, solve
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from samekind.graphs.linear_systems import Floats, Labels, degrees, one_hot
from samekind.graphs.nearest_neighbors import nearest_neighbors

BLOCK = 256  # number of columns of the kernel matrix that are computed at a time, so that the whole matrix is never in memory


def gaussian_kernel(a: Tensor, b: Tensor, width: Tensor | float) -> Tensor:
    """Return the Gaussian kernel K (n_a, n_b) = exp(-||a - b||^2 / (2 width^2)) of points a and b."""
    return torch.exp(log_gaussian_kernel(a, b, width))


def log_gaussian_kernel(a: Tensor, b: Tensor, width: Tensor | float) -> Tensor:
    """Return the logarithm of the Gaussian kernel: -||a - b||^2 / (2 width^2), shape (n_a, n_b)."""
    # Compute distances from differences and not by a matrix product, so that identical points have distance exactly 0.
    return -0.5 * (torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist") / width).square()


def kernel_width(points: Tensor, k: int) -> float:
    """Return a kernel width: the median distance of a point to its k-th neighbour, or 1 if that is 0."""
    distances, _ = nearest_neighbors(points, points, k, exclude_self=True)
    width = float(distances[:, -1].median())
    return width if width > 0 else 1.0


def laplacian_rls(K: Floats, W: csr_array, y: Labels, n_classes: int, *, ridge: float, smoothness: float) -> Floats:
    """Return the coefficients a (n, C) of f(x) = SUM_i a_i K(x, x_i) with the smallest regularised squared error.

    The error is SUM_labelled (y - f)^2 + ridge ||f||_K^2 + smoothness f^T L f with the graph Laplacian L = D - W. Its minimum
    solves (J K + ridge I + smoothness L K) a = Y, where the diagonal matrix J is 1 for labelled samples and else 0. In the
    paper's notation, ridge is gamma_A l and smoothness is gamma_I l / (l + u)^2.
    """
    Y = one_hot(W, y, n_classes)
    system = (y >= 0)[:, None] * K + smoothness * (_laplacian(W) @ K)
    system[np.diag_indices(len(y))] += ridge
    return np.asarray(solve(system, Y))


def laplacian_rls_on_centers(
    points: Tensor,
    centers: NDArray[np.int64],
    W: csr_array,
    y: Labels,
    n_classes: int,
    *,
    width: float,
    ridge: float,
    smoothness: float,
) -> Floats:
    """Return the coefficients a (m, C) of f(x) = SUM_j a_j K(x, x_j), where only m of the points, `centers`, have a kernel.

    f minimises the same error as in `laplacian_rls`: (K_L^T K_L + ridge K_mm + smoothness K_n^T L K_n) a = K_L^T Y_L. K_L, K_n
    and K_mm are the kernels between the labelled points, all points and the centers on one side, and the centers on the other.
    Memory grows with 256 n and with m^2.
    """
    Y, labelled = one_hot(W, y, n_classes), np.flatnonzero(y >= 0)
    chosen, x = points[torch.from_numpy(centers)].double(), points.double()
    K_L = gaussian_kernel(x[torch.from_numpy(labelled)], chosen, width).numpy()
    system = K_L.T @ K_L + ridge * gaussian_kernel(chosen, chosen, width).numpy()
    if smoothness > 0:
        system += smoothness * _smoothness_matrix(x, chosen, W, width)
    # least squares, because the system is almost singular if centers almost coincide
    return np.asarray(lstsq(system, K_L.T @ Y[labelled], cond=1e-13)[0])


def _smoothness_matrix(x: Tensor, centers: Tensor, W: csr_array, width: float) -> Floats:
    """Return K_n^T L K_n (m, m), computed from blocks of K_n, the kernel between all points and the centers."""
    L, m = _laplacian(W), len(centers)
    matrix: Floats = np.zeros((m, m))
    for start in range(0, m, BLOCK):
        columns = slice(start, start + BLOCK)
        flow = L @ gaussian_kernel(x, centers[columns], width).numpy()
        for row in range(0, len(x), 4 * BLOCK):
            rows = slice(row, row + 4 * BLOCK)
            matrix[:, columns] += gaussian_kernel(x[rows], centers, width).numpy().T @ flow[rows]
    return (matrix + matrix.T) / 2.0


def _laplacian(W: csr_array) -> csr_array:
    return csr_array(diags_array(degrees(W)) - W)
