"""FlexMatch: each class has its own threshold, from the number of samples that were confident in it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch
from samekind.methods.base import Task
from samekind.methods.flexmatch import FlexMatch, FlexMatchConfig
from samekind.nets.classifier import Classifier

TASK = Task(n_classes=2, n_labelled=2, n_samples=10, steps=100)
SURE = math.log(99.0)  # (0.99, 0.01)
LN3 = math.log(3.0)


def flexmatch(**settings: float) -> FlexMatch:
    """Return a method whose logits are the inputs."""
    head = nn.Linear(2, 2, bias=False)
    head.weight.data.copy_(torch.eye(2))
    return FlexMatch(Classifier(nn.Identity(), 2, 2, head=head), TASK, FlexMatchConfig(**settings))  # type: ignore[arg-type]


def batch(weak: list[list[float]], index: list[int]) -> Batch:
    x_strong = torch.tensor([[0.0, LN3]] * len(weak))
    return Batch((torch.tensor([[LN3, 0.0]]),), torch.tensor([0]), (x_strong, torch.tensor(weak)), torch.tensor(index))


def counted(method: FlexMatch, first: int, second: int) -> Tensor:
    """Return the thresholds if so many samples of ten were last confident in each class."""
    method.pseudo_labels.copy_(torch.tensor(first * [0] + second * [1] + (10 - first - second) * [-1]))
    return method.thresholds()


def test_at_first_every_pseudo_label_passes() -> None:
    loss = flexmatch().losses(batch([[0.1, 0.0], [0.0, 0.1]], [0, 1]), progress=0.0)["pseudo_label"]
    assert loss.item() == pytest.approx((math.log(4) + math.log(4 / 3)) / 2)


def test_the_class_with_most_confident_samples_has_the_full_threshold() -> None:
    # b = 1 and 2/3, and b/(2 - b) = 1 and 1/2
    torch.testing.assert_close(counted(flexmatch(), 6, 4), torch.tensor([0.95, 0.95 * 0.5]))


def test_samples_that_were_never_confident_count_while_they_are_the_most() -> None:
    # of ten samples 5 were never confident: b = 4/5 and 1/5
    torch.testing.assert_close(counted(flexmatch(), 4, 1), 0.95 * torch.tensor([0.8 / 1.2, 0.2 / 1.8]))
    torch.testing.assert_close(counted(flexmatch(warmup=False), 4, 1), 0.95 * torch.tensor([1.0, 0.25 / 1.75]))


@pytest.mark.parametrize("warmup", [True, False])
def test_without_any_confident_sample_thresholds_are_zero_and_not_undefined(warmup: bool) -> None:
    assert counted(flexmatch(warmup=warmup), 0, 0).tolist() == [0.0, 0.0]


def test_a_pseudo_label_is_compared_with_the_threshold_of_its_own_class() -> None:
    method = flexmatch()
    counted(method, 6, 4)
    # both are 3/4 confident; of class 0 that is too little, of class 1 it is enough
    loss = method.losses(batch([[LN3, 0.0], [0.0, LN3]], [0, 1]), progress=0.0)["pseudo_label"]
    assert loss.item() == pytest.approx(math.log(4 / 3) / 2)


def test_confident_pseudo_labels_are_stored_after_the_step_and_others_keep_what_they_were() -> None:
    method = flexmatch()
    method.pseudo_labels[5] = 0
    method.losses(batch([[SURE, 0.0], [0.0, SURE], [0.0, LN3]], [7, 2, 5]), progress=0.0)
    assert method.pseudo_labels.tolist() == [-1, -1, -1, -1, -1, 0, -1, -1, -1, -1]
    method.after_step()
    assert method.pseudo_labels.tolist() == [
        -1,
        -1,
        1,
        -1,
        -1,
        0,
        -1,
        0,
        -1,
        -1,
    ]  # sample 5 passed its class's threshold, not 0.95


def test_parts_of_a_batch_are_kept_as_the_whole_is() -> None:
    whole, parts = flexmatch(), flexmatch()
    weak, index = [[SURE, 0.0], [0.0, SURE], [SURE, 0.0], [0.0, 0.0]], [3, 1, 4, 2]
    whole.losses(batch(weak, index), progress=0.0)
    for part in (slice(0, 2), slice(2, 4)):
        parts.losses(batch(weak[part], index[part]), progress=0.0)
    for method in (whole, parts):
        method.after_step()
    assert torch.equal(whole.pseudo_labels, parts.pseudo_labels)


def test_confident_pseudo_labels_are_part_of_a_saved_state() -> None:
    assert "pseudo_labels" in flexmatch().state_dict()


def test_pseudo_labels_move_the_student_and_not_the_average() -> None:
    method = flexmatch()
    torch.autograd.backward(method.losses(batch([[SURE, 0.0]], [0]), progress=0.0)["pseudo_label"])
    moved = method.student.head.get_parameter("weight").grad
    assert moved is not None
    assert moved.any()
    assert method.ema.head.get_parameter("weight").grad is None
