"""A bench from beginning to end: its runs, or those that are still to be made, its tables, its figures and its report.

    samekind bench mnist --methods supervised,mean_teacher --splits 3

The folder holds runs.jsonl (a line for each finished run), table.md, report.html and the figures. What stands in runs.jsonl is
not made again, so a bench that was stopped or killed goes on when the same is asked for once more; a long run goes on from its
own checkpoint below unfinished/.
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
from samekind.bench.records import NAME, Record, RecordFile
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
from samekind.io import atomic_write
from samekind.methods import METHODS, parts

T = TypeVar("T")
PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}


@dataclass(frozen=True)
class BenchConfig:
    """What a user wants: the name of a bench or a grid file, and what is to be different from it."""

    name: str
    methods: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    data: tuple[str, ...] = ()
    splits: int | None = None
    first_seed: int | None = None
    budgets: tuple[float, ...] = ()
    scale: str = "cpu"
    device: str = "auto"
    jobs: int = 0  # 0: see usual_jobs
    dask: str | None = None
    tune: int = 0  # settings that are tried for each row on validation images

    def bench(self) -> Bench:
        found = find_bench(self.name, self.scale).select(self.methods, self.labels, self.places(), self.budgets)
        splits = found.splits if self.splits is None else self.splits
        return replace(found, splits=splits, first_seed=found.first_seed if self.first_seed is None else self.first_seed)

    def places(self) -> list[str]:
        """Data by name, or in full where they lie: a worker may start elsewhere."""
        return [name if name in NAMES or not Path(name).exists() else str(Path(name).resolve()) for name in self.data]

    def folder(self) -> Path:
        """Where it goes if nobody says otherwise."""
        stem = Path(self.name).stem
        return Path("runs") / (f"{stem}-paper" if self.scale == "paper" else stem)

    def command(self, out: Path) -> str:
        """What to type to get the same again."""
        words = ["samekind", "bench", self.name]
        for option, values in (("methods", self.methods), ("labels", self.labels), ("data", self.data)):
            words += [f"--{option}", ",".join(str(value) for value in values)] if values else []
        words += ["--budget", ",".join(f"{budget:g}" for budget in self.budgets)] if self.budgets else []
        for option, value in (("splits", self.splits), ("first-seed", self.first_seed), ("tune", self.tune or None)):
            words += [f"--{option}", str(value)] if value is not None else []
        words += ["--scale", self.scale] if self.scale != "cpu" else []
        return shlex.join([*words, "--out", str(out)])


def split_csv(words: str, kind: Callable[[str], T], option: str) -> tuple[T, ...]:
    """Values with commas between them."""
    try:
        return tuple(kind(word.strip()) for word in words.split(",") if word.strip())
    except ValueError as error:
        raise SettingError(f"--{option} is {words!r}; expected numbers with commas between them") from error


@dataclass(frozen=True)
class BenchResult:
    """The table to show, what must be said of it, and where the report is."""

    table: TextTable
    remarks: list[str]
    report: Path


class BenchSession:
    """Where runs are handed out and what comes of them is kept."""

    def __init__(self, folder: Path, records: RecordFile, asked: BenchConfig, console: Console) -> None:
        self.folder, self.records, self.console = folder, records, console
        self.where = RunContext(asked.device, folder.resolve())
        self.jobs, self.dask = asked.jobs or default_jobs(asked), asked.dask
        self.failed: list[Record] = []

    def complete(self, cells: Sequence[RunSpec], title: str) -> None:
        """Makes all runs that are not recorded yet, and records each as it ends."""
        todo = list({cell.key: cell for cell in cells if cell.key not in self.records}.values())
        self.console.print(f"{title}: {len(cells)} runs, {len(cells) - len(todo)} of them recorded before", **PLAIN)
        try:
            for done, finished in enumerate(
                launch_runs(todo, self.where, jobs=min(self.jobs, len(todo)), dask=self.dask), start=1
            ):
                self._keep(finished)
                self.console.print(f"{done}/{len(todo)}  {_said(finished.record)}", **PLAIN)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped. Finished runs are in {self.records.path}, and unfinished ones are kept beside it. Run the same "
                "again, and it goes on from there.",
                signal.SIGINT,
            ) from None

    def of(self, cells: Iterable[RunSpec]) -> list[Record]:
        """The records of cells, in their order, under the names they have now."""
        there = [(cell, self.records[cell.key]) for cell in cells if cell.key in self.records]
        return [{**record, "bench": c.bench, "row": c.row, "published": c.published} for c, record in there]

    def arrays(self, record: Record) -> dict[str, Any]:
        """What a run has left for figures."""
        path = self._array_file(record["key"])
        if not path.exists():
            return {}
        with np.load(path, allow_pickle=False) as held:
            return dict(held)

    def _keep(self, finished: RunResult) -> None:
        record, arrays = finished
        if "failed" in record:
            self.failed.append(record)
        if arrays:
            blob = io.BytesIO()
            np.savez_compressed(blob, allow_pickle=False, **arrays)
            path = self._array_file(record["key"])
            path.parent.mkdir(exist_ok=True)
            atomic_write(path, blob.getvalue())
        self.records.append(record)
        self.where.forget(record["key"])

    def _array_file(self, key: str) -> Path:
        return self.folder / "arrays" / f"{key}.npz"


def run(asked: BenchConfig, out: Path | None = None, console: Console | None = None) -> BenchResult:
    """Makes the runs that are missing, then tables, figures and report."""
    console = console or Console(quiet=True)
    bench = asked.bench()
    if bench.measure == "regions" and find_spec("matplotlib") is None:
        raise SettingError(f"{bench.name} is made of figures, and matplotlib is not installed. Install samekind[plots].")
    cells, left_out = _runnable(bench.runs())
    if asked.dask is None:  # else the workers have it
        for data in dict.fromkeys(cell.data for cell in cells):
            require_data(data)
    folder = make_output_dir(out or asked.folder())
    with RecordFile(folder / NAME) as records:
        desk = BenchSession(folder, records, asked, console)
        if asked.tune:
            from samekind.bench.running.tune import tune_runs

            cells = tune_runs(cells, asked.tune, desk, bench.first_seed)
        desk.complete(cells, bench.title)
        return _write_outputs(bench, cells, desk, asked, left_out)


def _runnable(cells: Sequence[RunSpec]) -> tuple[list[RunSpec], list[str]]:
    """The cells that can be run, and why others cannot."""
    reasons = {
        name: missing_requirement(find_preset(name)) for name in dict.fromkeys(cell.preset for cell in cells if cell.preset)
    }
    able = [cell for cell in cells if reasons.get(cell.preset) is None]
    said = [f"{name} cannot run yet: {reason}" for name, reason in reasons.items() if reason is not None]
    if not able:
        raise SettingError(said[0])
    return able, said


def _write_outputs(
    bench: Bench, cells: Sequence[RunSpec], desk: BenchSession, asked: BenchConfig, left_out: Sequence[str]
) -> BenchResult:
    records = desk.of(cells)
    found = compare_runs(records, bench.reference if any(r["row"] == bench.reference for r in records) else "")
    remarks = [*result_tables.remarks(found, desk.failed), *left_out]
    sections = comparison_sections(found)
    text = "\n".join([f"# {bench.title}\n", *(f"{one.title}\n\n{to_markdown(one.table)}" for one in sections[:2]), *remarks])
    atomic_write(desk.folder / "table.md", f"{text}\n".encode())
    figures = _pictures(bench, found, desk)
    if not figures:
        remarks.append("matplotlib is not installed, so there are no figures. Install samekind[plots].")
    for picture in figures:
        atomic_write(desk.folder / picture.file, picture.png)
    path = desk.folder / "report.html"
    atomic_write(path, render_report(_report(bench, found, sections, figures, remarks, asked.command(desk.folder))).encode())
    with suppress(OSError):  # not empty, where a run has failed, or not there
        (desk.folder / "unfinished").rmdir()
    return BenchResult(sections[0].table, remarks, path)


def _pictures(bench: Bench, found: Comparison, desk: BenchSession) -> list[ReportFigure]:
    """None without matplotlib: all the rest is there."""
    if find_spec("matplotlib") is None:
        return []
    from samekind.bench.reporting.bench_figures import make_bench_figures

    return make_bench_figures(bench.measure, found, desk.arrays)


def _report(
    bench: Bench,
    found: Comparison,
    sections: Sequence[ReportSection],
    figures: Sequence[ReportFigure],
    remarks: Sequence[str],
    command: str,
) -> HtmlReport:
    held = [record for runs in found.runs.values() for record in runs]
    said = sorted({f"{one['row']}, split {one['seed']}: {word}" for one in held for word in one["warnings"]})
    code = code_version()
    return HtmlReport(
        title=bench.title,
        lead=_lead(found),
        facts=f"{len(held)} runs, splits {_seeds(held)}. samekind {code['version']}, code {code['hash']}.",
        table=sections[0].table,
        about_table=" ".join(remarks),
        ideas=_ideas(held),
        figures=figures,
        notes=said,
        command=command,
        example="",
        settings=_settings(bench),
        versions=collect_versions("one thread for each run" if bench.scale == "cpu" else "as many threads as torch takes"),
        more=sections[1:],
    )


def _lead(found: Comparison) -> str:
    best = {head: found.best(head) for head in found.columns}
    told = [f"{row} on {head.label(found.columns)}" for head, row in best.items() if row is not None]
    return (
        f"Lowest, and told apart from all others: {'; '.join(told)}." if told else "No row can be told apart from all others."
    )


def _ideas(records: Iterable[Record]) -> Mapping[str, str]:
    names = dict.fromkeys(part for record in records for part in parts(record["method"]) if part is not None)
    return {name: METHODS[name].idea for name in names}


def _settings(bench: Bench) -> dict[str, str]:
    rows = {"all rows": bench.options, **{one.name: {**one.settings, **one.options} for one in bench.rows}}
    said = {name: ", ".join(f"{key} {value}" for key, value in own.items()) for name, own in rows.items()}
    return {name: words or "as the estimator has it" for name, words in said.items()}


def _seeds(records: Sequence[Record]) -> str:
    seeds = sorted({record["seed"] for record in records})
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])


def _said(record: Record) -> str:
    what = f"{record['row']}, {Path(record['data']).name}, {record['labels']} labels, split {record['seed']}"
    if "failed" in record:
        return f"{what}: failed. {record['failed']}"
    cost = f"{record['cost']['flops'] / 1e12:.3g} TFLOP, {record['cost']['seconds']:.0f} s"
    return f"{what}: {record['error']:.2f} % wrong ({record['judged_on']}), {cost}"


def default_jobs(asked: BenchConfig) -> int:
    """One run for each core; one in all where a run takes a whole device, or all cores, as at paper scale."""
    from joblib import cpu_count

    alone = asked.scale == "paper" or device_for(asked.device).type != "cpu"
    return 1 if alone else int(cpu_count())
