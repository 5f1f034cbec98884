"""One run under the protocol: its split, its budget, its one look at the test set, and its record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samekind.bench.bench_data import load_bench_data
from samekind.bench.grid import RunSpec
from samekind.bench.presets.lookup import PAPER_BENCHES, TABLES
from samekind.bench.running import runner
from samekind.bench.running.runner import RunContext, RunResult, code_version, run, steps_in_budget
from samekind.data.splits import draw_split

BUDGET = 2e9
STEP = 5.74e9  # operations of a step of a preset at a sixteenth of its width
CELL = RunSpec("t", "mean_teacher", "digits", 20, "mean_teacher", 3, budget=BUDGET, options={"batch_size": (10, 20)})


@pytest.fixture(scope="module")
def teacher() -> RunResult:
    return run(CELL)


def test_a_record_says_split_cost_code_and_settings_and_goes_through_json(teacher: RunResult) -> None:
    record = teacher.record
    assert json.loads(json.dumps(record)) == record and record["key"] == CELL.key
    assert record["split"]["hash"] == draw_split(load_bench_data("digits", 0.2).y, 20, 3).hash
    wrong = record["error"] * len(load_bench_data("digits", 0.2).y_test) / 100
    assert record["judged_on"] == "test" and wrong == pytest.approx(round(wrong)) and record["error"] < 80.0  # by chance 90
    assert {"flops", "seconds", "cpu_seconds", "rows", "steps", "peak_memory_mb"} <= set(record["cost"])
    assert record["cost"]["rows"] == 30 * record["cost"]["steps"]
    assert record["code"] == code_version() and len(record["code"]["hash"]) == 12
    assert (record["settings"], record["options"], record["budget"]) == ({}, {"batch_size": [10, 20]}, BUDGET)


def test_the_student_is_judged_beside_the_average(teacher: RunResult) -> None:
    assert teacher.record["student_error"] != teacher.record["error"]
    alone = run(replace(CELL, method="supervised")).record
    assert alone["student_error"] == alone["error"]


def test_the_same_cell_gives_the_same_errors(teacher: RunResult) -> None:
    again = run(CELL).record
    assert (again["error"], again["student_error"]) == (teacher.record["error"], teacher.record["student_error"])


@pytest.mark.parametrize("method", ["supervised", "learned_graph"])
def test_every_method_gets_the_same_budget_up_to_one_step(method: str, teacher: RunResult) -> None:
    for record in (teacher.record, run(replace(CELL, method=method)).record):
        cost = record["cost"]
        assert BUDGET - cost["flops"] / cost["steps"] <= cost["flops"] <= BUDGET


def test_steps_on_the_labels_alone_are_counted_into_the_budget() -> None:
    cost = run(replace(CELL, options={"batch_size": (10, 20), "supervised_warmup": 0.5})).record["cost"]
    assert 0.9 * BUDGET <= cost["flops"] <= 1.05 * BUDGET  # the two shares are whole steps each


def test_photos_behind_an_encoder_are_vectors_to_the_budget() -> None:
    n_labelled = 500  # of photos, which would have some of the run for themselves
    x = np.random.default_rng(0).integers(0, 256, (n_labelled + 20, 32, 32, 3), dtype=np.uint8)
    y = np.array([str(row % 2) if row < n_labelled else None for row in range(len(x))], dtype=object)

    def encoder(images: np.ndarray) -> np.ndarray:
        return images.reshape(len(images), -1)[:, :8].astype(np.float32)

    asked = RunSpec("t", "mean_teacher", "photos", n_labelled, "mean_teacher", 0, budget=1e9, options={"encoder": encoder})
    none_first = replace(asked, options={"encoder": encoder, "supervised_warmup": 0.0})
    assert steps_in_budget(asked, x, y) == steps_in_budget(none_first, x, y)


def test_while_settings_are_chosen_the_test_set_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = replace(CELL, method="supervised", validation=True)
    whole = load_bench_data("digits", 0.2)
    record = run(chosen).record
    assert record["judged_on"] == "validation" and record["split"]["validation"] == len(whole.y) // 10
    blind = replace(whole, x_test=np.zeros((0, 1)), y_test=np.zeros(0, dtype=np.int64))
    monkeypatch.setattr(runner, "load_bench_data", lambda *_: blind)
    assert run(chosen).record["error"] == record["error"]


def test_labels_that_the_split_hides_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = replace(CELL, method="supervised")
    whole = load_bench_data("digits", 0.2)
    split = draw_split(whole.y, 20, 3)
    poison = (whole.y + 1) % 10
    poison[split.labelled] = whole.y[split.labelled]
    before = run(cell).record
    monkeypatch.setattr(runner, "load_bench_data", lambda *_: replace(whole, y=poison))
    monkeypatch.setattr(runner, "draw_split", lambda *_, **__: split)
    assert run(cell).record["error"] == before["error"]


def test_a_run_that_is_over_but_not_recorded_is_not_made_again(tmp_path: Path) -> None:
    where = RunContext("cpu", tmp_path)
    first, second = run(CELL, where).record, run(CELL, where).record
    assert (tmp_path / "unfinished" / CELL.key).is_dir()
    assert second["cost"]["seconds"] == first["cost"]["seconds"] and second["error"] == first["error"]
    where.forget(CELL.key)
    assert not (tmp_path / "unfinished" / CELL.key).exists()


def test_a_folder_that_a_worker_does_not_have_is_left_alone(tmp_path: Path) -> None:
    assert RunContext("cpu", tmp_path / "elsewhere").unfinished("key") is None


def test_a_method_on_a_fixed_graph_takes_no_budget_and_says_its_seconds() -> None:
    record = run(replace(CELL, method="label_propagation", options={})).record
    assert record["cost"]["flops"] == 0 and record["cost"]["seconds"] > 0 and record["error"] < 50.0


def test_a_plane_leaves_what_its_figure_needs() -> None:
    cell = RunSpec("toy", "lgc", "moons", 12, "lgc", 0, measure="regions")
    record, arrays = run(cell)
    assert record["judged_on"] == "unlabelled"
    assert arrays["predicted"].shape == (6000,) and arrays["probability"].shape == (100, 100)
    assert len(arrays["labelled"]) == 12


def test_similarity_is_measured_on_test_images(teacher: RunResult) -> None:
    record, arrays = run(replace(CELL, measure="similarity"))
    numbers = record["similarity"]
    assert 0 <= numbers["precision_at_9"] <= 100 and numbers["precision_at_9_gaussian"] > 80  # digits are easy on pixels
    assert 0 <= numbers["auc"] <= 1 and arrays["W"].shape == (len(arrays["y"]),) * 2
    assert arrays["tiles"].shape == (2, 10, 10, 8, 8) and arrays["kinds"].shape == (2, 10, 10)
    found = arrays["kinds"][1]
    assert np.mean(found[:, 1:] == found[:, :1]) > 0.7  # by pixels, which are good enough here
    assert record["error"] == teacher.record["error"]


def images(path: Path, n_classes: int) -> str:
    """Random pictures of the right shape: enough for steps, never for a result."""
    generator = np.random.default_rng(0)
    y = np.arange(12 * n_classes) % n_classes
    np.savez(path, x=generator.integers(0, 256, (len(y), 32, 32, 3), dtype=np.uint8), y=y.astype(str))
    return str(path)


@pytest.mark.parametrize("table", TABLES)
def test_two_steps_of_a_preset_of_each_table_run_under_the_protocol(table: str, tmp_path: Path) -> None:
    bench: Any = PAPER_BENCHES[table.replace("_", "-")]
    chosen = next(cell for cell in bench.runs() if cell.method == "learned_graph")
    n_classes = 100 if chosen.data == "cifar100" else 10
    data = images(tmp_path / "images.npz", n_classes)
    cell = replace(chosen, data=data, labels=2 * n_classes, width=1 / 16, budget=2.5 * STEP, test=0.1)
    record, arrays = run(replace(cell, measure="similarity") if table == "cifar10" else cell)
    assert ("tiles" in arrays) == ("similarity" in record) == (table == "cifar10")
    assert record["cost"]["steps"] == 2 and record["preset"] == chosen.preset
    assert record["published"] == chosen.published and record["cost"]["rows"] == 2 * 120
