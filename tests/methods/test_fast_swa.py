"""fast-SWA: which weights are averaged, with which statistics the average predicts, and that the base does not change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.training import tiny
from torch import nn

from samekind.data.dataset import Dataset
from samekind.errors import SettingError
from samekind.methods import build
from samekind.methods.base import LearningRateCycles, Task
from samekind.methods.fast_swa import FastSWA, FastSWAConfig
from samekind.methods.mean_teacher import MeanTeacher
from samekind.methods.predictors import DeepPredictor
from samekind.methods.supervised import Supervised
from samekind.nets.classifier import Classifier
from samekind.training.trainer import train

TASK = Task(n_classes=2, n_labelled=2, n_samples=8, steps=20, batch_labelled=2, batch_unlabelled=2)
OFTEN = FastSWAConfig(cycle_start=0.5, cycle_length=0.2, average_start=0.4, average_every=0.15)  # from step 8 on, every 3 steps


def one_weight() -> Classifier:
    head = nn.Linear(1, 2, bias=False)
    head.weight.data.zero_()
    return Classifier(nn.BatchNorm1d(1), 1, 2, head=head)


def walked(config: FastSWAConfig, steps: int = 20) -> FastSWA:
    """Run steps after which all weights of the head are the number of the step."""
    method = FastSWA(Supervised(one_weight(), TASK), TASK, config)
    for k in range(1, steps + 1):
        method.student.head.get_parameter("weight").data.fill_(float(k))
        method.after_step()
    return method


def weight(net: Classifier) -> float:
    return float(net.head.get_parameter("weight")[0, 0])


def test_the_average_is_a_plain_mean_of_weights_met_every_so_often() -> None:
    method = walked(OFTEN)
    assert int(method.n_averaged) == 5
    assert weight(method.average) == pytest.approx((8 + 11 + 14 + 17 + 20) / 5)


def test_plain_swa_takes_the_ends_of_cycles() -> None:
    method = walked(FastSWAConfig(cycle_start=0.5, cycle_length=0.2, when="cycle_ends"))
    assert weight(method.average) == pytest.approx((10 + 14 + 18 + 20) / 4)  # the weights of the last step are always in


def test_before_there_is_an_average_the_base_predicts() -> None:
    method = walked(OFTEN, steps=7)
    predictor = method.predictor()
    assert int(method.n_averaged) == 0
    assert isinstance(predictor, DeepPredictor) and predictor.classifier is method.student


def test_the_student_is_averaged_and_not_its_teacher_and_both_train_on() -> None:
    base = MeanTeacher(one_weight(), TASK)
    method = FastSWA(base, TASK, OFTEN)
    base.teacher.head.get_parameter("weight").data.fill_(100.0)
    base.ema_schedule.decay = 1.0
    method.step.fill_(7)
    method.student.head.get_parameter("weight").data.fill_(3.0)
    method.after_step()
    assert weight(method.average) == 3.0
    assert int(base.ema_schedule.step) == 1
    assert not any(p.requires_grad for p in method.average.parameters())


def test_the_statistics_of_the_average_are_computed_on_the_dataset() -> None:
    # Eight samples of mean 7 and, with n - 1, variance 24, in two batches of four; in any order the mean of means is 7
    method = walked(OFTEN)
    x = 2.0 * torch.arange(8.0)[:, None]
    method.refresh(Dataset(x, torch.tensor([0, 1, *[-1] * 6]), 2))
    features: Any = method.average.features
    assert features.running_mean.item() == pytest.approx(7.0)
    assert method.student.features.get_buffer("running_mean").item() == 0.0


def test_before_the_run_there_is_nothing_to_count() -> None:
    method = FastSWA(Supervised(one_weight(), TASK), TASK, OFTEN)
    method.refresh(Dataset(torch.ones(8, 1), torch.tensor([0, 1, *[-1] * 6]), 2))
    assert method.average.features.get_buffer("running_mean").item() == 0.0


def test_the_rate_it_asks_for_is_the_paper_s() -> None:
    method = FastSWA(Supervised(one_weight(), TASK), TASK)
    assert method.lr_cycles == pytest.approx(LearningRateCycles(180 / 780, 30 / 780, 210 / 780))


def test_it_changes_nothing_of_the_base_s_losses() -> None:
    method, alone = tiny.method("mean_teacher+fast_swa", dropout=0.0), tiny.method("mean_teacher", dropout=0.0)
    batch = next(tiny.stream(alone))
    terms, expected = method.losses(batch, 0.5), alone.losses(batch, 0.5)
    assert list(terms) == list(expected)
    assert all(torch.equal(terms[name], expected[name]) for name in expected)


def test_at_the_end_of_a_run_the_average_predicts_with_statistics_of_its_own() -> None:
    torch.manual_seed(0)
    net = Classifier(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh()), 8, 3)
    method: Any = build("mean_teacher+fast_swa", net, tiny.TASK)
    predictor: Any = train(method, tiny.dataset(), tiny.views(), tiny.plan(None)).predictor
    linear, norm = predictor.classifier.features[0], predictor.classifier.features[1]
    assert predictor.classifier is method.average
    torch.testing.assert_close(norm.running_mean, linear(tiny.dataset().x).mean(0))  # 48 samples in two equal batches


@pytest.mark.parametrize(
    "settings",
    [
        {"cycle_length": 0.0},
        {"cycle_start": 0.01},
        {"cosine_length": 0.5},
        {"norm_batches": 0},
        {"average_every": 0.0},
        {"when": "x"},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        FastSWAConfig(**settings)


def test_it_wraps_no_base_without_a_student() -> None:
    with pytest.raises(SettingError, match="'fast_swa' cannot wrap 'lgc'"):
        build("lgc+fast_swa", None, TASK)
