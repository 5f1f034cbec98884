"""A full pass over the dataset changes neither the net nor the random state."""

from __future__ import annotations

import torch
from torch import nn

from samekind.data.dataset import Dataset
from samekind.methods.full_pass import dataset_features, refresh_interval
from samekind.nets.classifier import Classifier


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


def test_there_are_at_least_ten_refreshes_and_at_most_one_a_step() -> None:
    assert refresh_interval(1.0, steps_per_epoch=30.5, steps=1000) == 30
    assert refresh_interval(1.0, steps_per_epoch=900.0, steps=1000) == 100
    assert refresh_interval(1.0, steps_per_epoch=0.2, steps=1000) == 1
    assert refresh_interval(1.0, steps_per_epoch=30.0, steps=5) == 1
