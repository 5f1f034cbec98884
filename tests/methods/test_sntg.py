"""SNTG: the teacher's classes say which samples get similar features, and only the student gets a gradient."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.methods.by_hand import linear
from torch import Tensor, nn

from samekind.data.dataset import UNLABELLED, Batch, Dataset
from samekind.errors import SettingError
from samekind.methods import build
from samekind.methods.base import BatchOutput, Method, Task
from samekind.methods.mean_teacher import MeanTeacher, MeanTeacherConfig
from samekind.methods.pi_model import PiModel, PiModelConfig
from samekind.methods.predictors import DeepPredictor
from samekind.methods.sntg import SNTG, SNTGConfig
from samekind.nets.classifier import Classifier

TASK = Task(n_classes=2, n_labelled=2, n_samples=4, steps=100)


def on_mean_teacher(w_max: float = 5.0, **settings: Any) -> SNTG:
    return SNTG(MeanTeacher(linear(), TASK, MeanTeacherConfig(w_max=w_max)), TASK, SNTGConfig(**settings))


def on_pi_model(**settings: Any) -> SNTG:
    return SNTG(PiModel(linear(), TASK, PiModelConfig(w_max=5.0)), TASK, SNTGConfig(**settings))


def batch(x_b: Tensor | None = None) -> Batch:
    """Return pairs with D2 = (0.2^2 + 0)/2 = 0.02 within class 0, and (0.6^2 + 0.8^2)/2 = 0.5 between the classes.

    The pair of labelled samples is D2 = (0.1^2 + 0.1^2)/2 = 0.01 apart, and of two classes.
    """
    x_a = torch.tensor([[1.0, 0.0], [0.6, 0.0], [0.8, 0.0], [0.0, 0.8]])
    x_l = torch.tensor([[0.1, 0.0], [0.0, 0.1]])
    return Batch((x_l,), torch.tensor([0, 1]), (x_a, x_a if x_b is None else x_b), torch.arange(4))


TOGETHER = 0.02
APART = (1.0 - math.sqrt(0.5)) ** 2
LABELLED = (1.0 - 0.1) ** 2


def test_samples_of_one_class_are_drawn_together_and_samples_of_two_pushed_a_margin_apart() -> None:
    loss = on_mean_teacher().losses(batch(), progress=1.0)["graph"]
    assert loss.item() == pytest.approx(5.0 * 0.4 * (TOGETHER + APART + LABELLED) / 3, rel=1e-6)


def test_the_terms_of_the_base_stay_as_they_are() -> None:
    alone = MeanTeacher(linear(), TASK, MeanTeacherConfig(w_max=5.0)).losses(batch(), progress=1.0)
    terms = on_mean_teacher().losses(batch(), progress=1.0)
    assert list(terms) == ["supervised", "consistency", "graph"]
    assert all(torch.equal(terms[name], alone[name]) for name in alone)


def test_the_weight_rises_with_that_of_the_base() -> None:
    method = on_mean_teacher()
    start, full = (method.losses(batch(), progress=p)["graph"].item() for p in (0.0, 1.0))
    assert start / full == pytest.approx(math.exp(-5.0))


def test_samples_beyond_the_margin_get_no_gradient() -> None:
    # (0.6, 0) and (0, 0.8) are sqrt(0.5) apart
    loss = on_mean_teacher(margin=0.5).losses(batch(), progress=1.0)["graph"]
    assert loss.item() == pytest.approx(5.0 * 0.4 * (TOGETHER + 0.0 + 0.4**2) / 3, rel=1e-6)


@pytest.mark.parametrize("make", [on_mean_teacher, on_pi_model])
def test_classes_are_those_of_the_target_s_view(make: Any) -> None:
    # In the second view the third sample changes sides, so that its pair is one of two classes
    second = torch.tensor([[1.0, 0.0], [0.6, 0.0], [0.0, 0.8], [0.0, 0.8]])
    loss = make().losses(batch(second), progress=1.0)["graph"]
    assert loss.item() == pytest.approx(2.0 * ((1 - math.sqrt(0.02)) ** 2 + APART + LABELLED) / 3, rel=1e-6)


def test_a_labelled_sample_keeps_its_class_whatever_the_teacher_predicts() -> None:
    method = on_mean_teacher()
    method.refresh(Dataset(torch.zeros(4, 2), torch.tensor([1, UNLABELLED, UNLABELLED, UNLABELLED]), 2))
    loss = method.losses(batch(), progress=1.0)["graph"]
    assert loss.item() == pytest.approx(2.0 * ((1 - math.sqrt(0.02)) ** 2 + APART + LABELLED) / 3, rel=1e-6)


class Remembering(PiModel):
    """A base like one with a memory: of its last two samples it cannot yet say anything."""

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        terms = super().losses(batch, progress)
        assert self.last_output is not None
        self.last_output = BatchOutput(self.last_output.unlabelled, self.last_output.labelled, torch.eye(4)[:, :2], 1.0)
        return terms


def test_samples_without_a_target_are_left_out() -> None:
    base: Method = Remembering(linear(), TASK)
    loss = SNTG(base, TASK).losses(batch(), progress=1.0)["graph"]
    assert loss.item() == pytest.approx(0.4 * LABELLED / 3, rel=1e-6)


def test_two_equal_samples_of_two_classes_have_a_finite_loss_and_gradient() -> None:
    x = torch.full((2, 2), 0.3)
    same_place = Batch((x.clone(),), torch.tensor([0, 1]), (x, x), torch.arange(2))
    net = Classifier(nn.Linear(2, 2), 2, 2)
    method = SNTG(MeanTeacher(net, TASK, MeanTeacherConfig(w_max=5.0)), TASK)
    loss = method.losses(same_place, progress=1.0)["graph"]
    torch.autograd.backward(loss)
    assert loss.item() == pytest.approx(2.0 * (1.0 - 1e-4) ** 2 / 2, rel=1e-5)
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())


def test_the_graph_moves_the_features_and_neither_the_teacher_nor_the_target() -> None:
    seen = batch(torch.tensor([[1.0, 0.0], [0.6, 0.0], [0.8, 0.1], [0.0, 0.8]]))
    first, second = (x.requires_grad_() for x in seen.x_u)
    method = on_pi_model()
    torch.autograd.backward(method.losses(seen, progress=1.0)["graph"])
    assert first.grad is not None and first.grad.abs().sum() > 0
    assert second.grad is None or not second.grad.any()


def test_no_pass_is_made_beside_those_of_the_base() -> None:
    net = linear()
    net.features = nn.BatchNorm1d(2)
    method = SNTG(PiModel(net, TASK), TASK)
    method.losses(batch(), progress=0.0)
    assert net.features.num_batches_tracked is not None
    assert net.features.num_batches_tracked.item() == 1


def test_the_mean_over_the_parts_of_a_batch_is_that_of_the_whole() -> None:
    x = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    whole = Batch((x[:4],), torch.tensor([0, 1, 1, 1]), (x, x), torch.arange(8) % 4)
    method = on_mean_teacher()
    parts = [method.losses(whole.part(k, 2), progress=1.0)["graph"].item() for k in range(2)]
    assert sum(parts) / 2 == pytest.approx(method.losses(whole, progress=1.0)["graph"].item(), rel=1e-5)


def test_on_the_pi_model_an_ema_predicts_with_the_student_s_statistics() -> None:
    method = on_pi_model(ema_decay=0.9)
    method.student.features = norm = nn.BatchNorm1d(2)
    slow: Any = method.ema
    slow.features = nn.BatchNorm1d(2)
    norm.get_buffer("running_mean").fill_(7.0)
    weight = method.student.head.get_parameter("weight")
    weight.data.zero_()
    method.step.fill_(99)
    method.after_step()
    torch.testing.assert_close(slow.head.weight.data, 0.9 * torch.eye(2))
    assert slow.features.running_mean.tolist() == [7.0, 7.0]
    predictor = method.predictor()
    assert isinstance(predictor, DeepPredictor) and predictor.classifier is slow


def test_on_mean_teacher_its_own_teacher_predicts() -> None:
    method: Any = on_mean_teacher()
    assert method.ema is None
    assert method.predictor().classifier is method.base.teacher
    assert method.base.ema_schedule.step == 0
    method.after_step()
    assert method.base.ema_schedule.step == 1


def test_the_base_may_predict() -> None:
    method: Any = on_pi_model(evaluate="base")
    assert method.predictor().classifier is method.student


@pytest.mark.parametrize("settings", [{"margin": 0.0}, {"eps": 0.0}, {"evaluate": "averag"}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        SNTGConfig(**settings)


def test_it_wraps_no_base_that_keeps_no_output() -> None:
    with pytest.raises(SettingError, match="'sntg' cannot wrap 'supervised'; use it with a method that trains a network"):
        build("supervised+sntg", linear(), TASK)
