"""SoftMatch: every pseudo-label is used, with a smaller weight below the mean confidence."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from samekind.data.dataset import Batch
from samekind.errors import SettingError
from samekind.methods.base import Task
from samekind.methods.softmatch import SPEC, SoftMatch, SoftMatchConfig
from samekind.nets.classifier import Classifier

TASK = Task(n_classes=2, n_labelled=2, n_samples=10, steps=1000)
LN3 = math.log(3.0)
A, B, EVEN = [LN3, 0.0], [0.0, LN3], [0.0, 0.0]  # (3/4, 1/4), (1/4, 3/4) and (1/2, 1/2)


def softmatch(**settings: float | bool | None) -> SoftMatch:
    """Return a method whose logits are the inputs."""
    head = nn.Linear(2, 2, bias=False)
    head.weight.data.copy_(torch.eye(2))
    return SoftMatch(Classifier(nn.Identity(), 2, 2, head=head), TASK, SoftMatchConfig(**settings))  # type: ignore[arg-type]


def batch(strong: list[list[float]], weak: list[list[float]]) -> Batch:
    x_u = (torch.tensor(strong), torch.tensor(weak))
    return Batch((torch.tensor([A]),), torch.tensor([0]), x_u, torch.arange(len(weak)))


def test_at_first_the_gaussian_is_wide_and_the_classes_even() -> None:
    method = softmatch()
    assert (method.mu.item(), method.var.item(), method.p.tolist()) == (0.5, 1.0, [0.5, 0.5])


def test_running_means_are_updated_after_the_step_and_not_before() -> None:
    method = softmatch(threshold_decay=0.9, align=False)
    method.losses(batch([A, A], [A, EVEN]), progress=0.0)
    assert method.var.item() == 1.0
    method.after_step()
    assert method.mu.item() == pytest.approx(0.9 * 0.5 + 0.1 * (0.75 + 0.5) / 2)
    assert method.var.item() == pytest.approx(0.9 + 0.1 * 2 * 0.125**2)  # two values, 0.125 from their mean, divided by n - 1
    torch.testing.assert_close(method.p, 0.9 * 0.5 + 0.1 * torch.tensor([0.625, 0.375]))


def test_a_pseudo_label_above_the_mean_confidence_has_weight_one_and_one_below_a_gaussian_weight() -> None:
    # mu = 5/8 and var = 1/32 of the batch alone: the even sample falls short by 1/8, exp(-(1/64) 4 / (2/32)) = exp(-1)
    loss = softmatch(threshold_decay=0.0, align=False).losses(batch([B, B], [A, EVEN]), progress=0.0)["pseudo_label"]
    assert loss.item() == pytest.approx((math.log(4) + math.exp(-1.0) * math.log(4)) / 2)


def test_a_larger_n_sigma_narrows_the_gaussian() -> None:
    loss = softmatch(threshold_decay=0.0, align=False, n_sigma=1.0).losses(batch([B, B], [A, EVEN]), progress=0.0)[
        "pseudo_label"
    ]
    assert loss.item() == pytest.approx((1.0 + math.exp(-0.25)) * math.log(4) / 2)


def test_equal_predictions_have_no_variance_and_all_have_weight_one() -> None:
    loss = softmatch(threshold_decay=0.0, align=False).losses(batch([B, B], [A, A]), progress=0.0)["pseudo_label"]
    assert loss.item() == pytest.approx(math.log(4))


def test_one_sample_alone_has_no_spread() -> None:
    method = softmatch(threshold_decay=0.0)
    method.losses(batch([A], [A]), progress=0.0)
    method.after_step()
    assert method.var.item() == 0.0


def test_alignment_raises_the_weight_of_a_rarely_predicted_class_and_keeps_the_pseudo_label() -> None:
    # p = (7/12, 5/12): aligned, A is (9/14, 5/14) confident and B (5/26, 21/26)
    method = softmatch(threshold_decay=0.0)
    q = torch.softmax(torch.tensor([A, A, B]), dim=1)
    torch.testing.assert_close(method.confidence(q, q.mean(0)), torch.tensor([15 / 22, 15 / 22, 21 / 26]))
    # even predictions, aligned to (7/12, 5/12), would be those of the second class; the pseudo-label is that of q
    sure_of_the_first = [math.log(0.55 / 0.45), 0.0]
    one, other = (
        softmatch(threshold_decay=1.0, n_sigma=1e-6, align=align).losses(batch([B], [sure_of_the_first]), progress=0.0)[
            "pseudo_label"
        ]
        for align in (True, False)
    )
    assert one.item() == pytest.approx(other.item()) == pytest.approx(math.log(4))


def test_pseudo_labels_move_the_student_by_its_strong_views_alone() -> None:
    method, seen = softmatch(threshold_decay=0.0), batch([A, A, B, B], [A, A, A, B])
    strong, weak = (x.requires_grad_() for x in seen.x_u)
    torch.autograd.backward(method.losses(seen, progress=0.0)["pseudo_label"])
    assert strong.grad is not None
    assert strong.grad.any()
    assert weak.grad is None or not weak.grad.any()
    assert method.ema.head.get_parameter("weight").grad is None


def test_by_default_running_means_cover_2_per_cent_of_training() -> None:
    assert softmatch().threshold_decay == 0.999
    assert SoftMatch(softmatch().student, TASK, SoftMatchConfig(**SPEC.defaults)).threshold_decay == pytest.approx(0.95)


def test_running_means_are_part_of_a_saved_state() -> None:
    assert {"mu", "var", "p"} <= set(softmatch().state_dict())


def test_a_gaussian_of_no_width_is_refused() -> None:
    with pytest.raises(SettingError, match="n_sigma is 0"):
        softmatch(n_sigma=0.0)
