"""Supervised: the mean cross-entropy of the labelled samples, without any unlabelled data."""

from __future__ import annotations

import math

import pytest
import torch
from tests.methods.by_hand import linear

from samekind.data.dataset import Batch
from samekind.methods.base import Method, Task
from samekind.methods.predictors import DeepPredictor
from samekind.methods.supervised import Supervised

TASK = Task(n_classes=2, n_labelled=2, n_samples=100, steps=100)
LN3 = math.log(3.0)


def batch(n_u: int = 0) -> Batch:
    x_l = torch.tensor([[LN3, 0.0], [LN3, 0.0]])  # f = (3/4, 1/4)
    return Batch((x_l,), torch.tensor([0, 1]), (torch.ones(n_u, 2),) if n_u else (), torch.arange(n_u))


def test_the_loss_is_the_mean_over_labelled_samples() -> None:
    (loss,) = Supervised(linear(), TASK).losses(batch(), progress=0.0).values()
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


def test_neither_unlabelled_samples_nor_progress_matter() -> None:
    method = Supervised(linear(), TASK)
    before = method.losses(batch(), progress=0.0)["supervised"]
    assert torch.equal(method.losses(batch(n_u=5), progress=1.0)["supervised"], before)


def test_it_needs_no_unlabelled_view_and_no_view_that_uses_unlabelled_data() -> None:
    method: Method = Supervised(linear(), TASK)
    assert method.unlabelled_views == ()
    assert method.labelled_views == ("labelled_only",)


def test_the_gradient_is_what_softmax_makes_it() -> None:
    method = Supervised(linear(), TASK)
    torch.autograd.backward(method.losses(batch(), progress=0.0)["supervised"])
    # mean over samples of (f - y) x^T; both samples are (ln 3, 0), so only the first column moves
    expected = torch.tensor([[0.25, 0.0], [-0.25, 0.0]]) * LN3
    torch.testing.assert_close(method.student.head.weight.grad, expected)


def test_the_predictor_predicts_as_the_student() -> None:
    predictor = Supervised(linear(), TASK).predictor()
    assert isinstance(predictor, DeepPredictor)
    f = predictor.probabilities(predictor.features(torch.tensor([[LN3, 0.0]])))
    torch.testing.assert_close(f, torch.tensor([[0.75, 0.25]]))


def test_without_a_phi_similarity_is_the_classifier_s_own_confidence() -> None:
    predictor = Supervised(linear(), TASK).predictor()
    assert isinstance(predictor, DeepPredictor)
    z = torch.tensor([[LN3, 0.0], [0.0, LN3]])  # (3/4, 1/4) and (1/4, 3/4): d2 = 1/2
    expected = torch.tensor([[1.0, math.exp(-1.5)], [math.exp(-1.5), 1.0]])
    torch.testing.assert_close(predictor.similarity(z, z), expected)


def test_diagnostics_hold_the_mean_prediction() -> None:
    method = Supervised(linear(), TASK)
    method.losses(batch(), progress=0.0)
    torch.testing.assert_close(method.diagnostics["mean_f"], torch.tensor([0.75, 0.25]))
