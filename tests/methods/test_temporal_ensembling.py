"""Temporal ensembling: the average prediction of a sample after each epoch, and that it survives an interruption."""

from __future__ import annotations

import math
import signal
from pathlib import Path

import pytest
import torch
from tests.methods.by_hand import linear
from tests.training import tiny
from tests.training.test_resume import at_step, send
from torch import Tensor

from samekind.data.augment.transforms import Views
from samekind.data.dataset import Batch
from samekind.errors import Interrupted
from samekind.methods.base import Task
from samekind.methods.predictors import DeepPredictor
from samekind.methods.temporal_ensembling import TemporalEnsembling, TemporalEnsemblingConfig
from samekind.training.trainer import train

TASK = Task(n_classes=2, n_labelled=2, n_samples=6, steps=100)
LN3 = math.log(3.0)


def batch(first: float = LN3) -> Batch:
    """Return samples 4, 0 and 2; 4 is at (3/4, 1/4), the others at (1/2, 1/2); two labelled ones at (3/4, 1/4)."""
    x_u = torch.tensor([[first, 0.0], [1.0, 1.0], [2.0, 2.0]])
    return Batch((torch.tensor([[LN3, 0.0], [LN3, 0.0]]),), torch.tensor([0, 1]), (x_u,), torch.tensor([4, 0, 2]))


def epoch(method: TemporalEnsembling, first: float) -> Tensor:
    """Return the consistency term of an epoch of one batch."""
    term = method.losses(batch(first), progress=1.0)["consistency"]
    method.after_step()
    return term


def test_labels_are_divided_by_the_whole_batch() -> None:
    loss = TemporalEnsembling(linear(), TASK).losses(batch(), progress=0.0)["supervised"]
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / (3 + 2))


def test_in_the_first_epoch_there_is_nothing_to_agree_with() -> None:
    term = epoch(TemporalEnsembling(linear(), TASK), LN3)
    torch.autograd.backward(term)
    assert term.item() == 0.0


def test_disagreement_with_the_epoch_before_is_a_mean_over_samples_and_classes() -> None:
    method = TemporalEnsembling(linear(), TASK, TemporalEnsemblingConfig(w_max=8.0))
    epoch(method, LN3)
    assert epoch(method, 0.0).item() == pytest.approx(8.0 * 2 * 0.25**2 / (3 * 2))


def test_the_average_has_its_momentum_and_the_target_is_corrected_for_the_start_at_zero() -> None:
    # Z = 0.4 (3/4, 1/4), then 0.6 Z + 0.4 (1/2, 1/2); divided by 1 - 0.6 and 1 - 0.36
    method = TemporalEnsembling(linear(), TASK)
    row = torch.tensor([4])
    epoch(method, LN3)
    torch.testing.assert_close(method.Z[4], torch.tensor([0.3, 0.1]))
    torch.testing.assert_close(method.targets(row), torch.tensor([[0.75, 0.25]]))
    epoch(method, 0.0)
    torch.testing.assert_close(method.Z[4], torch.tensor([0.38, 0.26]))
    torch.testing.assert_close(method.targets(row), torch.tensor([[0.59375, 0.40625]]))


def test_each_sample_counts_its_own_visits() -> None:
    method = TemporalEnsembling(linear(), TASK)
    epoch(method, LN3)
    epoch(method, LN3)
    assert method.visits.tolist() == [2, 0, 2, 0, 2, 0]
    torch.testing.assert_close(method.targets(torch.arange(6)).sum(1), torch.tensor([1.0, 0, 1, 0, 1, 0]))


def test_a_sample_without_a_visit_has_no_target() -> None:
    method = TemporalEnsembling(linear(), TASK, TemporalEnsemblingConfig(w_max=8.0))
    epoch(method, LN3)
    other = batch(0.0)
    moved = Batch(other.x_l, other.y_l, other.x_u, torch.tensor([4, 1, 3]))
    assert method.losses(moved, progress=1.0)["consistency"].item() == pytest.approx(8.0 * 2 * 0.25**2 / 6)


def test_nothing_is_remembered_before_the_step_is_done() -> None:
    # A batch in parts sees the targets of the epoch before in every part
    method = TemporalEnsembling(linear(), TASK)
    method.losses(batch(), progress=1.0)
    assert not method.Z.any() and not method.visits.any()


def test_parts_of_a_batch_are_remembered_like_the_whole() -> None:
    whole, parts = TemporalEnsembling(linear(), TASK), TemporalEnsembling(linear(), TASK)
    rows = torch.tensor([[LN3, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    four = Batch((rows,), torch.tensor([0, 1, 0, 1]), (rows,), torch.tensor([5, 3, 1, 0]))
    for method, pieces in ((whole, [four]), (parts, [four.part(0, 2), four.part(1, 2)])):
        for piece in pieces:
            method.losses(piece, progress=1.0)
        method.after_step()
    assert torch.equal(whole.Z, parts.Z)
    assert torch.equal(whole.visits, parts.visits)


def test_consistency_moves_the_student_and_not_the_memory() -> None:
    method = TemporalEnsembling(linear(), TASK)
    epoch(method, LN3)
    memory = method.Z.clone()
    torch.autograd.backward(method.losses(batch(-LN3), progress=1.0)["consistency"])
    moved = method.student.head.get_parameter("weight").grad
    assert moved is not None and moved.any()
    assert torch.equal(method.Z, memory)
    assert not method.Z.requires_grad


def test_the_weight_follows_the_fraction_of_labels_by_a_rule_of_its_own() -> None:
    cifar = Task(10, n_labelled=4000, n_samples=50_000, steps=1)
    assert TemporalEnsembling(linear(), cifar).w_max == pytest.approx(2.4)
    assert TemporalEnsembling(linear(), cifar, TemporalEnsemblingConfig(w_max=5.0)).w_max == 5.0


def trained(folder: Path | None, views: Views) -> TemporalEnsembling:
    method: TemporalEnsembling = tiny.method("temporal_ensembling")
    train(method, tiny.dataset(), views, tiny.plan(folder))
    return method


def test_a_run_interrupted_in_its_fourth_epoch_resumes_bit_for_bit(tmp_path: Path) -> None:
    # Three batches are an epoch. A step calls the view twice, where `at_step` counts three calls a step
    whole = trained(None, tiny.views())
    with pytest.raises(Interrupted, match="after step 10 of"):
        trained(tmp_path, at_step(6, send(signal.SIGINT)))
    taken_up = trained(tmp_path, tiny.views())
    assert whole.visits.sum() == 16 * tiny.STEPS
    assert all(torch.equal(tensor, taken_up.state_dict()[name]) for name, tensor in whole.state_dict().items())


def test_the_student_predicts_in_the_end() -> None:
    predictor = TemporalEnsembling(linear(), TASK).predictor()
    assert isinstance(predictor, DeepPredictor)
    torch.testing.assert_close(predictor.probabilities(torch.tensor([[LN3, 0.0]])), torch.tensor([[0.75, 0.25]]))
