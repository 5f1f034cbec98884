"""Random walks on a dataset: transition probabilities, length, agreement with labels, and unusual data."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import block_diag, csr_array
from torch import Tensor

from samekind.graphs import random_walks
from samekind.graphs.nearest_neighbors import nearest_neighbors
from samekind.graphs.random_walks import (
    MAPS,
    MAX_LEVEL,
    LabelConsistency,
    _agreement,
    _represented_samples,
    _walk_mass_between_labels,
    intrinsic_dimension,
    label_consistent_levels,
    random_walk_graph,
    random_walk_maps,
    walk_error_rate,
    walks_beat_linear_baseline,
)

Matrix = npt.NDArray[np.float64]


def graph(points: Tensor, k: int = 10) -> csr_array:
    return random_walk_graph(*nearest_neighbors(points, points, k, exclude_self=True))


def blobs(n_blobs: int, n: int = 240, gap: float = 20.0, seed: int = 0) -> Tensor:
    """Return Gaussian blobs in a line, sample i in blob i mod n_blobs."""
    noise = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))
    return noise + gap * (torch.arange(n) % n_blobs)[:, None] * torch.tensor([1.0, 0.0])


def frequencies(W: Matrix, level: int, *, copies: int = 300, seeds: int = 4) -> Matrix:
    """Return how often a walker from i ends at j, over many disconnected copies of one small graph."""
    n = len(W)
    found = np.zeros((n, n))
    for seed in range(seeds):
        maps = random_walk_maps(csr_array(block_diag([csr_array(W)] * copies)), n_clusters=1.0, seed=seed)
        place = maps[level].numpy().reshape(MAPS, copies, n) - n * np.arange(copies)[None, :, None]
        for i in range(n):
            found[i] += np.bincount(place[:, :, i].ravel(), minlength=n)
    return found / (MAPS * copies * seeds)


def two_triangles(bridge: float = 0.1) -> Matrix:
    W: Matrix = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3)).astype(np.float64)
    W[2, 3] = W[3, 2] = bridge
    return W


# ---------------------------------------------------------------- maps


def test_maps_hold_indices_of_samples() -> None:
    maps = random_walk_maps(graph(blobs(3)), n_clusters=3.0, seed=0)
    assert maps.dtype == torch.long
    assert maps.shape[1:] == (MAPS, 240)
    assert 1 <= len(maps) <= MAX_LEVEL + 1
    assert 0 <= maps.min() <= maps.max() < 240


def test_the_first_level_is_a_hop_to_a_neighbour() -> None:
    W = graph(blobs(3))
    maps = random_walk_maps(W, n_clusters=3.0, seed=0)[0].numpy()
    for walker in maps:
        assert (W.toarray()[np.arange(240), walker] > 0).all()


def test_walkers_never_leave_a_connected_component() -> None:
    maps = random_walk_maps(graph(blobs(4)), n_clusters=1.0, seed=0)
    assert len(maps) > 3
    assert torch.equal(maps % 4, (torch.arange(240) % 4).expand_as(maps))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_level_is_two_to_its_power_hops_in_distribution(level: int) -> None:
    W = two_triangles()
    P = W / W.sum(1, keepdims=True)
    np.testing.assert_allclose(frequencies(W, level), np.linalg.matrix_power(P, 2**level), atol=0.03)


@pytest.mark.parametrize("level", [3, 4, 5, 6])
def test_longer_walks_are_close_to_that_although_walkers_are_reused(level: int) -> None:
    W = two_triangles()
    P = W / W.sum(1, keepdims=True)
    np.testing.assert_allclose(frequencies(W, level), np.linalg.matrix_power(P, 2**level), atol=0.1)


def test_edges_are_taken_in_proportion_to_their_weights() -> None:
    W = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 1.0], [3.0, 1.0, 0.0]])
    expected = [[0.0, 0.25, 0.75], [0.5, 0.0, 0.5], [0.75, 0.25, 0.0]]
    np.testing.assert_allclose(frequencies(W, 0), expected, atol=0.02)


def test_the_scale_of_a_samples_weights_does_not_matter() -> None:
    large, small = np.ones((3, 3)) - np.eye(3), 1e-17 * (np.ones((3, 3)) - np.eye(3))
    W = np.block([[large, np.zeros((3, 3))], [np.zeros((3, 3)), small]])
    np.testing.assert_allclose(frequencies(W, 0)[3:, 3:], (np.ones((3, 3)) - np.eye(3)) / 2, atol=0.02)


def test_in_a_sparse_cluster_beside_a_dense_one_walkers_reach_several_neighbours() -> None:
    generator = torch.Generator().manual_seed(0)
    dense, thin = 0.02 * torch.randn(300, 2, generator=generator), 5.0 + torch.randn(300, 2, generator=generator)
    hops = random_walk_maps(graph(torch.cat([dense, thin])), n_clusters=1.0, seed=0)[0].numpy()
    reached = np.array([len(set(hops[:, i])) for i in range(600)])
    assert reached[:300].mean() > 5
    assert reached[300:].mean() > 5


# ---------------------------------------------------------------- number of levels


def test_walks_are_long_in_separate_clusters_and_short_in_one_blob() -> None:
    far, near = (len(random_walk_maps(graph(blobs(n_blobs)), n_clusters=6.0, seed=0)) for n_blobs in (12, 1))
    assert near <= 5
    assert far >= 2 * near


def test_more_clusters_make_walks_shorter() -> None:
    W = graph(blobs(3, gap=4.0))
    lengths = [len(random_walk_maps(W, n_clusters=n_clusters, seed=0)) for n_clusters in (1.0, 8.0, 30.0, 1000.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[2]
    assert lengths[-1] == 1  # one hop is always allowed


def test_the_same_seed_gives_the_same_maps_and_another_seed_others() -> None:
    W = graph(blobs(3))
    one, same, other = (random_walk_maps(W, n_clusters=3.0, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one[0], other[0])


def test_max_levels_limits_walks() -> None:
    W = graph(blobs(12))
    free, kept = random_walk_maps(W, n_clusters=6.0, seed=0), random_walk_maps(W, n_clusters=6.0, seed=0, max_levels=3)
    assert len(kept) == 3
    assert torch.equal(kept, free[:3])
    assert len(random_walk_maps(W, n_clusters=6.0, seed=0, max_levels=0)) == 1  # one hop is always allowed


def test_min_levels_are_kept_although_walks_separate_fewer_clusters() -> None:
    W = graph(blobs(6))
    short = random_walk_maps(W, n_clusters=100.0, seed=0)
    assert len(random_walk_maps(W, n_clusters=100.0, seed=0, min_levels=5)) == 5 > len(short)


# ---------------------------------------------------------------- agreement with labels


def labels(n: int, given: dict[int, int]) -> npt.NDArray[np.int64]:
    return np.array([given.get(i, -1) for i in range(n)])


def test_walks_that_agree_with_the_labels_are_confirmed_at_any_length() -> None:
    y = labels(240, {i: i % 4 for i in range(16)})
    assert label_consistent_levels(graph(blobs(4)), y) == LabelConsistency(MAX_LEVEL + 1, MAX_LEVEL + 1, enough_evidence=True)


def test_walks_between_mixed_labels_are_not_confirmed() -> None:
    y = labels(240, {i: i % 2 for i in range(60)})
    result = label_consistent_levels(graph(blobs(1)), y)
    assert result.enough_evidence and result.confirmed == 0


def test_a_stronger_edge_between_two_classes_confirms_fewer_levels() -> None:
    y = np.array([0, 0, 0, 1, 1, 1])
    confirmed = [label_consistent_levels(csr_array(two_triangles(bridge)), y).confirmed for bridge in (1e-9, 1e-3, 1e-2, 10.0)]
    assert confirmed == sorted(confirmed, reverse=True)
    assert confirmed[0] == MAX_LEVEL + 1
    assert 0 < confirmed[2] < confirmed[1] < MAX_LEVEL + 1


def test_a_wrong_label_misleads_short_walks_only() -> None:
    # two distant blobs with six labels each, one of which is wrong and lies close to a right one
    given = {i: i % 2 for i in range(0, 12)}
    near_a_label = int(nearest_neighbors(blobs(2)[:1], blobs(2), 2)[1][0, 1])
    y = labels(240, {**given, near_a_label: 1})
    agreements = [_agreement(mass, y[y >= 0], 240)[0] for mass in _walk_mass_between_labels(graph(blobs(2)), y, MAX_LEVEL + 1)]
    assert agreements[-1] > min(agreements)
    assert label_consistent_levels(graph(blobs(2)), y).confirmed > 0


@pytest.mark.parametrize("level", [1, 2, 5])
def test_walks_stop_with_probability_two_to_the_minus_level(level: int) -> None:
    W, stop = two_triangles(0.3), 2.0**-level
    P = W / W.sum(axis=1, keepdims=True)
    exact = stop * np.linalg.inv(np.eye(6) - (1.0 - stop) * P)
    given = [0, 1, 4]
    mass = list(_walk_mass_between_labels(csr_array(W), labels(6, {0: 0, 1: 0, 4: 1}), level + 1))[level]
    weights = _represented_samples(exact[:, given], np.array([0, 0, 1]))
    np.testing.assert_allclose(mass, exact[np.ix_(given, given)] * weights, atol=1e-6)


def test_a_label_represents_the_samples_that_walk_to_its_class() -> None:
    mass = np.array(
        [[0.2, 0.0], [0.1, 0.3], [0.0, 0.0], [0.0, 0.5]]
    )  # the third sample sends no mass, so it counts for nothing
    np.testing.assert_allclose(_represented_samples(mass, np.array([0, 1])), np.array([1.25, 1.75]) / 1.5)
    np.testing.assert_allclose(_represented_samples(mass, np.array([0, 0])), np.ones(2))


def test_labels_of_a_rare_class_do_not_outweigh_those_of_a_frequent_one() -> None:
    # one cluster, 30 samples of one class and 210 of another, five labels each: unweighted, half of the mass would agree
    x = blobs(1)
    y = labels(240, {**dict.fromkeys(range(5), 0), **dict.fromkeys(range(30, 35), 1)})
    agreements = [_agreement(mass, y[y >= 0], 240)[0] for mass in _walk_mass_between_labels(graph(x), y, 3)]
    assert max(agreements) < 0.85


def test_levels_beyond_max_cost_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_walks, "MAX_COST", 1.0)
    assert label_consistent_levels(graph(blobs(4)), labels(240, {0: 0, 1: 1})) == LabelConsistency(0, 0, enough_evidence=False)


def test_the_walk_error_is_zero_for_separate_classes_and_about_half_for_mixed_ones() -> None:
    y = labels(240, {i: i % 2 for i in range(40)})
    assert walk_error_rate(graph(blobs(2)), y) == 0.0
    assert walk_error_rate(graph(blobs(1)), y) == pytest.approx(0.5, abs=0.2)


def test_the_only_label_of_its_class_is_not_tested() -> None:
    assert walk_error_rate(graph(blobs(2)), labels(240, {0: 0, 1: 1})) == 0.0
    assert walk_error_rate(graph(blobs(2)), labels(240, {0: 0, 2: 0, 1: 1})) == 0.0


def test_the_walk_error_on_a_path_by_hand() -> None:
    # a path of four samples with labels 0, 0, 1, 1, then 0, 1, 0, 1
    W = np.diag([1.0, 1.0, 1.0], 1)
    assert walk_error_rate(csr_array(W + W.T), np.array([0, 0, 1, 1])) == pytest.approx(0.0)
    assert walk_error_rate(csr_array(W + W.T), np.array([0, 1, 0, 1])) == pytest.approx(1.0)


def test_walks_beat_the_linear_baseline_where_classes_are_not_linearly_separable() -> None:
    # four blobs in a line with classes 0, 1, 0, 1; then 0, 0, 1, 1, which a linear classifier separates as well
    x, W = blobs(4), graph(blobs(4))
    alternating = labels(240, {i: i % 2 for i in range(24)})
    by_side = labels(240, {i: i % 4 // 2 for i in range(24)})
    assert walks_beat_linear_baseline(W, x.double().numpy(), alternating, levels=4)
    assert not walks_beat_linear_baseline(W, x.double().numpy(), by_side, levels=4)


def test_walks_between_mixed_classes_do_not_beat_the_linear_baseline() -> None:
    x = blobs(1)
    y = labels(240, {i: int(x[i, 0] > 0) for i in range(24)})
    assert not walks_beat_linear_baseline(graph(x), x.double().numpy(), y, levels=4)


def test_with_one_class_or_no_affordable_level_walks_do_not_beat_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    x, alternating = blobs(4), labels(240, {i: i % 2 for i in range(24)})
    assert not walks_beat_linear_baseline(graph(x), x.double().numpy(), labels(240, {0: 0, 1: 0}), levels=4)
    monkeypatch.setattr(random_walks, "MAX_COST", 1.0)
    assert not walks_beat_linear_baseline(graph(x), x.double().numpy(), alternating, levels=4)


def test_agreement_is_weighted_by_the_mass_that_arrives() -> None:
    reached = np.array([[0.0, 0.3, 0.1], [0.2, 0.0, 0.2], [0.4, 0.0, 0.0]])  # row i: mass from labelled sample i to the others
    agreement, evidence = _agreement(reached, np.array([0, 0, 1]), n=3)
    # fractions 0.75, 0.5 and 0, each with evidence 0.4 * 3/2 = 0.6, and an imaginary sample with 1 in each class
    assert agreement == pytest.approx(((0.6 * 0.75 + 0.6 * 0.5 + 1) / 2.2 + 1 / 1.6) / 2)
    assert evidence == pytest.approx(1.8)


def test_labels_that_no_walk_connects_are_no_evidence() -> None:
    y = labels(240, {0: 0, 1: 1, 2: 2, 3: 3})  # one in each blob
    assert not label_consistent_levels(graph(blobs(4)), y).enough_evidence
    assert not label_consistent_levels(graph(blobs(1)), labels(240, {0: 0})).enough_evidence


# ---------------------------------------------------------------- the graph


def test_the_weights_by_hand() -> None:
    W = random_walk_graph(
        *nearest_neighbors(x := torch.tensor([[0.0], [1.0], [3.0]]), x, 2, exclude_self=True), density_power=0.0
    ).toarray()
    a, b, c = math.exp(-1 / 6), math.exp(-9 / 9), math.exp(-4 / 6)  # d^2/(s_i s_j) with s = 3, 2, 3
    np.testing.assert_allclose(W, [[0, a, b], [a, 0, c], [b, c, 0]], rtol=1e-6)


def test_a_density_power_reduces_weights_in_sparse_regions() -> None:
    distances, indices = nearest_neighbors(x := torch.tensor([[0.0], [1.0], [3.0]]), x, 2, exclude_self=True)
    ratio = random_walk_graph(distances, indices, density_power=2.0).toarray()[[0, 0, 1], [1, 2, 2]]
    ratio /= random_walk_graph(distances, indices, density_power=0.0).toarray()[[0, 0, 1], [1, 2, 2]]
    thin = (2 / 3) ** 2  # the middle point has the highest density: s = 2, and 3 at both ends
    np.testing.assert_allclose(ratio, [thin, thin * thin, thin], rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(6, 40), k=st.integers(1, 5))
def test_the_graph_is_symmetric_and_positive_without_loops(seed: int, n: int, k: int) -> None:
    W = graph(torch.randn(n, 3, generator=torch.Generator().manual_seed(seed)), k).toarray()
    np.testing.assert_allclose(W, W.T, rtol=1e-9)
    assert (W >= 0).all()
    assert (np.diag(W) == 0).all()
    assert ((W > 0).sum(1) >= k).all()


# ---------------------------------------------------------------- unusual data


def test_walks_stay_among_duplicates() -> None:
    points = blobs(2, n=10).repeat(20, 1)  # each sample twenty times: all ten neighbours are at distance 0
    W = graph(points)
    maps = random_walk_maps(W, n_clusters=1.0, seed=0)
    assert np.isfinite(W.toarray()).all()
    assert torch.equal(points[maps[0]], points.expand(MAPS, 200, 2))
    assert (maps[0] != torch.arange(200)).all()


def test_a_dataset_of_identical_samples_has_walks() -> None:
    maps = random_walk_maps(graph(torch.ones(30, 2), k=3), n_clusters=2.0, seed=0)
    assert maps.shape[1:] == (MAPS, 30)


def test_a_sample_without_neighbours_stays_where_it_is() -> None:
    for isolated in (0, 2, 5):
        W = np.ones((6, 6)) - np.eye(6)
        W[isolated] = W[:, isolated] = 0.0
        maps = random_walk_maps(csr_array(W), n_clusters=0.0, seed=0)
        assert len(maps) == MAX_LEVEL + 1
        assert (maps[:, :, isolated] == isolated).all()
        others = [i for i in range(6) if i != isolated]
        assert (maps[:, :, others] != isolated).all()


def test_a_distant_outlier_walks_to_the_others_and_is_rarely_reached() -> None:
    points = torch.cat([blobs(1, n=100), torch.tensor([[1e4, 1e4]])])
    W = graph(points)
    hops = random_walk_maps(W, n_clusters=1.0, seed=0)[0]
    assert np.isfinite(W.toarray()).all()
    assert (hops[:, 100] < 100).all()
    assert (hops[:, :100] == 100).float().mean() < 0.01


def test_two_points_walk_to_each_other() -> None:
    maps = random_walk_maps(graph(torch.tensor([[0.0], [1.0]]), k=1), n_clusters=1.0, seed=0)
    assert maps[0].tolist() == [[1, 0]] * MAPS


# ---------------------------------------------------------------- dimension


def uniform(n: int, dimension: int, inside: int) -> Tensor:
    """Return points of a cube of `dimension` that lies in a space of `inside` dimensions."""
    generator = torch.Generator().manual_seed(0)
    basis: Tensor = torch.linalg.qr(torch.randn(inside, inside, generator=generator)).Q[:, :dimension]
    return torch.rand(n, dimension, generator=generator) @ basis.T


@pytest.mark.parametrize(("dimension", "inside"), [(1, 1), (1, 5), (2, 2), (2, 7)])
def test_a_line_has_one_dimension_and_a_plane_two_wherever_they_lie(dimension: int, inside: int) -> None:
    points = uniform(800, dimension, inside)
    found = intrinsic_dimension(nearest_neighbors(points, points, 10, exclude_self=True)[0])
    assert found == pytest.approx(dimension, rel=0.1)


def test_a_gaussian_in_ten_dimensions_has_about_ten() -> None:
    points = torch.randn(800, 10, generator=torch.Generator().manual_seed(0))
    found = intrinsic_dimension(nearest_neighbors(points, points, 10, exclude_self=True)[0])
    assert found == pytest.approx(10.0, abs=1.5)


def test_the_dimension_does_not_depend_on_the_unit() -> None:
    distances = torch.rand(50, 8, generator=torch.Generator().manual_seed(0)).sort(dim=1).values + 0.1
    assert intrinsic_dimension(1000.0 * distances) == pytest.approx(intrinsic_dimension(distances), rel=1e-4)


@pytest.mark.parametrize("distances", [torch.zeros(5, 4), torch.ones(5, 4), torch.tensor([[1.0, 2.0]])])
def test_without_usable_distances_the_dimension_is_two(distances: Tensor) -> None:
    assert intrinsic_dimension(distances) == 2.0
