"""The learned graph: the paper's numbers, the networks that each term moves, and every setting of the extensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.data.dataset import Batch
from samekind.errors import SettingError
from samekind.methods.base import Task
from samekind.methods.fixmatch import FixMatch, FixMatchConfig
from samekind.methods.flexmatch import FlexMatch, FlexMatchConfig
from samekind.methods.learned_graph import LearnedGraph, LearnedGraphConfig
from samekind.methods.learned_graph_extensions import ExtendedLearnedGraph, ExtendedLearnedGraphConfig
from samekind.methods.mean_teacher import MeanTeacher, MeanTeacherConfig
from samekind.methods.pi_model import PiModel
from samekind.methods.predictors import DeepPredictor
from samekind.nets.mlp import vector_classifier
from samekind.nets.similarity_net import SimilarityNet

TASK = Task(n_classes=4, n_labelled=20, n_samples=1000, steps=1000)
SMALL = ExtendedLearnedGraphConfig(lambda1=1.0, lambda2=1.0, lambda3=1.0, layers=(8, 5), dropout=0.0)
BASES = ("mean_teacher", "pi_model")
AT_EPS = -math.log(-math.expm1(-1e-6))  # cost of two equal predictions that should differ


def learned(
    base: str = "mean_teacher", *, n_classes: int = 4, seed: int = 0, ema_decay: float | None = None, **changes: Any
) -> ExtendedLearnedGraph:
    torch.manual_seed(seed)
    task = replace(TASK, n_classes=n_classes)
    net = vector_classifier(3, n_classes, (6,))
    below = MeanTeacher(net, task, MeanTeacherConfig(ema_decay=ema_decay)) if base == "mean_teacher" else PiModel(net, task)
    return ExtendedLearnedGraph(below, task, replace(SMALL, ema_decay=ema_decay, **changes))


def lambdas(method: LearnedGraph, progress: float) -> tuple[float, float, float]:
    """Return λ1, λ2 and λ3 at this point of training."""
    rampup, graph_rampup = method.ramps(progress)
    return method.lambda1 * rampup, method.lambda2 * graph_rampup, method.config.lambda3 * rampup


def batch(n_u: int = 100, n_l: int = 20, *, n_classes: int = 4, y: list[int] | None = None, seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x_u = tuple(torch.randn(n_u, 3, generator=generator) for _ in range(2))
    x_l = tuple(torch.randn(n_l, 3, generator=generator) for _ in range(2))
    y_l = torch.arange(n_l) % n_classes if y is None else torch.tensor(y)
    return Batch(x_l, y_l, x_u, torch.arange(n_u))


def values(method: ExtendedLearnedGraph, seen: Batch, progress: float = 1.0) -> dict[str, float]:
    return {name: term.item() for name, term in method.losses(seen, progress).items()}


def answer_always(layer: nn.Module, bias: list[float]) -> None:
    """Make a linear layer return its bias for every input."""
    assert isinstance(layer, nn.Linear)
    layer.weight.data.zero_()
    layer.bias.data.copy_(torch.tensor(bias))


def undecided(method: ExtendedLearnedGraph) -> ExtendedLearnedGraph:
    """Make f uniform and W = 1/2, for the student and every EMA."""
    for classifier in (method.student, method.ema_teacher):
        answer_always(classifier.head, [0.0] * classifier.n_classes)
    for phi in (method.similarity, method.ema_similarity):
        answer_always(phi.layers[-1], [0.0, 0.0])
    return method


def symmetric(method: ExtendedLearnedGraph) -> ExtendedLearnedGraph:
    """Make Phi(i, j) = Phi(j, i): both ends have the same weights."""
    for phi in (method.similarity, method.ema_similarity):
        weight = phi.layers[0].get_parameter("weight").data
        weight[:, phi.n_features :] = weight[:, : phi.n_features]
    return method


def moved_by(method: ExtendedLearnedGraph, seen: Batch, term: str) -> set[str]:
    """Return which of g, h and Phi get a gradient from one term."""
    parts = {"g": method.student.features, "h": method.student.head, "Phi": method.similarity}
    method.zero_grad(set_to_none=True)
    torch.autograd.backward(method.losses(seen, progress=1.0)[term])
    assert all(p.grad is None for p in method.parameters() if not p.requires_grad)
    return {name for name, part in parts.items() if any(p.grad is not None and p.grad.any() for p in part.parameters())}


def gradient_at(method: ExtendedLearnedGraph, seen: Batch, at: Tensor, term: str) -> Tensor | None:
    (gradient,) = torch.autograd.grad(method.losses(seen, progress=1.0)[term], at, allow_unused=True)
    return gradient if gradient is not None and bool(gradient.any()) else None


# ---------------------------------------------------------------- the paper's numbers


@pytest.mark.parametrize(("n_classes", "expected"), [(10, 1.0191), (100, 1.4029)])
@pytest.mark.parametrize("base", BASES)
def test_an_undecided_start_costs_what_the_paper_s_sizes_say(base: str, n_classes: int, expected: float) -> None:
    method = undecided(learned(base, n_classes=n_classes, lambda1=0.0, lambda2=0.0, lambda3=0.0))
    total = sum(values(method, batch(n_classes=n_classes)).values())
    assert total == pytest.approx((20 * math.log(n_classes) + 110 * math.log(2)) / 120)
    assert total == pytest.approx(expected, abs=5e-5)


def test_labels_and_similarities_are_divided_by_120() -> None:
    found = values(undecided(learned()), batch())
    assert found["supervised"] == pytest.approx(20 * math.log(4) / 120)
    assert found["similarity"] == pytest.approx(110 * math.log(2) / 120)


def test_the_known_part_of_the_laplacian_is_divided_by_110() -> None:
    method = learned(lambda1=0.7)
    answer_always(method.student.head, [99.0, 0.0, 0.0, 0.0])
    answer_always(method.ema_teacher.head, [0.0, 99.0, 0.0, 0.0])  # every sample and its other view are 2 apart
    all_same, two_differ = [0] * 20, [1, 2] + [0] * 18
    assert values(method, batch(y=all_same))["laplacian"] == pytest.approx(0.7 * 100 * 3.0 * 2 / 110)
    added = 0.7 * 2 * AT_EPS / 110
    assert values(method, batch(y=two_differ))["laplacian"] == pytest.approx(0.7 * 100 * 3.0 * 2 / 110 + added, rel=1e-5)


def test_labelled_pairs_count_in_the_laplacian_by_their_weight() -> None:
    two_differ = [1, 2] + [0] * 18  # 2 of 10 pairs by position are of different classes, and their predictions are the same
    for share in (0.0, 0.25, 1.0):
        method = undecided(learned(lambda1=0.7, labelled_pair_weight=share))
        assert values(method, batch(y=two_differ))["laplacian"] == pytest.approx(0.7 * share * 2 * AT_EPS / 110, rel=1e-5)


def test_the_unknown_part_of_the_laplacian_is_divided_by_50() -> None:
    method = undecided(learned(lambda2=0.7))
    assert values(method, batch())["graph"] == pytest.approx(0.7 * 50 * 0.5 * AT_EPS / 50, rel=1e-5)


def test_the_consistency_of_phi_is_divided_by_160() -> None:
    method = learned(lambda3=0.7)
    answer_always(method.similarity.layers[-1], [99.0, 0.0])
    answer_always(method.ema_similarity.layers[-1], [0.0, 99.0])  # each of 160 pairs: 2 (1 - 0)^2
    assert values(method, batch())["consistency"] == pytest.approx(0.7 * 160 * 2 / 160)


def test_other_batches_are_divided_by_their_own_sizes() -> None:
    method = undecided(learned(lambda1=0.5))
    answer_always(method.student.head, [99.0, 0.0, 0.0, 0.0])
    answer_always(method.ema_teacher.head, [0.0, 99.0, 0.0, 0.0])
    found = values(method, batch(n_u=6, n_l=4, y=[0, 0, 0, 0]))
    assert found["similarity"] == pytest.approx((6 + 2) * math.log(2) / (6 + 4))
    assert found["laplacian"] == pytest.approx(0.5 * 6 * 3.0 * 2 / (6 + 2))


def plain_reading(method: ExtendedLearnedGraph, seen: Batch) -> dict[str, float]:
    """Compute the terms pair by pair, for pairs by position and a teacher, without batching."""
    beta, (x_a, x_b), (x_l, other_x_l), y = method.config.beta, seen.x_u, seen.x_l, seen.y_l.tolist()
    n_u, m, half = len(x_a), len(y) // 2, len(x_a) // 2

    def f(net: nn.Module, x: Tensor) -> Tensor:
        return torch.softmax(net(x[None]).logits[0], dim=0)

    def w(net: Any, phi: SimilarityNet, x: Tensor, x_j: Tensor) -> float:
        z_i, z_j = net.features(x[None]), net.features(x_j[None])
        return float(torch.softmax(phi(z_i, z_j)[0], dim=0)[0])

    student, teacher, phi, slow = method.student, method.ema_teacher, method.similarity, method.ema_similarity
    W1 = [w(student, phi, x_a[k], x_b[k]) for k in range(n_u)]
    W2 = [w(student, phi, x_l[k], x_l[m + k]) for k in range(m)]
    W3 = [w(student, phi, x_a[k], x_a[half + k]) for k in range(half)]
    slow_W = [w(teacher, slow, x_b[k], x_a[k]) for k in range(n_u)]
    slow_W += [w(teacher, slow, other_x_l[k], other_x_l[m + k]) for k in range(m)]
    slow_W += [w(teacher, slow, x_b[k], x_b[half + k]) for k in range(half)]
    same = [y[k] == y[m + k] for k in range(m)]
    d1 = [float((f(student, x_a[k]) - f(teacher, x_b[k])).square().sum()) for k in range(n_u)]
    d2 = [float((f(student, x_l[k]) - f(student, x_l[m + k])).square().sum()) for k in range(m)]
    d3 = [float((f(student, x_a[k]) - f(student, x_a[half + k])).square().sum()) for k in range(half)]
    known = [W if s else 1 - W for W, s in zip(W2, same, strict=True)]
    ends = zip([*map(float, same), *W3], d2 + d3, strict=True)
    edge = [W * beta * d - (1 - W) * math.log(1 - math.exp(-beta * d)) for W, d in ends]
    return {
        "supervised": sum(-math.log(f(student, x_l[k])[y[k]]) for k in range(2 * m)) / (n_u + 2 * m),
        "similarity": sum(-math.log(W) for W in W1 + known) / (n_u + 2 * m),
        "laplacian": (beta * sum(d1) + sum(edge[:m])) / (n_u + m),
        "consistency": sum(2 * (W - V) ** 2 for W, V in zip(W1 + W2 + W3, slow_W, strict=True)) / (n_u + m + half),
        "graph": sum(edge[m:]) / half,
    }


def test_every_term_is_a_plain_reading_of_the_equations() -> None:
    method = learned(seed=3)
    with torch.no_grad():
        for slow in (method.ema_teacher, method.ema_similarity):
            for parameter in slow.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        seen = batch(n_u=6, n_l=4, y=[0, 1, 0, 2])
        assert values(method, seen) == pytest.approx(plain_reading(method, seen), rel=1e-3)


@pytest.mark.parametrize("base", BASES)
def test_without_extensions_the_registered_method_is_the_paper_s(base: str) -> None:
    steps = []
    for kind in (LearnedGraph, ExtendedLearnedGraph):
        torch.manual_seed(0)
        net = vector_classifier(3, 4, (6,))
        below = MeanTeacher(net, TASK) if base == "mean_teacher" else PiModel(net, TASK)
        config = LearnedGraphConfig(layers=(8, 5)) if kind is LearnedGraph else ExtendedLearnedGraphConfig(layers=(8, 5))
        method = kind(below, TASK, config)  # type: ignore[arg-type]
        terms = method.losses(batch(), progress=0.5)
        torch.autograd.backward(list(terms.values()))
        method.after_step()
        steps.append((terms, [p.grad for p in method.parameters() if p.requires_grad], method.state_dict()))
    (terms, gradients, state), (extended_terms, extended_gradients, extended_state) = steps
    assert {name: term.item() for name, term in terms.items()} == {name: term.item() for name, term in extended_terms.items()}
    assert all(
        g is not None and h is not None and torch.equal(g, h) for g, h in zip(gradients, extended_gradients, strict=True)
    )
    assert all(torch.equal(tensor, extended_state[name]) for name, tensor in state.items())


# ---------------------------------------------------------------- coefficients


TABLE = [  # labels, samples, k1, k2, lambda1, lambda2
    (250, 73_257, 8, 4, 0.027301, 0.013651),
    (500, 73_257, 8, 4, 0.054602, 0.027301),
    (1000, 73_257, 8, 4, 0.109205, 0.054602),
    (1000, 50_000, 3, 3, 0.060, 0.060),
    (2000, 50_000, 3, 3, 0.120, 0.120),
    (4000, 50_000, 3, 3, 0.240, 0.240),
    (250, 50_000, 3, 1.5, 0.015, 0.0075),
    (500, 50_000, 3, 1.5, 0.030, 0.015),
    (1000, 50_000, 3, 1.5, 0.060, 0.030),
    (2000, 50_000, 3, 1.5, 0.120, 0.060),
    (4000, 50_000, 3, 1.5, 0.240, 0.120),
    (250, 50_000, 6, 3, 0.030, 0.015),
    (500, 50_000, 6, 3, 0.060, 0.030),
    (1000, 50_000, 6, 3, 0.120, 0.060),
    (2000, 50_000, 6, 3, 0.240, 0.120),
    (4000, 50_000, 6, 3, 0.480, 0.240),
    (10_000, 50_000, 1.5, 0.75, 0.300, 0.150),
]


@pytest.mark.parametrize(("labels", "samples", "k1", "k2", "lambda1", "lambda2"), TABLE)
def test_lambdas_follow_the_fraction_of_labels(
    labels: int, samples: int, k1: float, k2: float, lambda1: float, lambda2: float
) -> None:
    task = Task(n_classes=10, n_labelled=labels, n_samples=samples, steps=1000)
    config = ExtendedLearnedGraphConfig(k1=k1, k2=k2, lambda3=0.05, layers=(4,))
    method = ExtendedLearnedGraph(PiModel(vector_classifier(3, 10, (4,)), task), task, config)
    assert lambdas(method, 1.0) == pytest.approx((lambda1, lambda2, 0.05), abs=5e-7)


def test_the_defaults_are_the_paper_s_for_cifar_10() -> None:
    config = ExtendedLearnedGraphConfig()
    assert (config.beta, config.k1, config.k2, config.lambda3, config.dropout) == (3.0, 3.0, 3.0, 0.15, 0.2)
    assert (config.pairs, config.pair_order, config.prior, config.virtual_pair_weight) == ("paper", "batch", None, 1.0)
    assert (config.detach_w, config.cons_teacher_features, config.evaluate) == (False, "ema", "ema")
    assert tuple(config.layers) == (512, 512, 128, 64)


@pytest.mark.parametrize(("epoch", "share"), [(0, 0.00674), (20, 0.0600), (40, 0.2865), (60, 0.7316), (80, 1.0), (600, 1.0)])
def test_lambda1_and_lambda3_rise_over_80_of_600_epochs(epoch: int, share: float) -> None:
    lambda1, _, lambda3 = lambdas(learned(lambda1=2.0, lambda3=5.0), epoch / 600)
    assert (lambda1 / 2.0, lambda3 / 5.0) == pytest.approx((share, share), abs=6e-5)


@pytest.mark.parametrize(("epoch", "share"), [(0, 0.0), (99.99, 0.0), (100, 0.00674), (125, 0.2865), (150, 1.0), (600, 1.0)])
def test_lambda2_waits_for_100_epochs_and_rises_over_50(epoch: float, share: float) -> None:
    assert lambdas(learned(lambda2=2.0), epoch / 600)[1] / 2.0 == pytest.approx(share, abs=5e-5)


def test_start_and_ramp_up_of_the_graph_can_be_set() -> None:
    method = learned(graph_start=0.5, graph_rampup=0.25, rampup=0.0)
    found = [lambdas(method, progress)[1] for progress in (0.4999, 0.5, 0.75)]
    assert found == pytest.approx([0.0, math.exp(-5), 1.0])
    assert lambdas(method, 0.0)[0] == 1.0


def test_a_lambda_of_zero_is_not_taken_for_no_choice() -> None:
    assert lambdas(learned(lambda1=0.0, lambda2=0.0, lambda3=0.0), 1.0) == (0.0, 0.0, 0.0)


def test_coefficients_scale_the_terms_and_nothing_else() -> None:
    full = values(learned(), batch())
    scaled = values(learned(lambda1=0.2, lambda2=0.3, lambda3=0.4), batch())
    for term, factor in [("supervised", 1.0), ("similarity", 1.0), ("laplacian", 0.2), ("graph", 0.3), ("consistency", 0.4)]:
        assert scaled[term] == pytest.approx(factor * full[term])


def test_before_its_start_the_graph_term_is_not_computed_at_all() -> None:
    method = learned()
    assert "graph" not in method.losses(batch(), progress=99.9 / 600)
    assert "graph" in method.losses(batch(), progress=100 / 600)


def test_the_agreement_of_the_teacher_s_predictions_is_the_label_of_phi() -> None:
    # Predictions (2/3, 1/3) everywhere: two samples agree by 5/9; W = 3/4 by a difference of ln 3; so does each of 50 pairs
    method = learned(n_classes=2, similarity_distillation=0.5)
    answer_always(method.ema_teacher.head, [math.log(2.0), 0.0])
    answer_always(method.similarity.layers[-1], [math.log(3.0), 0.0])
    found = values(method, batch(n_classes=2))["distillation"]
    assert found == pytest.approx(0.5 * (5 / 9 * math.log(4 / 3) + 4 / 9 * math.log(4.0)))


def test_distillation_uses_the_true_rate_of_same_class_pairs() -> None:
    method = learned(
        n_classes=2, similarity_distillation=1.0, prior=(0.75, 0.25)
    )  # 5/8 of pairs are similar: ln(3/5) is taken off
    answer_always(method.ema_teacher.head, [99.0, 0.0])
    answer_always(method.similarity.layers[-1], [math.log(3.0 / 5.0), 0.0])
    assert values(method, batch(n_classes=2))["distillation"] == pytest.approx(math.log(2.0))


def test_distillation_starts_with_the_graph_and_not_before() -> None:
    method = learned(similarity_distillation=2.0)
    assert "distillation" not in method.losses(batch(), progress=99.9 / 600)
    assert "distillation" not in learned().losses(batch(), progress=1.0)
    early, late = (values(method, batch(), progress)["distillation"] for progress in (125 / 600, 1.0))
    assert early / late == pytest.approx(0.2865, abs=5e-5)


# ---------------------------------------------------------------- who is moved by what


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("supervised", {"g", "h"}),
        ("similarity", {"g", "Phi"}),
        ("laplacian", {"g", "h"}),
        ("graph", {"g", "h", "Phi"}),
        ("consistency", {"g", "Phi"}),
        ("distillation", {"g", "Phi"}),
    ],
)
@pytest.mark.parametrize("pairs", ["paper", "all"])
@pytest.mark.parametrize("base", BASES)
def test_each_term_moves_whom_it_should_and_never_a_teacher(base: str, pairs: str, term: str, expected: set[str]) -> None:
    assert moved_by(learned(base, pairs=pairs, similarity_distillation=1.0), batch(n_u=8, n_l=4), term) == expected


@pytest.mark.parametrize(
    ("term", "expected"), [("graph", {"g", "h"}), ("similarity", {"g", "Phi"}), ("consistency", {"g", "Phi"})]
)
def test_detaching_w_takes_phi_out_of_the_graph_term_only(term: str, expected: set[str]) -> None:
    assert moved_by(learned(detach_w=True), batch(n_u=8, n_l=4), term) == expected


def test_detaching_w_changes_no_value() -> None:
    assert values(learned(detach_w=True), batch()) == values(learned(), batch())


def test_on_a_pi_model_both_views_get_a_gradient() -> None:
    seen = batch(n_u=8, n_l=4)
    for x in seen.x_u:
        x.requires_grad_()
        assert gradient_at(learned("pi_model"), seen, x, "laplacian") is not None


def test_on_a_mean_teacher_only_the_student_s_view_gets_a_gradient() -> None:
    seen = batch(n_u=8, n_l=4)
    first, second = (x.requires_grad_() for x in seen.x_u)
    assert gradient_at(learned(), seen, first, "laplacian") is not None
    assert gradient_at(learned(), seen, second, "laplacian") is None


def test_on_a_pi_model_the_target_is_the_student_s_own() -> None:
    method, seen = learned("pi_model"), batch(y=[0] * 20)
    answer_always(method.student.head, [1.0, 0.0, 0.0, 0.0])
    answer_always(method.ema_teacher.head, [0.0, 99.0, 0.0, 0.0])  # has no say
    assert values(method, seen)["laplacian"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("base", BASES)
def test_what_only_the_teacher_sees_changes_the_consistency_and_nothing_else(base: str) -> None:
    seen, elsewhere = batch(), batch(seed=9)
    changed = replace(seen, x_l=(seen.x_l[0], elsewhere.x_l[1].requires_grad_()))
    before, after = values(learned(base), seen), values(learned(base), changed)
    assert {name for name in before if before[name] != after[name]} == {"consistency"}
    assert gradient_at(learned(base), changed, changed.x_l[1], "consistency") is None


@pytest.mark.parametrize("base", BASES)
def test_two_equal_views_give_a_finite_loss_and_gradient(base: str) -> None:
    seen = batch()
    seen = replace(seen, x_u=(seen.x_u[0], seen.x_u[0]))
    method = learned(base)
    torch.autograd.backward(list(method.losses(seen, progress=1.0).values()))
    assert values(method, replace(seen, y_l=torch.zeros(20, dtype=torch.long)))["laplacian"] < 10
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters() if p.requires_grad)


def test_a_dataset_of_equal_samples_gives_a_finite_loss_and_gradient() -> None:
    x_l, x_u = torch.ones(4, 3), torch.ones(8, 3)
    seen = Batch((x_l, x_l), torch.tensor([0, 1, 2, 3]), (x_u, x_u), torch.arange(8))
    method = learned(pairs="all", eps=1e-12)
    torch.autograd.backward(list(method.losses(seen, progress=1.0).values()))
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters() if p.requires_grad)


# ---------------------------------------------------------------- after a step


def shifted(parameters: Sequence[Tensor], by: float) -> list[Tensor]:
    before = [p.detach().clone() for p in parameters]
    for p in parameters:
        p.data.add_(by)
    return before


@pytest.mark.parametrize("base", BASES)
def test_after_a_step_every_ema_keeps_ema_decay_of_itself(base: str) -> None:
    method = learned(base, ema_decay=0.4)
    couples = [(method.student, method.ema_teacher), (method.similarity, method.ema_similarity)]
    before = [shifted(list(fast.parameters()), by=1.0) for fast, _ in couples]
    method.after_step()
    for (_, slow), start in zip(couples, before, strict=True):
        for parameter, was in zip(slow.parameters(), start, strict=True):
            torch.testing.assert_close(parameter, was + 0.6)


def test_at_first_the_emas_are_plain_averages() -> None:
    method = learned("pi_model", ema_decay=0.999)
    (start,) = shifted([method.similarity.layers[-1].get_parameter("bias")], by=6.0)
    slow = method.ema_similarity.layers[-1].get_parameter("bias")
    method.after_step()
    torch.testing.assert_close(slow, start + 3.0)  # of two: start, and start + 6
    method.after_step()
    torch.testing.assert_close(slow, start + 4.0)  # of three


def test_during_the_ramp_up_the_emas_have_the_decay_ema_decay_start() -> None:
    method = learned("pi_model", ema_decay=0.4, ema_decay_start=0.0, rampup=1 / TASK.steps)
    slow = method.ema_similarity.layers[-1].get_parameter("bias")
    (start,) = shifted([method.similarity.layers[-1].get_parameter("bias")], by=1.0)
    method.after_step()
    torch.testing.assert_close(slow, start + 1.0)
    shifted([method.similarity.layers[-1].get_parameter("bias")], by=1.0)
    method.after_step()
    torch.testing.assert_close(slow, start + 0.4 * 1.0 + 0.6 * 2.0)


def test_only_what_wants_a_gradient_is_trained() -> None:
    for base in BASES:
        method = learned(base)
        trained = {id(p) for p in method.parameters() if p.requires_grad}
        assert trained == {id(p) for part in (method.student, method.similarity) for p in part.parameters()}


@pytest.mark.parametrize("base", BASES)
def test_a_teacher_with_batch_norm_gathers_statistics_of_what_it_sees(base: str) -> None:
    method = learned(base)
    for classifier in (method.student, method.ema_teacher):
        classifier.features = nn.Sequential(nn.BatchNorm1d(3), classifier.features)
    seen = batch()
    method.train()
    method.losses(replace(seen, x_l=(seen.x_l[0], seen.x_l[1] + 100.0)), progress=0.0)
    method.after_step()
    mean, slow_mean = (c.features[0].running_mean for c in (method.student, method.ema_teacher))  # type: ignore[index]
    assert mean.abs().max() < 0.1
    torch.testing.assert_close(slow_mean, 0.1 * torch.full((3,), 100.0 * 20 / 220), atol=0.05, rtol=0.0)


# ---------------------------------------------------------------- pairs, prior, virtual


def test_a_symmetric_phi_does_not_mind_the_order_of_pairs() -> None:
    for pairs in ("paper", "all"):
        in_order = values(symmetric(learned(pairs=pairs)), batch())
        assert values(symmetric(learned(pairs=pairs, pair_order="random")), batch()) == pytest.approx(in_order, rel=1e-5)


def test_any_other_phi_sees_half_of_the_pairs_turned_round() -> None:
    method, seen = learned(pair_order="random"), batch()
    drawn = torch.tensor([values(method, seen)["similarity"] for _ in range(200)])
    (x_a, x_b), (x_l, other) = seen.x_u, seen.x_l
    turned = Batch((torch.cat([x_l[10:], x_l[:10]]), other), torch.cat([seen.y_l[10:], seen.y_l[:10]]), (x_b, x_a), seen.index)
    both = [values(learned(), one)["similarity"] for one in (seen, turned)]
    assert drawn.std() > 0
    assert drawn.mean().item() == pytest.approx(sum(both) / 2, abs=4 * drawn.std().item() / math.sqrt(200))


def test_with_all_pairs_the_weights_still_add_up_to_b2_and_b3() -> None:
    method = undecided(learned(pairs="all", lambda1=0.5, lambda2=0.7, virtual_pair_weight=0.0))
    found = values(method, batch(y=list(range(4)) * 5))
    different = 10 * 300 / 380  # of 380 ordered pairs of 20 samples, 5 per class, 80 are similar
    assert found["similarity"] == pytest.approx(10 * math.log(2) / 120)
    assert found["laplacian"] == pytest.approx(0.5 * different * AT_EPS / 110, rel=1e-5)
    assert found["graph"] == pytest.approx(0.7 * 0.5 * AT_EPS, rel=1e-5)


def test_with_all_pairs_the_consistency_is_still_divided_by_160() -> None:
    method = learned(pairs="all", lambda3=0.7)
    answer_always(method.similarity.layers[-1], [99.0, 0.0])
    answer_always(method.ema_similarity.layers[-1], [0.0, 99.0])
    assert values(method, batch())["consistency"] == pytest.approx(0.7 * 2)


def test_no_sample_is_paired_with_itself() -> None:
    method = learned(pairs="all", virtual_pair_weight=0.0)
    answer_always(method.similarity.layers[-1], [2.0, 0.0])
    alone = values(method, batch(n_u=8, n_l=4, y=[0, 1, 2, 3]))["similarity"]  # so all pairs are different
    assert alone == pytest.approx(2 * F.softplus(torch.tensor(2.0)).item() / 12)


@pytest.mark.parametrize("base", BASES)
def test_with_one_pair_on_each_side_all_pairs_are_the_paper_s(base: str) -> None:
    seen = batch(n_u=2, n_l=2, y=[0, 1])
    paper = values(symmetric(learned(base, seed=2)), seen)
    assert values(symmetric(learned(base, seed=2, pairs="all")), seen) == pytest.approx(paper, rel=1e-5)


def test_all_pairs_are_the_mean_over_every_way_to_pair_the_halves() -> None:
    seen, method = batch(n_u=6, n_l=4), learned()
    first, second = seen.x_u[0][:3], seen.x_u[0][3:]
    turns = [torch.cat([first, second.roll(k, 0)]) for k in range(3)]
    by_position = [values(method, replace(seen, x_u=(x, seen.x_u[1])))["graph"] for x in turns]
    assert values(learned(pairs="all"), seen)["graph"] == pytest.approx(sum(by_position) / 3, rel=1e-5)


def test_a_prior_gives_half_the_weight_to_similar_and_half_to_different_pairs() -> None:
    seen = batch(n_u=8, n_l=8, y=[0, 0, 0, 1, 0, 0, 0, 2])  # by position: three pairs similar, one different
    similar, different = (F.softplus(torch.tensor(d)).item() for d in (-1.5, 1.5))
    found = []
    for prior in (None, "uniform"):
        method = learned(virtual_pair_weight=0.0, prior=prior)
        answer_always(method.similarity.layers[-1], [1.5, 0.0])
        found.append(values(method, seen)["similarity"] * 16)
    assert found == pytest.approx([3 * similar + different, 2 * similar + 2 * different])


def test_a_batch_without_both_kinds_of_pairs_keeps_its_weight_under_a_prior() -> None:
    method = undecided(learned(virtual_pair_weight=0.0, prior="uniform"))
    for y in ([0] * 8, [0] * 4 + [1] * 4):
        assert values(method, batch(n_u=8, n_l=8, y=y))["similarity"] == pytest.approx(4 * math.log(2) / 16)


@pytest.mark.parametrize(
    ("prior", "same_class"), [(None, 0.5), ("uniform", 0.25), ((0.5, 0.3, 0.1, 0.1), 0.36), ((5.0, 3.0, 1.0, 1.0), 0.36)]
)
def test_an_undecided_phi_predicts_the_prior(prior: Any, same_class: float) -> None:
    method = undecided(learned(prior=prior))
    losses = values(method, batch())
    assert method.diagnostics["mean_w"].item() == pytest.approx(same_class)
    expected = same_class * 0 + (1 - same_class) * AT_EPS
    assert losses["graph"] == pytest.approx(expected, rel=1e-5)
    z = torch.randn(3, 6)
    predictor = method.predictor()
    assert isinstance(predictor, DeepPredictor)
    torch.testing.assert_close(predictor.similarity(z, z), torch.full((3, 3), same_class))


def test_a_prior_of_even_classes_is_the_uniform_one() -> None:
    even, uniform = learned(prior=(0.25, 0.25, 0.25, 0.25)), learned(prior="uniform")
    assert values(even, batch()) == pytest.approx(values(uniform, batch()))


def test_a_prior_moves_log_odds_of_w_and_not_the_training_of_phi() -> None:
    seen, drawn = batch(y=[0] * 10 + [0] * 5 + [1] * 5), []
    for prior in (None, "uniform"):
        method = learned(prior=prior)  # five pairs similar and five different: balanced already
        drawn.append((values(method, seen)["similarity"], method.predictor().similarity(torch.ones(1, 6), torch.ones(1, 6))))  # type: ignore[operator]
    (loss, W), (loss_with_prior, W_with_prior) = drawn
    assert loss == pytest.approx(loss_with_prior)
    assert (torch.logit(W) - torch.logit(W_with_prior)).item() == pytest.approx(math.log(3), abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(virtual=st.floats(0.0, 3.0))
def test_the_weight_of_virtual_pairs_scales_their_fraction_of_the_similarity_loss(virtual: float) -> None:
    found = values(undecided(learned(virtual_pair_weight=virtual)), batch(n_u=8, n_l=4))
    assert found["similarity"] == pytest.approx((8 * virtual + 2) * math.log(2) / 12)
    assert found["consistency"] == pytest.approx(values(undecided(learned()), batch(n_u=8, n_l=4))["consistency"])


# ---------------------------------------------------------------- features of the teacher, and the network that predicts


def test_the_ema_of_phi_gets_the_teacher_s_features_of_other_views() -> None:
    method = learned()
    answer_always(method.ema_similarity.layers[-1], [0.0, 0.0])
    before = values(learned(), batch())["consistency"]
    for parameter in (changed := learned()).ema_teacher.features.parameters():
        parameter.data.add_(0.5)
    assert values(changed, batch())["consistency"] != before
    assert values(method, batch())["consistency"] != before


def test_the_ema_of_phi_may_get_the_student_s_features_instead() -> None:
    seen = batch()
    before = values(learned(cons_teacher_features="student"), seen)["consistency"]
    assert before == pytest.approx(0.0, abs=1e-9)  # same features, and the copies still are equal
    for parameter in (method := learned(cons_teacher_features="student")).similarity.layers[-1].parameters():
        parameter.data.add_(torch.randn_like(parameter))
    after = values(method, seen)["consistency"]
    for parameter in method.ema_teacher.features.parameters():
        parameter.data.add_(0.5)
    assert after > 0.0
    assert values(method, replace(seen, x_l=(seen.x_l[0], batch(seed=5).x_l[1])))["consistency"] == after


def test_with_the_student_s_features_the_target_still_gets_no_gradient() -> None:
    method = learned(cons_teacher_features="student")  # value and gradient are zero where the two Phis agree
    answer_always(method.similarity.layers[-1], [0.0, 0.0])
    assert moved_by(method, batch(n_u=8, n_l=4), "consistency") == {"Phi"}


@pytest.mark.parametrize("second_view", ["student", "teacher"])
def test_equation_10_read_literally_gives_the_ema_of_phi_the_student_s_features_of_the_other_views(second_view: str) -> None:
    method, seen = learned(cons_teacher_features="student_other_views", second_view=second_view), batch(n_u=8, n_l=4)
    shifted(list(method.student.parameters()), by=0.3)  # the EMA teacher of g must not matter
    terms = method.losses(seen, progress=1.0)
    for parameter in method.ema_teacher.features.parameters():
        parameter.data.add_(5.0)
    (x1, x1_prime), (x_l, x_l_prime) = seen.x_u, seen.x_l
    with torch.no_grad():
        z, z_prime = (method.student(torch.cat(views)).z for views in ([x1, x_l], [x1_prime, x_l_prime]))
        pairs = [torch.tensor([[0, 4], [1, 5], [2, 6], [3, 7]]), torch.tensor([[8, 10], [9, 11]])]  # child batches 3 and 2
        i, j = torch.cat(pairs).T
        phi, phi_prime = (
            torch.softmax(net.pairs(features, i, j), dim=-1)
            for net, features in ((method.similarity, z), (method.ema_similarity, z_prime))
        )
        expected = (phi - phi_prime).square().sum()
        if second_view == "student":  # child batch 1: (x, x') for the student, and (x', x) for the EMA of Phi
            both = method.student(torch.cat([x1, x1_prime])).z
            first, other = torch.arange(8), torch.arange(8, 16)
            own = torch.softmax(method.similarity.pairs(both, first, other), dim=-1)
            swapped = torch.softmax(method.ema_similarity.pairs(both, other, first), dim=-1)
            expected = expected + (own - swapped).square().sum()
    assert terms["consistency"].item() == pytest.approx(method.config.lambda3 * expected.item() / (8 + 2 + 4), rel=1e-4)
    assert moved_by(method, seen, "consistency") == {"g", "Phi"}


def test_pairs_of_two_views_of_one_sample_keep_their_weight_when_labelled_pairs_are_balanced() -> None:
    method = learned(prior="uniform", virtual_pair_weight=0.2)
    answer_always(method.similarity.layers[-1], [0.0, math.log(3.0)])  # Phi says "same" with probability 1/4
    seen = batch(n_u=6, n_l=8, y=[0, 1, 2, 3, 0, 3, 1, 2])  # one of the four labelled pairs has one class
    terms = method.losses(seen, progress=1.0)
    virtual = 0.2 * 6 * math.log(4.0)
    balanced = 4 * (0.5 * math.log(4.0) + 0.5 * math.log(4.0 / 3.0))
    assert terms["similarity"].item() == pytest.approx((virtual + balanced) / (6 + 8), rel=1e-5)


@pytest.mark.parametrize("base", BASES)
def test_the_ema_or_the_student_predicts_as_set(base: str) -> None:
    for evaluate in ("ema", "student"):
        method = learned(base, evaluate=evaluate)
        shifted(list(method.student.parameters()) + list(method.similarity.parameters()), by=0.2)
        classifier, phi = (
            (method.ema_teacher, method.ema_similarity) if evaluate == "ema" else (method.student, method.similarity)
        )
        predictor, x = method.predictor(), torch.randn(5, 3)
        assert isinstance(predictor, DeepPredictor)
        z = predictor.features(x)
        torch.testing.assert_close(predictor.probabilities(z), torch.softmax(classifier(x).logits, dim=-1))
        torch.testing.assert_close(predictor.similarity(z, z), torch.softmax(phi.grid(z, z), dim=-1)[..., 0])


def test_diagnostics_are_kept_without_a_gradient() -> None:
    method = learned()
    method.losses(batch(), progress=0.0)
    mean_f, mean_w = method.diagnostics["mean_f"], method.diagnostics["mean_w"]
    assert not mean_f.requires_grad
    assert not mean_w.requires_grad
    assert mean_f.sum().item() == pytest.approx(1.0)
    assert 0.0 < mean_w.item() < 1.0


# ---------------------------------------------------------------- strong views


def three_views(seed: int = 1) -> Batch:
    seen = batch(seed=seed)
    third = torch.randn(len(seen.index), 3, generator=torch.Generator().manual_seed(9))
    return replace(seen, x_u=(*seen.x_u, third))


@pytest.mark.parametrize("base", BASES)
def test_with_the_strong_view_a_batch_holds_one_strong_and_two_weak_views(base: str) -> None:
    method = learned(base, strong_view=True)
    assert method.unlabelled_views == ("strong", "weak", "weak")
    assert method.labelled_views == ("weak", "weak")
    assert learned(base).unlabelled_views == ("weak", "weak")


@pytest.mark.parametrize("base", BASES)
def test_the_strong_view_learns_from_the_weak_one_and_never_the_other_way(base: str) -> None:
    method, seen = learned(base, strong_view=True, labelled_pair_weight=0.0), three_views()
    inputs = tuple(x.clone().requires_grad_() for x in seen.x_u)
    seen = replace(seen, x_u=inputs)
    assert gradient_at(method, seen, inputs[0], "laplacian") is not None
    assert gradient_at(method, seen, inputs[1], "laplacian") is None
    assert gradient_at(method, seen, inputs[2], "laplacian") is None


@pytest.mark.parametrize("base", BASES)
def test_no_teacher_ever_forwards_a_strong_view(base: str) -> None:
    method, seen = learned(base, strong_view=True), three_views()
    shown: list[Tensor] = []
    method.ema_teacher.register_forward_pre_hook(lambda _, inputs: shown.append(inputs[0]))
    method.losses(seen, progress=1.0)
    assert torch.equal(torch.cat(shown), torch.cat([seen.x_u[1], seen.x_u[2], seen.x_l[1]]))


def test_strong_and_weak_views_give_the_paper_s_sizes_all_the_same() -> None:
    found = values(undecided(learned(strong_view=True)), three_views())
    assert found == pytest.approx(values(undecided(learned()), batch()))


# ---------------------------------------------------------------- sharpened targets


def test_a_sharpened_target_is_learned_by_a_cross_entropy_weighted_by_its_confidence() -> None:
    # The EMA teacher predicts (0.8, 0.2) for all 100 samples, (16/17, 1/17) at T = 1/2; the student predicts (1/2, 1/2)
    method = undecided(learned(n_classes=2, sharpen_temperature=0.5, labelled_pair_weight=0.0))
    answer_always(method.ema_teacher.head, [math.log(0.8), math.log(0.2)])
    found = values(method, batch(n_classes=2))
    assert found["sharpened"] == pytest.approx(20 / 120 * 0.8 * math.log(2)), (
        "beside the mean over 20 labels, with the same weight"
    )
    assert found["laplacian"] == 0.0, "in place of the distance"
    answer_always(method.student.head, [math.log(0.9), math.log(0.1)])
    surer = -(16 * math.log(0.9) + math.log(0.1)) / 17
    assert values(method, batch(n_classes=2))["sharpened"] == pytest.approx(20 / 120 * 0.8 * surer)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("strong", [True, False])
def test_sharpened_targets_train_the_first_view_alone(base: str, strong: bool) -> None:
    method, seen = learned(base, strong_view=strong, sharpen_temperature=0.5), three_views() if strong else batch()
    inputs = tuple(x.clone().requires_grad_() for x in seen.x_u)
    seen = replace(seen, x_u=inputs)
    assert [gradient_at(method, seen, view, "sharpened") is not None for view in inputs] == [True, *[False] * (len(inputs) - 1)]
    assert moved_by(method, seen, "sharpened") == {"g", "h"}


def test_the_sharpened_term_ramps_up_with_lambda1_and_scales_with_the_unlabelled_weight() -> None:
    method, seen = learned(sharpen_temperature=1.0), batch()
    whole = values(method, seen, 1.0)["sharpened"]
    assert values(method, seen, 40 / 600)["sharpened"] / whole == pytest.approx(0.2865, abs=5e-5)
    method.task = replace(method.task, unlabelled_weight=0.25)
    assert values(method, seen, 1.0)["sharpened"] == pytest.approx(whole / 4)
    assert "sharpened" not in values(learned(), seen)


def test_a_temperature_of_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="sharpen_temperature is 0"):
        ExtendedLearnedGraphConfig(sharpen_temperature=0.0)


# ---------------------------------------------------------------- a second view by the EMA teacher


def test_the_teacher_may_forward_the_second_view_in_the_student_s_place() -> None:
    method, seen = learned(second_view="teacher"), batch()
    shown: dict[str, list[Tensor]] = {"student": [], "teacher": []}
    method.student.register_forward_pre_hook(lambda _, inputs: shown["student"].append(inputs[0]))
    method.ema_teacher.register_forward_pre_hook(lambda _, inputs: shown["teacher"].append(inputs[0]))
    terms = method.losses(seen, progress=1.0)
    assert torch.equal(torch.cat(shown["student"]), torch.cat([seen.x_u[0], seen.x_l[0]]))
    assert torch.equal(torch.cat(shown["teacher"]), torch.cat([seen.x_u[1], seen.x_l[1]]))
    assert all(term.isfinite() for term in terms.values())
    assert learned(second_view="teacher", strong_view=True).unlabelled_views == ("strong", "weak")


def test_labelled_samples_come_in_two_independent_halves_only_where_they_are_paired_by_position() -> None:
    assert learned().pairs_labelled
    assert not learned(pairs="all").pairs_labelled


def test_without_the_consistency_of_phi_the_teacher_does_not_forward_labelled_samples() -> None:
    method, seen = learned(second_view="teacher", lambda3=0.0, similarity_distillation=1.0), batch()
    assert method.labelled_views == ("weak",)
    looked_at: list[Tensor] = []
    method.ema_teacher.register_forward_pre_hook(lambda _, inputs: looked_at.append(inputs[0]))
    alone = values(method, replace(seen, x_l=seen.x_l[:1]))
    assert torch.equal(torch.cat(looked_at), seen.x_u[1])
    both = values(learned(second_view="teacher", lambda3=1e-9, similarity_distillation=1.0), seen)
    assert alone == {name: term for name, term in both.items() if name != "consistency"}
    assert learned(lambda3=0.0).labelled_views == ("weak", "weak")  # without second_view="teacher" all views are needed


def test_which_network_forwards_the_second_view_changes_nothing_for_terms_that_do_not_use_it() -> None:
    # The same weights, so all that differs is whose features of X1' Phi sees: those of the same net
    own, slow = values(learned(), batch()), values(learned(second_view="teacher"), batch())
    for name in ("supervised", "similarity", "laplacian", "graph"):
        assert slow[name] == pytest.approx(own[name], rel=1e-5)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("supervised", {"g", "h"}),
        ("similarity", {"g", "Phi"}),
        ("laplacian", {"g", "h"}),
        ("consistency", {"g", "Phi"}),
        ("graph", {"g", "h", "Phi"}),
    ],
)
def test_with_the_second_view_by_the_teacher_each_term_moves_the_networks_it_should(term: str, expected: set[str]) -> None:
    assert moved_by(learned(second_view="teacher"), batch(), term) == expected


def test_a_base_without_a_teacher_forwards_both_views_itself() -> None:
    assert values(learned("pi_model", second_view="teacher"), batch()) == values(learned("pi_model"), batch())


# ---------------------------------------------------------------- on a base with pseudo-labels


def on_fixmatch(threshold: float = 0.0, **changes: Any) -> ExtendedLearnedGraph:
    torch.manual_seed(0)
    below = FixMatch(vector_classifier(3, 4, (6,)), TASK, FixMatchConfig(threshold=threshold))
    return ExtendedLearnedGraph(below, TASK, replace(SMALL, **changes))


def test_on_fixmatch_strong_views_are_on_and_the_target_is_the_student_s() -> None:
    method = on_fixmatch()
    assert method.unlabelled_views == ("strong", "weak", "weak")
    assert method.ema_student is not None


def test_on_fixmatch_all_terms_of_the_graph_are_as_on_the_pi_model_and_pseudo_labels_are_added() -> None:
    found, expected = values(on_fixmatch(), three_views()), values(learned("pi_model", strong_view=True), three_views())
    assert set(found) == {*expected, "pseudo_label"}
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_pseudo_labels_have_the_weight_relative_to_labels_that_they_have_in_fixmatch() -> None:
    found = values(undecided(on_fixmatch()), three_views())
    # both are ln 4 a sample: FixMatch gives them equal weight, and here labels have 20/120
    assert found["pseudo_label"] == pytest.approx(20 / 120 * math.log(4))
    assert found["pseudo_label"] == pytest.approx(found["supervised"])


@pytest.mark.parametrize("term", ["pseudo_label", "laplacian"])
def test_on_fixmatch_the_strong_view_follows_the_weak_one(term: str) -> None:
    method, seen = on_fixmatch(labelled_pair_weight=0.0), three_views()
    inputs = tuple(x.clone().requires_grad_() for x in seen.x_u)
    seen = replace(seen, x_u=inputs)
    assert gradient_at(method, seen, inputs[0], term) is not None
    assert gradient_at(method, seen, inputs[1], term) is None
    assert gradient_at(method, seen, inputs[2], term) is None


def test_pseudo_labels_below_the_threshold_add_nothing_to_the_graph() -> None:
    assert values(on_fixmatch(threshold=1.0), three_views())["pseudo_label"] == 0.0


def test_a_base_with_a_memory_keeps_it_inside_the_wrapper() -> None:
    below = FlexMatch(vector_classifier(3, 4, (6,)), TASK, FlexMatchConfig(threshold=0.0))
    method = ExtendedLearnedGraph(below, TASK, SMALL)
    method.losses(three_views(), progress=1.0)
    method.after_step()
    assert (below.pseudo_labels[:100] >= 0).all()
    assert (below.pseudo_labels[100:] == -1).all()
    assert "base.pseudo_labels" in method.state_dict()
