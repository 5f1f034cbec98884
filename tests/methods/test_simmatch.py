"""SimMatch: targets from predictions and from similarities to labelled samples, the gradients, and the memory bank."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch
from samekind.errors import DataError
from samekind.methods.base import Task
from samekind.methods.simmatch import SimMatch, SimMatchConfig
from samekind.nets.classifier import Classifier

TASK = Task(n_classes=2, n_labelled=3, n_samples=10, steps=1000)
LN3 = math.log(3.0)
E1, E2 = [1.0, 0.0], [0.0, 1.0]


class Directions(nn.Module):
    """What stands in the place of a projection where points on the circle are to be known: the direction of z."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, z: Tensor) -> Tensor:
        return nn.functional.normalize(self.scale * z, dim=-1)


def simmatch(**settings: Any) -> SimMatch:
    """Return a method with features = inputs, logits = ln 3 times them, embeddings = their directions, temperature 1/ln 3."""
    head = nn.Linear(2, 2, bias=False)
    head.weight.data.copy_(LN3 * torch.eye(2))
    config = SimMatchConfig(**{"embedding_size": 2, "temperature": 1 / LN3, "threshold": 0.0, **settings})
    method = SimMatch(Classifier(nn.Identity(), 2, 2, head=head), TASK, config)
    method.projection, method.teacher_projection = Directions(), Directions().requires_grad_(False)  # type: ignore[assignment]
    return method


def batch(strong: list[list[float]], weak: list[list[float]]) -> Batch:
    x_u, labelled = (torch.tensor(strong), torch.tensor(weak)), torch.tensor([2, 0])
    return Batch((torch.tensor([E1, E2]),), torch.tensor([0, 1]), x_u, torch.arange(len(weak)), labelled)


def with_bank(**settings: Any) -> SimMatch:
    """Return a method whose slots 0 and 2 hold E2 of class 1 and E1 of class 0; slot 1 is empty."""
    method = simmatch(**settings)
    method.bank.update(torch.tensor([2, 0]), torch.tensor([E1, E2]), torch.tensor([0, 1]), decay=0.0)
    return method


EVEN = batch([E1, E1], [E1, E2])  # of the weak views, whose predictions are balanced, so that alignment changes nothing


def test_labels_are_divided_by_the_labelled_samples_alone() -> None:
    assert simmatch().losses(EVEN, progress=0.0)["supervised"].item() == pytest.approx(math.log(4 / 3))


def test_without_a_bank_the_target_is_the_soft_prediction() -> None:
    found = simmatch().losses(EVEN, progress=1.0)
    one = 0.75 * math.log(4 / 3) + 0.25 * math.log(4)
    other = 0.25 * math.log(4 / 3) + 0.75 * math.log(4)
    assert found["pseudo_label"].item() == pytest.approx((one + other) / 2)
    assert found["instance"].item() == 0.0
    assert found["instance"].requires_grad


def test_a_target_is_mixed_with_the_classes_of_similar_labelled_samples() -> None:
    # E1 has similarities exp(0) : exp(ln 3) to the slots (E2, E1), so (1/4, 3/4): 3/4 for class 0, as in the prediction
    method = with_bank(smoothing=0.5)
    method.bank.y.copy_(torch.tensor([0, -1, 0]))  # both slots are of class 0: similarities give (1, 0) for everything
    found = method.losses(EVEN, progress=1.0)["pseudo_label"]
    (t_one, t_other) = (0.5 * 0.75 + 0.5, 0.5 * 0.25 + 0.5)
    both = sum(t * math.log(4 / 3) + (1 - t) * math.log(4) for t in (t_one, t_other))
    assert found.item() == pytest.approx(both / 2)


def test_similarities_are_calibrated_by_the_prediction_before_the_strong_view_learns_them() -> None:
    # weak view E1: similarities (1/4, 3/4) to slots of classes (1, 0), times the predictions (1/4, 3/4): (1/10, 9/10).
    # weak view E2: (9/10, 1/10). The strong views, both E1, have similarities (1/4, 3/4) to the slots.
    found = with_bank().losses(EVEN, progress=1.0)["instance"]
    one = 0.1 * math.log(4) + 0.9 * math.log(4 / 3)
    other = 0.9 * math.log(4) + 0.1 * math.log(4 / 3)
    assert found.item() == pytest.approx((one + other) / 2)


def test_similarities_are_used_from_their_start_on() -> None:
    method = with_bank(start=0.5, smoothing=0.5)
    assert method.losses(EVEN, progress=0.4)["instance"].item() == 0.0
    assert method.losses(EVEN, progress=0.5)["instance"].item() > 0.0


def test_a_target_below_the_threshold_is_masked_and_alignment_comes_first() -> None:
    # both weak views are at (3/4, 1/4): aligned with themselves they are even, and 0.7 is not reached
    seen = batch([E1, E1], [E1, E1])
    assert simmatch(threshold=0.7).losses(seen, progress=0.0)["pseudo_label"].item() == 0.0
    assert simmatch(threshold=0.7).losses(EVEN, progress=0.0)["pseudo_label"].item() > 0.0


def test_labelled_samples_fill_their_own_slots_after_the_step() -> None:
    method = simmatch()
    method.losses(EVEN, progress=0.0)
    assert method.bank.y.tolist() == [-1, -1, -1]
    method.after_step()
    assert method.bank.y.tolist() == [1, -1, 0]
    torch.testing.assert_close(method.bank.points, torch.tensor([E2, [0.0, 0.0], E1]))
    torch.testing.assert_close(method.alignment.means[0], torch.tensor([0.5, 0.5]))


@pytest.mark.parametrize("target", ["student", "teacher"])
@pytest.mark.parametrize("term", ["pseudo_label", "instance"])
def test_strong_views_learn_and_targets_do_not(term: str, target: str) -> None:
    method, seen = with_bank(target=target), batch([[0.8, 0.6], E1], [E1, [0.6, 0.8]])
    strong, weak = (x.requires_grad_() for x in seen.x_u)
    torch.autograd.backward(method.losses(seen, progress=1.0)[term])
    assert strong.grad is not None
    assert strong.grad.any()
    assert weak.grad is None or not weak.grad.any()
    assert all(p.grad is None for m in (method.teacher, method.teacher_projection) for p in m.parameters())


def test_the_target_may_be_the_average_s() -> None:
    method = simmatch(target="teacher")
    method.teacher.head.get_parameter("weight").data.zero_()  # undecided
    found = method.losses(EVEN, progress=0.0)["pseudo_label"]
    assert found.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


def test_after_a_step_both_emas_are_updated() -> None:
    torch.manual_seed(0)
    head = nn.Linear(2, 2, bias=False)
    method = SimMatch(Classifier(nn.Identity(), 2, 2, head=head), TASK, SimMatchConfig(ema_decay=0.25))
    before = [p.clone() for m in (method.teacher, method.teacher_projection) for p in m.parameters()]
    for p in (*method.student.parameters(), *method.projection.parameters()):
        p.data.add_(4.0)
    method.after_step()
    after = [p for m in (method.teacher, method.teacher_projection) for p in m.parameters()]
    for was, now in zip(before, after, strict=True):
        torch.testing.assert_close(now, was + 3.0)


def test_a_batch_that_does_not_say_which_labelled_samples_it_holds_is_refused() -> None:
    with pytest.raises(DataError, match=r"Batch\.labelled is None; expected the positions"):
        simmatch().losses(replace(EVEN, labelled=None), progress=0.0)


def test_class_probabilities_of_neighbours_come_from_the_similarities_before_calibration() -> None:
    # E1 has the similarities (1/4, 3/4) to the bank, so its classes have (3/4, 1/4). Calibration gives (9/10, 1/10)
    method = with_bank(smoothing=0.0)
    loss = method.losses(batch([E2, E1], [E1, E2]), progress=0.5)["pseudo_label"]
    assert loss.item() == pytest.approx(0.75 * math.log(4) + 0.25 * math.log(4 / 3))  # equal for both samples
