"""Weights of fixed graphs: the formulas of the papers, duplicates and outliers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from samekind.errors import DataError, SettingError
from samekind.graphs.affinity import (
    choose_n_neighbors,
    cosine_graph,
    cosine_neighbors,
    graph_from_neighbors,
    out_of_sample_weights,
    out_of_sample_widths,
    self_tuning_graph,
)


def normal(n: int, d: int = 2, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def reference_weights(points: Tensor, k: int) -> Tensor:
    """Return the weights by their definition; column 0 of the sorted distances is the point itself."""
    d = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    s = d.sort(dim=1).values[:, k]
    W = torch.exp(-d.square() / (s[:, None] * s[None, :]))
    W[(d > s[:, None]) & (d > s[None, :])] = 0.0
    return W.fill_diagonal_(0.0)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(4, 40), k=st.integers(1, 3), seed=st.integers(0, 99))
def test_weights_equal_the_formula(n: int, k: int, seed: int) -> None:
    points = normal(n, seed=seed)
    W, _ = self_tuning_graph(points, k)
    np.testing.assert_allclose(W.toarray(), reference_weights(points, k).numpy(), atol=1e-7)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 30), copies=st.integers(1, 4), seed=st.integers(0, 99))
def test_the_graph_is_symmetric_in_zero_to_one_without_self_loops(n: int, copies: int, seed: int) -> None:
    W, widths = self_tuning_graph(normal(n, seed=seed).repeat(copies, 1))
    assert abs(W - W.T).max() == 0.0
    assert (W.diagonal() == 0).all()
    assert W.data.min() > 0.0 and W.data.max() <= 1.0
    assert (widths > 0).all()


def test_duplicates_have_edges_of_weight_one_even_if_all_neighbours_are_duplicates() -> None:
    points = torch.cat([torch.zeros(9, 2), torch.tensor([[1.0, 0.0], [0.0, 2.0]])])
    W, widths = self_tuning_graph(points, 3)
    among_duplicates = W.toarray()[:9, :9]
    assert set(among_duplicates[among_duplicates > 0]) == {1.0}
    assert torch.isfinite(widths).all() and (W.sum(axis=1) > 0).all()


def test_identical_points_make_a_graph_of_ones() -> None:
    W, widths = self_tuning_graph(torch.ones(6, 3), 2)
    assert (W.data == 1.0).all()
    assert (widths == 1.0).all()


def test_an_outlier_beside_a_dense_cluster_keeps_its_neighbours() -> None:
    points = torch.cat([1e-4 * normal(20), torch.tensor([[100.0, 0.0]], dtype=torch.float64)])
    W, _ = self_tuning_graph(points, 5)
    assert (W[[20]].data > 0).sum() == 5


@pytest.mark.parametrize(
    ("n", "n_neighbors", "k"), [(2, None, 1), (5, None, 4), (200, None, 8), (60_000, None, 16), (4, 10, 3)]
)
def test_k_grows_with_the_logarithm_of_n_and_stays_below_n(n: int, n_neighbors: int | None, k: int) -> None:
    assert choose_n_neighbors(n, n_neighbors) == k


def test_a_graph_needs_two_samples_and_one_neighbour() -> None:
    with pytest.raises(DataError, match="at least 2 samples"):
        self_tuning_graph(torch.zeros(1, 2))
    with pytest.raises(SettingError, match="n_neighbors is 0"):
        self_tuning_graph(torch.zeros(3, 2), 0)


def test_a_new_point_weights_its_neighbours_by_the_same_formula() -> None:
    points, new = normal(30), normal(4, seed=1)
    _, s = self_tuning_graph(points, 5)
    weights, indices = out_of_sample_weights(new, points, s, 5)
    d, order = (new[:, None] - points).norm(dim=-1).sort(dim=1)
    W = torch.exp(-d[:, :5].square() / (d[:, 4:5] * s[order[:, :5]]))
    assert torch.equal(indices, order[:, :5])
    torch.testing.assert_close(weights, W / W.sum(1, keepdim=True))


@settings(max_examples=25, deadline=None)
@given(far=st.floats(0.0, 1e6), seed=st.integers(0, 99))
def test_weights_of_a_new_point_sum_to_one_however_far_it_is(far: float, seed: int) -> None:
    points = normal(12, seed=seed).float()
    _, s = self_tuning_graph(points, 3)
    weights, _ = out_of_sample_weights(points + far, points, s, 3)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(12))


def test_a_graph_point_as_query_has_its_own_width_and_gives_itself_all_the_weight() -> None:
    points = normal(25).float()
    _, s = self_tuning_graph(points, 4)
    weights, indices = out_of_sample_weights(points, points, s, 4)
    assert torch.equal(out_of_sample_widths(points, points, s, 4), s)
    assert torch.equal(indices[:, 0], torch.arange(25))
    assert torch.equal(weights[:, 0], torch.ones(25))


def test_a_new_point_among_duplicates_has_a_positive_width() -> None:
    points = torch.cat([torch.zeros(9, 2), torch.tensor([[1.0, 0.0], [0.0, 2.0]])])
    _, s = self_tuning_graph(points, 3)
    assert out_of_sample_widths(torch.zeros(1, 2), points, s, 3).item() == s.min()
    weights, _ = out_of_sample_weights(torch.zeros(1, 2), points, s, 3)
    torch.testing.assert_close(weights, torch.full((1, 3), 1 / 3))


def test_the_cosine_graph_adds_a_to_its_transpose_with_power_gamma() -> None:
    # Directions 0, 45 and 135 degrees, one neighbour each: 0 and 1 choose each other, 2 chooses 1, at a right angle.
    points = torch.tensor([[2.0, 0.0], [1.0, 1.0], [-3.0, 3.0]])
    W = cosine_graph(points, 1, gamma=3.0).toarray()
    expected = np.zeros((3, 3))
    expected[0, 1] = expected[1, 0] = 2 * np.sqrt(0.5) ** 3
    np.testing.assert_allclose(W, expected, atol=1e-12)


def test_opposite_directions_have_no_edge_and_length_does_not_matter() -> None:
    points = torch.tensor([[1.0, 0.0], [5.0, 0.0], [-1.0, 0.0], [-7.0, 0.1]])
    W = cosine_graph(points, 3).toarray()
    assert W[0, 1] == pytest.approx(2.0)
    assert (W[:2, 2:] == 0).all()
    assert (np.diag(W) == 0).all()


def test_a_point_at_the_origin_has_no_edges() -> None:
    W = cosine_graph(torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.1]]), 3).toarray()
    assert (W[:2] == 0).all()
    assert W[2, 3] > 1.9


def test_sharpness_raises_each_weight_to_its_power() -> None:
    points = torch.tensor([[0.0], [1.0], [3.0]])  # widths with one neighbour: 1, 1, 2
    plain, sharp = (self_tuning_graph(points, 1, sharpness=sharpness)[0].toarray() for sharpness in (1.0, 4.0))
    assert plain[0, 1] == pytest.approx(math.exp(-1.0)) and plain[1, 2] == pytest.approx(math.exp(-2.0))
    assert sharp[0, 1] == pytest.approx(math.exp(-4.0)) and sharp[1, 2] == pytest.approx(math.exp(-8.0))
    assert sharp[0, 2] == 0.0


def test_neighbours_by_cosine_are_sorted_and_are_not_the_sample_itself() -> None:
    v = torch.nn.functional.normalize(normal(30, 3), dim=1)
    cosines, indices = cosine_neighbors(v, v, 4, exclude_self=True)
    expected = (v @ v.T - 3.0 * torch.eye(30)).sort(dim=1, descending=True)
    torch.testing.assert_close(cosines, expected.values[:, :4])
    assert torch.equal(indices, expected.indices[:, :4])
    assert torch.equal(cosine_neighbors(v[:5], v, 1)[1].flatten(), torch.arange(5))


def test_an_edge_that_both_samples_choose_has_the_sum_of_both_weights() -> None:
    W = graph_from_neighbors(torch.tensor([[0.5], [0.25], [0.0]]), torch.tensor([[1], [0], [0]]))
    assert W.toarray().tolist() == [[0.0, 0.75, 0.0], [0.75, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert W.nnz == 2
