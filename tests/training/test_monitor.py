"""What is recorded, when training is stopped, and when the alarm is raised."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from samekind.errors import CollapseWarning, DivergedError
from samekind.training.monitor import Monitor, log_record, relative_entropy, require_finite

TERMS = {"supervised": torch.tensor(0.5, requires_grad=True), "graph": torch.tensor(0.25)}


def seen(mean_f: list[float], mean_w: float | None = None, spread: float | None = None) -> dict[str, Tensor]:
    """Return observed values; the spread is 0 by default if all samples get one class, else 0.4."""
    spread = (0.0 if mean_f == ONE_CLASS else 0.4) if spread is None else spread
    observed = {"mean_f": torch.tensor(mean_f), "spread": torch.tensor(spread)}
    return observed if mean_w is None else {**observed, "mean_w": torch.tensor(mean_w)}


ONE_CLASS = [0.999, 0.0005, 0.0005]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_term_that_is_not_finite_stops_training_with_its_name_and_a_next_step(value: float) -> None:
    terms = {"supervised": torch.tensor(1.0), "graph": torch.tensor(value)}
    message = rf"the loss term 'graph' became {value} at step 17\. .*extreme values.*smaller learning_rate.*larger eps"
    with pytest.raises(DivergedError, match=message):
        require_finite(terms, step=17)


def test_finite_terms_pass() -> None:
    require_finite({"supervised": torch.tensor(1e30), "graph": torch.tensor(-1e30)}, step=0)


def test_a_record_holds_the_terms_the_mean_w_and_the_class_fractions() -> None:
    record = log_record(3, TERMS, seen([0.5, 0.25, 0.25], mean_w=0.125))
    assert record == {
        "step": 3,
        "loss": {"supervised": 0.5, "graph": 0.25},
        "mean_w": 0.125,
        "entropy": 0.9464,
        "class_fractions": [0.5, 0.25, 0.25],
        "spread": 0.4,
    }


def test_a_record_holds_only_what_was_observed() -> None:
    assert log_record(0, TERMS, {}) == {"step": 0, "loss": {"supervised": 0.5, "graph": 0.25}}


def test_entropy_is_one_for_even_classes_and_zero_for_a_single_one() -> None:
    assert relative_entropy([0.25] * 4) == pytest.approx(1.0)
    assert relative_entropy([0.0, 1.0, 0.0]) == pytest.approx(0.0)
    assert relative_entropy([0.5, 0.5, 0.0, 0.0]) == pytest.approx(0.5)


@pytest.mark.parametrize("mean_w", [None, 0.95, 1.0])
def test_one_class_for_all_samples_is_reported_after_patience(mean_w: float | None) -> None:
    watch = Monitor(patience=3)
    for step in (0, 10):
        watch(step, TERMS, seen(ONE_CLASS, mean_w))
    with pytest.warns(
        CollapseWarning, match=r"at step 20 every sample gets the same prediction .*Lower lambda2 or raise graph_start"
    ):
        watch(20, TERMS, seen(ONE_CLASS, mean_w))


def test_a_collapse_is_reported_once() -> None:
    watch = Monitor(patience=1)
    with pytest.warns(CollapseWarning):
        watch(0, TERMS, seen(ONE_CLASS, 1.0))
    for step in range(1, 10):
        watch(step, TERMS, seen(ONE_CLASS, 1.0))  # a second warning would be an error here
    assert len(watch.records) == 10


@pytest.mark.parametrize(
    ("mean_f", "mean_w"), [([0.4, 0.3, 0.3], 0.3), ([0.4, 0.3, 0.3], None), ([0.97, 0.02, 0.01], 0.94), (ONE_CLASS, 0.3)]
)
def test_healthy_or_imbalanced_predictions_cause_no_warning(mean_f: list[float], mean_w: float | None) -> None:
    watch = Monitor(patience=1)
    for step in range(5):
        watch(step, TERMS, seen(mean_f, mean_w))
    assert len(watch.records) == 5


def test_a_recovery_in_between_starts_the_patience_again() -> None:
    watch = Monitor(patience=2)
    for step, mean_f in enumerate([ONE_CLASS, [0.3, 0.3, 0.4], ONE_CLASS, [0.3, 0.3, 0.4], ONE_CLASS]):
        watch(step, TERMS, seen(mean_f, 1.0))
    assert len(watch.records) == 5


def test_equal_probabilities_for_all_samples_are_a_collapse_if_all_pairs_are_similar() -> None:
    watch = Monitor(patience=1)
    with pytest.warns(CollapseWarning):  # ten even classes would mean W = 0.1
        watch(0, TERMS, seen([0.1] * 10, mean_w=1.0, spread=0.0))


def test_the_history_is_one_json_object_a_line(tmp_path: Path) -> None:
    watch = Monitor(tmp_path / "history.jsonl")
    for step in (0, 5):
        watch(step, TERMS, seen([0.5, 0.5], 0.5))
    watch.close()
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [{key: line[key] for key in watch.records[0]} for line in lines] == watch.records
    assert [line["step"] for line in lines] == [0, 5]
    assert lines[1]["seconds"] >= lines[0]["seconds"] >= 0


def test_a_line_is_on_disk_as_soon_as_it_is_written(tmp_path: Path) -> None:
    watch = Monitor(tmp_path / "history.jsonl")
    watch(0, TERMS, {})
    assert json.loads((tmp_path / "history.jsonl").read_text())["step"] == 0
    watch.close()


def test_without_a_path_records_are_kept_and_nothing_is_written() -> None:
    watch = Monitor()
    watch(0, TERMS, {})
    watch.close()
    assert [record["step"] for record in watch.records] == [0]
