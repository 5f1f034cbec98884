"""CCLP: the label loss is a mean over labelled samples, the clustering loss over all, in one forward pass."""

from __future__ import annotations

import math

import pytest
import torch
from tests.methods.by_hand import linear
from torch import nn

from samekind.data.dataset import Batch
from samekind.errors import SettingError
from samekind.losses.clustering import compact_clustering
from samekind.methods.base import Task
from samekind.methods.cclp import CCLP, CCLPConfig
from samekind.nets.classifier import Classifier

TASK = Task(n_classes=2, n_labelled=2, n_samples=10, steps=100)
LN3 = math.log(3.0)


def batch(at: float = LN3) -> Batch:
    x_l = torch.tensor([[at, 0.0], [at, 0.0]])
    return Batch((x_l,), torch.tensor([0, 1]), (torch.tensor([[at, 0.0], [at, 0.0]]),), torch.arange(2))


def test_labels_are_averaged_over_the_labelled_samples_alone() -> None:
    loss = CCLP(linear(), TASK).losses(batch(), progress=0.0)["supervised"]
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


def test_four_samples_at_one_place_of_which_two_are_labelled() -> None:
    # H = 1/4. Phi = (1, 0), (0, 1) and twice (1/2, 1/2); m = 2. T = Phi Phi^T/2, M = Phi Phi^T, whose rows add up to 2.
    # So H2 = 2/4 1/4 = 1/8 and H3 = 1/16 everywhere, and as rows of T add up to 1 the loss is (2 + 3 + 4)/3 ln 2.
    loss = CCLP(linear(), TASK, CCLPConfig(w=0.1)).losses(batch(), progress=0.0)["clustering"]
    assert loss.item() == pytest.approx(0.1 * 3 * math.log(2.0), rel=1e-4)


def test_features_are_brought_to_one_length_before_they_make_a_graph() -> None:
    # Two places, a labelled and an unlabelled sample at each. A step to a sample of the same place has probability a, else b.
    # An unlabelled sample has the class of its place with p = 1/(1 + 4 b), from p = a + a p + b (1 - p) and a + b = 1/2.
    # Of the target T of a sample, (1 + p)/2 lies at its own place if it is labelled, and (p + p² + (1 - p)²)/2 if not.
    x = torch.tensor([[100.0, 0.0], [0.0, 1.0]])
    loss = CCLP(linear(), TASK, CCLPConfig(w=1.0, n_steps=1, feature_norm=2.0)).losses(
        Batch((x,), torch.tensor([0, 1]), (x,), torch.arange(2)), progress=0.0
    )
    a, b = math.exp(4.0) / (2 * math.exp(4.0) + 2), 1 / (2 * math.exp(4.0) + 2)
    p = 1 / (1 + 4 * b)
    here = (1 + p + p + p**2 + (1 - p) ** 2) / 4
    assert loss["clustering"].item() == pytest.approx(-here * math.log(a) - (1 - here) * math.log(b), rel=1e-4)
    with pytest.raises(SettingError, match="feature_norm is 0"):
        CCLPConfig(feature_norm=0)


def test_the_weight_is_scaled_by_the_unlabelled_weight() -> None:
    half = Task(n_classes=2, n_labelled=2, n_samples=10, steps=100, unlabelled_weight=0.5)
    full, less = (CCLP(linear(), task).losses(batch(), 0.0)["clustering"].item() for task in (TASK, half))
    assert less == pytest.approx(full / 2)


def test_clusters_move_features_of_labelled_and_unlabelled_samples_and_not_the_head() -> None:
    method, seen = CCLP(linear(), TASK), batch()
    seen.x_l[0].copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    x_l, x_u = seen.x_l[0].requires_grad_(), seen.x_u[0].requires_grad_()
    torch.autograd.backward(method.losses(seen, progress=0.0)["clustering"])
    assert x_l.grad is not None and x_l.grad.any()
    assert x_u.grad is not None and x_u.grad.any()
    assert method.student.head.get_parameter("weight").grad is None


def test_in_half_precision_the_inverse_is_still_taken_in_full() -> None:
    torch.manual_seed(0)
    net = Classifier(nn.Linear(2, 3), 3, 2)
    seen = Batch((torch.randn(4, 2),), torch.tensor([0, 1, 0, 1]), (torch.randn(20, 2),), torch.arange(20))
    method = CCLP(net, TASK)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = net(torch.cat([seen.x_l[0], seen.x_u[0]])).z
        loss = method.losses(seen, progress=0.0)["clustering"]
    Y = torch.eye(2)[seen.y_l]
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, compact_clustering(z, Y))


def test_all_samples_go_through_the_student_in_one_forward() -> None:
    net = linear()
    net.features = nn.BatchNorm1d(2)
    CCLP(net, TASK).losses(batch(), progress=0.0)
    assert net.features.get_buffer("num_batches_tracked").item() == 1


def test_a_random_walk_has_at_least_one_step() -> None:
    with pytest.raises(SettingError, match="n_steps is 0"):
        CCLPConfig(n_steps=0)
