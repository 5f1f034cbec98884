"""Ensemble teacher: targets are the product of the teacher's predictions and the ensemble's soft labels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.methods.by_hand import linear, moons, weight

from samekind.data.augment.transforms import GaussianNoise
from samekind.data.dataset import Batch
from samekind.methods.base import Task
from samekind.methods.ensemble_teacher import EnsembleTeacher, EnsembleTeacherConfig, fit_head
from samekind.nets.mlp import vector_classifier
from samekind.stacking.stacked_ensemble import fit_stacked_ensemble
from samekind.training.schedules import Schedule
from samekind.training.trainer import TrainConfig, train

TASK = Task(n_classes=2, n_labelled=2, n_samples=3, steps=100, batch_labelled=1, batch_unlabelled=1)
LN3 = math.log(3.0)


def method(**settings: Any) -> EnsembleTeacher:
    return EnsembleTeacher(linear(), TASK, EnsembleTeacherConfig(**settings))


def batch() -> Batch:
    """Return sample 1 with a strong view that the net gives (1/2, 1/2), a weak view that it gives (3/4, 1/4), and a label."""
    strong, weak = torch.zeros(1, 2), torch.tensor([[LN3, 0.0]])
    return Batch((weak,), torch.tensor([1]), (strong, weak), torch.tensor([1]))


def test_the_target_is_the_sharpened_product_of_both_predictions() -> None:
    # (3/4 * 1/4, 1/4 * 3/4) is (1/2, 1/2); (3/4 * 3/4, 1/4 * 1/4) is (9/10, 1/10); with sharpness 1 each factor has power 1/2
    p, Q = torch.tensor([[0.75, 0.25]] * 2), torch.tensor([[0.25, 0.75], [0.75, 0.25]])
    expected = torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    torch.testing.assert_close(method().combined_target(p, Q), expected)
    torch.testing.assert_close(method(sharpness=1.0).combined_target(p, p), p)


def test_a_probability_of_zero_does_not_decide_alone() -> None:
    target = method().combined_target(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    torch.testing.assert_close(target, torch.tensor([[0.5, 0.5]]))


def test_the_losses_are_the_cross_entropies_of_target_and_label() -> None:
    # before the first fit of the ensemble, soft labels are uniform, so the target is the teacher's prediction (3/4, 1/4)
    terms = method(lambda_l=0.25, lambda_u=2.0).losses(batch(), 0.0)
    assert terms["supervised"].item() == pytest.approx(0.25 * math.log(4.0))
    assert terms["soft_label"].item() == pytest.approx(2.0 * math.log(2.0))


@pytest.mark.parametrize("name", ["supervised", "soft_label"])
def test_each_loss_moves_the_student_and_only_the_student(name: str) -> None:
    trained = method()
    trained.soft_labels[1] = torch.tensor([0.9, 0.1])
    view = batch()
    moved = replace(view, x_u=(torch.ones(1, 2), view.x_u[1]))
    torch.autograd.backward(trained.losses(moved, 0.0)[name])
    gradient = weight(trained.student).grad
    assert gradient is not None and gradient.abs().sum() > 0
    assert weight(trained.teacher).grad is None


def test_after_a_step_the_teacher_keeps_ema_decay_of_itself() -> None:
    trained = method(ema_decay=0.5)
    weight(trained.student).data.fill_(3.0)
    before = weight(trained.teacher).clone()
    trained.after_step()
    torch.testing.assert_close(weight(trained.teacher), 0.5 * before + 1.5)


def test_soft_labels_are_the_predictions_of_the_ensemble_on_the_features() -> None:
    dataset, _ = moons(60)
    trained = EnsembleTeacher(linear(), replace(TASK, n_samples=60))
    trained.refresh(dataset)
    expected = fit_stacked_ensemble(dataset.x.double(), dataset.y.numpy(), 2, seed=0).probabilities
    np.testing.assert_allclose(trained.soft_labels.numpy(), expected, atol=1e-6)


def test_known_weights_of_the_models_take_the_place_of_held_out_labels() -> None:
    dataset, _ = moons(60)
    trained = EnsembleTeacher(linear(), replace(TASK, n_samples=60))
    X, y = dataset.x.double(), dataset.y.numpy()
    weighting = fit_stacked_ensemble(X, y, 2, seed=0).weighting
    only = max(weighting.weights, key=lambda candidate: weighting.weights[candidate])
    trained.weighting = weighting._replace(weights={only: 1.0})
    trained.refresh(dataset)
    expected = fit_stacked_ensemble(X, y, 2, seed=0, weighting=trained.weighting).probabilities
    np.testing.assert_allclose(trained.soft_labels.numpy(), expected, atol=1e-6)


def test_the_head_is_fitted_to_soft_labels_before_the_first_step_and_not_later() -> None:
    dataset, _ = moons(60)
    trained = EnsembleTeacher(vector_classifier(2, 2, (16,)), replace(TASK, n_samples=60), EnsembleTeacherConfig(fit_head=True))
    trained.refresh(dataset)
    predicted = torch.softmax(trained.student(dataset.x).logits, dim=-1)
    assert (predicted.argmax(1) == trained.soft_labels.argmax(1)).float().mean() > 0.9
    trained.after_step()
    before = weight(trained.student).clone()
    trained.refresh(dataset)
    assert torch.equal(weight(trained.student), before)


def test_the_fitted_head_has_no_gradient_of_its_objective_left() -> None:
    # two separable points with soft labels (3/4, 1/4) and (1/4, 3/4): logits differ by ln 3, but for a small penalty
    head = linear().head
    fit_head(head, torch.eye(2), torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    torch.testing.assert_close(torch.softmax(head(torch.eye(2)), -1)[0], torch.tensor([0.75, 0.25]), atol=1e-3, rtol=0.0)
    assert all(parameter.grad is None for parameter in head.parameters())


@pytest.mark.parametrize(("fits", "steps", "passes"), [(1, 100, 1), (2, 100, 2), (4, 10, 4)])
def test_the_setting_determines_how_often_the_ensemble_is_fitted(fits: int, steps: int, passes: int) -> None:
    trained = EnsembleTeacher(linear(), replace(TASK, steps=steps), EnsembleTeacherConfig(fits=fits))
    due = 1 + sum(trained.refresh_due(done, steps) for done in range(1, steps))
    assert due == passes == trained.full_passes(steps)


def test_two_moons_with_six_labels_are_separated() -> None:
    dataset, truth = moons()
    torch.manual_seed(0)
    task = Task(2, 6, len(dataset), 300, 6, 50)
    trained = EnsembleTeacher(vector_classifier(2, 2, (32, 32)), task, EnsembleTeacherConfig(fits=2))
    views = {"labelled_only": GaussianNoise(0.05), "weak": GaussianNoise(0.05), "strong": GaussianNoise(0.1)}
    predictor: Any = train(trained, dataset, views, TrainConfig(300, 6, 50, Schedule(lr_max=0.01), seed=0)).predictor
    with torch.no_grad():
        found = predictor.probabilities(predictor.features(dataset.x)).argmax(1)
    assert (found == truth).float().mean() > 0.97
