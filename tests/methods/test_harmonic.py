"""Harmonic functions as a method: class sizes are normalized, and points outside the graph are predicted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.methods.by_hand import moons

from samekind.data.dataset import Dataset
from samekind.errors import SettingError, UnreachableWarning
from samekind.graphs.affinity import self_tuning_graph
from samekind.graphs.propagation import harmonic, normalize_class_mass
from samekind.methods.base import Task
from samekind.methods.harmonic import Harmonic, HarmonicConfig
from samekind.methods.predictors import GraphPredictor

TASK = Task(n_classes=2, n_labelled=6, n_samples=200, steps=0)


def trained(dataset: Dataset, **settings: Any) -> GraphPredictor:
    method = Harmonic(None, TASK, HarmonicConfig(**settings))
    method.refresh(dataset)
    predictor = method.predictor()
    assert isinstance(predictor, GraphPredictor)
    return predictor


def test_two_moons_with_six_labels_are_separated_inside_and_outside_the_dataset() -> None:
    dataset, truth = moons()
    predictor = trained(dataset)
    for x in (dataset.x, dataset.x + 0.01):
        assert (predictor.probabilities(predictor.features(x)).argmax(1) == truth).float().mean() > 0.95


@pytest.mark.parametrize(
    ("class_mass", "shares"), [("labels", [4.0, 2.0]), ("uniform", [1.0, 1.0]), ((0.1, 0.9), [0.1, 0.9]), ([1, 3], [1.0, 3.0])]
)
def test_classes_are_brought_to_the_sizes_that_were_set(class_mass: Any, shares: list[float]) -> None:
    dataset, _ = moons()
    y = dataset.y.clone()
    y[torch.nonzero(dataset.y == 1).flatten()[1:]] = -1  # three labels of one class and one of the other
    dataset = Dataset(dataset.x, y, 2)
    expected = normalize_class_mass(harmonic(self_tuning_graph(dataset.x, 7)[0], y.numpy(), 2), y.numpy() < 0, shares)
    predictor = trained(dataset, n_neighbors=7, class_mass=class_mass)
    torch.testing.assert_close(predictor.F, torch.from_numpy(expected).float())


def test_without_sizes_the_harmonic_function_is_left_as_it_is() -> None:
    dataset, _ = moons()
    expected = harmonic(self_tuning_graph(dataset.x, 7)[0], dataset.y.numpy(), 2)
    torch.testing.assert_close(trained(dataset, n_neighbors=7, class_mass="off").F, torch.from_numpy(expected).float())


@pytest.mark.parametrize(
    ("class_mass", "message"),
    [("lables", "did you mean 'labels'"), ((1.0,), "two or more classes"), ((1.0, 0.0), "above 0"), ((1.0, -2.0), "above 0")],
)
def test_sizes_that_are_none_are_refused_at_once(class_mass: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        HarmonicConfig(class_mass=class_mass)


def test_sizes_for_other_classes_than_there_are_are_refused_with_the_data() -> None:
    with pytest.raises(SettingError, match="expected 2 numbers above 0, one for each class"):
        trained(moons()[0], class_mass=(1.0, 1.0, 1.0))


def test_samples_that_no_label_reaches_stay_uniform_whatever_the_class_sizes() -> None:
    x = torch.cat([torch.randn(20, 2, generator=torch.Generator().manual_seed(0)), torch.full((5, 2), 1e3)])
    y = torch.full((25,), -1)
    y[:2] = torch.tensor([0, 1])
    with pytest.warns(UnreachableWarning, match="5 of 25 samples lie in 1 part of the graph"):
        predictor = trained(Dataset(x, y, 2), n_neighbors=4, class_mass=(0.1, 0.9))
    torch.testing.assert_close(predictor.F[20:], torch.full((5, 2), 0.5))
