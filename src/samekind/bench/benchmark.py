"""Run a benchmark: execute the runs that are missing, then write tables, figures and a report.

    samekind bench mnist --methods supervised,mean_teacher --splits 3

The output folder contains runs.jsonl (one line for each finished run), table.md, report.html and the figures. Runs in
runs.jsonl are not repeated, so the same command resumes an interrupted benchmark. A single run that was interrupted resumes
from its checkpoint in the subfolder unfinished/.
"""

from __future__ import annotations

import io
import shlex
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console

from samekind.bench.bench_data import NAMES, require_data
from samekind.bench.grid import Bench, RunSpec
from samekind.bench.presets.lookup import find_bench, find_preset
from samekind.bench.records import RECORDS_NAME, Record, RecordFile
from samekind.bench.reporting import result_tables
from samekind.bench.reporting.compare import Comparison, compare_runs
from samekind.bench.reporting.html_report import (
    HtmlReport,
    ReportFigure,
    ReportSection,
    collect_versions,
    make_output_dir,
    render_report,
)
from samekind.bench.reporting.render import comparison_sections
from samekind.bench.reporting.text_table import TextTable, to_markdown
from samekind.bench.running.launch import launch_runs
from samekind.bench.running.paper_scale import missing_requirement
from samekind.bench.running.runner import RunContext, RunResult, code_version
from samekind.defaults import device_for
from samekind.errors import Interrupted, SettingError
from samekind.files.io import atomic_write
from samekind.methods import METHODS, split_name

T = TypeVar("T")
PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}


@dataclass(frozen=True)
class BenchConfig:
    """Options of `samekind bench`: the name of a bench or of a grid file, and values that replace those of the bench."""

    name: str
    methods: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    data: tuple[str, ...] = ()
    splits: int | None = None
    first_seed: int | None = None
    budgets: tuple[float, ...] = ()
    scale: str = "cpu"
    device: str = "auto"
    jobs: int = 0  # number of runs at the same time; 0: chosen by `default_jobs`
    dask: str | None = None
    tune: int = 0  # number of trials of the hyperparameter search for each row and column; 0: no search

    def bench(self) -> Bench:
        """Return the bench of this name, with the values of these options."""
        bench = find_bench(self.name, self.scale).select(self.methods, self.labels, self.datasets(), self.budgets)
        splits = bench.splits if self.splits is None else self.splits
        return replace(bench, splits=splits, first_seed=bench.first_seed if self.first_seed is None else self.first_seed)

    def datasets(self) -> list[str]:
        """Return the datasets as names or absolute paths.

        Relative paths could fail in a worker with another working directory.
        """
        return [name if name in NAMES or not Path(name).exists() else str(Path(name).resolve()) for name in self.data]

    def folder(self) -> Path:
        """Return the output folder that is used if the user gives none."""
        stem = Path(self.name).stem
        return Path("runs") / (f"{stem}-paper" if self.scale == "paper" else stem)

    def command(self, out: Path) -> str:
        """Return the command that repeats this benchmark."""
        arguments = ["samekind", "bench", self.name]
        for option, values in (("methods", self.methods), ("labels", self.labels), ("data", self.data)):
            arguments += [f"--{option}", ",".join(str(value) for value in values)] if values else []
        arguments += ["--budget", ",".join(f"{budget:g}" for budget in self.budgets)] if self.budgets else []
        for option, value in (("splits", self.splits), ("first-seed", self.first_seed), ("tune", self.tune or None)):
            arguments += [f"--{option}", str(value)] if value is not None else []
        arguments += ["--scale", self.scale] if self.scale != "cpu" else []
        return shlex.join([*arguments, "--out", str(out)])


def split_csv(text: str, convert: Callable[[str], T], option: str) -> tuple[T, ...]:
    """Return the values of a command-line option that are separated by commas; raise SettingError if one cannot be
    converted.
    """
    try:
        return tuple(convert(value.strip()) for value in text.split(",") if value.strip())
    except ValueError as error:
        raise SettingError(f"--{option} is {text!r}; expected numbers separated by commas") from error


@dataclass(frozen=True)
class BenchResult:
    """Result of a benchmark: the table of errors, sentences that explain the table, and the path of the report."""

    table: TextTable
    remarks: list[str]
    report: Path


class BenchSession:
    """Output folder of a benchmark with the records of its runs, and the workers that execute missing runs."""

    def __init__(self, folder: Path, records: RecordFile, config: BenchConfig, console: Console) -> None:
        self.folder, self.records, self.console = folder, records, console
        self.context = RunContext(config.device, folder.resolve())
        self.jobs, self.dask = config.jobs or default_jobs(config), config.dask
        self.failed: list[Record] = []

    def execute(self, specs: Sequence[RunSpec], title: str) -> None:
        """Execute all runs that have no record yet, and write a record when a run finishes."""
        missing = list({spec.key: spec for spec in specs if spec.key not in self.records}.values())
        self.console.print(f"{title}: {len(specs)} runs, {len(specs) - len(missing)} of them already recorded", **PLAIN)
        try:
            results = launch_runs(missing, self.context, jobs=min(self.jobs, len(missing)), dask=self.dask)
            for number, result in enumerate(results, start=1):
                self._store(result)
                self.console.print(f"{number}/{len(missing)}  {_describe(result.record)}", **PLAIN)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted. Finished runs are in {self.records.path}, and unfinished runs have checkpoints beside it. Run "
                "the same command again to resume.",
                signal.SIGINT,
            ) from None

    def records_of(self, specs: Iterable[RunSpec]) -> list[Record]:
        """Return the records of these runs, in the same order. Row names and published errors are taken from `specs`."""
        recorded = [(spec, self.records[spec.key]) for spec in specs if spec.key in self.records]
        return [{**record, "bench": s.bench, "row": s.row, "published": s.published} for s, record in recorded]

    def arrays(self, record: Record) -> dict[str, Any]:
        """Return the arrays that a run has stored for figures, by name; an empty dict if there are none."""
        path = self._array_file(record["key"])
        if not path.exists():
            return {}
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)

    def _store(self, result: RunResult) -> None:
        record, arrays = result
        if "failed" in record:
            self.failed.append(record)
        if arrays:
            blob = io.BytesIO()
            np.savez_compressed(blob, allow_pickle=False, **arrays)
            path = self._array_file(record["key"])
            path.parent.mkdir(exist_ok=True)
            atomic_write(path, blob.getvalue())
        self.records.append(record)
        self.context.delete_checkpoint(record["key"])

    def _array_file(self, key: str) -> Path:
        return self.folder / "arrays" / f"{key}.npz"


def run_benchmark(config: BenchConfig, out: Path | None = None, console: Console | None = None) -> BenchResult:
    """Execute the missing runs, write tables, figures and report, and return the table of errors."""
    console = console or Console(quiet=True)
    bench = config.bench()
    device_for(config.device)  # raises an error for a device that does not exist, before any file is written
    if not all(0 < budget < np.inf for budget in config.budgets):
        raise SettingError(
            f"--budget is {config.budgets}; expected numbers of floating-point operations above 0, such as 1e12."
        )
    if bench.measure == "regions" and find_spec("matplotlib") is None:
        raise SettingError(f"{bench.name} draws figures, and matplotlib is not installed. Install samekind[plots].")
    specs, not_runnable = _runnable(bench.runs())
    if config.dask is None:  # with Dask, only the machines of the workers need the data
        for data in dict.fromkeys(spec.data for spec in specs):
            require_data(data)
    folder = make_output_dir(out or config.folder())
    with RecordFile(folder / RECORDS_NAME) as records:
        session = BenchSession(folder, records, config, console)
        if config.tune:
            from samekind.bench.running.tune import tune_runs

            specs = tune_runs(specs, config.tune, session, bench.first_seed)
        session.execute(specs, bench.title)
        return _write_outputs(bench, specs, session, config, not_runnable)


def _runnable(specs: Sequence[RunSpec]) -> tuple[list[RunSpec], list[str]]:
    """Return the runs that can be executed, and sentences that explain why the others cannot."""
    reasons = {
        name: missing_requirement(find_preset(name)) for name in dict.fromkeys(spec.preset for spec in specs if spec.preset)
    }
    runnable = [spec for spec in specs if reasons.get(spec.preset) is None]
    messages = [f"{name} cannot run yet: {reason}" for name, reason in reasons.items() if reason is not None]
    if not runnable:
        raise SettingError(messages[0])
    return runnable, messages


def _write_outputs(
    bench: Bench, specs: Sequence[RunSpec], session: BenchSession, config: BenchConfig, not_runnable: Sequence[str]
) -> BenchResult:
    records = session.records_of(specs)
    comparison = compare_runs(records, bench.reference if any(r["row"] == bench.reference for r in records) else "")
    remarks = [*result_tables.remarks(comparison, session.failed), *not_runnable]
    sections = comparison_sections(comparison)
    text = "\n".join([f"# {bench.title}\n", *(f"{one.title}\n\n{to_markdown(one.table)}" for one in sections[:2]), *remarks])
    atomic_write(session.folder / "table.md", f"{text}\n".encode())
    figures = _draw_figures(bench, comparison, session)
    if not figures:
        remarks.append("matplotlib is not installed, so there are no figures. Install samekind[plots].")
    for figure in figures:
        atomic_write(session.folder / figure.file, figure.png)
    path = session.folder / "report.html"
    atomic_write(
        path, render_report(_report(bench, comparison, sections, figures, remarks, config.command(session.folder))).encode()
    )
    with suppress(OSError):  # fails if the folder does not exist, or contains the checkpoint of a failed run
        (session.folder / "unfinished").rmdir()
    return BenchResult(sections[0].table, remarks, path)


def _draw_figures(bench: Bench, comparison: Comparison, session: BenchSession) -> list[ReportFigure]:
    """Return the figures of the report; an empty list if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        return []
    from samekind.bench.reporting.bench_figures import make_bench_figures

    return make_bench_figures(bench.measure, comparison, session.arrays)


def _report(
    bench: Bench,
    comparison: Comparison,
    sections: Sequence[ReportSection],
    figures: Sequence[ReportFigure],
    remarks: Sequence[str],
    command: str,
) -> HtmlReport:
    records = [record for runs in comparison.runs.values() for record in runs]
    warnings = sorted({f"{one['row']}, split {one['seed']}: {text}" for one in records for text in one["warnings"]})
    code = code_version()
    return HtmlReport(
        title=bench.title,
        lead=_lead(comparison),
        facts=f"{len(records)} runs, splits {_format_seeds(records)}. samekind {code['version']}, code {code['hash']}.",
        table=sections[0].table,
        about_table=" ".join(remarks),
        method_summaries=_method_summaries(records),
        figures=figures,
        notes=warnings,
        command=command,
        example="",
        settings=_format_settings(bench),
        versions=collect_versions("one thread per run" if bench.scale == "cpu" else "all threads of torch"),
        sections=sections[1:],
    )


def _lead(comparison: Comparison) -> str:
    best = {column: comparison.best(column) for column in comparison.columns}
    significant = [f"{row} on {column.label(comparison.columns)}" for column, row in best.items() if row is not None]
    if not significant:
        return "No method is significantly better than all others."
    return f"Significantly better than all others: {'; '.join(significant)}."


def _method_summaries(records: Iterable[Record]) -> Mapping[str, str]:
    names = dict.fromkeys(part for record in records for part in split_name(record["method"]) if part is not None)
    return {name: METHODS[name].summary for name in names}


def _format_settings(bench: Bench) -> dict[str, str]:
    rows = {"all rows": bench.options, **{one.name: {**one.settings, **one.options} for one in bench.rows}}
    texts = {name: ", ".join(f"{key} {value}" for key, value in values.items()) for name, values in rows.items()}
    return {name: text or "defaults of the estimator" for name, text in texts.items()}


def _format_seeds(records: Sequence[Record]) -> str:
    seeds = sorted({record["seed"] for record in records})
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])


def _describe(record: Record) -> str:
    run = f"{record['row']}, {Path(record['data']).name}, {record['labels']} labels, split {record['seed']}"
    if "failed" in record:
        return f"{run}: failed. {record['failed']}"
    cost = f"{record['cost']['flops'] / 1e12:.3g} TFLOP, {record['cost']['seconds']:.0f} s"
    return f"{run}: error {record['error']:.2f} % ({record['judged_on']}), {cost}"


def default_jobs(config: BenchConfig) -> int:
    """Return how many runs are executed at the same time: one for each core, but only one on a GPU and at paper scale."""
    from joblib import cpu_count

    on_gpu = device_for("auto").type != "cpu" if config.device == "auto" else not config.device.startswith("cpu")
    single = config.scale == "paper" or on_gpu
    return 1 if single else int(cpu_count())
