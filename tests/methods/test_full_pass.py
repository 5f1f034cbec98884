"""A full pass over the dataset changes neither the net nor the random state."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from torch import nn

from samekind.data.dataset import Dataset
from samekind.fitting.fit_model import fit_model
from samekind.fitting.fit_options import FitOptions
from samekind.methods import full_pass
from samekind.methods.full_pass import PassPlan, dataset_features
from samekind.nets.classifier import Classifier
from samekind.nets.forward import eval_mode


class Noisy(nn.Module):
    """A net of somebody's own that draws numbers at every view."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.0 * torch.rand_like(x)


def net() -> Classifier:
    return Classifier(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), Noisy()), 3, 2)


def dataset(n: int = 2500) -> Dataset:
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    return Dataset(x, torch.full((n,), -1), 2)


def test_features_are_those_of_eval_mode_in_blocks_as_at_once() -> None:
    classifier, rows = net(), dataset()
    z = dataset_features(classifier.train(), rows)
    expected = classifier.eval()(rows.x).z
    assert not z.requires_grad
    torch.testing.assert_close(z, expected.detach())


def test_batch_norm_random_state_and_mode_are_afterwards_what_they_were() -> None:
    classifier = net().train()
    classifier.features[2].eval()  # type: ignore[index]
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    torch.manual_seed(5)
    chance = torch.get_rng_state()
    dataset_features(classifier, dataset(10))
    assert torch.equal(torch.get_rng_state(), chance)
    assert all(torch.equal(tensor, before[name]) for name, tensor in classifier.state_dict().items())
    assert [part.training for part in classifier.features.children()] == [True, True, False, True]


def test_a_pass_comes_every_epoch_and_at_least_every_fifth_of_the_training() -> None:
    assert PassPlan(0.0, 1.0, steps_per_epoch=30.5).interval(1000) == 30
    assert PassPlan(0.0, 1.0, steps_per_epoch=900.0).interval(1000) == 200
    assert PassPlan(0.0, 1.0, steps_per_epoch=0.2).interval(1000) == 1
    assert PassPlan(0.0, 1.0, steps_per_epoch=30.0).interval(4) == 1


def test_passes_are_counted_from_the_start_and_not_after_the_last_step() -> None:
    assert PassPlan(0.0, 1.0, steps_per_epoch=10.0).count(50) == 5  # after 0, 10, 20, 30 and 40 steps
    assert PassPlan(0.3, 1.0, steps_per_epoch=10.0).count(50) == 3  # after 20, 30 and 40 steps


@pytest.mark.parametrize("name", ["lpdssl", "lpdssl+mean_teacher", "gscnn"])
def test_the_passes_of_a_run_are_as_many_as_planned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[nn.Module] = []

    def noted(net: nn.Module) -> AbstractContextManager[None]:
        passes.append(net)
        return eval_mode(net)

    monkeypatch.setattr(full_pass, "eval_mode", noted)
    X, y = make_blobs(60, centers=2, random_state=0)
    fit = fit_model(X, np.where(np.arange(60) < 10, y, -1), FitOptions(name, random_state=0), steps=23, keep_training_set=False)
    assert len(passes) == fit.method.full_passes(23) > 1
    assert 0 < fit.cost["full_pass_flops"] < fit.cost["flops"]
