"""Laplacian regularized least squares as a method: a function of the input, stored as a sum of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.kernel_ridge import KernelRidge
from tests.methods.by_hand import moons

from samekind.data.dataset import Dataset
from samekind.errors import SettingError
from samekind.methods.base import Task
from samekind.methods.laprls import LapRLS, LapRLSConfig
from samekind.methods.predictors import KernelPredictor, build_predictor, nearest_probabilities

TASK = Task(n_classes=2, n_labelled=6, n_samples=200, steps=0)


def trained(dataset: Dataset, **settings: Any) -> KernelPredictor:
    method = LapRLS(None, TASK, LapRLSConfig(**settings))
    method.refresh(dataset)
    predictor = method.predictor()
    assert isinstance(predictor, KernelPredictor)
    torch.testing.assert_close(method.diagnostics["mean_f"].sum(), torch.tensor(1.0))
    return predictor


@pytest.mark.parametrize("centres", [2000, 60])
def test_two_moons_with_six_labels_are_separated_inside_and_outside_the_dataset(centres: int) -> None:
    dataset, truth = moons()
    predictor = trained(dataset, centers=centres)
    assert len(predictor.points) == min(centres, 200)
    for x in (dataset.x, dataset.x + 0.02):
        assert (predictor.probabilities(predictor.features(x)).argmax(1) == truth).float().mean() > 0.95


def test_labelled_samples_are_centres_even_where_there_are_few() -> None:
    dataset, _ = moons()
    points = trained(dataset, centers=3).points
    assert {tuple(row) for row in dataset.x[dataset.labelled].tolist()} == {tuple(row) for row in points.tolist()}


def test_without_the_graph_new_points_get_the_prediction_of_kernel_ridge_regression() -> None:
    dataset, _ = moons()
    predictor = trained(dataset, smoothness=0.0, ridge=0.1, width=0.7)
    L, new = dataset.labelled, (dataset.x + 0.3).numpy()
    rival = KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5 / 0.7**2).fit(dataset.x[L].numpy(), np.eye(2)[dataset.y[L]])
    expected = nearest_probabilities(torch.from_numpy(rival.predict(new)).float())
    torch.testing.assert_close(predictor.probabilities(torch.from_numpy(new)), expected, atol=1e-5, rtol=0)


def test_probabilities_nearest_to_a_vector_by_hand() -> None:
    f = torch.tensor([[0.25, 0.75], [0.8, 0.8], [-0.3, -0.1], [3.0, 0.0], [0.0, 0.0]])
    expected = torch.tensor([[0.25, 0.75], [0.5, 0.5], [0.4, 0.6], [1.0, 0.0], [0.5, 0.5]])
    torch.testing.assert_close(nearest_probabilities(f), expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6))
def test_probabilities_keep_the_order_and_lie_no_farther_than_any_others(row: list[float]) -> None:
    f = torch.tensor([row], dtype=torch.float64)
    p = nearest_probabilities(f)
    assert p.min() >= 0 and p.sum().item() == pytest.approx(1.0)
    assert f[0, p.argmax()] >= f.max() - 1e-12
    others = torch.distributions.Dirichlet(torch.ones(len(row), dtype=torch.float64)).sample(torch.Size((50,)))
    assert ((others - f).norm(dim=1) >= (p - f).norm() - 1e-9).all()


def test_a_point_far_from_everything_is_left_open() -> None:
    f = trained(moons()[0]).probabilities(torch.tensor([[1e6, -1e6]]))
    torch.testing.assert_close(f, torch.full((1, 2), 0.5))


def test_similarity_is_the_kernel() -> None:
    predictor = trained(moons()[0], width=5.0)
    W = predictor.similarity(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    torch.testing.assert_close(W, torch.tensor([[1.0, 0.6065307]]))


def test_a_saved_predictor_predicts_the_same(tmp_path: Path) -> None:
    dataset, _ = moons()
    predictor = trained(dataset)
    save_file(predictor.state_dict(), tmp_path / "kernel.safetensors")
    other = build_predictor(predictor.blueprint(), None)
    assert isinstance(other, KernelPredictor)
    other.load_state_dict(load_file(tmp_path / "kernel.safetensors"))
    assert torch.equal(other.probabilities(dataset.x + 0.1), predictor.probabilities(dataset.x + 0.1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0.0}, "width is 0.0; expected a number above 0"),
        ({"ridge": 0.0}, "ridge is 0.0; expected a number above 0"),
        ({"smoothness": -1.0}, "smoothness is -1.0; expected a number, 0 or more"),
        ({"centers": 0}, "centers is 0; expected a whole number, 1 or more"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        LapRLSConfig(**settings)
