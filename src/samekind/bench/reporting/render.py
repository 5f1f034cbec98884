"""Recorded runs as text: Markdown, LaTeX, CSV or a page of HTML. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from samekind.bench import compare
from samekind.bench.compare import Comparison
from samekind.bench.records import read_runs
from samekind.bench.reporting.html_report import ReportSection, render_tables
from samekind.bench.reporting.tables import markdown
from samekind.errors import SettingError, did_you_mean

FORMS = ("md", "latex", "csv", "html")


def read_comparison(runs: Sequence[Path], form: str = "md", reference: str = "") -> Comparison:
    """These runs, sorted into a table; a form that nobody can print is refused before they are read."""
    if form not in FORMS:
        raise SettingError(f"format is {form!r}; {did_you_mean(form, FORMS)}")
    return compare.compare_runs(read_runs(runs), reference)


def render_comparison(found: Comparison, form: str = "md", *, against_compute: bool = False) -> str:
    """All tables of these runs, or error over operations alone."""
    if form == "csv":
        return compare.as_csv(found)
    sections = [_over_compute(found)] if against_compute else comparison_sections(found)
    said = compare.remarks(found)
    if form == "html":
        return render_tables("Recorded runs", sections, said)
    if form == "latex":
        parts = [f"% {one.title}\n{compare.latex(one.table)}" for one in sections]
        return "\n".join([*parts, *(f"% {word}" for word in said)]) + "\n"
    parts = [f"{one.title}\n\n{markdown(one.table)}" for one in sections]
    return "\n".join([*parts, *said]) + "\n"


def plot_comparison(found: Comparison, *, against_compute: bool = False) -> bytes:
    """A PNG of every split, or of error over operations."""
    try:
        from samekind.bench.reporting.bench_figures import compute_figure, splits_figure
    except ImportError as error:
        raise SettingError("matplotlib is not installed. Install samekind[plots], or leave --plot out.") from error
    return (compute_figure if against_compute else splits_figure)(found).png


def comparison_sections(found: Comparison) -> list[ReportSection]:
    """All tables that these runs can give; the first two hold nothing that depends on the machine."""
    sections = [ReportSection("Errors", compare.error_table(found))]
    if len(found.rows) > 1:
        about = "Error of a row minus that of the reference, in points, over common splits, with the interval of the mean."
        sections.append(ReportSection("Differences", compare.difference_table(found), about))
    similar = compare.similarity_table(found)
    if similar is not None:
        sections.append(ReportSection("Similarity", similar))
    chosen = compare.tuned_settings_table(found)
    if chosen is not None:
        sections.append(ReportSection("Chosen settings", chosen, "Chosen on validation images taken from the training set."))
    if len({head.budget for head in found.columns}) > 1:
        sections.append(_over_compute(found))
    about = "Mean over splits. Operations are counted while a step is made; seconds depend on the machine and what else it did."
    return [*sections, ReportSection("What a run cost", compare.cost_table(found), about)]


def _over_compute(found: Comparison) -> ReportSection:
    return ReportSection("Error against compute", compare.against_compute(found))
