"""The one loop: the order of its calls, where it stops, and a whole run from pool to predictor."""

from __future__ import annotations

import json
import math
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samekind.data.augment.transforms import identity
from samekind.data.dataset import Batch, Dataset
from samekind.errors import DivergedError
from samekind.methods.base import LearningRateCycles, Method, Task
from samekind.methods.supervised import Supervised
from samekind.nets.mlp import vector_classifier
from samekind.training.engine import LocalEngine
from samekind.training.loop import fit
from samekind.training.schedules import OptimizerConfig, Schedule
from samekind.training.step_plan import StepPlan
from samekind.training.trainer import TrainConfig, make_sampler, train

NOTHING = Batch((), torch.zeros(0, dtype=torch.long), (), torch.zeros(0, dtype=torch.long))
FLAT = Schedule(lr_max=0.1, rampup=0.0, rampdown=0.0)


class Diary(Method):
    """A method with one number to learn; it writes down what it is asked, and breaks when told to."""

    labelled_views = ("labelled_only",)
    unlabelled_views = ()

    def __init__(self, breaks_at: int | None = None) -> None:
        super().__init__()
        self.number = nn.Parameter(torch.tensor(1.0))
        self.frozen = nn.Parameter(torch.tensor(1.0), requires_grad=False)
        self.calls: list[tuple[str, float]] = []
        self.breaks_at = breaks_at
        self.diagnostics = {"mean_f": torch.tensor([0.5, 0.5])}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        broken = self.breaks_at is not None and len([a for a in self.calls if a[0] == "losses"]) == self.breaks_at
        self.calls.append(("losses", progress))
        return {"fine": self.number**2, "odd": self.number * (math.nan if broken else 2.0)}

    def after_step(self) -> None:
        self.calls.append(("after_step", self.number.item()))

    def refresh(self, dataset: Dataset) -> None:
        self.calls.append(("refresh", len(dataset)))

    def predictor(self) -> nn.Module:
        return nn.Identity()


def run(method: Diary, steps: int, schedule: Schedule = FLAT) -> list[tuple[int, dict[str, float]]]:
    seen = []

    def on_step(step: int, terms: Any, observed: Any) -> None:
        seen.append((step, {name: term.item() for name, term in terms.items()}))
        method.calls.append(("on_step", step))

    optimizer = OptimizerConfig().build(method.parameters())
    fit(method, repeat(NOTHING), optimizer, schedule, plan=StepPlan(steps), on_step=on_step)
    return seen


def test_a_step_is_losses_then_after_step_then_on_step() -> None:
    run(method := Diary(), steps=3)
    assert [name for name, _ in method.calls] == ["losses", "after_step", "on_step"] * 3


def test_progress_is_the_share_of_steps_done() -> None:
    run(method := Diary(), steps=4)
    assert [value for name, value in method.calls if name == "losses"] == [0.0, 0.25, 0.5, 0.75]


def test_parameters_have_moved_when_after_step_is_called() -> None:
    run(method := Diary(), steps=1)
    (after,) = [value for name, value in method.calls if name == "after_step"]
    assert after == pytest.approx(0.9)  # Adam's first step is as long as the rate


def test_the_sum_of_the_terms_is_minimised_and_the_gradient_is_fresh_each_step() -> None:
    run(method := Diary(), steps=400)
    assert method.number.item() == pytest.approx(-1.0, abs=0.02)  # of x^2 + 2x


def test_parameters_without_gradient_stay_unchanged() -> None:
    run(method := Diary(), steps=3)
    assert method.frozen.item() == 1.0


def test_the_schedule_is_applied_before_each_step() -> None:
    method = Diary()
    optimizer = OptimizerConfig().build(method.parameters())
    rates: list[float] = []
    schedule = Schedule(lr_max=0.1, rampup=0.5, rampdown=0.25)
    fit(
        method,
        repeat(NOTHING),
        optimizer,
        schedule,
        plan=StepPlan(4),
        on_step=lambda *_: rates.append(optimizer.param_groups[0]["lr"]),
    )
    assert rates == [schedule.lr(k / 4) for k in range(4)]


def test_the_method_is_in_train_mode() -> None:
    method = Diary().eval()
    run(method, steps=1)
    assert method.training


def test_the_first_nan_stops_the_loop_before_the_weights_change() -> None:
    method = Diary(breaks_at=2)
    with pytest.raises(DivergedError, match="'odd' became nan at step 2"):
        run(method, steps=10)
    assert [name for name, _ in method.calls] == ["losses", "after_step", "on_step"] * 2 + ["losses"]
    assert math.isfinite(method.number.item())


def test_an_endless_stream_is_left_after_the_last_step() -> None:
    assert [step for step, _ in run(Diary(), steps=5)] == [0, 1, 2, 3, 4]


def test_on_step_sees_the_terms_of_this_step() -> None:
    (_, first), *_ = run(Diary(), steps=2)
    assert first == {"fine": 1.0, "odd": 2.0}


def test_a_loop_may_begin_later_and_leaves_the_stream_at_the_next_batch() -> None:
    method, source = Diary(), iter([NOTHING] * 10)
    fit(method, source, OptimizerConfig().build(method.parameters()), FLAT, plan=StepPlan(8), start=5, on_step=lambda *_: None)
    assert [value for name, value in method.calls if name == "losses"] == [5 / 8, 6 / 8, 7 / 8]
    assert len(list(source)) == 7


def test_a_batch_in_parts_is_one_step_along_the_mean_of_their_gradients() -> None:
    class Labels(Diary):
        def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
            self.calls.append(("losses", float(len(batch.y_l))))
            return {"only": self.number * batch.y_l.float().mean()}

    method = Labels()
    batch = Batch((), torch.tensor([1, 2, 3, 6]), (), torch.zeros(0, dtype=torch.long))
    sgd = torch.optim.SGD([method.number], lr=1.0)
    flat = Schedule(lr_max=1.0, rampup=0.0, rampdown=0.0)
    fit(method, repeat(batch), sgd, flat, LocalEngine(accumulation_steps=2), plan=StepPlan(1), on_step=lambda *_: None)
    assert [name for name, _ in method.calls] == ["losses", "losses", "after_step"]
    assert method.number.item() == 1.0 - 3.0


# ---------------------------------------------------------------- a whole run


DATASET = Dataset(torch.tensor([[-2.0], [-1.0], [1.0], [2.0]]), torch.tensor([0, -1, -1, 1]), 2)


def plan(steps: int, **changes: Any) -> TrainConfig:
    return TrainConfig(steps, 2, 4, FLAT, seed=0, **changes)


def supervised() -> Supervised:
    torch.manual_seed(0)
    return Supervised(vector_classifier(1, 2, (4,)), Task(2, 2, 4, steps=20))


def test_a_run_begins_with_a_full_pass_and_ends_with_a_predictor_in_eval_mode() -> None:
    method = Diary()
    predictor, *_ = train(method, DATASET, {"labelled_only": identity}, plan(2))
    assert method.calls[0] == ("refresh", 4)
    assert isinstance(predictor, nn.Identity)
    assert not predictor.training


@pytest.mark.parametrize("pairs", [False, True])
def test_only_a_method_that_pairs_labels_by_position_is_shown_them_in_two_orders(pairs: bool) -> None:
    method = Diary()
    method.pairs_labelled = pairs
    batches = islice(make_sampler(method, DATASET, {"labelled_only": identity}, plan(1)), 50)
    repeats = [len(set(batch.y_l.tolist())) == 1 for batch in batches]  # a batch of 2 of the 2 labels
    assert any(repeats) == pairs


def test_a_run_learns_from_the_labelled_samples() -> None:
    predictor: Any = train(supervised(), DATASET, {"labelled_only": identity}, plan(20)).predictor
    f = predictor.probabilities(predictor.features(DATASET.x))
    assert f.argmax(1).tolist() == [0, 0, 1, 1]


def test_a_run_logs_at_log_points_and_at_the_last_step() -> None:
    history = train(supervised(), DATASET, {"labelled_only": identity}, plan(23, log_points=5)).history
    assert [record["step"] for record in history] == [0, 4, 8, 12, 16, 20, 22]
    short = train(supervised(), DATASET, {"labelled_only": identity}, plan(3)).history
    assert [record["step"] for record in short] == [0, 1, 2]


def test_the_same_seed_gives_the_same_history() -> None:
    histories = [train(supervised(), DATASET, {"labelled_only": identity}, plan(10)).history for _ in range(2)]
    assert histories[0] == histories[1]


def test_a_run_without_steps_only_refreshes() -> None:
    method = Diary()
    _, history, cost, _ = train(method, DATASET, {}, plan(0))
    assert method.calls == [("refresh", 4)]
    assert history == []
    assert cost == {"flops": 0, "full_pass_flops": 0}


def test_the_history_of_a_failed_run_is_complete_up_to_the_failure(tmp_path: Path) -> None:
    with pytest.raises(DivergedError):
        train(Diary(breaks_at=3), DATASET, {"labelled_only": identity}, plan(10, history=tmp_path / "run.jsonl"))
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2]


def test_a_method_can_ask_for_a_full_pass_every_few_steps() -> None:
    method = Diary()
    method.refresh_every = 3
    dataset = Dataset(torch.zeros(5, 1), torch.tensor([0, 1, -1, -1, -1]), 2)
    train(method, dataset, {"labelled_only": identity}, TrainConfig(9, n_labelled=2, n_unlabelled=2, schedule=FLAT, seed=0))
    names = [name for name, _ in method.calls]
    assert names.count("refresh") == 3  # before the first step, and after the third and the sixth; the ninth is the last
    assert names[:8] == ["refresh", *["losses", "after_step"] * 3, "refresh"]


def test_a_method_can_ask_for_a_full_pass_after_the_last_step() -> None:
    method = Diary()
    method.refresh_at_end = True  # type: ignore[misc]
    dataset = Dataset(torch.zeros(5, 1), torch.tensor([0, 1, -1, -1, -1]), 2)
    train(method, dataset, {"labelled_only": identity}, TrainConfig(2, n_labelled=2, n_unlabelled=2, schedule=FLAT, seed=0))
    assert [name for name, _ in method.calls] == ["refresh", *["losses", "after_step"] * 2, "refresh"]


def test_a_method_that_asks_for_cycles_of_the_rate_gets_them() -> None:
    # from half of the run on the rate replays the quarter before; the cosine would reach 0 at the end
    method = Diary()
    method.lr_cycles = LearningRateCycles(start=0.5, length=0.25, fall=1.0)
    dataset = Dataset(torch.zeros(5, 1), torch.tensor([0, 1, -1, -1, -1]), 2)
    train(
        method,
        dataset,
        {"labelled_only": identity},
        TrainConfig(8, n_labelled=2, n_unlabelled=2, schedule=Schedule(0.001, 0.0), seed=0),
    )
    places = [value for name, value in method.calls if name == "after_step"]
    lengths = [before - after for before, after in zip([1.0, *places], places, strict=False)]
    expected = [0.5 * (math.cos(math.pi * at / 8) + 1) for at in (0, 1, 2, 3, 2, 3, 2, 3)]
    assert [length / 0.001 for length in lengths] == pytest.approx(expected, rel=0.02)  # Adam's steps are as long as the rate
