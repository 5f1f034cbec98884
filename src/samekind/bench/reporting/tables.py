"""Tables of words and numbers: Markdown in files and pipes, drawn with lines on a terminal. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class TextTable:
    """A header and rows of text; `bold` holds the (row, column) of cells that stand out, `numeric` columns align right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()
    numeric: frozenset[int] = frozenset()


def markdown(table: TextTable) -> str:
    """The table as Markdown with aligned columns, one line for each row."""
    cells = [
        [f"**{cell}**" if (r, c) in table.bold else cell for c, cell in enumerate(row)] for r, row in enumerate(table.rows)
    ]
    columns = range(len(table.header))
    widths = [max(3, *(len(row[c]) for row in [table.header, *cells])) for c in columns]
    rule = [("-" * (widths[c] - 1) + ":") if c in table.numeric else "-" * widths[c] for c in columns]

    def line(row: Sequence[str]) -> str:
        padded = [row[c].rjust(widths[c]) if c in table.numeric else row[c].ljust(widths[c]) for c in columns]
        return "| " + " | ".join(padded) + " |"

    return "\n".join(line(row) for row in [table.header, rule, *cells]) + "\n"


def show(table: TextTable, console: Console | None = None) -> None:
    """Puts the table on stdout: with lines and bold type on a terminal, as Markdown in a pipe or a file."""
    from rich.console import Console

    console = console or Console()
    if console.is_terminal:
        console.print(_drawn(table))
    else:
        console.file.write(markdown(table))


def _drawn(table: TextTable) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for c, name in enumerate(table.header):
        drawn.add_column(name, justify="right" if c in table.numeric else "left")
    for r, row in enumerate(table.rows):
        drawn.add_row(*(Text(cell, style="bold" if (r, c) in table.bold else "") for c, cell in enumerate(row)))
    return drawn


def demo_table(errors: Mapping[str, Mapping[str, float]], seconds: Mapping[str, float], titles: Mapping[str, str]) -> TextTable:
    """One row for each method, one column of errors in per cent for each problem (the lowest in bold), and the seconds.

    `errors[problem][method]`, `seconds[method]`; `heads[problem]` is what stands above the column.
    """
    methods, problems = list(seconds), list(errors)
    rows = tuple(
        (method, *(f"{errors[problem][method]:.2f}" for problem in problems), f"{seconds[method]:.1f}") for method in methods
    )
    lowest = {problem: f"{min(errors[problem].values()):.2f}" for problem in problems}
    bold = {(r, 1 + c) for r in range(len(rows)) for c, problem in enumerate(problems) if rows[r][1 + c] == lowest[problem]}
    header = ("method", *(titles[problem] for problem in problems), "seconds")
    return TextTable(header, rows, frozenset(bold), frozenset(range(1, len(header))))
