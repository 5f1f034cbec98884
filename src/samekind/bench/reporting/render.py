"""Recorded runs as Markdown, LaTeX, CSV, HTML or a plot. This module works without torch."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from samekind.bench.records import read_runs
from samekind.bench.reporting import result_tables
from samekind.bench.reporting.compare import ColumnKey, Comparison, compare_runs
from samekind.bench.reporting.html_report import ReportSection, render_tables
from samekind.bench.reporting.text_table import TextTable, to_markdown
from samekind.errors import SettingError, did_you_mean

FORMATS = ("md", "latex", "csv", "html")
TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "−": "$-$"}
TEX |= {special: f"\\{special}" for special in "&%$#_{}"}
CSV_RESULT = ["method", "data", "labels", "budget", "splits", "error", "std", "student_error", "student_std"]
CSV_PAPER = ["paper", "paper_std"]
CSV_PAIRED = ["reference", "difference", "low", "high", "common_splits", "bold"]


def read_comparison(runs: Sequence[Path], form: str = "md", reference: str = "") -> Comparison:
    """Return the runs in these files and folders as a comparison; raise SettingError if the format `form` is unknown."""
    if form not in FORMATS:
        raise SettingError(f"format is {form!r}; {did_you_mean(form, FORMATS)}")
    return compare_runs(read_runs(runs), reference)


def render_comparison(comparison: Comparison, form: str = "md", *, against_compute: bool = False) -> str:
    """Return all tables of the comparison as text; with `against_compute`, only the table of error against FLOPs."""
    if form == "csv":
        return to_csv(comparison)
    sections = [_compute_section(comparison)] if against_compute else comparison_sections(comparison)
    remarks = result_tables.remarks(comparison)
    if form == "html":
        return render_tables("Recorded runs", sections, remarks)
    if form == "latex":
        parts = [f"% {one.title}\n{to_latex(one.table)}" for one in sections]
        return "\n".join([*parts, *(f"% {remark}" for remark in remarks)]) + "\n"
    parts = [f"{one.title}\n\n{to_markdown(one.table)}" for one in sections]
    return "\n".join([*parts, *remarks]) + "\n"


def plot_comparison(comparison: Comparison, *, against_compute: bool = False) -> bytes:
    """Return a PNG image of the errors of all splits; with `against_compute`, of error against FLOPs."""
    try:
        from samekind.bench.reporting.bench_figures import compute_figure, splits_figure
    except ImportError as error:
        raise SettingError("matplotlib is not installed. Install samekind[plots], or leave --plot out.") from error
    return (compute_figure if against_compute else splits_figure)(comparison).png


def comparison_sections(comparison: Comparison) -> list[ReportSection]:
    """Return all tables for which the runs have data. The first two tables do not depend on the machine of the runs."""
    sections = [ReportSection("Errors", result_tables.error_table(comparison))]
    if len(comparison.rows) > 1:
        about = (
            "Error minus the error of the reference in percentage points, paired over splits, with the interval of the mean."
        )
        sections.append(ReportSection("Differences", result_tables.difference_table(comparison), about))
    similarity = result_tables.similarity_table(comparison)
    if similarity is not None:
        sections.append(ReportSection("Similarity", similarity))
    tuned = result_tables.tuned_settings_table(comparison)
    if tuned is not None:
        sections.append(ReportSection("Chosen settings", tuned, "Chosen on validation samples taken from the training set."))
    if len({column.budget for column in comparison.columns}) > 1:
        sections.append(_compute_section(comparison))
    about = "Mean over splits. FLOPs are counted during a training step. Seconds depend on the machine and its load."
    return [*sections, ReportSection("Cost of a run", result_tables.cost_table(comparison), about)]


def to_latex(table: TextTable) -> str:
    """Return the table as a LaTeX tabular with the rules of the package booktabs."""
    align = "".join("r" if c in table.numeric else "l" for c in range(len(table.header)))

    def line(texts: Sequence[str], row: int) -> str:
        return " & ".join(rf"\textbf{{{_tex(text)}}}" if (row, c) in table.bold else _tex(text) for c, text in enumerate(texts))

    body = [rf"{line(texts, r)} \\" for r, texts in enumerate(table.rows)]
    top, bottom = [rf"\begin{{tabular}}{{{align}}}", r"\toprule"], [r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*top, rf"{line(table.header, -1)} \\", r"\midrule", *body, *bottom]) + "\n"


def to_csv(comparison: Comparison) -> str:
    """Return all numbers of the comparison as CSV, with a line for each row and column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*CSV_RESULT, *CSV_PAPER, *CSV_PAIRED, *result_tables.COST_FORMATS])
    best = {column: comparison.best(column) for column in comparison.columns}
    for row, column, runs in comparison.iter_cells():
        moments = [one for field in ("error", "student_error") for one in _mean_and_std(comparison, row, column, field)]
        paper = runs[0].get("published") or {}
        difference = comparison.difference(row, comparison.reference, column)
        writer.writerow(
            [row, column.data, column.labels, _csv_number(column.budget), len(runs), *map(_csv_number, moments)]
            + [_csv_number(paper.get(name)) for name in ("error", "spread")]
            + [comparison.reference, *map(_csv_number, difference[:3]), difference.n, int(best[column] == row)]
            + [_csv_number(result_tables.mean_cost(runs, name)) for name in result_tables.COST_FORMATS]
        )
    return text.getvalue()


def _compute_section(comparison: Comparison) -> ReportSection:
    return ReportSection("Error against compute", result_tables.compute_table(comparison))


def _tex(text: str) -> str:
    return "".join(TEX.get(letter, letter) for letter in text)


def _mean_and_std(comparison: Comparison, row: str, column: ColumnKey, field: str) -> tuple[float, float | None]:
    errors = comparison.errors(row, column, field)
    return fmean(errors), stdev(errors) if len(errors) > 1 else None


def _csv_number(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:.6g}"
