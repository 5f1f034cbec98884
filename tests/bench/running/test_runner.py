"""One run: its split, its budget, its single evaluation on the test set, and its record."""

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
from samekind.bench.running.runner import RunContext, RunResult, code_version, execute_run, steps_in_budget
from samekind.data.splits import draw_split
from samekind.errors import SettingError

BUDGET = 2e9
STEP_FLOPS = 5.74e9  # FLOPs of a step of a preset at a sixteenth of its width
SPEC = RunSpec("t", "mean_teacher", "digits", 20, "mean_teacher", 3, budget=BUDGET, options={"batch_size": (10, 20)})


@pytest.fixture(scope="module")
def teacher() -> RunResult:
    return execute_run(SPEC)


def test_a_record_has_split_cost_code_and_settings_and_is_json(teacher: RunResult) -> None:
    record = teacher.record
    assert json.loads(json.dumps(record)) == record and record["key"] == SPEC.key
    assert record["split"]["hash"] == draw_split(load_bench_data("digits", 0.2).y, 20, 3).hash
    wrong = record["error"] * len(load_bench_data("digits", 0.2).y_test) / 100
    assert record["judged_on"] == "test" and wrong == pytest.approx(round(wrong)) and record["error"] < 80.0  # by chance 90
    assert {"flops", "seconds", "cpu_seconds", "rows", "steps", "peak_memory_mb"} <= set(record["cost"])
    assert record["cost"]["rows"] == 30 * record["cost"]["steps"]
    assert record["code"] == code_version() and len(record["code"]["hash"]) == 12
    assert (record["settings"], record["options"], record["budget"]) == ({}, {"batch_size": [10, 20]}, BUDGET)


def test_the_hash_of_the_code_covers_the_whole_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "one.py").write_text("x = 1")
    monkeypatch.setattr("samekind.__file__", str(tmp_path / "__init__.py"))
    before = code_version.__wrapped__()["hash"]
    (tmp_path / "nets" / "one.py").write_text("x = 2")
    assert code_version.__wrapped__()["hash"] != before


def test_the_student_is_evaluated_besides_the_ema_teacher(teacher: RunResult) -> None:
    assert teacher.record["student_error"] != teacher.record["error"]
    alone = execute_run(replace(SPEC, method="supervised")).record
    assert alone["student_error"] == alone["error"]


def test_the_same_run_gives_the_same_errors(teacher: RunResult) -> None:
    again = execute_run(SPEC).record
    assert (again["error"], again["student_error"]) == (teacher.record["error"], teacher.record["student_error"])


@pytest.mark.parametrize("method", ["supervised", "learned_graph"])
def test_every_method_gets_the_same_budget_up_to_one_step(method: str, teacher: RunResult) -> None:
    for record in (teacher.record, execute_run(replace(SPEC, method=method)).record):
        cost = record["cost"]
        assert BUDGET - cost["flops"] / cost["steps"] <= cost["flops"] <= BUDGET


@pytest.mark.parametrize(("method", "budget"), [("lpdssl", 4e9), ("gscnn", 4e10)])
def test_full_passes_over_the_dataset_count_towards_the_budget(method: str, budget: float) -> None:
    cost = execute_run(replace(SPEC, method=method, budget=budget)).record["cost"]
    assert 0.1 * budget < cost["full_pass_flops"] < cost["flops"]
    assert 0.7 * budget < cost["flops"] < 1.1 * budget  # the number of iterations of the solvers depends on the features


def test_operations_on_a_memory_that_grows_count_towards_the_budget() -> None:
    # a probe of a few steps has a small bank, so lookups and propagations are almost free in it
    budget = 1e10
    cost = execute_run(replace(SPEC, method="dataset_graph", budget=budget, settings={"bank_size": 2000})).record["cost"]
    assert 0.8 * budget < cost["flops"] < 1.02 * budget


def test_a_budget_below_one_full_pass_is_refused() -> None:
    with pytest.raises(
        SettingError, match=r"one full pass of gscnn over the dataset takes .* TFLOP, but the budget is only 2e-06 TFLOP"
    ):
        execute_run(replace(SPEC, method="gscnn", budget=2e6))


def test_supervised_warmup_counts_towards_the_budget() -> None:
    cost = execute_run(replace(SPEC, options={"batch_size": (10, 20), "supervised_warmup": 0.5})).record["cost"]
    assert 0.9 * BUDGET <= cost["flops"] <= 1.05 * BUDGET  # both stages are rounded to whole steps


def test_the_budget_treats_images_behind_an_encoder_as_vectors() -> None:
    n_labelled = 500  # enough for a supervised warm-up if they were treated as images
    x = np.random.default_rng(0).integers(0, 256, (n_labelled + 20, 32, 32, 3), dtype=np.uint8)
    y = np.array([str(i % 2) if i < n_labelled else None for i in range(len(x))], dtype=object)

    def encoder(images: np.ndarray) -> np.ndarray:
        return images.reshape(len(images), -1)[:, :8].astype(np.float32)

    default = RunSpec("t", "mean_teacher", "images", n_labelled, "mean_teacher", 0, budget=1e9, options={"encoder": encoder})
    without_warmup = replace(default, options={"encoder": encoder, "supervised_warmup": 0.0})
    assert steps_in_budget(default, x, y) == steps_in_budget(without_warmup, x, y)


def test_a_trial_of_the_search_does_not_read_the_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = replace(SPEC, method="supervised", validation=True)
    whole = load_bench_data("digits", 0.2)
    record = execute_run(trial).record
    assert record["judged_on"] == "validation" and record["split"]["validation"] == len(whole.y) // 10
    blind = replace(whole, x_test=np.zeros((0, 1)), y_test=np.zeros(0, dtype=np.int64))
    monkeypatch.setattr(runner, "load_bench_data", lambda *_: blind)
    assert execute_run(trial).record["error"] == record["error"]


def test_hidden_labels_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(SPEC, method="supervised")
    whole = load_bench_data("digits", 0.2)
    split = draw_split(whole.y, 20, 3)
    poison = (whole.y + 1) % 10
    poison[split.labelled] = whole.y[split.labelled]
    before = execute_run(spec).record
    monkeypatch.setattr(runner, "load_bench_data", lambda *_: replace(whole, y=poison))
    monkeypatch.setattr(runner, "draw_split", lambda *_, **__: split)
    assert execute_run(spec).record["error"] == before["error"]


def test_a_finished_run_without_a_record_is_not_trained_again(tmp_path: Path) -> None:
    context = RunContext("cpu", tmp_path)
    first, second = execute_run(SPEC, context).record, execute_run(SPEC, context).record
    assert (tmp_path / "unfinished" / SPEC.key).is_dir()
    assert second["cost"]["seconds"] == first["cost"]["seconds"] and second["error"] == first["error"]
    context.delete_checkpoint(SPEC.key)
    assert not (tmp_path / "unfinished" / SPEC.key).exists()


def test_a_worker_without_the_folder_keeps_no_checkpoint(tmp_path: Path) -> None:
    assert RunContext("cpu", tmp_path / "elsewhere").checkpoint_folder("key") is None


def test_the_record_of_a_method_on_a_fixed_graph_has_the_flops_of_its_graph_and_its_seconds() -> None:
    record = execute_run(replace(SPEC, method="label_propagation", options={})).record
    n, d = 1437, 64  # training samples of the digits, and their pixels
    assert record["cost"]["flops"] >= 2 * n * n * d and record["cost"]["seconds"] > 0 and record["error"] < 50.0


def test_a_run_on_2d_data_stores_the_arrays_of_its_figure() -> None:
    spec = RunSpec("toy", "lgc", "moons", 12, "lgc", 0, measure="regions")
    record, arrays = execute_run(spec)
    assert record["judged_on"] == "unlabelled"
    assert arrays["predicted"].shape == (6000,) and arrays["probability"].shape == (100, 100)
    assert len(arrays["labelled"]) == 12


def test_similarity_is_measured_on_test_images(teacher: RunResult) -> None:
    record, arrays = execute_run(replace(SPEC, measure="similarity"))
    numbers = record["similarity"]
    assert 0 <= numbers["precision_at_9"] <= 100 and numbers["precision_at_9_gaussian"] > 80  # digits are easy on pixels
    assert 0 <= numbers["auc"] <= 1 and arrays["W"].shape == (len(arrays["y"]),) * 2
    assert arrays["tiles"].shape == (2, 10, 10, 8, 8) and arrays["kinds"].shape == (2, 10, 10)
    found = arrays["kinds"][1]
    assert np.mean(found[:, 1:] == found[:, :1]) > 0.7  # by pixels
    assert record["error"] == teacher.record["error"]


def images(path: Path, n_classes: int) -> str:
    """Write random images of the right shape."""
    generator = np.random.default_rng(0)
    y = np.arange(12 * n_classes) % n_classes
    np.savez(path, x=generator.integers(0, 256, (len(y), 32, 32, 3), dtype=np.uint8), y=y.astype(str))
    return str(path)


@pytest.mark.parametrize("table", TABLES)
def test_two_steps_of_a_preset_of_each_table(table: str, tmp_path: Path) -> None:
    bench: Any = PAPER_BENCHES[table.replace("_", "-")]
    chosen = next(spec for spec in bench.runs() if spec.method == "learned_graph")
    n_classes = 100 if chosen.data == "cifar100" else 10
    data = images(tmp_path / "images.npz", n_classes)
    spec = replace(chosen, data=data, labels=2 * n_classes, width=1 / 16, budget=2.5 * STEP_FLOPS, test=0.1)
    record, arrays = execute_run(replace(spec, measure="similarity") if table == "cifar10" else spec)
    assert ("tiles" in arrays) == ("similarity" in record) == (table == "cifar10")
    assert record["cost"]["steps"] == 2 and record["preset"] == chosen.preset
    assert record["published"] == chosen.published and record["cost"]["rows"] == 2 * 120
