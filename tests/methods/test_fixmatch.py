"""FixMatch: confident pseudo-labels from weak views are labels of strong views, and only the strong views learn."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from tests.methods.by_hand import linear, weight
from torch import Tensor, nn

from samekind import defaults
from samekind.data.augment.transforms import identity
from samekind.data.dataset import Batch, scaled_dataset
from samekind.data.scaling import fit_scaler
from samekind.errors import SettingError
from samekind.methods import build
from samekind.methods.base import Task
from samekind.methods.fixmatch import FixMatch, FixMatchConfig
from samekind.methods.mean_teacher import MeanTeacher
from samekind.methods.predictors import DeepPredictor
from samekind.nets.mlp import vector_classifier

TASK = Task(n_classes=2, n_labelled=2, n_samples=100, steps=100)
LN3, LN19 = math.log(3.0), math.log(19.0)


def batch() -> Batch:
    """Return weak views (0.951, ...), (3/4, 1/4), (1/2, 1/2), (1/4, 3/4), and strong views (1/4, 3/4)."""
    x_weak = torch.tensor([[LN19 + 0.02, 0.0], [LN3, 0.0], [1.0, 1.0], [0.0, LN3]])
    x_strong = torch.tensor([[0.0, LN3]] * 4)
    return Batch((torch.tensor([[LN3, 0.0], [LN3, 0.0]]),), torch.tensor([0, 1]), (x_strong, x_weak), torch.arange(4))


def test_labels_are_divided_by_the_labelled_samples_alone() -> None:
    loss = FixMatch(linear(), TASK).losses(batch(), progress=0.0)["supervised"]
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


def test_one_confident_pseudo_label_of_four_counts_a_quarter() -> None:
    loss = FixMatch(linear(), TASK).losses(batch(), progress=0.0)["pseudo_label"]
    assert loss.item() == pytest.approx(math.log(4) / 4)  # over all four samples, not over the one that passed


def test_a_lower_threshold_lets_more_pseudo_labels_pass() -> None:
    loss = FixMatch(linear(), TASK, FixMatchConfig(threshold=0.7, lambda_u=8.0)).losses(batch(), progress=0.0)["pseudo_label"]
    assert loss.item() == pytest.approx(8.0 * (2 * math.log(4) + math.log(4 / 3)) / 4)


def test_without_a_confident_pseudo_label_the_term_is_present_and_zero() -> None:
    loss = FixMatch(linear(), TASK, FixMatchConfig(threshold=1.0)).losses(batch(), progress=0.0)["pseudo_label"]
    assert loss.item() == 0.0
    assert loss.requires_grad


def test_the_strong_views_learn_and_the_weak_ones_do_not() -> None:
    method, seen = FixMatch(linear(), TASK), batch()
    strong, weak = (x.requires_grad_() for x in seen.x_u)
    torch.autograd.backward(method.losses(seen, progress=0.0)["pseudo_label"])
    moved = weight(method.student).grad
    assert moved is not None
    assert moved.abs().sum() > 0
    assert weight(method.ema).grad is None
    assert strong.grad is not None
    assert strong.grad.abs().sum(1).gt(0).tolist() == [True, False, False, False]
    assert weak.grad is None or not weak.grad.any()


def test_an_unlabelled_weight_of_zero_removes_the_unlabelled_term() -> None:
    method = FixMatch(linear(), Task(2, 2, 100, steps=100, unlabelled_weight=0.0))
    assert method.losses(batch(), progress=0.0)["pseudo_label"].item() == 0.0


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.0), (0.1, 0.25), (0.4, 1.0), (1.0, 1.0)])
def test_the_weight_of_pseudo_labels_may_rise(progress: float, share: float) -> None:
    method = FixMatch(linear(), TASK, FixMatchConfig(lambda_u_rampup=0.4))
    assert method.losses(batch(), progress)["pseudo_label"].item() == pytest.approx(share * math.log(4) / 4)


def test_after_a_step_the_average_keeps_ema_decay_of_itself_and_predicts_in_the_end() -> None:
    method = FixMatch(linear(), TASK, FixMatchConfig(ema_decay=0.25))
    weight(method.student).data.add_(4.0)
    method.after_step()
    torch.testing.assert_close(weight(method.ema), torch.eye(2) + 3.0)
    predictor = method.predictor()
    assert isinstance(predictor, DeepPredictor)
    assert predictor.classifier is method.ema


def test_batch_norm_sees_the_weak_views_and_then_the_rest_and_the_average_takes_over_its_statistics() -> None:
    net = linear()
    net.features = nn.BatchNorm1d(2)
    method, seen = FixMatch(net, TASK), batch()
    method.losses(seen, progress=0.0)
    method.after_step()
    norms = [c.features for c in (method.student, method.ema)]
    means = [n.running_mean for n in norms if isinstance(n, nn.BatchNorm1d) and n.running_mean is not None]
    x_strong, x_weak = seen.x_u
    after_weak = 0.1 * x_weak.mean(0)  # the running mean starts at 0 and has momentum 0.1
    torch.testing.assert_close(means[0], 0.9 * after_weak + 0.1 * torch.cat([x_strong, seen.x_l[0]]).mean(0))
    assert torch.equal(means[1], means[0])


def test_fixmatch_gives_its_pseudo_label_terms_to_a_wrapper_and_mean_teacher_has_none() -> None:
    logits = torch.zeros(4, 2)
    assert set(FixMatch(linear(), TASK).pseudo_label_terms(logits, logits, torch.arange(4), 0.0)) == {"pseudo_label"}
    assert MeanTeacher(linear(), TASK).pseudo_label_terms(logits, logits, torch.arange(4), 0.0) == {}


@pytest.mark.parametrize("threshold", [-0.1, 1.1])
def test_a_threshold_that_is_no_probability_is_refused(threshold: float) -> None:
    with pytest.raises(SettingError, match=f"threshold is {threshold}; expected a number from 0 to 1"):
        FixMatchConfig(threshold=threshold)


class ForwardPass(NamedTuple):
    """Number of samples of a forward pass, and whether it records gradients."""

    n: int
    with_gradient: bool


@pytest.mark.parametrize("name", ["fixmatch", "flexmatch", "freematch", "softmatch", "simmatch", "comatch"])
def test_the_weak_views_cost_a_forward_pass_without_gradient(name: str) -> None:
    task = Task(3, 6, 40, 100, batch_labelled=6, batch_unlabelled=10)
    method = build(name, vector_classifier(2, 3, (4,)), task, {})
    passes: list[ForwardPass] = []

    def record(net: nn.Module, args: tuple[Tensor, ...], out: object) -> None:
        passes.append(ForwardPass(len(args[0]), torch.is_grad_enabled()))

    method.student.register_forward_hook(record)
    x_u = tuple(torch.randn(10, 2) for _ in method.unlabelled_views)
    seen = Batch((torch.randn(6, 2),), torch.arange(6) % 3, x_u, torch.arange(10), torch.arange(6))
    method.losses(seen, 0.5)
    n_strong = 10 * method.unlabelled_views.count("strong")
    assert sorted(passes) == sorted([ForwardPass(10, False), ForwardPass(n_strong + 6, True)])


@pytest.mark.parametrize("name", ["fixmatch", "flexmatch", "freematch", "softmatch", "simmatch", "comatch"])
def test_the_strong_view_of_images_is_that_of_the_authors_with_cutout(name: str) -> None:
    x = torch.randint(180, 220, (40, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = scaled_dataset(x, fit_scaler(x), torch.arange(40) % 4, 4)
    views = defaults.view_defaults(images, seed=0).views
    method = build(name, defaults.net_for((1, 16, 16), 4), Task(4, 40, 40, 100), {})
    adapted = method.adapt_views(views)
    assert adapted["strong"] is views["fixmatch_strong"] and adapted["weak"] is views["weak"]
    generator, rows = torch.Generator().manual_seed(0), torch.arange(40)
    strong = adapted["strong"](x, rows, generator)
    grey = strong.mode().values.mode().values.mode().values.mode().values  # the most frequent value: no operation fills with it
    covered = (strong == grey).sum((1, 2, 3))
    assert (covered >= 16).float().mean() > 0.6  # at least a quarter of the square of 8 x 8 pixels lies inside the image


def test_views_of_a_user_stay_as_they_are() -> None:
    own = {"weak": identity, "strong": identity}
    assert FixMatch(linear(), TASK).adapt_views(own) == own
