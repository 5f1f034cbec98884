"""Conjugate gradients on all columns together, against the dense solve."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from samekind.errors import DivergedError
from samekind.stacking.joint_solver import joint_conjugate_gradients


def system() -> tuple[csr_array, np.ndarray]:
    rng = np.random.default_rng(0)
    root = rng.standard_normal((30, 30)).astype(np.float32)
    return csr_array(root @ root.T + 5 * np.eye(30, dtype=np.float32)), rng.standard_normal((30, 3)).astype(np.float32)


def test_the_solution_is_that_of_the_dense_solve_from_any_start() -> None:
    A, B = system()
    expected = np.linalg.solve(A.toarray(), B)
    for start in (np.zeros_like(B), 100 * np.ones_like(B)):
        before = start.copy()
        np.testing.assert_allclose(joint_conjugate_gradients(A, B, start, 1e-6), expected, atol=1e-3)
        np.testing.assert_array_equal(start, before)


def test_a_start_within_the_tolerance_is_returned_as_it_is() -> None:
    A, B = system()
    start = joint_conjugate_gradients(A, B, np.zeros_like(B), 1e-4)
    np.testing.assert_array_equal(joint_conjugate_gradients(A, B, start, 1e-3), start)


def test_the_residual_is_within_the_tolerance() -> None:
    A, B = system()
    X = joint_conjugate_gradients(A, B, np.zeros_like(B), 0.01)
    assert np.linalg.norm(B - A @ X) <= 0.0101 * np.linalg.norm(B)


def test_a_right_hand_side_of_zeros_gives_zeros() -> None:
    A, B = system()
    np.testing.assert_array_equal(joint_conjugate_gradients(A, 0 * B, 0 * B, 1e-3), 0 * B)


def test_a_matrix_that_is_not_positive_definite_is_an_error() -> None:
    A, B = system()
    with pytest.raises(DivergedError, match="Call fit again with all labels"):
        joint_conjugate_gradients(csr_array(-A), B, 0 * B, 1e-3)
