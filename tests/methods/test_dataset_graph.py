"""Dataset graph: pseudo-labels from label propagation over a bank of features, beside the targets of a base method."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
import torch
from tests.methods.by_hand import linear, moons
from torch import Tensor

from samekind.data.augment.transforms import GaussianNoise
from samekind.data.dataset import Batch, Dataset
from samekind.errors import SettingError
from samekind.methods import build
from samekind.methods.base import Task
from samekind.methods.dataset_graph import DatasetGraphConfig, DatasetGraphWrapper, refresh_interval
from samekind.methods.fixmatch import FixMatch, FixMatchConfig
from samekind.methods.mean_teacher import MeanTeacher, MeanTeacherConfig
from samekind.nets.mlp import vector_classifier
from samekind.training.schedules import OptimizerConfig, Schedule
from samekind.training.trainer import TrainConfig, train

TASK = Task(n_classes=2, n_labelled=2, n_samples=6, steps=100, batch_labelled=2, batch_unlabelled=4)
LN3 = math.log(3.0)
NOW: dict[str, Any] = {"start": 0.0, "start_rampup": 0.0, "n_neighbors": 1}
VIEWS = {"labelled_only": GaussianNoise(0.05), "weak": GaussianNoise(0.05), "strong": GaussianNoise(0.1)}


def dataset() -> Dataset:
    """Return three samples in direction (1, 0) and three in direction (0, 1); the first of each direction is labelled."""
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    return Dataset(x, torch.tensor([0, -1, -1, 1, -1, -1]), 2)


def batch() -> Batch:
    """Return a labelled sample of each class, and the four unlabelled samples. The student's view is (ln 3, 0) for each sample,
    for which it predicts (3/4, 1/4)."""
    x = dataset().x
    u = torch.tensor([1, 2, 4, 5])
    student = torch.tensor([[LN3, 0.0]]).repeat(4, 1)
    return Batch((x[[0, 3]],), torch.tensor([0, 1]), (student, x[u]), u, torch.tensor([0, 1]))


def method(**settings: Any) -> DatasetGraphWrapper:
    base = MeanTeacher(linear(), TASK, MeanTeacherConfig())
    return DatasetGraphWrapper(base, TASK, DatasetGraphConfig(**{**NOW, "lambda_teacher": 0.0, **settings}))


def with_graph(**settings: Any) -> DatasetGraphWrapper:
    """Return a method that has seen the batch once and propagated the labels."""
    ours = method(**settings)
    ours.losses(batch(), progress=0.0)
    ours.after_step()
    ours.refresh(dataset())
    return ours


@pytest.mark.parametrize("name", ["mean_teacher", "pi_model", "fixmatch"])
def test_with_strong_view_the_student_gets_the_strong_view(name: str) -> None:
    net = vector_classifier(2, 2, (4,))
    assert build(f"{name}+dataset_graph", net, TASK, {"strong_view": True}).unlabelled_views == ("strong", "weak")


def test_before_the_first_propagation_there_are_only_the_terms_of_the_base() -> None:
    assert sorted(method().losses(batch(), progress=0.5)) == ["consistency", "supervised"]


def test_propagated_labels_are_pseudo_labels_of_the_students_view() -> None:
    # Each direction is a component of the graph with one label, so its propagated label is certain and the weight is 1. Two of
    # the four samples have class 0, for which the student predicts 3/4, and two class 1. The labelled fraction is 2/6.
    term = with_graph(lambda_bank=3.0).losses(batch(), progress=0.5)["bank"]
    assert term.item() == pytest.approx(3.0 * (2 / 6) * (math.log(4 / 3) + math.log(4)) / 2)


def test_a_base_that_averages_over_the_labels_gets_the_whole_weight() -> None:
    base = FixMatch(linear(), TASK, FixMatchConfig())
    ours = DatasetGraphWrapper(base, TASK, DatasetGraphConfig(**NOW, lambda_teacher=0.0, lambda_bank=1.0))
    ours.losses(batch(), progress=0.0)
    ours.after_step()
    ours.refresh(dataset())
    found = ours.losses(batch(), progress=0.5)
    assert found["bank"].item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)
    assert "pseudo_label" in found


def test_the_teachers_term_replaces_the_squared_distance() -> None:
    found = method(lambda_teacher=2.0).losses(batch(), progress=0.5)
    f = torch.softmax(batch().x_u[1], dim=-1)  # the teacher is a copy of the student, whose logits are its inputs
    q = f.square() / f.square().sum(1, keepdim=True)
    cross_entropy = -(q @ torch.log(torch.tensor([3 / 4, 1 / 4])))
    assert sorted(found) == ["supervised", "teacher"]
    assert found["teacher"].item() == pytest.approx(2.0 * (2 / 6) * (f.amax(1) * cross_entropy).mean().item())


def test_the_weights_rise_from_the_start_on() -> None:
    ours = with_graph(start=0.0, start_rampup=0.5)
    early, late = (ours.losses(batch(), progress=at)["bank"].item() for at in (0.25, 0.75))
    assert early == pytest.approx(late / 2)


def test_nothing_is_propagated_before_the_start() -> None:
    ours = method(start=0.5)
    for _ in range(49):
        ours.losses(batch(), progress=0.0)
        ours.after_step()
    ours.refresh(dataset())
    assert not ours.bank.graph_size
    ours.losses(batch(), progress=0.0)
    ours.after_step()
    ours.refresh(dataset())
    assert ours.bank.graph_size


@pytest.mark.parametrize("name", ["mean_teacher", "pi_model", "fixmatch"])
def test_each_step_stores_the_features_of_the_second_view_once(name: str) -> None:
    ours: Any = build(f"{name}+dataset_graph", linear(), TASK, {})
    for stored in (4, 8):
        ours.losses(batch(), progress=0.0)
        ours.after_step()
        assert ours.bank.n_stored == stored
    # the features of this net are its inputs; the second batch has replaced two samples of the first
    second_view = batch().x_u[1]
    torch.testing.assert_close(ours.bank.recent_z, torch.cat([second_view[2:], second_view[2:], second_view[:2]]))


def test_after_a_shortened_plan_the_start_comes_earlier() -> None:
    ours = method(start=0.5)
    ours.replan(lambda fraction: 20 * fraction)
    assert ours.graph_start.first_step == 10


def test_the_unlabelled_weight_scales_every_term_of_the_graph() -> None:
    one, half = with_graph(lambda_teacher=1.0), with_graph(lambda_teacher=1.0)
    half.task = Task(2, 2, 6, 100, 2, 4, unlabelled_weight=0.5)
    expected, found = (ours.losses(batch(), progress=0.5) for ours in (one, half))
    for name in ("bank", "teacher"):
        assert found[name].item() == pytest.approx(expected[name].item() / 2)


def learned(**settings: Any) -> DatasetGraphWrapper:
    torch.manual_seed(0)
    return with_graph(edge_weights="learned", layers=(8,), **settings)


def test_the_similarity_network_learns_from_propagated_labels() -> None:
    # a sample and its nearest neighbour have the same certain label, so the target is 1; the labelled fraction is 2/6
    ours = learned(lambda_similarity=3.0)
    found = ours.losses(batch(), progress=0.5)["similarity"]
    neighbors = ours.bank.neighbors(batch().x_u[1], 1, lambda z, neighbor_z, cosines: cosines)
    assert neighbors is not None and ours.similarity is not None
    logits = ours.similarity(batch().x_u[0], neighbors.z[:, 0])
    assert found.item() == pytest.approx(-3.0 * torch.log_softmax(logits, dim=-1)[:, 0].mean().item() * (2 / 6))


def test_the_similarity_network_can_learn_from_the_base_instead() -> None:
    propagated, base = (learned(similarity_targets=kind).losses(batch(), 0.5) for kind in ("propagated", "base"))
    assert propagated["similarity"].item() != pytest.approx(base["similarity"].item())


def test_random_pairs_are_of_both_classes() -> None:
    local, random = (learned(pairs=kind, n_neighbors=3, lambda_laplacian=1.0) for kind in ("neighbors", "random"))
    assert local.losses(batch(), 0.5)["laplacian"].item() != pytest.approx(random.losses(batch(), 0.5)["laplacian"].item())


def test_every_term_moves_the_student_and_no_term_the_teacher() -> None:
    ours = learned(lambda_laplacian=1.0, lambda_teacher=1.0)
    for name in ("bank", "teacher", "similarity", "laplacian"):
        ours.zero_grad(set_to_none=True)
        ours.student.requires_grad_()
        torch.autograd.backward(ours.losses(batch(), progress=0.5)[name])
        if name != "similarity":  # its gradient flows to the features, and this net's features have no parameters
            assert ours.student.head.get_parameter("weight").grad is not None, name
        assert all(p.grad is None for p in ours.base.teacher.parameters()), name  # type: ignore[union-attr]


def test_a_similarity_network_can_be_trained_without_weighting_edges() -> None:
    torch.manual_seed(0)
    ours, plain = with_graph(lambda_similarity=1.0, layers=(8,)), with_graph()
    found, expected = (each.losses(batch(), progress=0.5) for each in (ours, plain))
    assert found["bank"].item() == pytest.approx(expected["bank"].item())
    assert set(found) - set(expected) == {"similarity"}


@pytest.mark.parametrize("settings", [{"edge_weights": "learned", "lambda_similarity": 0.0}, {"lambda_laplacian": 0.3}])
def test_settings_that_need_a_similarity_network_are_refused_without_one(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="lambda_similarity"):
        DatasetGraphConfig(**settings)


def test_the_similarity_network_weights_edges_but_is_no_part_of_the_predictor() -> None:
    ours = learned()
    predictor: Any = ours.predictor()
    assert predictor.similarity_net is None
    assert predictor.classifier is ours.base.teacher
    assert ours.ema_similarity is not None
    z = torch.eye(2)
    weights = ours._edge_weights(z, z[:, None], torch.ones(2, 1))
    logits = ours.ema_similarity(z, z)
    torch.testing.assert_close(weights[:, 0], torch.softmax(logits, dim=-1)[:, 0])


def test_propagations_come_every_hundred_steps_and_at_least_ten_times() -> None:
    assert [refresh_interval(100, steps) for steps in (5, 100, 500, 1000, 5000)] == [1, 10, 50, 100, 100]


def test_a_base_without_features_of_its_targets_is_refused() -> None:
    with pytest.raises(SettingError, match="'dataset_graph' cannot wrap 'temporal_ensembling'"):
        build("temporal_ensembling+dataset_graph", linear(), TASK, {})


def trained(seed: int, steps: int, optimizer: Literal["adam", "sgd"] = "adam", **settings: Any) -> tuple[Tensor, Any]:
    data, truth = moons()
    torch.manual_seed(seed)
    task = Task(2, 6, len(data), steps, 6, 32)
    ours = build("dataset_graph", vector_classifier(2, 2, (32, 32)), task, settings)
    config = TrainConfig(steps, 6, 32, Schedule(lr_max=0.01), seed, optimizer=OptimizerConfig(optimizer))
    result = train(ours, data, VIEWS, config)
    f = result.predictor.probabilities(result.predictor.features(data.x))  # type: ignore[operator]
    return f.argmax(1) != truth, result


def test_two_moons_with_three_labels_each_are_separated() -> None:
    wrong, result = trained(0, 300)
    assert wrong.float().mean() < 0.12
    assert result.cost["full_pass_flops"] > 0


def test_sgd_can_train_a_similarity_network_whose_loss_starts_late() -> None:
    # SGD with momentum fails if a parameter has no gradient in the first step, and one later
    _, result = trained(0, 40, "sgd", edge_weights="learned")
    assert all(p.isfinite().all() for p in result.method.similarity.parameters())


@pytest.mark.parametrize("settings", [{}, {"edge_weights": "learned", "lambda_laplacian": 0.3, "pairs": "random"}])
def test_the_same_seed_gives_the_same_numbers(settings: dict[str, Any]) -> None:
    first, second = (trained(1, 40, **settings)[1].method.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
