"""Tests that hold for every method and every combination of methods."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samekind.data.augment.transforms import GaussianNoise
from samekind.data.dataset import UNLABELLED, Batch, Dataset
from samekind.data.sampler import BatchSampler
from samekind.errors import SettingError
from samekind.methods import (
    METHODS,
    build,
    config_defaults,
    is_iterative,
    method_defaults,
    split_name,
    supervised_loss_fraction,
)
from samekind.methods.base import Task
from samekind.nets.classifier import Classifier
from samekind.nets.mlp import mlp, vector_classifier
from samekind.training.engine import LocalEngine
from samekind.training.schedules import OptimizerConfig, Schedule
from samekind.training.trainer import TrainConfig, train

NAMES = [
    *METHODS,
    "pi_model+learned_graph",
    "mean_teacher+learned_graph",
    "fixmatch+learned_graph",
    "pi_model+dataset_graph",
    "fixmatch+dataset_graph",
    "pi_model+sntg",
    "mean_teacher+sntg",
    "temporal_ensembling+sntg",
    "supervised+fast_swa",
    "pi_model+fast_swa",
]
# settings by which every pseudo-label passes from the first step on, although an untrained net is never confident
ALL_PASS: dict[str, dict[str, Any]] = {name: {"threshold": 0.0} for name in METHODS if "threshold" in config_defaults(name)}
ALL_PASS["freematch"] = {"tau_max": 0.0}
LONGER = {"paper": (40, 200), "auto": (40,)}  # steps: the weights of a paper may be for long training, so more steps are tried
STEPWISE = [name for name in NAMES if is_iterative(name)]
AT_ONCE = [name for name in NAMES if not is_iterative(name)]
CASES = [(name, kind) for name in STEPWISE for kind in ("paper", "auto")]
NEVER_SATISFIED: dict[str, dict[str, Any]] = {"gscnn": {"margin": 5.0}}  # triplets that are far enough have no gradient
TASK = Task(n_classes=3, n_labelled=6, n_samples=60, steps=4000, batch_labelled=6, batch_unlabelled=12)
IMAGES = [name for name, spec in METHODS.items() if spec.method.images_only]  # type: ignore[attr-defined]
GIVEN: dict[str, dict[str, Any]] = {"remixmatch": {"augment": "given"}}  # strong views as they come, without RandAugment
every_case = pytest.mark.parametrize(("name", "kind"), CASES)


def dataset(name: str = "") -> tuple[Dataset, Tensor]:
    """Return three blobs with two labels each, as vectors or 4 x 4 images, and the true classes."""
    truth, chance = torch.arange(60) % 3, torch.Generator().manual_seed(0)
    middles = torch.tensor([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    if name in IMAGES:
        middles = 2.0 * torch.randn(3, 1, 4, 4, generator=chance)
    x = middles[truth] + 0.3 * torch.randn(60, *middles.shape[1:], generator=chance)
    y = torch.where(torch.arange(60) < 6, truth, UNLABELLED)
    return Dataset(x, y, 3), truth


def net_for(name: str) -> Classifier | None:
    if name in IMAGES:
        return Classifier(nn.Sequential(nn.Flatten(), mlp([16, 16])), 16, 3)
    return vector_classifier(2, 3, (16,)) if is_iterative(name) else None


def fresh(name: str, kind: str, settings: Mapping[str, Any] | None = None, *, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    known = name in METHODS or "+" in name
    net = net_for(name) if known else None
    start = method_defaults(name) if kind == "auto" else {}
    method: Any = build(name, net, TASK, {**start, **GIVEN.get(name, {}), **(settings or {})})
    if known and is_iterative(name):
        method.refresh(dataset(name)[0])
    method.train()
    method.name = name
    return method


def stream(method: Any, n: int, seed: int = 0) -> list[Batch]:
    source = BatchSampler(
        dataset(method.name)[0],
        {"labelled_only": GaussianNoise(0.1), "weak": GaussianNoise(0.1), "strong": GaussianNoise(0.3)},
        labelled_views=method.labelled_views,
        unlabelled_views=method.unlabelled_views,
        n_labelled=6,
        n_unlabelled=12,
        generator=torch.Generator().manual_seed(seed),
    )
    return [next(source) for _ in range(n)]


def step(method: Any, optimizer: torch.optim.Optimizer, batch: Batch, progress: float) -> dict[str, float]:
    terms = method.losses(batch, progress)
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(list(terms.values()))
    optimizer.step()
    method.after_step()
    return {name: term.item() for name, term in terms.items()}


def numbers(method: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in method.state_dict().items()}


# ---------------------------------------------------------------- methods that learn by steps


@every_case
def test_two_steps_from_a_fresh_net_leave_every_number_finite(name: str, kind: str) -> None:
    method = fresh(name, kind)
    optimizer = OptimizerConfig().build(method.parameters())
    for batch, progress in zip(stream(method, 2), (0.0, 1.0), strict=True):
        terms = step(method, optimizer, batch, progress)
        assert all(torch.tensor(value).isfinite() for value in terms.values()), terms
    assert all(tensor.isfinite().all() for tensor in numbers(method).values())


@pytest.mark.parametrize("name", STEPWISE)
def test_stores_samples_is_set_exactly_where_a_method_stores_values_of_its_samples(name: str) -> None:
    # two methods with equal weights see different samples, and no optimizer changes the weights
    stored = []
    for seed in (0, 1):
        method = fresh(name, "auto", ALL_PASS.get(split_name(name)[0], {}))
        for seen in stream(method, 2, seed):
            method.losses(seen, 0.5)
            method.after_step()
        stored.append({key: value for key, value in numbers(method).items() if "running_" not in key})
    differs = any(not torch.equal(value, stored[1][key]) for key, value in stored[0].items())
    assert differs == method.stores_samples


@pytest.mark.parametrize("name", ["flexmatch", "temporal_ensembling", "temporal_ensembling+sntg"])
def test_a_method_that_stores_values_of_its_samples_is_refused_in_several_processes_before_training(name: str) -> None:
    method = fresh(name, "auto")
    config = TrainConfig(5, 6, 12, Schedule(), seed=0)
    views = dict.fromkeys(("labelled_only", "weak", "strong"), GaussianNoise(0.1))
    before = numbers(method)
    with pytest.raises(SettingError, match="each of the 2 processes would store only those of its own part"):
        train(method, dataset()[0], views, config, LocalEngine(processes=2))
    assert all(torch.equal(value, before[key]) for key, value in numbers(method).items())


@every_case
def test_every_term_sends_gradient_to_the_student_and_none_to_a_teacher(name: str, kind: str) -> None:
    method = fresh(name, kind, {**ALL_PASS.get(split_name(name)[0], {}), **NEVER_SATISFIED.get(name, {})})
    optimizer = OptimizerConfig().build(method.parameters())
    *epoch, seen = stream(method, 6)
    for batch in epoch:  # then student and teacher differ, and every sample was seen
        step(method, optimizer, batch, 0.0)
    for term in method.losses(seen, 1.0):
        method.zero_grad(set_to_none=True)
        torch.autograd.backward(method.losses(seen, 1.0)[term])
        assert any(p.grad is not None and p.grad.any() for p in method.student.parameters()), term
        assert all(p.grad is None for p in method.parameters() if not p.requires_grad), term


@every_case
def test_the_optimiser_moves_the_student_and_leaves_the_rest_to_after_step(name: str, kind: str) -> None:
    method = fresh(name, kind)
    still = {id(p): p.clone() for p in method.parameters() if not p.requires_grad}
    before = [p.clone() for p in method.student.parameters()]
    optimizer = OptimizerConfig().build(method.parameters())
    torch.autograd.backward(list(method.losses(stream(method, 1)[0], 1.0).values()))
    optimizer.step()
    assert all(torch.equal(p, still[id(p)]) for p in method.parameters() if not p.requires_grad)
    assert not any(torch.equal(p, was) for p, was in zip(method.student.parameters(), before, strict=True))


@every_case
def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(name: str, kind: str) -> None:
    ends = []
    for seed in (1, 1, 2):
        method = fresh(name, kind, seed=seed)
        optimizer = OptimizerConfig().build(method.parameters())
        for batch in stream(method, 2):
            step(method, optimizer, batch, 1.0)
        ends.append(numbers(method))
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])
    assert not all(torch.equal(ends[0][key], ends[2][key]) for key in ends[0])


@every_case
def test_a_saved_state_resumes_in_a_new_instance_with_the_same_numbers(name: str, kind: str) -> None:
    method, other = fresh(name, kind, seed=1), fresh(name, kind, seed=2)
    optimizer, other_optimizer = (
        OptimizerConfig().build(method.parameters()),
        OptimizerConfig().build(other.parameters()),
    )
    first, second, third = stream(method, 3)
    for batch in (first, second):
        step(method, optimizer, batch, 0.5)
    torch.save((method.state_dict(), optimizer.state_dict()), file := io.BytesIO())
    file.seek(0)
    state, optimizer_state = torch.load(file)
    other.load_state_dict(state)
    other_optimizer.load_state_dict(optimizer_state)
    for each, its_optimizer in ((method, optimizer), (other, other_optimizer)):
        torch.manual_seed(3)
        step(each, its_optimizer, third, 1.0)
    expected, found = numbers(method), numbers(other)
    assert all(torch.equal(found[key], expected[key]) for key in expected)


@every_case
def test_diagnostics_can_be_recorded(name: str, kind: str) -> None:
    method = fresh(name, kind)
    method.losses(stream(method, 1)[0], 1.0)
    assert method.diagnostics["mean_f"].shape == (3,)
    assert method.diagnostics["mean_f"].sum().item() == pytest.approx(1.0)
    assert ("mean_w" in method.diagnostics) == ("learned_graph" in name)
    assert not any(tensor.requires_grad for tensor in method.diagnostics.values())


@every_case
def test_three_blobs_with_two_labels_each_are_separated(name: str, kind: str) -> None:
    assert any(share_right_after(name, kind, steps) > 0.95 for steps in LONGER[kind])


def share_right_after(name: str, kind: str, steps: int) -> float:
    method = fresh(name, kind)
    optimizer = torch.optim.Adam([p for p in method.parameters() if p.requires_grad], lr=0.01)
    for k, batch in enumerate(stream(method, steps)):
        step(method, optimizer, batch, k / steps)
    predictor = method.predictor().eval()
    data, truth = dataset(name)
    predicted = predictor.probabilities(predictor.features(data.x)).argmax(1)
    return float((predicted == truth).float().mean())


# ---------------------------------------------------------------- methods without training steps


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_method_without_steps_separates_the_blobs_by_one_refresh(name: str) -> None:
    method = fresh(name, "paper")
    data, truth = dataset()
    method.refresh(data)
    predictor = method.predictor().eval()
    predicted = predictor.probabilities(predictor.features(data.x)).argmax(1)
    assert list(method.parameters()) == []
    assert (predicted == truth).float().mean() > 0.95


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_method_without_steps_gives_the_same_numbers_twice_and_takes_over_a_state(name: str) -> None:
    method, other = fresh(name, "paper"), fresh(name, "paper", seed=1)
    method.refresh(dataset()[0])
    other.refresh(dataset()[0])
    assert all(torch.equal(numbers(method)[key], tensor) for key, tensor in numbers(other).items())
    poisoned = {key: tensor + 1 for key, tensor in numbers(method).items()}
    other.load_state_dict(poisoned)
    assert all(torch.equal(numbers(other)[key], tensor) for key, tensor in poisoned.items())


# ---------------------------------------------------------------- every predictor


@pytest.mark.parametrize("name", NAMES)
def test_a_predictor_gives_features_probabilities_and_similarities(name: str) -> None:
    method, data = fresh(name, "auto"), dataset(name)[0]
    method.refresh(data)
    predictor = method.predictor().eval()
    z = predictor.features(data.x)
    f, W = predictor.probabilities(z), predictor.similarity(z[:4], z)
    assert len(z) == 60
    torch.testing.assert_close(f.sum(1), f.new_ones(60))
    assert f.shape == (60, 3)
    assert W.shape == (4, 60)
    assert 0.0 <= W.min() <= W.max() <= 1.0


# ---------------------------------------------------------------- names and settings


@pytest.mark.parametrize(
    ("given", "meant"), [("mean_techer", "mean_teacher"), ("pi-model", "pi_model"), ("learnd_graph", "learned_graph")]
)
def test_a_misspelt_method_is_refused_with_the_nearest_one(given: str, meant: str) -> None:
    with pytest.raises(SettingError, match=f"no method is called '{given}'; did you mean '{meant}'?"):
        fresh(given, "paper")


def test_an_unknown_method_is_refused_with_the_list_of_all() -> None:
    with pytest.raises(SettingError, match=r"no method is called 'zzz'; known: .*label_propagation.*supervised"):
        split_name("zzz")
    with pytest.raises(SettingError, match="no method is called ''"):
        split_name("")


@pytest.mark.parametrize("name", ["mean_teacher+zzz", "zzz+learned_graph"])
def test_both_ends_of_a_combination_must_be_known(name: str) -> None:
    with pytest.raises(SettingError, match="no method is called 'zzz'"):
        split_name(name)


@pytest.mark.parametrize(
    ("name", "given", "meant"), [("learned_graph", "lamda2", "lambda2"), ("mean_teacher", "ema_deca", "ema_decay")]
)
def test_a_misspelt_setting_is_refused_with_the_nearest_one(name: str, given: str, meant: str) -> None:
    with pytest.raises(SettingError, match=f"{name} has no setting '{given}'; did you mean '{meant}'?"):
        fresh(name, "paper", {given: 1.0})


def test_a_setting_of_another_method_is_refused() -> None:
    with pytest.raises(SettingError, match="supervised has no setting 'ema_decay'"):
        fresh("supervised", "paper", {"ema_decay": 0.9})


@pytest.mark.parametrize(
    "name", ["mean_teacher+pi_model", "learned_graph+learned_graph", "pi_model+learned_graph+learned_graph"]
)
def test_what_does_not_combine_is_refused(name: str) -> None:
    with pytest.raises(
        SettingError, match=r"is not a base method plus an add-on; write BASE\+ADDON, such as 'pi_model\+learned_graph'"
    ):
        split_name(name)


@pytest.mark.parametrize(
    "base", ["supervised", "ict", "temporal_ensembling", "mixmatch", "label_propagation", "lgc", "simmatch", "comatch"]
)
def test_an_add_on_cannot_wrap_a_base_without_a_second_view(base: str) -> None:
    with pytest.raises(SettingError, match=f"'learned_graph' cannot wrap '{base}'; use it with a method that trains a network"):
        fresh(f"{base}+learned_graph", "paper")


def test_an_add_on_alone_wraps_mean_teacher() -> None:
    assert split_name("learned_graph") == split_name("mean_teacher+learned_graph") == ("mean_teacher", "learned_graph")
    assert split_name("mean_teacher") == ("mean_teacher", None)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("pairs", "al"),
        ("pair_order", "randon"),
        ("evaluate", "emma"),
        ("cons_teacher_features", "emma"),
        ("prior", "unifrom"),
    ],
)
def test_a_misspelt_value_of_a_setting_is_refused(setting: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"'{value}'"):
        fresh("learned_graph", "paper", {setting: value})


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_with_its_default_may_be_given_back(name: str) -> None:
    defaults = config_defaults(name)
    for kind in ("vectors", "images", "photos"):
        assert set(method_defaults(name, kind)) <= set(defaults)
    fresh(name, "paper", defaults)


def test_settings_reach_both_parts_of_a_combination() -> None:
    method = fresh("mean_teacher+learned_graph", "paper", {"ema_decay": 0.5, "beta": 1.5})
    assert method.base.config.ema_decay == method.config.ema_decay == 0.5
    assert method.config.beta == 1.5


def test_defaults_are_copies_that_a_caller_may_change() -> None:
    before = copy.deepcopy(method_defaults("learned_graph"))
    method_defaults("learned_graph")["lambda2"] = 1e9
    assert method_defaults("learned_graph") == before


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("supervised", 1.0),
        ("fixmatch", 1.0),
        ("mean_teacher", 0.25),
        ("learned_graph", 0.25),
        ("pi_model+sntg", 0.25),
        ("lpdssl", 0.25),
        ("lpdssl+mean_teacher", 0.25),
    ],
)
def test_the_fraction_of_the_loss_that_labels_have(name: str, share: float) -> None:
    assert supervised_loss_fraction(name, Task(3, 30, 300, 10, batch_labelled=10, batch_unlabelled=30)) == share


LABELLED_TERMS = ("pi_model", "mean_teacher", "temporal_ensembling", "learned_graph", "lpdssl", "supervised", "fixmatch")


@pytest.mark.parametrize("name", LABELLED_TERMS)
def test_the_supervised_term_has_the_fraction_that_is_declared(name: str) -> None:
    # The supervised term is the mean cross-entropy of an untrained net, times that fraction
    torch.manual_seed(0)
    task = Task(3, 30, 300, 10, batch_labelled=10, batch_unlabelled=30)
    net = vector_classifier(2, 3, (4,))
    for parameter in net.head.parameters():
        parameter.data.zero_()
    method = build(name, net, task, {})
    x_l, x_u = torch.randn(10, 2), torch.randn(30, 2)
    seen = Batch(
        (x_l,) * len(method.labelled_views), torch.arange(10) % 3, (x_u,) * len(method.unlabelled_views), torch.arange(30)
    )
    assert method.losses(seen, 0.5)["supervised"].item() == pytest.approx(
        supervised_loss_fraction(name, task) * math.log(3), rel=1e-5
    )
