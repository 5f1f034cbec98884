"""Positive semidefinite kernel made from the learned similarity, for support vector machines and other kernel methods.

W are the similarities of a set of landmarks, and S = (W + W^T) / 2 = U L U^T with eigenvalues L. The nearest positive
semidefinite matrix in the Frobenius norm is U L+ U^T, where L+ are the eigenvalues with negative ones set to 0 (Higham 1988).
The Nystrom extension maps any other sample x by its similarities s(x) to the landmarks:

    phi(x) = s(x) U L+^(-1/2),   k(x, x') = phi(x) . phi(x')

So on the landmarks, k is that nearest matrix; on any set of samples, it is a matrix of inner products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.errors import SettingError

Array = npt.NDArray[Any]
Similarity = Callable[[Any, Any], Array]  # from two sets of samples to their symmetric similarities (n_a, n_b)
LANDMARKS = 2000
# least eigenvalue relative to the largest; smaller ones are rounding errors, which the kernel would amplify
MIN_EIGENVALUE = 1e-6


@dataclass(frozen=True)
class KernelDistortion:
    """How much the kernel K differs from the similarities S of its landmarks."""

    relative: float  # ||K - S|| / ||S|| in the Frobenius norm; 0 means no difference
    largest: float  # largest entry of |K - S|
    min_eigenvalue: float  # smallest eigenvalue of S; not negative if S itself was positive semidefinite
    n_negative: int  # number of eigenvalues of S that were negative by more than rounding errors
    n_landmarks: int

    def __str__(self) -> str:
        return (
            f"similarities changed by {100 * self.relative:.2f} % (Frobenius norm), none by more than {self.largest:.3f}; "
            f"{self.n_negative} of {self.n_landmarks} eigenvalues were negative, the smallest {self.min_eigenvalue:.3g}"
        )


class Kernel:
    """Kernel k(A, B) of two sets of samples, which is positive semidefinite on any set.

    `distortion` says how much the kernel differs from the similarities of the landmarks. With `unit`, k(x, x') is divided by
    sqrt(k(x, x) k(x', x')), so that k(x, x) = 1.
    """

    def __init__(self, similarity: Similarity, landmarks: Any, *, unit: bool = False) -> None:
        self._similarity, self._landmarks, self.unit = similarity, landmarks, unit
        S = np.asarray(similarity(landmarks, landmarks), dtype=np.float64)
        S = (S + S.T) / 2
        eigenvalues, U = np.linalg.eigh(S)
        floor = MIN_EIGENVALUE * eigenvalues[-1]
        kept = eigenvalues > floor
        self._extension = U[:, kept] / np.sqrt(eigenvalues[kept])
        own = S @ self._extension
        K = _unit(own) @ _unit(own).T if unit else own @ own.T
        difference = K - S
        self.distortion = KernelDistortion(
            relative=float(np.linalg.norm(difference) / np.linalg.norm(S)),
            largest=float(np.abs(difference).max()),
            min_eigenvalue=float(eigenvalues[0]),
            n_negative=int((eigenvalues < -floor).sum()),
            n_landmarks=len(S),
        )

    def features(self, A: Any) -> Array:
        """Return phi (n, r) for n samples; the kernel of two samples is the inner product of their rows."""
        phi: Array = np.asarray(self._similarity(A, self._landmarks), dtype=np.float64) @ self._extension
        return _unit(phi) if self.unit else phi

    def __call__(self, A: Any, B: Any = None) -> Array:
        """Return the kernel k (n_a, n_b) of A and B. Without B, return the kernel of all pairs of A, exactly symmetric."""
        phi = self.features(A)
        if B is not None:
            return np.asarray(phi @ self.features(B).T)
        K = phi @ phi.T
        return np.asarray((K + K.T) / 2)


def choose_landmarks(n: int, n_landmarks: int, seed: int = 0) -> Array:
    """Return the sorted indices of `n_landmarks` random samples out of n; all indices if n is not larger."""
    if not isinstance(n_landmarks, int) or n_landmarks < 1:
        raise SettingError(f"landmarks is {n_landmarks!r}; expected a whole number of 1 or more.")
    if n <= n_landmarks:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, n_landmarks, replace=False))


def _unit(phi: Array) -> Array:
    # a sample that is similar to no landmark has phi = 0, so its length is 0 and must not be divided by
    lengths = np.linalg.norm(phi, axis=1, keepdims=True)
    return np.asarray(phi / np.where(lengths > 0, lengths, 1.0))
