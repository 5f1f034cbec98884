"""Conjugate gradients for updates that must be fast: all columns of the right-hand side are treated as one vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import saxpy, sdot, sscal
from scipy.sparse import csr_array

from samekind.errors import DivergedError

Singles = NDArray[Any]  # arrays in single precision
MAX_STEPS = 1000  # largest number of steps; a system with alpha = 0.99 needs fewer than 100


def joint_conjugate_gradients(A: csr_array, B: Singles, start: Singles, tolerance: float) -> Singles:
    """Return the solution X (n, k) of A X = B in single precision.

    The solver stops when the norm of all residuals is at most `tolerance` times that of B. All columns have the same step
    length, which saves sums for each column; in `graphs.linear_systems.conjugate_gradients`, each column has its own. `start`
    is the initial X, and is not changed.
    """
    shape = B.shape
    X = np.array(start, dtype=np.float32, order="C")
    R = np.ascontiguousarray(B, dtype=np.float32)
    target = tolerance**2 * float(sdot(R.ravel(), R.ravel()))
    R = R - A @ X if X.any() else R.copy()
    P = R.copy()
    x, r, p = X.ravel(), R.ravel(), P.ravel()  # views of the same memory
    squared, steps = float(sdot(r, r)), 0
    while squared > target:
        steps += 1
        product = (A @ p.reshape(shape)).ravel()
        curvature = float(sdot(p, product))
        if steps > MAX_STEPS or not np.isfinite(curvature) or curvature <= 0:
            raise DivergedError(
                f"the update of smoothed predictions did not converge in {steps} steps on a graph of {shape[0]} samples. "
                "Call fit again with all labels."
            )
        saxpy(p, x, a=squared / curvature)
        saxpy(product, r, a=-squared / curvature)
        before, squared = squared, float(sdot(r, r))
        sscal(squared / before, p)
        saxpy(r, p)
    return X
