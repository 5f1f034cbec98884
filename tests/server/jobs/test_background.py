"""Background analysis: disagreement with neighbours, and the map."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from sklearn.manifold import trustworthiness
from starlette.testclient import TestClient
from tests.server.conftest import N

from samekind.graphs.nearest_neighbors import neighbors_within
from samekind.server.app_state import AppState
from samekind.server.jobs.background import BackgroundAnalysis, analyze, disagreement
from samekind.server.jobs.map_layout import fit_into_square, neighbor_layout, principal_components

Floats = npt.NDArray[np.float32]


def clusters(n: int = 400, n_clusters: int = 20) -> Floats:
    """Return clusters, each along an axis of its own, which two principal components cannot separate."""
    rng = np.random.default_rng(0)
    return (8.0 * np.eye(n_clusters)[np.arange(n) % n_clusters] + rng.normal(size=(n, n_clusters))).astype(np.float32)


def pure(points: Floats, n_clusters: int = 20) -> float:
    """Return the fraction of neighbours on a map that belong to the same cluster."""
    _, near = neighbors_within(torch.from_numpy(points), 10)
    return float((near.numpy() % n_clusters == np.arange(len(points))[:, None] % n_clusters).mean())


def test_the_neighbour_layout_separates_clusters_that_components_mix() -> None:
    z = clusters()
    _, near = neighbors_within(torch.from_numpy(z), 15)
    start = principal_components(z)
    better = neighbor_layout(near, start)
    assert pure(start) < 0.5 and pure(better) > 0.95
    assert trustworthiness(z, better, n_neighbors=10) > trustworthiness(z, start, n_neighbors=10) + 0.1


def test_the_same_features_give_the_same_map() -> None:
    z = clusters(60)
    _, near = neighbors_within(torch.from_numpy(z), 5)
    assert (neighbor_layout(near, principal_components(z)) == neighbor_layout(near, principal_components(z))).all()


def test_components_are_the_directions_of_most_difference() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 4)).astype(np.float32) * np.array([1, 9, 3, 0.1], dtype=np.float32)
    flat = principal_components(z)
    assert abs(np.corrcoef(flat[:, 0], z[:, 1])[0, 1]) > 0.99 and abs(np.corrcoef(flat[:, 1], z[:, 2])[0, 1]) > 0.99
    assert principal_components(z[:, :1]).shape == (500, 2)


def test_a_map_lies_fit_into_square_and_one_far_point_does_not_press_the_rest_together() -> None:
    points = np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float32)
    points[0] = 1e6
    square = fit_into_square(points)
    assert square.min() >= 0 and square.max() <= 1 and square[1:].std() > 0.1


def test_an_item_among_others_of_another_class_disagrees_most() -> None:
    f = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]], dtype=np.float32)
    near = np.array([[1, 2], [0, 2], [0, 1]])
    assert np.allclose(disagreement(f, near), [1 - (0.9 + 0.2) / 2, 1 - (0.9 + 0.2) / 2, 0.9])


def test_the_map_uses_components_until_the_neighbour_layout_exists(state: AppState, browser: TestClient) -> None:
    folder = state.session.folder / "model-1"
    later = browser.get("/api/map")
    assert later.headers["x-layout"] == "neighbors" and browser.get("/api/run").json()["map"] == "neighbors"
    (folder / "map.npy").unlink()
    (folder / "disagreement.npy").unlink()
    first = browser.get("/api/map")
    assert first.headers["x-layout"] == "components" and len(first.content) == N * 8
    assert browser.get("/api/order?sort=disagreement").status_code == 503


def test_a_child_ends_with_its_parent(run: Path) -> None:
    (run / "serve" / "model-1" / "map.npy").unlink()
    background = BackgroundAnalysis()
    background.start(run / "serve" / "model-1")
    child = background._child
    assert child is not None and child.stdin is not None
    child.stdin.close()  # as the system does when the parent is killed
    assert child.wait(60) == -signal.SIGTERM and not (run / "serve" / "model-1" / "map.npy").exists()
    background.close()


def test_no_child_process_is_started_if_the_analysis_is_complete(run: Path) -> None:
    background = BackgroundAnalysis()
    background.start(run / "serve" / "model-1")
    assert background._child is None
    background.close()


def test_a_child_process_computes_the_map_and_can_be_stopped(run: Path) -> None:
    folder = run / "serve" / "model-1"
    (folder / "map.npy").unlink()
    background = BackgroundAnalysis()
    background.start(folder)
    for _ in range(1200):
        if (folder / "map.npy").exists():
            break
        time.sleep(0.1)
    child = background._child
    background.close()
    assert child is not None and child.poll() is not None
    assert np.load(folder / "map.npy", allow_pickle=False).shape == (N, 2)


def test_a_complete_analysis_is_not_repeated(run: Path) -> None:
    folder = run / "serve" / "model-1"
    before = (folder / "map.npy").stat().st_mtime_ns
    analyze(folder)
    assert (folder / "map.npy").stat().st_mtime_ns == before
