"""GSCNN: completed labels of the dataset, and the triplets made from them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.methods.by_hand import linear

from samekind.data.dataset import UNLABELLED, Batch, Dataset
from samekind.errors import SettingError
from samekind.methods.base import Task
from samekind.methods.gscnn import GSCNN, GSCNNConfig

TASK = Task(n_classes=2, n_labelled=2, n_samples=8, steps=100, batch_labelled=2, batch_unlabelled=4)


def dataset() -> Dataset:
    x = torch.tensor([[1.0, 0.0], [1.1, 0.1], [0.9, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.1], [0.0, 0.9], [0.1, 1.0]])
    return Dataset(x, torch.tensor([0, -1, -1, -1, 1, -1, -1, -1]), 2)


def batch() -> Batch:
    """Return two unlabelled samples at right angles, and two labelled ones of class 0, equal and opposite to the first."""
    x_l = torch.tensor([[3.0, 0.0], [-1.0, 0.0]])
    return Batch((x_l,), torch.tensor([0, 0]), (torch.tensor([[1.0, 0.0], [0.0, 1.0]]),), torch.tensor([1, 5]))


def test_every_sample_gets_a_class_and_labels_stay() -> None:
    method = GSCNN(linear(), TASK, GSCNNConfig(start=0.0))
    method.refresh(dataset())
    assert method.completed.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_in_blocks_no_sample_is_left_out() -> None:
    method = GSCNN(linear(), TASK, GSCNNConfig(start=0.0, block_size=4))
    method.refresh(dataset())
    assert method.completed.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_the_only_sample_of_another_class_is_the_negative_of_all() -> None:
    # Completed 0, 1 and labelled 0, 0. Anchors are the three samples of class 0; the one at a right angle is 2 from each.
    # From the first and third, the partner is at 0 or 4; from the opposite one both are at 4: 4 - 2 + 0.2 = 2.2.
    method = GSCNN(linear(), TASK)
    method.completed[1], method.completed[5] = 0, 1
    torch.manual_seed(0)
    found = {round(method.losses(batch(), 0.0)["triplet"].item() * 3, 3) for _ in range(40)}
    assert found == {2.2, 4.4, 6.6}


def test_labels_are_averaged_over_the_labelled_samples() -> None:
    loss = GSCNN(linear(), TASK).losses(batch(), 0.0)["supervised"]
    expected = math.log(1 + math.exp(-3.0)) + math.log(1 + math.exp(1.0))
    assert loss.item() == pytest.approx(expected / 2, rel=1e-6)


def test_without_partners_there_is_no_triplet_term() -> None:
    assert list(GSCNN(linear(), TASK).losses(batch(), 0.0)) == ["supervised"]


def test_triplets_move_the_features_and_not_the_head() -> None:
    method, seen = GSCNN(linear(), TASK), batch()
    method.completed[1], method.completed[5] = 0, 1
    x_u = seen.x_u[0].requires_grad_()
    torch.autograd.backward(method.losses(seen, 0.0)["triplet"])
    assert x_u.grad is not None and x_u.grad.any()
    assert method.student.head.get_parameter("weight").grad is None


def test_the_first_completion_comes_after_training_on_labels_alone() -> None:
    method = GSCNN(linear(), TASK, GSCNNConfig(start=0.2))
    method.step.fill_(19)
    method.refresh(dataset())
    assert (method.completed == UNLABELLED).all()
    method.after_step()
    method.refresh(dataset())
    assert (method.completed != UNLABELLED).all()


@pytest.mark.parametrize("settings", [{"start": 1.0}, {"refresh_epochs": 0.0}, {"label_weight": 0.0}, {"block_size": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        GSCNNConfig(**settings)
