"""HTML reports: one file with tables and embedded figures, which needs no other file."""

from __future__ import annotations

import base64
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from samekind import __version__
from samekind.bench.reporting.text_table import TextTable
from samekind.errors import SamekindError

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d8dee4; --page: #ffffff; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #9aa4af; --line: #343b44; --page: #14171b; --card: #1d2127; }
  figure img { filter: brightness(0.93); }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 2rem; line-height: 1.2; letter-spacing: -0.02em; margin: 0; }
h2 { font-size: 1.2rem; margin: 3rem 0 0.5rem; }
p { max-width: 44rem; margin: 0.5rem 0; }
.lead, .soft, figcaption { color: var(--soft); }
.lead { font-size: 1.1rem; }
.soft, figcaption { font-size: 0.9rem; }
.scroll { overflow-x: auto; -webkit-overflow-scrolling: touch; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.45rem 1.1rem 0.45rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { font-weight: 600; border-bottom-width: 2px; }
tbody th { font-weight: 400; }
.results { width: 100%; }
.number { text-align: right; white-space: nowrap; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 0.88em; }
.settings td { overflow-wrap: anywhere; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 0.8rem 1rem; overflow-x: auto; }
figure { margin: 1rem 0; }
figure .scroll { background: #ffffff; border: 1px solid var(--line); border-radius: 8px; }
figure img { display: block; width: 100%; height: auto; border-radius: 8px; }
figcaption { margin-top: 0.6rem; max-width: 44rem; }
@media (max-width: 40rem) {
  main { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.6rem; }
  th, td { padding-right: 0.8rem; }
  thead .number { white-space: normal; }
  figure img { width: 42rem; }
}
""".strip()


@dataclass(frozen=True)
class ReportFigure:
    """PNG image with its file name, its title, its caption, and a description for screen readers (`alt`)."""

    file: str
    title: str
    caption: str
    alt: str
    png: bytes


@dataclass(frozen=True)
class ReportSection:
    """Table with a title and an explanation."""

    title: str
    table: TextTable
    about: str = ""


@dataclass(frozen=True)
class HtmlReport:
    """Content of a report, in order from top to bottom."""

    title: str
    lead: str
    facts: str
    table: TextTable
    about_table: str
    method_summaries: Mapping[str, str]
    figures: Sequence[ReportFigure]
    notes: Sequence[str]
    command: str
    example: str
    settings: Mapping[str, str]
    versions: Mapping[str, str]
    sections: Sequence[ReportSection] = ()  # further tables, which follow the figures


def render_report(report: HtmlReport) -> str:
    """Return the report as one HTML document. Sections without content are left out."""
    parts = [
        f"<h1>{escape(report.title)}</h1>",
        _paragraph("lead", report.lead),
        _paragraph("soft", report.facts),
        _section(
            "Errors",
            _render_table(report.table) + _paragraph("soft", report.about_table) + _render_pairs(report.method_summaries),
        ),
        *(_section(figure.title, _render_figure(figure)) for figure in report.figures),
        *(
            _section(one.title, _render_table(one.table) + (_paragraph("soft", one.about) if one.about else ""))
            for one in report.sections
        ),
        _section("Warnings", "".join(f"<p>{escape(note)}</p>" for note in report.notes)) if report.notes else "",
        _section("How this was made", _render_code(report.command) + _render_pairs(report.settings)),
        _section("On your own data", _render_code(report.example)) if report.example else "",
        _section("Versions", _render_pairs(report.versions)),
    ]
    return _document(report.title, [part for part in parts if part])


def render_tables(title: str, sections: Sequence[ReportSection], notes: Sequence[str]) -> str:
    """Return an HTML document that contains only tables and notes, in the style of a report."""
    parts = [
        _section(one.title, _render_table(one.table) + (_paragraph("soft", one.about) if one.about else "")) for one in sections
    ]
    return _document(title, [f"<h1>{escape(title)}</h1>", *parts, *(_paragraph("soft", note) for note in notes)])


def _document(title: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}\n</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _paragraph(style: str, text: str) -> str:
    return f'<p class="{style}">{escape(text)}</p>'


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"


def _render_table(table: TextTable) -> str:
    def cell(tag: str, r: int, c: int, text: str) -> str:
        inside = f"<strong>{escape(text)}</strong>" if (r, c) in table.bold else escape(text)
        style = ' class="number"' if c in table.numeric else ""
        return f"<{tag}{style}>{inside}</{tag.split()[0]}>"

    titles = "".join(cell('th scope="col"', -1, c, name) for c, name in enumerate(table.header))
    rows = [
        "".join(cell('th scope="row"' if c == 0 else "td", r, c, text) for c, text in enumerate(row))
        for r, row in enumerate(table.rows)
    ]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    table_html = f'<table class="results">\n<thead><tr>{titles}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'
    return f'<div class="scroll" tabindex="0">{table_html}</div>\n'


def _render_figure(figure: ReportFigure) -> str:
    source = "data:image/png;base64," + base64.b64encode(figure.png).decode("ascii")
    image = f'<img alt="{escape(figure.alt)}" src="{source}">'
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>"
    return f'<figure>\n<div class="scroll" tabindex="0">{image}</div>\n{caption}\n</figure>'


def _render_pairs(pairs: Mapping[str, str]) -> str:
    if not pairs:
        return ""
    rows = "\n".join(f'<tr><th scope="row">{escape(key)}</th><td>{escape(value)}</td></tr>' for key, value in pairs.items())
    return f'<table class="settings">\n<tbody>\n{rows}\n</tbody>\n</table>'


def _render_code(text: str) -> str:
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>\n'


def collect_versions(threads: str = "one thread used") -> dict[str, str]:
    """Return {name: version} of Python and the main packages, and a description of the machine."""
    packages = {}
    for name in ("torch", "numpy", "scikit-learn", "matplotlib"):
        with suppress(PackageNotFoundError):  # raised for an optional package that is not installed
            packages[name] = version(name)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {threads}"
    return {"samekind": __version__, "Python": platform.python_version(), **packages, "machine": machine}


def make_output_dir(folder: Path) -> Path:
    """Create the folder if it does not exist, and return it; raise SamekindError if files cannot be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise SamekindError(
            f"{folder} is a file or inside a file; expected a folder or an unused name. Choose another folder."
        ) from error
    except OSError as error:
        raise SamekindError(f"the folder {folder} cannot be created ({error.strerror}). Choose another folder.") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SamekindError(f"the folder {folder} is not writable. Choose another folder, or change its permissions.")
    return folder
