"""Nearest neighbours: equal to brute force for any block size; the approximate search finds nearly all."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from samekind.errors import SettingError
from samekind.graphs import nearest_neighbors as module
from samekind.graphs.nearest_neighbors import nearest_neighbors, neighbors_within


def brute_force(queries: Tensor, points: Tensor, k: int, *, exclude_self: bool = False) -> tuple[Tensor, Tensor]:
    d = torch.linalg.vector_norm(queries[:, None].double() - points[None, :].double(), dim=-1)
    if exclude_self:
        d.fill_diagonal_(torch.inf)
    distances, indices = d.sort(dim=1, stable=True)
    return distances[:, :k].to(queries.dtype), indices[:, :k]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@settings(max_examples=25, deadline=None)
@given(block=st.integers(1, 40), n=st.integers(6, 30), k=st.integers(1, 5), exclude_self=st.booleans(), seed=st.integers(0, 99))
def test_any_block_size_gives_what_brute_force_gives(block: int, n: int, k: int, exclude_self: bool, seed: int) -> None:
    points = normal(n, 3, seed=seed)
    distances, indices = nearest_neighbors(points, points, k, exclude_self=exclude_self, block=block)
    expected_distances, expected_indices = brute_force(points, points, k, exclude_self=exclude_self)
    assert torch.equal(indices, expected_indices)
    torch.testing.assert_close(distances, expected_distances)


@settings(max_examples=25, deadline=None)
@given(block=st.integers(1, 40), k=st.integers(1, 20))
def test_on_a_grid_ties_are_sorted_by_index(block: int, k: int) -> None:
    grid = torch.cartesian_prod(torch.arange(6.0), torch.arange(6.0))[1:]
    _, indices = nearest_neighbors(grid, grid, k, block=block)
    assert torch.equal(indices, brute_force(grid, grid, k)[1])


def test_queries_need_not_be_points() -> None:
    distances, indices = nearest_neighbors(torch.tensor([[0.9], [5.0]]), torch.tensor([[0.0], [1.0], [3.0]]), 2)
    assert indices.tolist() == [[1, 0], [2, 1]]
    torch.testing.assert_close(distances, torch.tensor([[0.1, 0.9], [2.0, 4.0]]))


def test_exclude_self_keeps_duplicates_at_distance_zero() -> None:
    points = normal(10, 50).repeat(2, 1)
    distances, indices = nearest_neighbors(points, points, 3, exclude_self=True, block=4)
    assert torch.equal(indices[:, 0], (torch.arange(20) + 10) % 20)
    assert (distances[:, 0] == 0).all() and (distances[:, 1] > 0).all()


@pytest.mark.parametrize(("offset", "dtype"), [(1e4, torch.float32), (1e9, torch.float64)])
def test_neighbours_far_from_the_origin_are_exact(offset: float, dtype: torch.dtype) -> None:
    points = offset + normal(40, 2, dtype=dtype)
    distances, indices = nearest_neighbors(points, points, 4, exclude_self=True)
    assert distances.dtype == dtype
    assert torch.equal(indices, brute_force(points, points, 4, exclude_self=True)[1])


def test_no_query_gives_an_empty_result() -> None:
    distances, indices = nearest_neighbors(normal(0, 3), normal(5, 3), 2)
    assert distances.shape == indices.shape == (0, 2)


@pytest.mark.parametrize(("k", "exclude_self"), [(0, False), (6, False), (5, True)])
def test_too_many_neighbours_are_refused(k: int, exclude_self: bool) -> None:
    points = normal(5, 2)
    with pytest.raises(SettingError, match=f"{k} neighbours were requested"):
        nearest_neighbors(points, points, k, exclude_self=exclude_self)


# ---------------------------------------------------------------- approximate search


def test_the_approximate_search_finds_nearly_all_neighbours_and_their_exact_distances() -> None:
    points = normal(3000, 8)
    distances, indices = neighbors_within(points, 10, "ann")
    expected, expected_indices = nearest_neighbors(points, points, 10, exclude_self=True)
    found = (indices[:, :, None] == expected_indices[:, None, :]).any(2).float().mean()
    assert found > 0.98
    right = indices == expected_indices
    torch.testing.assert_close(distances[right], expected[right])
    assert (indices != torch.arange(3000)[:, None]).all()


def test_among_duplicates_the_approximate_search_does_not_return_the_query() -> None:
    points = torch.cat([torch.zeros(40, 3), normal(60, 3)])
    distances, indices = neighbors_within(points, 5, "ann")
    assert (indices != torch.arange(100)[:, None]).all()
    assert (distances[:40] == 0).all()


def test_auto_is_approximate_only_for_very_many_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "N_PROBES", 4)  # few enough to differ from the exact search
    points = normal(2000, 8)
    exact, approximate = (neighbors_within(points, 3, search)[1] for search in ("exact", "ann"))
    assert not torch.equal(exact, approximate)
    assert torch.equal(neighbors_within(points, 3)[1], exact)
    monkeypatch.setattr(module, "ANN_FROM", 2000)
    assert torch.equal(neighbors_within(points, 3)[1], approximate)


def test_the_approximate_search_finds_nearly_all_neighbours_of_wide_points() -> None:
    points = normal(3000, 6) @ normal(6, 200, seed=1) + 0.1 * normal(3000, 200, seed=2)
    distances, indices = neighbors_within(points, 10, "ann")
    expected, expected_indices = nearest_neighbors(points, points, 10, exclude_self=True)
    assert (indices[:, :, None] == expected_indices[:, None, :]).any(2).float().mean() > 0.98
    right = indices == expected_indices
    torch.testing.assert_close(distances[right], expected[right])


def test_reduced_distances_are_never_larger_than_exact_ones() -> None:
    points = normal(300, 200)
    reduced = module._reduce(points)
    assert reduced.shape == (300, module.N_COMPONENTS + 1)
    true, found = torch.cdist(points.double(), points.double()), torch.cdist(reduced.double(), reduced.double())
    assert (found <= true + 1e-5).all()
    assert found.mean() > 0.5 * true.mean()


def test_more_cells_are_searched_until_there_are_enough_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "N_PROBES", 1)
    points = normal(400, 2)
    distances, indices = neighbors_within(points, 150, "ann")
    assert all(len(set(row)) == 150 for row in indices.tolist())
    assert (indices != torch.arange(400)[:, None]).all() and (distances.diff(dim=1) >= 0).all()


def test_the_approximate_search_is_deterministic_and_leaves_the_global_generator_unchanged() -> None:
    points, state = normal(2000, 100), torch.get_rng_state()
    first, again = (neighbors_within(points, 5, "ann")[1] for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), state)
