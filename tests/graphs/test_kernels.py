"""Laplacian regularised least squares: kernel ridge regression without the graph, the minimum of the loss with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.kernel_ridge import KernelRidge
from torch import Tensor

from samekind.errors import LabelError
from samekind.graphs.affinity import self_tuning_graph
from samekind.graphs.kernels import gaussian_kernel, kernel_width, laplacian_rls, laplacian_rls_on_centers

seeds = st.integers(0, 999)


def problem(seed: int, n: int = 25) -> tuple[Tensor, csr_array, NDArray[np.int64]]:
    """Return points in the plane, their graph, and six labels of three classes."""
    g = np.random.default_rng(seed)
    x = torch.from_numpy(g.normal(size=(n, 2)))
    y = np.full(n, -1)
    y[g.choice(n, 6, replace=False)] = [0, 0, 1, 1, 2, 2]
    return x, self_tuning_graph(x, 5)[0], y


@settings(max_examples=25, deadline=None)
@given(seed=seeds, ridge=st.floats(1e-3, 1.0), width=st.floats(0.3, 3.0))
def test_without_the_graph_it_is_kernel_ridge_regression(seed: int, ridge: float, width: float) -> None:
    x, W, y = problem(seed)
    K, L = gaussian_kernel(x, x, width).numpy(), y >= 0
    a = laplacian_rls(K, W, y, 3, ridge=ridge, smoothness=0.0)
    reference = KernelRidge(alpha=ridge, kernel="rbf", gamma=0.5 / width**2).fit(x.numpy()[L], np.eye(3)[y[L]])
    np.testing.assert_allclose(K @ a, reference.predict(x.numpy()), atol=1e-6)
    np.testing.assert_allclose(a[~L], 0.0, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, ridge=st.floats(0.01, 1.0), smoothness=st.floats(0.0, 1.0))
def test_the_gradient_of_the_loss_is_zero_at_the_solution(seed: int, ridge: float, smoothness: float) -> None:
    # The gradient of SUM_l (y - f)^2 + ridge a^T K a + smoothness f^T (D - W) f vanishes at f = K a.
    x, W, y = problem(seed)
    K = gaussian_kernel(x, x, 1.0)
    a = torch.from_numpy(laplacian_rls(K.numpy(), W, y, 3, ridge=ridge, smoothness=smoothness)).requires_grad_()
    f, L = K @ a, torch.from_numpy(np.diag(W.sum(axis=1)) - W.toarray())
    fit = (torch.eye(3, dtype=torch.float64)[y[y >= 0]] - f[torch.from_numpy(y >= 0)]).square().sum()
    (fit + ridge * (a * f).sum() + smoothness * (f * (L @ f)).sum()).backward()  # type: ignore[no-untyped-call]
    assert a.grad is not None
    torch.testing.assert_close(a.grad, torch.zeros_like(a), atol=1e-6, rtol=0)


@settings(max_examples=10, deadline=None)
@given(seed=seeds, smoothness=st.sampled_from([0.0, 0.05]))
def test_with_every_point_as_a_center_it_is_the_same_function(seed: int, smoothness: float) -> None:
    x, W, y = problem(seed)
    K = gaussian_kernel(x, x, 0.5)
    whole = laplacian_rls(K.numpy(), W, y, 3, ridge=0.1, smoothness=smoothness)
    on_centers = laplacian_rls_on_centers(x, np.arange(25), W, y, 3, width=0.5, ridge=0.1, smoothness=smoothness)
    np.testing.assert_allclose(K.numpy() @ on_centers, K.numpy() @ whole, atol=1e-6)


def test_with_few_centers_the_gradient_of_the_loss_is_zero_too() -> None:
    x, W, y = problem(0, n=600)  # more points than are worked on at a time
    centers = np.flatnonzero((np.arange(600) % 2 == 0) | (y >= 0))
    a = torch.from_numpy(laplacian_rls_on_centers(x, centers, W, y, 3, width=0.2, ridge=0.1, smoothness=0.05)).requires_grad_()
    K, L = gaussian_kernel(x, x[centers], 0.2), torch.from_numpy(np.diag(W.sum(axis=1)) - W.toarray())
    f = K @ a
    fit = (torch.eye(3, dtype=torch.float64)[y[y >= 0]] - f[torch.from_numpy(y >= 0)]).square().sum()
    norm = (a * (gaussian_kernel(x[centers], x[centers], 0.2) @ a)).sum()
    (fit + 0.1 * norm + 0.05 * (f * (L @ f)).sum()).backward()  # type: ignore[no-untyped-call]
    assert a.grad is not None
    torch.testing.assert_close(a.grad, torch.zeros_like(a), atol=1e-6, rtol=0)


def test_the_kernel_is_one_at_a_point_and_falls_with_the_square_of_the_distance() -> None:
    K = gaussian_kernel(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0], [3.0, 4.0]]), 5.0)
    torch.testing.assert_close(K, torch.tensor([[1.0, 0.6065307]]))


def test_the_width_is_the_median_distance_to_the_kth_neighbour() -> None:
    assert kernel_width(torch.tensor([[0.0], [1.0], [3.0], [6.0], [7.0]]), 2) == 3.0
    assert kernel_width(torch.zeros(4, 2), 2) == 1.0


def test_a_fit_without_labels_is_refused() -> None:
    _, W, y = problem(0)
    with pytest.raises(LabelError, match="all 25 are -1"):
        laplacian_rls(np.eye(25), W, np.full_like(y, -1), 3, ridge=1.0, smoothness=0.0)
