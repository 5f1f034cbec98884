"""The nearest neighbours are the ones that brute force finds, however the work is cut up."""

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
def test_on_a_grid_equal_distances_go_by_the_smaller_index(block: int, k: int) -> None:
    grid = torch.cartesian_prod(torch.arange(6.0), torch.arange(6.0))[1:]
    _, indices = nearest_neighbors(grid, grid, k, block=block)
    assert torch.equal(indices, brute_force(grid, grid, k)[1])


def test_queries_need_not_be_points() -> None:
    distances, indices = nearest_neighbors(torch.tensor([[0.9], [5.0]]), torch.tensor([[0.0], [1.0], [3.0]]), 2)
    assert indices.tolist() == [[1, 0], [2, 1]]
    torch.testing.assert_close(distances, torch.tensor([[0.1, 0.9], [2.0, 4.0]]))


def test_leaving_out_oneself_keeps_duplicates_at_distance_zero() -> None:
    points = normal(10, 50).repeat(2, 1)
    distances, indices = nearest_neighbors(points, points, 3, exclude_self=True, block=4)
    assert torch.equal(indices[:, 0], (torch.arange(20) + 10) % 20)
    assert (distances[:, 0] == 0).all() and (distances[:, 1] > 0).all()


@pytest.mark.parametrize(("offset", "dtype"), [(1e4, torch.float32), (1e9, torch.float64)])
def test_points_far_from_the_origin_are_told_apart(offset: float, dtype: torch.dtype) -> None:
    points = offset + normal(40, 2, dtype=dtype)
    distances, indices = nearest_neighbors(points, points, 4, exclude_self=True)
    assert distances.dtype == dtype
    assert torch.equal(indices, brute_force(points, points, 4, exclude_self=True)[1])


def test_no_query_gives_no_row() -> None:
    distances, indices = nearest_neighbors(normal(0, 3), normal(5, 3), 2)
    assert distances.shape == indices.shape == (0, 2)


@pytest.mark.parametrize(("k", "exclude_self"), [(0, False), (6, False), (5, True)])
def test_more_neighbours_than_there_are_is_an_error_that_says_how_many(k: int, exclude_self: bool) -> None:
    points = normal(5, 2)
    with pytest.raises(SettingError, match=f"{k} neighbours were asked for"):
        nearest_neighbors(points, points, k, exclude_self=exclude_self)


# ---------------------------------------------------------------- very many points: cells


def test_cells_find_nearly_all_neighbours_and_their_exact_distances() -> None:
    points = normal(3000, 8)
    distances, indices = neighbors_within(points, 10, "ann")
    expected, expected_indices = nearest_neighbors(points, points, 10, exclude_self=True)
    found = (indices[:, :, None] == expected_indices[:, None, :]).any(2).float().mean()
    assert found > 0.98
    right = indices == expected_indices
    torch.testing.assert_close(distances[right], expected[right])
    assert (indices != torch.arange(3000)[:, None]).all()


def test_in_a_heap_of_duplicates_cells_still_give_others_and_not_oneself() -> None:
    points = torch.cat([torch.zeros(40, 3), normal(60, 3)])
    distances, indices = neighbors_within(points, 5, "ann")
    assert (indices != torch.arange(100)[:, None]).all()
    assert (distances[:40] == 0).all()


def test_only_very_many_points_are_searched_in_cells_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBED", 4)  # a careless search, whose answers can be told from the exact ones
    points = normal(2000, 8)
    exact, in_cells = (neighbors_within(points, 3, search)[1] for search in ("exact", "ann"))
    assert not torch.equal(exact, in_cells)
    assert torch.equal(neighbors_within(points, 3)[1], exact)
    monkeypatch.setattr(module, "ANN_FROM", 2000)
    assert torch.equal(neighbors_within(points, 3)[1], in_cells)


def test_of_wide_points_cells_find_nearly_all_neighbours_too() -> None:
    points = normal(3000, 6) @ normal(6, 200, seed=1) + 0.1 * normal(3000, 200, seed=2)
    distances, indices = neighbors_within(points, 10, "ann")
    expected, expected_indices = nearest_neighbors(points, points, 10, exclude_self=True)
    assert (indices[:, :, None] == expected_indices[:, None, :]).any(2).float().mean() > 0.98
    right = indices == expected_indices
    torch.testing.assert_close(distances[right], expected[right])


def test_what_is_seen_in_few_directions_is_never_farther_than_it_is() -> None:
    points = normal(300, 200)
    seen = module._in_few_directions(points)
    assert seen.shape == (300, module.DIRECTIONS + 1)
    true, shown = torch.cdist(points.double(), points.double()), torch.cdist(seen.double(), seen.double())
    assert (shown <= true + 1e-5).all()
    assert shown.mean() > 0.5 * true.mean()


def test_cells_far_too_small_are_joined_by_more_until_there_are_neighbours_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBED", 1)
    points = normal(400, 2)
    distances, indices = neighbors_within(points, 150, "ann")
    assert all(len(set(row)) == 150 for row in indices.tolist())
    assert (indices != torch.arange(400)[:, None]).all() and (distances.diff(dim=1) >= 0).all()


def test_cells_are_the_same_each_time_and_leave_the_global_generator_alone() -> None:
    points, state = normal(2000, 100), torch.get_rng_state()
    first, again = (neighbors_within(points, 5, "ann")[1] for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), state)
