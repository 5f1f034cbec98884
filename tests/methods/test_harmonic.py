"""Harmonic functions as a method: classes are brought to their sizes, and points outside the graph are answered."""

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


def trained(pool: Dataset, **settings: Any) -> GraphPredictor:
    method = Harmonic(None, TASK, HarmonicConfig(**settings))
    method.refresh(pool)
    predictor = method.predictor()
    assert isinstance(predictor, GraphPredictor)
    return predictor


def test_two_moons_with_six_labels_are_separated_inside_and_outside_the_pool() -> None:
    pool, truth = moons()
    predictor = trained(pool)
    for x in (pool.x, pool.x + 0.01):
        assert (predictor.probabilities(predictor.features(x)).argmax(1) == truth).float().mean() > 0.95


@pytest.mark.parametrize(
    ("class_mass", "shares"), [("labels", [4.0, 2.0]), ("uniform", [1.0, 1.0]), ((0.1, 0.9), [0.1, 0.9]), ([1, 3], [1.0, 3.0])]
)
def test_classes_are_brought_to_the_sizes_that_were_asked_for(class_mass: Any, shares: list[float]) -> None:
    pool, _ = moons()
    y = pool.y.clone()
    y[torch.nonzero(pool.y == 1).flatten()[1:]] = -1  # three labels of one class and one of the other
    pool = Dataset(pool.x, y, 2)
    expected = normalize_class_mass(harmonic(self_tuning_graph(pool.x, 7)[0], y.numpy(), 2), y.numpy() < 0, shares)
    predictor = trained(pool, n_neighbors=7, class_mass=class_mass)
    torch.testing.assert_close(predictor.F, torch.from_numpy(expected).float())


def test_without_sizes_the_harmonic_function_is_left_as_it_is() -> None:
    pool, _ = moons()
    expected = harmonic(self_tuning_graph(pool.x, 7)[0], pool.y.numpy(), 2)
    torch.testing.assert_close(trained(pool, n_neighbors=7, class_mass="off").F, torch.from_numpy(expected).float())


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


def test_rows_that_no_label_reaches_stay_open_whatever_sizes_are_wanted() -> None:
    x = torch.cat([torch.randn(20, 2, generator=torch.Generator().manual_seed(0)), torch.full((5, 2), 1e3)])
    y = torch.full((25,), -1)
    y[:2] = torch.tensor([0, 1])
    with pytest.warns(UnreachableWarning, match="5 of 25 samples lie in 1 part of the graph"):
        predictor = trained(Dataset(x, y, 2), n_neighbors=4, class_mass=(0.1, 0.9))
    torch.testing.assert_close(predictor.F[20:], torch.full((5, 2), 0.5))
