"""Recorded runs as text: Markdown, LaTeX, CSV or a page of HTML. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from samekind.bench import compare
from samekind.bench.compare import Comparison
from samekind.bench.records import read_all
from samekind.bench.report import Section, tables_page
from samekind.bench.tables import markdown
from samekind.errors import SettingError, did_you_mean

FORMS = ("md", "latex", "csv", "html")


def found_in(runs: Sequence[Path], form: str = "md", reference: str = "") -> Comparison:
    """These runs, sorted into a table; a form that nobody can print is refused before they are read."""
    if form not in FORMS:
        raise SettingError(f"format is {form!r}; {did_you_mean(form, FORMS)}")
    return compare.compared(read_all(runs), reference)


def printed(found: Comparison, form: str = "md", *, against_compute: bool = False) -> str:
    """All tables of these runs, or error over operations alone."""
    if form == "csv":
        return compare.as_csv(found)
    sections = [_over_compute(found)] if against_compute else sections_of(found)
    said = compare.remarks(found)
    if form == "html":
        return tables_page("Recorded runs", sections, said)
    if form == "latex":
        parts = [f"% {one.title}\n{compare.latex(one.table)}" for one in sections]
        return "\n".join([*parts, *(f"% {word}" for word in said)]) + "\n"
    parts = [f"{one.title}\n\n{markdown(one.table)}" for one in sections]
    return "\n".join([*parts, *said]) + "\n"


def plotted(found: Comparison, *, against_compute: bool = False) -> bytes:
    """A PNG of every split, or of error over operations."""
    try:
        from samekind.bench.bench_figures import compute_picture, splits_picture
    except ImportError as error:
        raise SettingError("matplotlib is not installed. Install samekind[plots], or leave --plot out.") from error
    return (compute_picture if against_compute else splits_picture)(found).png


def sections_of(found: Comparison) -> list[Section]:
    """All tables that these runs can give; the first two hold nothing that depends on the machine."""
    sections = [Section("Errors", compare.errors_of(found))]
    if len(found.rows) > 1:
        about = "Error of a row minus that of the reference, in points, over common splits, with the interval of the mean."
        sections.append(Section("Differences", compare.differences_of(found), about))
    similar = compare.similarities_of(found)
    if similar is not None:
        sections.append(Section("Similarity", similar))
    chosen = compare.chosen_settings(found)
    if chosen is not None:
        sections.append(Section("Chosen settings", chosen, "Chosen on validation images taken from the training set."))
    if len({head.budget for head in found.heads}) > 1:
        sections.append(_over_compute(found))
    about = "Mean over splits. Operations are counted while a step is made; seconds depend on the machine and what else it did."
    return [*sections, Section("What a run cost", compare.costs_of(found), about)]


def _over_compute(found: Comparison) -> Section:
    return Section("Error against compute", compare.against_compute(found))
