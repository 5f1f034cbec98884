"""Minimum cuts as a method; that they are minimal is tested with the graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.methods.by_hand import moons

from samekind.data.dataset import Dataset
from samekind.errors import SettingError
from samekind.graphs.affinity import self_tuning_graph
from samekind.graphs.min_cut import average_min_cuts
from samekind.methods.base import Task
from samekind.methods.mincut import Mincut, MincutConfig
from samekind.methods.predictors import GraphPredictor

TASK = Task(n_classes=2, n_labelled=6, n_samples=200, steps=0)


def trained(dataset: Dataset, **settings: Any) -> GraphPredictor:
    method = Mincut(None, TASK, MincutConfig(**settings))
    method.refresh(dataset)
    predictor = method.predictor()
    assert isinstance(predictor, GraphPredictor)
    return predictor


def test_two_moons_with_six_labels_are_separated_inside_and_outside_the_dataset() -> None:
    dataset, truth = moons()
    predictor = trained(dataset)
    for x in (dataset.x, dataset.x + 0.01):
        assert (predictor.probabilities(predictor.features(x)).argmax(1) == truth).float().mean() > 0.95
    assert set(predictor.F.flatten().tolist()) == {0.0, 1.0}


def test_settings_reach_the_graph_and_the_cuts() -> None:
    dataset, _ = moons()
    expected = average_min_cuts(self_tuning_graph(dataset.x, 7)[0], dataset.y.numpy(), 2, cuts=3, noise=5.0, seed=4)
    predictor = trained(dataset, n_neighbors=7, cuts=3, noise=5.0, seed=4)
    torch.testing.assert_close(predictor.F, torch.from_numpy(expected).float())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cuts": 0}, "cuts is 0; expected a whole number, 1 or more"),
        ({"noise": -1.0}, "noise is -1.0; expected a number, 0 or more"),
        ({"cuts": 5}, "all cuts would be the same. Set noise"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        MincutConfig(**settings)
