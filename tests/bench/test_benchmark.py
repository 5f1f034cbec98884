"""A benchmark from the command to the report: finished runs are not repeated, and it resumes after a kill or a lost worker."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from samekind.bench import benchmark
from samekind.bench.benchmark import BenchConfig, BenchResult, default_jobs, run_benchmark
from samekind.bench.grid import RunSpec
from samekind.bench.records import read_records
from samekind.bench.running import launch, runner
from samekind.bench.running.runner import RunContext, RunResult
from samekind.cli import app
from samekind.data.hub.toys import digits
from samekind.errors import DivergedError, SettingError

DOCS = Path(__file__).parents[2] / "docs" / "bench.md"
GRID = {"title": "Tiny", "data": "digits", "labels": 20, "splits": 2, "budget": 3e8, "options": {"batch_size": [10, 20]}}
ROWS = ["supervised", "mean_teacher", "label_propagation"]


def grid(folder: Path, **changes: object) -> str:
    path = folder / "tiny.json"
    path.write_text(json.dumps({**GRID, "methods": ROWS, **changes}))
    return str(path)


def run_in(folder: Path, name: str, out: str, **options: object) -> BenchResult:
    return run_benchmark(BenchConfig(name, jobs=1, **options), folder / out)  # type: ignore[arg-type]


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def whole(folder: Path) -> BenchResult:
    return run_in(folder, grid(folder), "whole")


def test_a_benchmark_writes_runs_table_figure_and_a_self_contained_report(whole: BenchResult, folder: Path) -> None:
    out = folder / "whole"
    assert {path.name for path in out.iterdir()} >= {"runs.jsonl", "table.md", "report.html", "splits.png"}
    assert [row[0] for row in whole.table.rows] == ROWS and len(read_records(out / "runs.jsonl")) == 6
    page = whole.report.read_text()
    assert "data:image/png;base64," in page and "Cost of a run" in page and not re.search(r'(src|href)="(?!data:)', page)
    assert "samekind bench" in page and not (out / "unfinished").exists()


def test_recorded_runs_are_not_repeated(whole: BenchResult, folder: Path) -> None:
    before = (folder / "whole" / "runs.jsonl").read_bytes()
    again = run_in(folder, grid(folder), "whole")
    assert (folder / "whole" / "runs.jsonl").read_bytes() == before and again.table == whole.table


def test_more_splits_are_added_to_the_recorded_ones(whole: BenchResult, folder: Path) -> None:
    out = folder / "more"
    out.mkdir()
    (out / "runs.jsonl").write_bytes((folder / "whole" / "runs.jsonl").read_bytes())
    run_in(folder, grid(folder), "more", splits=3, methods=("label_propagation",))
    records = read_records(out / "runs.jsonl")
    assert len(records) == 7 and (records[-1]["row"], records[-1]["seed"]) == ("label_propagation", 2)


def test_after_three_kills_at_random_times_the_table_is_the_same(whole: BenchResult, folder: Path) -> None:
    chance, out = random.Random(5), folder / "killed"
    fork = multiprocessing.get_context("fork")  # the libraries are loaded already
    kills = 0
    for after in sorted(chance.sample(range(5), 3)):  # finished runs before each kill
        with pytest.warns(DeprecationWarning, match="fork") if sys.version_info >= (3, 12) else _no_warning():
            child = fork.Process(target=run_in, args=(folder, grid(folder), "killed"))
            child.start()
        while count_lines(out / "runs.jsonl") < after and child.is_alive():
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.2))
        kills += child.is_alive()
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
    run_in(folder, grid(folder), "killed")
    assert kills == 3
    assert (out / "table.md").read_bytes() == (folder / "whole" / "table.md").read_bytes()
    records = read_records(out / "runs.jsonl")
    assert len(records) == len({record["key"] for record in records}) == 6


@contextmanager
def _no_warning() -> Iterator[None]:
    yield


def test_runs_in_parallel_processes_give_the_same_table(whole: BenchResult, folder: Path) -> None:
    result = run_benchmark(BenchConfig(grid(folder), methods=("label_propagation",), jobs=2), folder / "two")
    assert result.table.rows[0][1] == whole.table.rows[2][1]


def test_a_cluster_that_loses_a_worker_completes_the_table(whole: BenchResult, folder: Path) -> None:
    out = folder / "dask"
    with cluster(folder) as (address, workers):

        def kill_one_worker() -> None:
            while count_lines(out / "runs.jsonl") < 1:
                time.sleep(0.02)
            os.kill(workers[0].pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_one_worker)
        killer.start()
        result = run_benchmark(BenchConfig(grid(folder), methods=("label_propagation",), splits=6, dask=address), out)
        killer.join()
        workers[0].wait()
    assert workers[0].returncode == -signal.SIGKILL
    records = read_records(out / "runs.jsonl")
    assert {record["seed"] for record in records} == set(range(6)) and len(result.table.rows) == 1
    alone = {
        record["seed"]: record["error"] for record in read_records(folder / "whole" / "runs.jsonl") if record["row"] == ROWS[2]
    }
    assert {record["seed"]: record["error"] for record in records if record["seed"] in alone} == alone


def test_a_worker_that_dies_with_results_that_were_not_fetched_stops_no_benchmark(whole: BenchResult, folder: Path) -> None:
    specs = BenchConfig(grid(folder), methods=("label_propagation",), splits=6).bench().runs()
    with cluster(folder) as (address, workers), connect(address) as observer:
        results = launch.launch_runs(specs, RunContext("cpu", folder), dask=address)
        seeds = [next(results).record["seed"]]
        held: dict[str, tuple[str, ...]] = {}
        while sum(map(len, held.values())) < len(specs) - 1:  # the first result may be released already
            time.sleep(0.02)
            held = observer.has_what()
        fullest = max(held, key=lambda worker: len(held[worker]))
        lost_pid = observer.run(os.getpid, workers=[fullest])[fullest]
        lost, other = sorted(workers, key=lambda worker: worker.pid != lost_pid)
        other.send_signal(signal.SIGSTOP)  # so that it does not repeat the lost runs before the client hears of their loss
        lost.kill()
        while len(observer.scheduler_info()["workers"]) > 1:
            time.sleep(0.02)
        threading.Timer(2.0, other.send_signal, (signal.SIGCONT,)).start()
        time.sleep(0.5)  # meanwhile the scheduler tells the client which results are lost
        seeds += [result.record["seed"] for result in results]
    assert sorted(seeds) == list(range(6))


def connect(address: str) -> Any:
    return distributed.Client(address, timeout="60s", set_as_default=False)  # type: ignore[no-untyped-call]


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and two workers, each in its own process, and wait until both workers have joined."""
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    start = [sys.executable, "-W", "ignore", "-m"]
    local = ["--host", "127.0.0.1", "--no-dashboard"]
    scheduler = [*start, "distributed.cli.dask_scheduler", *local, "--port", "0", "--scheduler-file", str(file)]
    worker = [*start, "distributed.cli.dask_worker", *local, "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny"]
    processes = [subprocess.Popen(scheduler, cwd=folder, **quiet)]  # type: ignore[call-overload]
    try:
        while not file.exists() or not file.read_text().strip():
            assert processes[0].poll() is None
            time.sleep(0.05)
        command = [*worker, "--local-directory", str(folder)]
        processes += [subprocess.Popen(command, cwd=folder, **quiet) for _ in range(2)]  # type: ignore[call-overload]
        address = json.loads(file.read_text())["address"]
        with connect(address) as client:
            client.wait_for_workers(2, timeout=120)
        yield address, processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_settings_are_tuned_on_a_validation_set_with_the_same_number_of_trials_per_row(folder: Path) -> None:
    result = run_in(folder, grid(folder), "tuned", methods=("supervised", "lgc"), splits=1, tune=2)
    records = read_records(folder / "tuned" / "runs.jsonl")
    trials = [record for record in records if record["judged_on"] == "validation"]
    final = [record for record in records if record["judged_on"] == "test"]
    assert [record["row"] for record in trials] == ["supervised", "lgc"] * 2 and len(final) == 2
    assert {record["seed"] for record in trials} == {1000} and {record["seed"] for record in final} == {0}
    for record in final:
        own = [trial for trial in trials if trial["row"] == record["row"]]
        assert record["trials"] == 2 and record["split"]["validation"] == 0
        assert record["chosen"] == min(own, key=lambda trial: trial["error"])["chosen"]
    assert "tuned (2 trials)" in result.table.rows[0][0]
    before = (folder / "tuned" / "runs.jsonl").read_bytes()
    run_in(folder, grid(folder), "tuned", methods=("supervised", "lgc"), splits=1, tune=2)
    assert (folder / "tuned" / "runs.jsonl").read_bytes() == before


def test_a_failed_run_stops_no_other_run_and_is_repeated_next_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverging(spec: RunSpec, context: RunContext) -> RunResult:
        if spec.seed == 1:
            raise DivergedError("the loss is NaN")
        return runner.execute_run(spec, context)

    monkeypatch.setattr(launch, "execute_run", diverging)
    options = {"methods": ("label_propagation", "lgc")}
    result = run_in(folder, grid(folder), "failed", **options)
    assert result.table.rows[0][-1] == "1" and any("split 1 failed: the loss is NaN" in one for one in result.remarks)
    monkeypatch.undo()
    assert run_in(folder, grid(folder), "failed", **options).table.rows[0][-1] == "2"


def test_several_budgets_give_error_against_compute(folder: Path) -> None:
    result = run_in(folder, grid(folder), "compute", methods=("supervised",), budgets=(1e8, 4e8))
    assert (folder / "compute" / "compute.png").exists() and "Error against compute" in result.report.read_text()
    done = CliRunner().invoke(app, ["table", str(folder / "compute"), "--against-compute", "--plot", str(folder / "c.png")])
    assert done.exit_code == 0 and "TFLOP" in done.stdout and (folder / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("form", ["md", "latex", "csv", "html"])
def test_a_table_is_printed_in_every_format(form: str, whole: BenchResult, folder: Path) -> None:
    done = CliRunner().invoke(app, ["table", str(folder / "whole"), "--format", form, "--reference", "supervised"])
    assert done.exit_code == 0
    assert re.search(r"label(\\)?_propagation", done.stdout)
    assert {"md": "| method", "latex": "tabular", "csv": "method,data", "html": "<table"}[form] in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "cifar-10"], "did you mean 'cifar10'"),
        (["bench", "mnist", "--labels", "many"], "--labels is 'many'"),
        (["bench", "mnist", "--methods", "mean_teachers"], "did you mean 'mean_teacher'"),
        (["bench", "cpu", "--methods", "xyz"], "laprls, learned_graph, lgc"),
        (["bench", "mnist", "--scale", "gpu"], "expected 'cpu' or 'paper'"),
        (["bench", "cifar10", "--scale", "paper", "--methods", "cclps"], "did you mean 'cclp'"),
        (["bench", "toy", "--data", "nowhere"], "neither a path nor the name of a dataset"),
        (["table", "nowhere"], "no recorded runs in nowhere"),
        (["table", "x", "--format", "pdf"], "format is 'pdf'"),
    ],
)
def test_bad_input_gives_a_one_line_error_and_writes_nothing(arguments: list[str], message: str, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "out")] if arguments[0] == "bench" else []
    done = CliRunner().invoke(app, [*arguments, *out])
    assert done.exit_code == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_tuning_at_paper_scale_is_an_error(folder: Path) -> None:
    from samekind.bench.running.tune import tune_runs

    config = BenchConfig("cifar10", methods=("learned_graph",), scale="paper")
    with pytest.raises(SettingError, match="at paper scale the settings are those of the paper"):
        tune_runs(config.bench().runs(), 3, None)  # type: ignore[arg-type]


def test_the_grid_of_the_docs_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = DOCS.read_text(encoding="utf-8")
    (tmp_path / "leaves.toml").write_text(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0])
    images, y = digits()
    for number, (image, digit) in enumerate(zip(images[:160], y[:160], strict=True)):
        (tmp_path / "leaves" / f"digit {digit}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(15 * image, dtype=np.uint8)).save(tmp_path / "leaves" / f"digit {digit}" / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(one) for one in re.findall(r"^samekind (\w+ .*leaves.*)$", text.split("## Your own grid")[1], re.M)]
    assert [one[0] for one in commands] == ["bench", "table"]
    small = ["--budget", "2e8", "--jobs", "1"]  # everything else as in the docs
    for arguments in (commands[0] + small, commands[1]):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    records = read_records(tmp_path / "runs" / "leaves" / "runs.jsonl")
    assert sorted((record["row"], record["seed"]) for record in records) == [
        (row, seed) for row in ("mean_teacher", "supervised") for seed in range(3)
    ]
    assert {record["split"]["labelled"] for record in records} == {40}
    assert "My leaves" in (tmp_path / "runs" / "leaves" / "report.html").read_text()
    assert (tmp_path / "leaves.csv").read_text().startswith("method,data,labels")


def test_without_matplotlib_tables_and_report_are_written_but_decision_regions_are_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samekind.bench.benchmark.find_spec", lambda name: None)
    result = run_in(folder, grid(folder), "plain", methods=("label_propagation",), splits=1)
    assert result.report.exists() and any("no figures" in remark for remark in result.remarks)
    with pytest.raises(SettingError, match="toy draws figures"):
        run_in(folder, "toy", "planes")


def test_datasets_are_names_or_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("leaves", "digits"):
        (tmp_path / name).mkdir()
    assert BenchConfig("mnist", data=("digits", "leaves")).datasets() == ["digits", str(tmp_path / "leaves")]


def test_runs_on_a_gpu_or_at_paper_scale_are_not_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        default_jobs(BenchConfig("mnist", device="cuda"))
        == default_jobs(BenchConfig("cifar10", scale="paper", device="cpu"))
        == 1
    )
    monkeypatch.setattr("joblib.cpu_count", lambda: 7)
    assert default_jobs(BenchConfig("mnist", device="cpu")) == 7


def test_the_command_repeats_the_benchmark() -> None:
    config = BenchConfig(
        "mnist", methods=("vat", "learned_graph (RandAugment)"), labels=(50,), splits=2, budgets=(1e12,), tune=4
    )
    arguments = shlex.split(config.command(Path("runs/x")))
    assert arguments[:3] == ["samekind", "bench", "mnist"] and "vat,learned_graph (RandAugment)" in arguments
    assert arguments[5:] == "--labels 50 --budget 1e+12 --splits 2 --tune 4 --out runs/x".split()


def test_the_requirements_of_a_preset_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = list[str]()
    monkeypatch.setattr(benchmark, "missing_requirement", lambda preset: checked.append(preset.name))
    specs = BenchConfig("svhn", scale="paper", splits=3).bench().runs()
    assert benchmark._runnable(specs) == (specs, [])
    assert checked == list(dict.fromkeys(spec.preset for spec in specs)) and 3 * len(checked) == len(specs)
