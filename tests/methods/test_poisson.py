"""Poisson learning as a method; the potential itself is tested with the graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.datasets import make_moons
from torch import Tensor

from samekind.data.dataset import Dataset
from samekind.errors import SettingError
from samekind.graphs.affinity import self_tuning_graph
from samekind.graphs.poisson_learning import poisson_learning
from samekind.methods.base import Task
from samekind.methods.poisson import Poisson, PoissonConfig
from samekind.methods.predictors import GraphPredictor

TASK = Task(n_classes=2, n_labelled=2, n_samples=200, steps=0)


def moons() -> tuple[Dataset, Tensor]:
    """Return a dataset with one label in the middle of each moon, and the true classes."""
    x, truth = make_moons(200, noise=0.05, random_state=0, shuffle=False)
    y = torch.full((200,), -1)
    y[50], y[150] = 0, 1
    return Dataset(torch.from_numpy(x).float(), y, 2), torch.from_numpy(truth)


def trained(dataset: Dataset, **settings: Any) -> GraphPredictor:
    method = Poisson(None, TASK, PoissonConfig(**settings))
    method.refresh(dataset)
    predictor = method.predictor()
    assert isinstance(predictor, GraphPredictor)
    return predictor


@pytest.mark.parametrize("mbo", [0, 20])
def test_two_moons_with_two_labels_are_separated_inside_and_outside_the_dataset(mbo: int) -> None:
    dataset, truth = moons()
    predictor = trained(dataset, mbo=mbo)
    for x in (dataset.x, dataset.x + 0.01):
        assert (predictor.probabilities(predictor.features(x)).argmax(1) == truth).float().mean() > 0.95


@pytest.mark.parametrize(("shares", "numbers"), [("labels", None), ("uniform", [1, 1]), ((0.3, 0.7), [0.3, 0.7])])
@pytest.mark.parametrize("mbo", [0, 2])
def test_settings_reach_the_graph_and_the_solver(shares: Any, numbers: list[float] | None, mbo: int) -> None:
    dataset, _ = moons()
    expected = poisson_learning(
        self_tuning_graph(dataset.x, 7, sharpness=3.0)[0], dataset.y.numpy(), 2, class_fractions=numbers, rounds=mbo
    )
    predictor = trained(dataset, n_neighbors=7, sharpness=3.0, class_fractions=shares, mbo=mbo)
    torch.testing.assert_close(predictor.F, torch.from_numpy(expected).float())


def test_by_default_the_graph_is_that_of_the_paper() -> None:
    dataset, _ = moons()
    torch.testing.assert_close(trained(dataset).F, trained(dataset, n_neighbors=10, sharpness=4.0).F)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"class_fractions": "uniforn"}, "did you mean 'uniform'"),
        ({"class_fractions": (1.0, 0.0)}, "above 0"),
        ({"sharpness": 0.0}, "sharpness is 0.0; expected a number above 0"),
        ({"mbo": -1}, "mbo is -1; expected a whole number, 0 or more"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        PoissonConfig(**settings)
