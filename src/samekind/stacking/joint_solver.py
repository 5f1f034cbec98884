"""Conjugate gradients that treat all columns of a right-hand side as one vector, for updates that must be fast."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import saxpy, sdot, sscal
from scipy.sparse import csr_array

from samekind.errors import DivergedError

Singles = NDArray[Any]  # arrays in single precision
MAX_STEPS = 1000  # a system with alpha = 0.99 needs fewer than 100


def joint_conjugate_gradients(A: csr_array, B: Singles, start: Singles, tolerance: float) -> Singles:
    """Return X (n, k) of A X = B in single precision, with the norm of all residuals at most `tolerance` times that of B.

    The same step length serves all columns, which saves sums by column; `graphs.linear_systems.conjugate_gradients` has one
    step length for each column. `start` is an initial X and is not changed.
    """
    shape = B.shape
    X = np.array(start, dtype=np.float32, order="C")
    R = np.ascontiguousarray(B, dtype=np.float32)
    target = tolerance**2 * float(sdot(R.ravel(), R.ravel()))
    R = R - A @ X if X.any() else R.copy()
    P = R.copy()
    x, r, p = X.ravel(), R.ravel(), P.ravel()  # views
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
