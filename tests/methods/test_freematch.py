"""FreeMatch: thresholds follow the confidence of the student, and the fairness term balances the classes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from samekind.data.dataset import Batch
from samekind.methods.base import Task
from samekind.methods.freematch import SPEC, FreeMatch, FreeMatchConfig
from samekind.nets.classifier import Classifier

TASK = Task(n_classes=2, n_labelled=2, n_samples=10, steps=1000)
LN3 = math.log(3.0)
A, B = [LN3, 0.0], [0.0, LN3]  # (3/4, 1/4) and (1/4, 3/4)


def freematch(**settings: float | None) -> FreeMatch:
    """Return a method whose logits are the inputs."""
    head = nn.Linear(2, 2, bias=False)
    head.weight.data.copy_(torch.eye(2))
    return FreeMatch(Classifier(nn.Identity(), 2, 2, head=head), TASK, FreeMatchConfig(**settings))  # type: ignore[arg-type]


def batch(strong: list[list[float]], weak: list[list[float]]) -> Batch:
    x_u = (torch.tensor(strong), torch.tensor(weak))
    return Batch((torch.tensor([A]),), torch.tensor([0]), x_u, torch.arange(len(weak)))


def test_at_first_all_running_means_are_uniform() -> None:
    method = freematch()
    assert (method.tau.item(), method.p.tolist(), method.fractions.tolist()) == (0.5, [0.5, 0.5], [0.5, 0.5])


def test_running_means_are_updated_after_the_step_and_not_before() -> None:
    method = freematch(threshold_decay=0.9)
    method.losses(batch([A, A], [A, [0.0, 0.0]]), progress=0.0)
    assert method.tau.item() == 0.5
    method.after_step()
    assert method.tau.item() == pytest.approx(0.9 * 0.5 + 0.1 * (0.75 + 0.5) / 2)
    torch.testing.assert_close(method.p, 0.9 * 0.5 + 0.1 * torch.tensor([0.625, 0.375]))
    torch.testing.assert_close(method.fractions, 0.9 * 0.5 + 0.1 * torch.tensor([1.0, 0.0]))


def test_the_threshold_is_the_mean_confidence_and_lower_for_a_rarely_predicted_class() -> None:
    # with decay 0 the levels are those of the batch: tau = 0.75 - 0.05/3, p = (7/12 + ..., ...)
    weak = [A, A, [0.0, math.log(0.7 / 0.3)]]
    loss = freematch(threshold_decay=0.0).losses(batch([B, B, B], weak), progress=0.0)["pseudo_label"]
    # tau = 2.2/3 = 0.7333 and p = (0.6, 0.4): thresholds 0.7333 and 0.4889, so that all three are above the threshold
    assert loss.item() == pytest.approx((2 * math.log(4) + math.log(4 / 3)) / 3)


def test_a_pseudo_label_below_the_threshold_of_its_class_is_masked() -> None:
    # tau = 0.65, p = (0.65, 0.35): the second of the first class, 0.55 confident, is masked
    weak = [A, [math.log(0.55 / 0.45), 0.0]]
    loss = freematch(threshold_decay=0.0).losses(batch([B, B], weak), progress=0.0)["pseudo_label"]
    assert loss.item() == pytest.approx(math.log(4) / 2)


def test_tau_has_a_ceiling_where_one_is_set() -> None:
    method = freematch(threshold_decay=0.0, tau_max=0.6)
    method.losses(batch([A, A], [A, B]), progress=0.0)
    method.after_step()
    assert method.tau.item() == pytest.approx(0.6)


def test_fairness_is_the_negative_cross_entropy_of_samples_above_the_threshold() -> None:
    # strong predictions A, A, A, B as in the test of the loss; q = A, A, A, B gives p = (5/8, 3/8) and fractions (3/4, 1/4)
    views = [A, A, A, B]
    loss = freematch(threshold_decay=0.0, lambda_f=1.0).losses(batch(views, views), progress=0.0)["fairness"]
    entropy = -(5 / 14 * math.log(5 / 14) + 9 / 14 * math.log(9 / 14))
    assert loss.item() == pytest.approx(-entropy)


def test_fairness_without_samples_above_the_threshold_is_zero() -> None:
    method = freematch(threshold_decay=1.0)
    method.tau.fill_(1.0)
    found = method.losses(batch([A, B], [A, B]), progress=0.0)
    assert found["pseudo_label"].item() == found["fairness"].item() == 0.0


@pytest.mark.parametrize("term", ["pseudo_label", "fairness"])
def test_both_terms_move_the_student_by_its_strong_views_alone(term: str) -> None:
    method, seen = freematch(threshold_decay=0.0), batch([A, A, B, B], [A, A, A, B])
    strong, weak = (x.requires_grad_() for x in seen.x_u)
    torch.autograd.backward(method.losses(seen, progress=0.0)[term])
    assert strong.grad is not None
    assert strong.grad.any()
    assert weak.grad is None or not weak.grad.any()
    assert method.ema.head.get_parameter("weight").grad is None


def test_by_default_running_means_cover_2_per_cent_of_training() -> None:
    assert freematch().threshold_decay == 0.999
    assert FreeMatch(freematch().student, TASK, FreeMatchConfig(**SPEC.defaults)).threshold_decay == pytest.approx(0.95)


def test_running_means_are_part_of_a_saved_state() -> None:
    assert {"tau", "p", "fractions"} <= set(freematch().state_dict())
