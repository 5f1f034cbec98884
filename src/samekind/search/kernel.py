"""A positive semidefinite kernel from the learned similarity, for machines that need one.

On landmarks, S = (W + W^T) / 2 = U L U^T. The nearest positive semidefinite matrix in the Frobenius norm is U L+ U^T, with
the negative eigenvalues L set to 0 (Higham 1988). Anything else is carried over by its similarities s to the landmarks
(the Nystrom extension):

    phi(x) = s(x) U L+^(-1/2),   k(x, x') = phi(x) . phi(x')

On the landmarks k is that nearest matrix, and on any set it is a matrix of inner products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.errors import SettingError

Array = npt.NDArray[Any]
Similarity = Callable[[Any, Any], Array]  # symmetric, from two sets of things to (n_a, n_b)
LANDMARKS = 2000
LEAST = 1e-6  # of the largest eigenvalue: directions below are rounding, and would be blown up


@dataclass(frozen=True)
class KernelDistortion:
    """How far the kernel is from the similarities of the landmarks it was made from."""

    relative: float  # ||K - S|| / ||S||, Frobenius
    largest: float  # of the entries |K - S|
    least_eigenvalue: float  # of S: how far it was from a kernel
    n_negative: int  # eigenvalues of S that were below 0 by more than rounding
    n_landmarks: int

    def __str__(self) -> str:
        return (
            f"moved by {100 * self.relative:.2f} % (Frobenius), an entry by {self.largest:.3f} at most; {self.n_negative} of "
            f"{self.n_landmarks} eigenvalues were negative, the least {self.least_eigenvalue:.3g}"
        )


class Kernel:
    """k(A, B) of two sets of things; positive semidefinite on any. `moved` says how far it is from W on the landmarks.

    With `unit`, k(x, x) = 1 for all x, as for the similarity of a thing with itself: k is divided by the roots of both ends.
    """

    def __init__(self, similarity: Similarity, landmarks: Any, *, unit: bool = False) -> None:
        self._similarity, self._landmarks, self.unit = similarity, landmarks, unit
        S = np.asarray(similarity(landmarks, landmarks), dtype=np.float64)
        S = (S + S.T) / 2
        eigenvalues, U = np.linalg.eigh(S)
        floor = LEAST * eigenvalues[-1]
        kept = eigenvalues > floor
        self._carry = U[:, kept] / np.sqrt(eigenvalues[kept])
        own = S @ self._carry
        K = _unit(own) @ _unit(own).T if unit else own @ own.T
        apart = K - S
        self.distortion = KernelDistortion(
            relative=float(np.linalg.norm(apart) / np.linalg.norm(S)),
            largest=float(np.abs(apart).max()),
            least_eigenvalue=float(eigenvalues[0]),
            n_negative=int((eigenvalues < -floor).sum()),
            n_landmarks=len(S),
        )

    def features(self, A: Any) -> Array:
        """phi (n, r): inner products of its rows are the kernel."""
        phi: Array = np.asarray(self._similarity(A, self._landmarks), dtype=np.float64) @ self._carry
        return _unit(phi) if self.unit else phi

    def __call__(self, A: Any, B: Any = None) -> Array:
        """k (n_a, n_b); without B of all pairs of A, and then symmetric to the last digit."""
        phi = self.features(A)
        if B is not None:
            return np.asarray(phi @ self.features(B).T)
        K = phi @ phi.T
        return np.asarray((K + K.T) / 2)


def choose_landmarks(n: int, wanted: int, seed: int = 0) -> Array:
    """`wanted` of n rows, drawn by seed, in order; all of them if there are not more."""
    if not isinstance(wanted, int) or wanted < 1:
        raise SettingError(f"landmarks is {wanted!r}; expected a whole number of 1 or more.")
    if n <= wanted:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, wanted, replace=False))


def _unit(phi: Array) -> Array:
    # a thing like no landmark at all has no direction, and stays at 0
    lengths = np.linalg.norm(phi, axis=1, keepdims=True)
    return np.asarray(phi / np.where(lengths > 0, lengths, 1.0))
