"""ReMixMatch: its four terms by hand, its memory between steps, and the inputs it refuses."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samekind.data.augment.ctaugment import initial_rates
from samekind.data.augment.normalize import per_channel
from samekind.data.augment.randaugment import PAPER
from samekind.data.augment.transforms import Compose, NormalizeAfter, RandomShift, identity
from samekind.data.dataset import UNLABELLED, Batch, Dataset
from samekind.data.sampler import BatchSampler
from samekind.errors import SettingError
from samekind.methods.base import Task
from samekind.methods.predictors import DeepPredictor
from samekind.methods.remixmatch import ReMixMatch, ReMixMatchConfig, _rotate_randomly
from samekind.nets.classifier import Classifier
from samekind.training.engine import LocalEngine
from samekind.training.schedules import Schedule
from samekind.training.trainer import TrainConfig, train

TASK = Task(n_classes=2, n_labelled=2, n_samples=100, steps=100)
LN3, LN9 = math.log(3.0), math.log(9.0)


def corners() -> Classifier:
    """Return a net whose features are the four pixels of a 2 x 2 image, and whose logits are the upper two."""
    head = nn.Linear(4, 2, bias=False)
    head.weight.data.copy_(torch.eye(4)[:2])
    return Classifier(nn.Flatten(), 4, 2, head=head)


def image(*pixels: float) -> Tensor:
    return torch.tensor(pixels).view(1, 1, 2, 2)


def batch() -> Batch:
    """Return the views (3/4, 1/4), (1/2, 1/2) and (9/10, 1/10) of a sample, and a label at (3/4, 1/4)."""
    inputs = (image(LN3, 0.0, 0.0, 0.0), image(0.0, 0.0, 0.0, 0.0), image(LN9, 0.0, 0.0, 0.0))
    return Batch((image(LN3, 0.0, 0.0, 0.0),), torch.tensor([1]), inputs, torch.arange(1))


def method(**settings: Any) -> ReMixMatch:
    return ReMixMatch(corners(), TASK, ReMixMatchConfig(**{"K": 2, "augment": "given", "rampup": 1 / 64, **settings}))


@pytest.fixture
def unmixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mix every sample with itself."""
    monkeypatch.setattr(torch, "randperm", lambda n, device: torch.arange(n))


# ---------------------------------------------------------------- the terms


@pytest.mark.usefixtures("unmixed")
def test_labels_are_divided_by_the_labelled_samples_alone() -> None:
    assert method().losses(batch(), progress=1.0)["supervised"].item() == pytest.approx(math.log(4))


@pytest.mark.usefixtures("unmixed")
def test_all_views_have_the_target_of_the_weak_view_in_a_mean_over_views() -> None:
    # q = (9/10, 1/10); cross-entropies of the views (3/4, 1/4), (1/2, 1/2) and (9/10, 1/10)
    predictions = (0.75, 0.5, 0.9)
    expected = sum(-0.9 * math.log(p) - 0.1 * math.log(1 - p) for p in predictions) / 3
    assert method().losses(batch(), progress=1.0)["mixed"].item() == pytest.approx(1.5 * expected)


def test_the_first_strong_view_has_the_target_without_mixup() -> None:
    assert method().losses(batch(), progress=1.0)["strong"].item() == pytest.approx(0.5 * math.log(2))


def test_rotations_are_predicted_by_their_own_head_from_the_features() -> None:
    learner = method(w_rotation=2.0)
    learner.rotation_head.weight.data.zero_()
    learner.rotation_head.bias.data.zero_()
    assert learner.losses(batch(), progress=0.0)["rotation"].item() == pytest.approx(2.0 * math.log(4))


def test_the_weights_of_targets_rise_linearly_and_that_of_rotations_is_constant() -> None:
    torch.manual_seed(0)
    learner = method()
    early, half, late = (learner.losses(batch(), progress=p) for p in (0.0, 1 / 128, 1.0))
    assert early["mixed"].item() == early["strong"].item() == 0.0
    assert half["strong"].item() == pytest.approx(0.5 * late["strong"].item())
    assert early["rotation"].item() > 0.0


def test_an_image_is_rotated_by_the_returned_quarters() -> None:
    torch.manual_seed(0)
    x = torch.arange(4.0).view(1, 1, 2, 2).repeat(40, 1, 1, 1)
    turned, turns = _rotate_randomly(x)
    every = {0: [0, 1, 2, 3], 1: [1, 3, 0, 2], 2: [3, 2, 1, 0], 3: [2, 0, 3, 1]}
    assert set(turns.tolist()) == {0, 1, 2, 3}
    assert all(got.flatten().tolist() == every[k] for got, k in zip(turned, turns.tolist(), strict=True))


def test_every_term_moves_the_student_and_none_the_ema() -> None:
    for term in ("supervised", "mixed", "strong", "rotation"):
        torch.manual_seed(0)
        learner, seen = method(), batch()
        seen.x_u[1].add_(image(1.0, 0.5, 0.2, 0.1))
        learner.student.features = nn.Sequential(nn.Flatten(), nn.Linear(4, 4))
        torch.autograd.backward(learner.losses(seen, progress=1.0)[term])
        assert all(p.grad is not None and p.grad.any() for p in learner.student.features.parameters()), term
        assert all(p.grad is None for p in learner.ema.parameters())


# ---------------------------------------------------------------- the class fractions


def test_a_target_is_aligned_to_the_class_fractions_before_it_is_sharpened() -> None:
    # (3/4, 1/4) times (1/2, 1/2)/(3/4, 1/4) is undecided; times (1/4, 3/4) instead it is (1/4, 3/4), sharpened 1/10
    for prior, expected in (("uniform", 0.5), ((0.25, 0.75), 0.1)):
        learner = method(prior=prior)
        learner.recent.copy_(torch.tensor([0.75, 0.25]))
        q = learner._sharpened_targets(batch().x_u[0], torch.tensor([[0.0, 1.0]]))
        torch.testing.assert_close(q, torch.tensor([[expected, 1 - expected]]), atol=1e-5, rtol=0.0)


def test_the_mean_prediction_is_over_the_last_steps_without_the_current_one() -> None:
    learner = method(alignment_batches=4)
    learner.losses(batch(), progress=1.0)
    torch.testing.assert_close(learner.recent.mean(0), torch.tensor([0.5, 0.5]))
    learner.after_step()
    torch.testing.assert_close(learner.recent.mean(0), torch.tensor([0.5 + 0.25 / 4, 0.5 - 0.25 / 4]))
    torch.testing.assert_close(learner.recent[-1], torch.tensor([0.75, 0.25]))


def test_class_fractions_follow_the_labels_slowly_unless_they_are_given() -> None:
    counted, known = method(), method(prior=(3.0, 1.0))
    for learner in (counted, known):
        learner.losses(batch(), progress=1.0)
        learner.after_step()
    torch.testing.assert_close(counted.p_data, torch.tensor([0.4995, 0.5005]))
    torch.testing.assert_close(known.p_data, torch.tensor([0.75, 0.25]))


def test_a_batch_in_parts_is_remembered_as_one() -> None:
    four = Batch(
        (torch.cat([image(LN3, 0, 0, 0)] * 4),),
        torch.tensor([1, 0, 1, 1]),
        tuple(torch.cat([image(k, 0.0, 0, 0) for k in range(4)]) for _ in range(3)),
        torch.arange(4),
    )
    whole, parts = method(), method()
    for learner, pieces in ((whole, [four]), (parts, list(LocalEngine(accumulation_steps=2).parts(four)))):
        for piece in pieces:
            learner.losses(piece, progress=1.0)
        learner.after_step()
    torch.testing.assert_close(whole.recent, parts.recent)
    torch.testing.assert_close(whole.p_data, parts.p_data)


@pytest.mark.parametrize("prior", [(0.5,), (1.5, -0.5), (0.0, 0.0)])
def test_class_fractions_out_of_range_are_refused(prior: tuple[float, ...]) -> None:
    with pytest.raises(SettingError, match="expected 2 class fractions, none of them below 0"):
        method(prior=prior)


# ---------------------------------------------------------------- CTAugment

SIDE = 8
TINY = Task(n_classes=2, n_labelled=4, n_samples=24, steps=6, batch_labelled=4, batch_unlabelled=8)


def dataset() -> Dataset:
    """Return uint8 images that are bright in the upper or in the lower half."""
    x = torch.randint(0, 60, (24, SIDE, SIDE, 1), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    x[0::2, : SIDE // 2] += 150
    x[1::2, SIDE // 2 :] += 150
    return Dataset(x, torch.where(torch.arange(24) < 4, torch.arange(24) % 2, UNLABELLED), 2)


def views() -> dict[str, Any]:
    normalise = per_channel(dataset().x)
    return {
        "weak": NormalizeAfter(RandomShift(1), normalise),
        "strong": NormalizeAfter(Compose(PAPER, RandomShift(1)), normalise),
    }


def with_ctaugment(seed: int = 0) -> ReMixMatch:
    torch.manual_seed(seed)
    net = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 8), nn.BatchNorm1d(8), nn.Tanh()), 8, 2)
    return ReMixMatch(net, TINY, ReMixMatchConfig(K=1))


def a_batch(learner: ReMixMatch) -> Batch:
    sizes = {"n_labelled": 4, "n_unlabelled": 8, "generator": torch.Generator().manual_seed(0)}
    names = {"labelled_views": learner.labelled_views, "unlabelled_views": learner.unlabelled_views}
    return next(BatchSampler(dataset(), learner.adapt_views(views()), **names, **sizes))  # type: ignore[arg-type]


def test_probes_update_the_rates_by_the_probability_that_the_ema_gives_to_the_class() -> None:
    # The EMA predicts (3/4, 1/4) for everything: rates go to 0.99 + 0.01 * 3/4 for class 0, and 1/4 for class 1
    learner = with_ctaugment()
    for parameter in learner.ema.parameters():
        parameter.data.zero_()
    learner.ema.head.get_parameter("bias").data.copy_(torch.tensor([LN3, 0.0]))
    seen = a_batch(learner)
    learner.losses(seen, progress=1.0)
    assert torch.equal(learner.rates, initial_rates())
    learner.after_step()
    touched = learner.rates[learner.rates != initial_rates()]
    once = {round(0.99 + 0.01 * match, 6) for match in (0.75, 0.25)}
    assert len(touched) >= 4
    assert once & {round(rate, 6) for rate in touched.tolist()}
    assert learner.rates.min() == 0.0 and learner.rates.max() == 1.0  # bins that do not exist, bins that were not probed


def test_probes_are_seen_in_eval_mode_and_leave_no_trace() -> None:
    learner = with_ctaugment().train()
    before = copy.deepcopy(dict(learner.ema.named_buffers()))
    learner.losses(a_batch(learner), progress=1.0)
    assert all(torch.equal(buffer, before[name]) for name, buffer in learner.ema.named_buffers())


def test_the_rates_of_the_view_are_the_rates_in_the_state() -> None:
    learner = with_ctaugment()
    state = {**learner.state_dict(), "rates": 0.5 * initial_rates()}
    learner.load_state_dict(state)
    assert learner.augment.rates is learner.rates
    assert learner.augment.rates.max() == 0.5
    learner.to(torch.float64)  # moved like to another device
    assert learner.augment.rates is learner.rates


def test_a_resumed_run_has_the_rates_it_had(tmp_path: Any) -> None:
    plan = TrainConfig(6, 4, 8, Schedule(lr_max=0.01), seed=0, checkpoint=tmp_path, save_every=0.0)
    first, again = with_ctaugment(), with_ctaugment(seed=1)
    train(first, dataset(), views(), plan)
    train(again, dataset(), views(), plan)  # a finished one is read, not repeated
    assert not torch.equal(first.rates, initial_rates())
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in first.state_dict().items())
    assert torch.equal(again.augment.rates, first.rates)


def test_given_views_are_taken_as_they_are() -> None:
    given = {"weak": identity, "strong": identity}
    assert method().adapt_views(given) is given
    assert method().labelled_views == ("strong",)
    assert method(K=3).unlabelled_views == ("weak", "strong", "strong", "strong")


# ---------------------------------------------------------------- what it accepts, and the network that predicts


@pytest.mark.parametrize("shape", [(5,), (1, 4, 6)])
def test_inputs_that_cannot_be_rotated_are_refused(shape: tuple[int, ...]) -> None:
    rows = Dataset(torch.zeros(4, *shape), torch.tensor([0, 1, -1, -1]), 2)
    with pytest.raises(SettingError, match=r"rotates images by 90 degrees.* or use mixmatch"):
        method().refresh(rows)
    method().refresh(dataset())


def test_the_ema_predicts_in_the_end() -> None:
    learner = method()
    predictor = learner.predictor()
    assert isinstance(predictor, DeepPredictor) and predictor.classifier is learner.ema
