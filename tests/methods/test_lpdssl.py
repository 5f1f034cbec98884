"""LPDSSL: labels propagated over the features of the net, weighted by certainty and by class size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.methods.by_hand import linear
from torch import Tensor

from samekind.data.dataset import Batch, Dataset
from samekind.errors import SettingError
from samekind.methods.base import Task
from samekind.methods.lpdssl import LPDSSL, LPDSSLConfig, entropy_certainty
from samekind.methods.lpdssl_mean_teacher import LPDSSLWrapper
from samekind.methods.mean_teacher import MeanTeacher, MeanTeacherConfig

TASK = Task(n_classes=2, n_labelled=2, n_samples=6, steps=100, batch_labelled=2, batch_unlabelled=3)
LN3 = math.log(3.0)
ANSWERS = {0: math.log(4 / 3), 1: math.log(4)}  # cross-entropy of (3/4, 1/4)


def dataset() -> Dataset:
    """Return four samples in direction (1, 0) and two in direction (0, 1), with one label each and no edge between them."""
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, 2.0]])
    return Dataset(x, torch.tensor([0, -1, -1, -1, 1, -1]), 2)


def batch() -> Batch:
    """Return samples 1, 2 and 5 of the dataset and a label of each class; every prediction is (3/4, 1/4)."""
    x = torch.tensor([[LN3, 0.0]])
    return Batch((x.repeat(2, 1),), torch.tensor([0, 1]), (x.repeat(3, 1), x.repeat(3, 1)), torch.tensor([1, 2, 5]))


def plain(**settings: Any) -> LPDSSL:
    return LPDSSL(linear(), TASK, LPDSSLConfig(**{"start": 0.0, "n_neighbors": 1, **settings}))


def one_look(seen: Batch) -> Batch:
    return Batch(seen.x_l, seen.y_l, seen.x_u[:1], seen.index)


def test_a_class_and_a_certainty_for_every_sample_and_a_weight_for_every_class() -> None:
    # Both directions are certain. With equal classes each would have 3 of 6 samples: weights 3/4 and 3/2
    method = plain()
    method.refresh(dataset())
    assert method.propagated.label.tolist() == [0, 0, 0, 0, 1, 1]
    torch.testing.assert_close(method.propagated.certainty, torch.ones(6))
    torch.testing.assert_close(method.propagated.class_weight, torch.tensor([3 / 4, 3 / 2]))


def test_the_loss_is_weighed_and_divided_by_all_samples_of_the_batch() -> None:
    method = plain()
    method.refresh(dataset())
    method.propagated.certainty.copy_(torch.tensor([1.0, 0.5, 0.2, 0.0, 1.0, 0.1]))
    terms = method.losses(one_look(batch()), progress=0.0)
    expected = 0.5 * 0.75 * ANSWERS[0] + 0.2 * 0.75 * ANSWERS[0] + 0.1 * 1.5 * ANSWERS[1]
    assert terms["supervised"].item() == pytest.approx((0.75 * ANSWERS[0] + 1.5 * ANSWERS[1]) / 5)
    assert terms["pseudo"].item() == pytest.approx(expected / 5)


def test_certainty_is_one_minus_entropy_relative_to_the_most_certain() -> None:
    # (3/4, 1/4) has an entropy of 2 ln 2 - 3/4 ln 3; the most certain sample here is (1, 0), or else itself
    left = 1 - (2 * math.log(2) - 0.75 * LN3) / math.log(2)
    np.testing.assert_allclose(
        entropy_certainty(np.array([[1.0, 0.0], [0.75, 0.25], [0.5, 0.5]])), [1.0, left, 0.0], atol=1e-12
    )
    np.testing.assert_allclose(entropy_certainty(np.array([[0.25, 0.75], [0.5, 0.5]])), [1.0, 0.0], atol=1e-12)
    assert entropy_certainty(np.full((3, 2), 0.5)).tolist() == [0.0, 0.0, 0.0]


def test_a_sample_that_no_label_reaches_has_certainty_zero_and_a_label_one() -> None:
    method, alone = plain(), dataset()
    alone.y[4] = -1  # nothing is known in direction (0, 1)
    method.refresh(alone)
    assert method.propagated.certainty.tolist() == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    torch.testing.assert_close(method.propagated.certainty[0], torch.tensor(1.0))


def test_a_given_label_stays_though_all_its_neighbours_have_another() -> None:
    stray = dataset()
    stray.y[3] = 1
    method = plain(n_neighbors=3)
    method.refresh(stray)
    assert method.propagated.label[3] == 1
    assert method.propagated.certainty[3] == 1.0


def test_at_first_the_labels_are_alone() -> None:
    method = plain(start=0.5)
    method.refresh(dataset())
    terms = method.losses(one_look(batch()), progress=0.0)
    assert list(terms) == ["supervised"]
    assert terms["supervised"].item() == pytest.approx((ANSWERS[0] + ANSWERS[1]) / 5)
    assert not method.propagated.certainty.any()


def test_the_first_propagation_comes_after_training_on_labels_alone() -> None:
    method = plain(start=0.5)
    for _ in range(49):
        method.after_step()
    method.refresh(dataset())
    assert not method.propagated.certainty.any()
    method.after_step()
    method.refresh(dataset())
    assert method.propagated.certainty.all()
    assert "pseudo" in method.losses(one_look(batch()), progress=0.5)


def test_refreshes_come_every_epoch_and_at_least_every_fifth_of_a_run() -> None:
    few, many = (Task(2, 2, n_samples=n, steps=1000, batch_unlabelled=10) for n in (200, 100_000))
    assert LPDSSL(linear(), few).refresh_every == 20
    assert LPDSSL(linear(), few, LPDSSLConfig(refresh_epochs=2.0)).refresh_every == 40
    assert LPDSSL(linear(), many).refresh_every == 200


def test_the_unlabelled_weight_scales_the_term() -> None:
    doubted = Task(2, 2, n_samples=6, steps=100, unlabelled_weight=0.25)
    method, other = plain(), LPDSSL(linear(), doubted, LPDSSLConfig(start=0.0, n_neighbors=1))
    for each in (method, other):
        each.refresh(dataset())
    full, less = (each.losses(one_look(batch()), 0.0)["pseudo"].item() for each in (method, other))
    assert less == pytest.approx(full / 4)


# ---------------------------------------------------------------- on Mean Teacher


def on_mean_teacher() -> LPDSSLWrapper:
    base = MeanTeacher(linear(), TASK, MeanTeacherConfig(w_max=8.0))
    return LPDSSLWrapper(base, TASK, LPDSSLConfig(start=0.0, n_neighbors=1))


def test_the_consistency_of_the_base_stays_and_its_labels_are_replaced() -> None:
    method, alone = on_mean_teacher(), plain()
    method.refresh(dataset())
    alone.refresh(dataset())
    seen = batch()
    seen.x_u[1].zero_()  # the teacher is undecided
    terms, expected = method.losses(seen, progress=1.0), alone.losses(one_look(seen), progress=1.0)
    assert list(terms) == ["supervised", "consistency", "pseudo"]
    assert terms["consistency"].item() == pytest.approx(8.0 * 0.25**2)
    torch.testing.assert_close(terms["supervised"], expected["supervised"])
    torch.testing.assert_close(terms["pseudo"], expected["pseudo"])


def test_pseudo_labels_move_the_student_and_not_the_teacher_which_predicts() -> None:
    method: Any = on_mean_teacher()
    method.refresh(dataset())
    torch.autograd.backward(method.losses(batch(), progress=1.0)["pseudo"])
    assert method.student.head.weight.grad.any()
    assert method.base.teacher.head.weight.grad is None
    assert method.predictor().classifier is method.base.teacher


def test_a_step_is_counted_by_both() -> None:
    method: Any = on_mean_teacher()
    method.after_step()
    assert method.propagated.step == method.base.ema_schedule.step == 1


@pytest.mark.parametrize(
    "settings", [{"start": 1.0}, {"diffusion_alpha": 1.0}, {"refresh_epochs": 0.0}, {"n_neighbors": 0}, {"gamma": 0.0}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        LPDSSLConfig(**settings)


def test_pseudo_labels_are_part_of_the_state() -> None:
    method, other = plain(), plain()
    method.refresh(dataset())
    other.load_state_dict(method.state_dict())
    same: list[tuple[Tensor, Tensor]] = list(zip(method.buffers(), other.buffers(), strict=True))
    assert other.propagated.label.tolist() == [0, 0, 0, 0, 1, 1]
    assert all(torch.equal(one, two) for one, two in same)
