"""CoMatch: smoothed targets and the pseudo-label graph in numbers, the gradients, and the queue."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch
from samekind.methods.base import Task
from samekind.methods.comatch import CoMatch, CoMatchConfig
from samekind.nets.classifier import Classifier

TASK = Task(n_classes=2, n_labelled=3, n_samples=10, steps=1000, batch_labelled=2, batch_unlabelled=2)
LN3 = math.log(3.0)
E1, E2 = [1.0, 0.0], [0.0, 1.0]


class Directions(nn.Module):
    """What stands in the place of a projection where points on the circle are to be known: the direction of z."""

    def forward(self, z: Tensor) -> Tensor:
        return nn.functional.normalize(z, dim=-1)


def comatch(**settings: Any) -> CoMatch:
    """Return a method with features = inputs, logits = ln 3 times them, embeddings = their directions, temperature 1/ln 3."""
    head = nn.Linear(2, 2, bias=False)
    head.weight.data.copy_(LN3 * torch.eye(2))
    config = CoMatchConfig(**{"embedding_size": 2, "temperature": 1 / LN3, "threshold": 0.0, **settings})
    method = CoMatch(Classifier(nn.Identity(), 2, 2, head=head), TASK, config)
    method.projection = Directions()  # type: ignore[assignment]
    return method


def batch(one: list[list[float]], other: list[list[float]], weak: list[list[float]]) -> Batch:
    x_u = tuple(torch.tensor(x) for x in (one, other, weak))
    return Batch((torch.tensor([E1, E2]),), torch.tensor([0, 1]), x_u, torch.arange(len(weak)))


def inputs() -> Batch:
    """Return weak views (3/4, 1/4) and (1/4, 3/4), and strong views E1 E1 and E1 E2."""
    return batch([E1, E1], [E1, E2], [E1, E2])


def test_labels_are_divided_by_the_labelled_samples_alone() -> None:
    assert comatch().losses(inputs(), progress=0.0)["supervised"].item() == pytest.approx(math.log(4 / 3))


def test_the_first_strong_view_learns_the_soft_target() -> None:
    one = 0.75 * math.log(4 / 3) + 0.25 * math.log(4)
    other = 0.25 * math.log(4 / 3) + 0.75 * math.log(4)
    assert comatch().losses(inputs(), progress=0.0)["pseudo_label"].item() == pytest.approx((one + other) / 2)
    assert comatch(threshold=0.8).losses(inputs(), progress=0.0)["pseudo_label"].item() == 0.0


def test_samples_that_disagree_are_separated() -> None:
    # q q' = 3/8 is no edge: Q is the identity. Both E1 are like (E1, E2) by (3/4, 1/4): -ln 3/4 and -ln 1/4
    found = comatch().losses(inputs(), progress=0.0)["contrast"]
    assert found.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


def test_samples_that_agree_are_drawn_together() -> None:
    # with edges from 0.3 on, Q is (1, 3/8) of sum 11/8: (8/11, 3/11)
    found = comatch(edge_threshold=0.3, lambda_c=2.0).losses(inputs(), progress=0.0)["contrast"]
    near, far = math.log(4 / 3), math.log(4)
    assert found.item() == pytest.approx(2.0 * ((8 * near + 3 * far) / 11 + (3 * near + 8 * far) / 11) / 2)


def test_memory_smooths_targets_once_it_is_full() -> None:
    method = comatch(smoothing=0.5, queue_batches=1)
    points, predictions = torch.tensor([E1, E1, E2, E2]), torch.tensor([E1, E1, E1, E1])  # everything in it is of class 0
    method.queue.push(points[:3], predictions[:3])
    plain = method.losses(inputs(), progress=0.0)["pseudo_label"].item()
    method.queue.push(points[3:], predictions[3:])
    smoothed = method.losses(inputs(), progress=0.0)["pseudo_label"].item()
    assert plain == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)
    # targets (7/8, 1/8) and (5/8, 3/8)
    assert smoothed == pytest.approx((1.5 * math.log(4 / 3) + 0.5 * math.log(4)) / 2)


def test_similar_samples_count_more() -> None:
    method = comatch(smoothing=0.0, queue_batches=1)
    method.queue.push(torch.tensor([E1, E1, E2, E2]), torch.tensor([E1, E1, E2, E2]))
    # E1 is like itself 3/4 of the time: targets (3/4, 1/4) and (1/4, 3/4) from memory alone
    found = method.losses(inputs(), progress=0.0)["pseudo_label"].item()
    assert found == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


def test_the_queue_holds_predictions_before_smoothing_and_labels() -> None:
    method = comatch(smoothing=0.0, queue_batches=1)
    method.queue.push(torch.tensor([E1] * 4), torch.tensor([E1] * 4))
    method.losses(inputs(), progress=0.0)
    assert torch.equal(method.queue.probabilities, torch.tensor([E1] * 4))
    method.after_step()
    torch.testing.assert_close(method.queue.probabilities, torch.tensor([[0.75, 0.25], [0.25, 0.75], E1, E2]))
    torch.testing.assert_close(method.queue.points, torch.tensor([E1, E2, E1, E2]))
    torch.testing.assert_close(method.alignment.means[0], torch.tensor([0.5, 0.5]))


def test_memory_has_room_for_five_batches_and_is_saved() -> None:
    method = comatch()
    assert len(method.queue.points) == 5 * (2 + 2)
    assert {"queue.points", "queue.probabilities", "queue.count", "alignment.means", "alignment.count"} <= set(
        method.state_dict()
    )


@pytest.mark.parametrize(("term", "moved"), [("pseudo_label", [True, False, False]), ("contrast", [True, True, False])])
def test_each_term_reaches_its_strong_views_and_never_the_weak_one(term: str, moved: list[bool]) -> None:
    method, seen = comatch(), batch([[0.8, 0.6], E1], [[0.6, 0.8], E2], [E1, E2])
    views = [x.requires_grad_() for x in seen.x_u]
    torch.autograd.backward(method.losses(seen, progress=0.0)[term])
    assert [x.grad is not None and bool(x.grad.any()) for x in views] == moved
    assert all(p.grad is None for p in method.ema.parameters())


def test_the_student_and_its_projection_learn_the_contrast() -> None:
    torch.manual_seed(0)
    method = CoMatch(Classifier(nn.Linear(2, 4), 4, 2), TASK)
    torch.autograd.backward(method.losses(inputs(), progress=0.0)["contrast"])
    moved = [*method.student.features.parameters(), *method.projection.parameters()]
    assert any(p.grad is not None and p.grad.any() for p in method.student.features.parameters())
    assert all(p.grad is not None for p in moved)
    assert all(p.grad is None for p in method.student.head.parameters())


def test_the_similarity_of_opposite_points_has_a_finite_logarithm() -> None:
    found = comatch(temperature=1e-3).losses(batch([E1, E2], [[-1.0, 0.0], [0.0, -1.0]], [E1, E2]), progress=0.0)
    assert found["contrast"].item() == pytest.approx(1000.0)  # ln of exp(-1000) is not -inf
