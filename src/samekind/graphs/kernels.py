"""Least squares with a kernel, smooth along the edges of a graph: an answer for every point of space, not of the graph alone.

Belkin, Niyogi & Sindhwani 2006, "Manifold Regularization".
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

BLOCK = 256  # columns of the kernel matrix at a time, where it is not held as a whole


def gaussian_kernel(a: Tensor, b: Tensor, width: Tensor | float) -> Tensor:
    """K (n_a, n_b) = exp(-||a - b||^2 / (2 width^2))."""
    return torch.exp(log_gaussian_kernel(a, b, width))


def log_gaussian_kernel(a: Tensor, b: Tensor, width: Tensor | float) -> Tensor:
    """ln K (n_a, n_b) = -||a - b||^2 / (2 width^2)."""
    # not by matrix product: identical points have to be exactly 0 apart
    return -0.5 * (torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist") / width).square()


def kernel_width(points: Tensor, k: int) -> float:
    """The median distance to the k-th neighbour; 1 where that is 0."""
    distances, _ = nearest_neighbors(points, points, k, exclude_self=True)
    width = float(distances[:, -1].median())
    return width if width > 0 else 1.0


def laplacian_rls(K: Floats, W: csr_array, y: Labels, n_classes: int, *, ridge: float, smoothness: float) -> Floats:
    """a (n, C) of f(x) = SUM_i a_i K(x, x_i): (J K + ridge I + smoothness L K) a = Y, J = diag(1 where there is a label).

    The minimum of SUM_labelled (y - f)^2 + ridge ||f||_K^2 + smoothness f^T L f, L = D - W. In the paper's letters ridge is
    gamma_A l, and smoothness is gamma_I l / (l + u)^2.
    """
    Y = one_hot(W, y, n_classes)
    system = (y >= 0)[:, None] * K + smoothness * (_laplacian(W) @ K)
    system[np.diag_indices(len(y))] += ridge
    return np.asarray(solve(system, Y))


def laplacian_rls_on_centers(
    points: Tensor,
    centres: NDArray[np.int64],
    W: csr_array,
    y: Labels,
    n_classes: int,
    *,
    width: float,
    ridge: float,
    smoothness: float,
) -> Floats:
    """a (m, C): the same minimum among the functions SUM_j a_j K(x, x_j) of m of the points, `centres`.

    (K_L^T K_L + ridge K_mm + smoothness K_n^T L K_n) a = K_L^T Y_L with K_L, K_n, K_mm the kernel between centres and the
    labelled points, all points, and each other. Memory grows with n times 256 and with m^2.
    """
    Y, labelled = one_hot(W, y, n_classes), np.flatnonzero(y >= 0)
    chosen, x = points[torch.from_numpy(centres)].double(), points.double()
    K_L = gaussian_kernel(x[torch.from_numpy(labelled)], chosen, width).numpy()
    system = K_L.T @ K_L + ridge * gaussian_kernel(chosen, chosen, width).numpy()
    if smoothness > 0:
        system += smoothness * _smoothness_matrix(x, chosen, W, width)
    # the system is close to singular where centres almost coincide; the smallest of the solutions is taken
    return np.asarray(lstsq(system, K_L.T @ Y[labelled], cond=1e-13)[0])


def _smoothness_matrix(x: Tensor, centres: Tensor, W: csr_array, width: float) -> Floats:
    """K_n^T L K_n (m, m), some columns and some rows of K_n at a time."""
    L, m = _laplacian(W), len(centres)
    matrix: Floats = np.zeros((m, m))
    for start in range(0, m, BLOCK):
        columns = slice(start, start + BLOCK)
        flow = L @ gaussian_kernel(x, centres[columns], width).numpy()
        for row in range(0, len(x), 4 * BLOCK):
            rows = slice(row, row + 4 * BLOCK)
            matrix[:, columns] += gaussian_kernel(x[rows], centres, width).numpy().T @ flow[rows]
    return (matrix + matrix.T) / 2.0


def _laplacian(W: csr_array) -> csr_array:
    return csr_array(diags_array(degrees(W)) - W)
