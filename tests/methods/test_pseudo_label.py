"""Pseudo-label: only confident samples are learned, with a fixed class, and others count in the mean."""

from __future__ import annotations

import math

import pytest
import torch
from tests.methods.by_hand import linear
from torch import Tensor, nn

from samekind.data.dataset import Batch
from samekind.methods.base import Task
from samekind.methods.pseudo_label import PseudoLabel, PseudoLabelConfig

TASK = Task(n_classes=2, n_labelled=2, n_samples=100, steps=100)
LN3, LN9 = math.log(3.0), math.log(9.0)


def batch() -> Batch:
    """Return unlabelled samples at (9/10, 1/10), (1/4, 3/4), (1/2, 1/2), and two labelled ones at (3/4, 1/4)."""
    x_u = torch.tensor([[LN9, 0.0], [0.0, LN3], [0.0, 0.0]])
    return Batch((torch.tensor([[LN3, 0.0], [LN3, 0.0]]),), torch.tensor([0, 1]), (x_u,), torch.arange(3))


def pseudo(progress: float = 1.0, task: Task = TASK, **settings: float) -> Tensor:
    return PseudoLabel(linear(), task, PseudoLabelConfig(**settings)).losses(batch(), progress)["pseudo"]


def test_labels_are_divided_by_the_labelled_samples_alone() -> None:
    loss = PseudoLabel(linear(), TASK).losses(batch(), progress=0.0)["supervised"]
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


def test_confident_samples_learn_their_most_probable_class_and_the_mean_is_over_all() -> None:
    assert pseudo(threshold=0.8).item() == pytest.approx(math.log(10 / 9) / 3)
    assert pseudo(threshold=0.7).item() == pytest.approx((math.log(10 / 9) + math.log(4 / 3)) / 3)
    assert pseudo(threshold=0.95).item() == 0.0


def test_a_threshold_of_zero_teaches_every_sample_as_lee_does() -> None:
    expected = (math.log(10 / 9) + math.log(4 / 3) + math.log(2)) / 3
    assert pseudo(threshold=0.0, w_max=3.0).item() == pytest.approx(3.0 * expected)


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.0), (0.1, 0.25), (0.4, 1.0), (1.0, 1.0)])
def test_the_weight_rises_linearly_over_the_first_two_fifths(progress: float, share: float) -> None:
    assert pseudo(progress, threshold=0.0).item() == pytest.approx(share * pseudo(1.0, threshold=0.0).item())


def test_no_gradient_flows_through_the_pseudo_label() -> None:
    # d(-ln p_k)/d logits = p - e_k, for the confident sample, over three samples; nothing for the others
    seen = batch()
    x = seen.x_u[0].requires_grad_()
    torch.autograd.backward(PseudoLabel(linear(), TASK, PseudoLabelConfig(threshold=0.8)).losses(seen, 1.0)["pseudo"])
    torch.testing.assert_close(x.grad, torch.tensor([[-0.1, 0.1], [0.0, 0.0], [0.0, 0.0]]) / 3)


def test_an_unlabelled_weight_of_zero_removes_the_unlabelled_terms() -> None:
    distrusted = Task(n_classes=2, n_labelled=2, n_samples=100, steps=100, unlabelled_weight=0.0)
    assert pseudo(task=distrusted, threshold=0.0).item() == 0.0


def test_only_labelled_samples_move_batch_norm_statistics() -> None:
    net = linear()
    net.features = nn.BatchNorm1d(2)
    seen = batch()
    PseudoLabel(net, TASK).losses(seen, progress=0.0)
    torch.testing.assert_close(net.features.running_mean, 0.1 * seen.x_l[0].mean(0))
