"""Tables as text: Markdown in files and pipes, a table with lines on a terminal (by rich). Works without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class TextTable:
    """Table of texts: a header and rows. `bold` holds (row, column) positions; columns in `numeric` are aligned right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()
    numeric: frozenset[int] = frozenset()


def to_markdown(table: TextTable) -> str:
    """Return the table as Markdown with aligned columns."""
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


def print_table(table: TextTable, console: Console | None = None) -> None:
    """Print the table to stdout: with lines and bold type on a terminal, and as Markdown in a pipe or a file."""
    from rich.console import Console

    console = console or Console()
    if console.is_terminal:
        console.print(_to_rich(table))
    else:
        console.file.write(to_markdown(table))


def _to_rich(table: TextTable) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    rich_table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for c, name in enumerate(table.header):
        rich_table.add_column(name, justify="right" if c in table.numeric else "left")
    for r, row in enumerate(table.rows):
        rich_table.add_row(*(Text(cell, style="bold" if (r, c) in table.bold else "") for c, cell in enumerate(row)))
    return rich_table


def demo_table(errors: Mapping[str, Mapping[str, float]], seconds: Mapping[str, float], titles: Mapping[str, str]) -> TextTable:
    """Return a table with a row for each method: its error on each dataset in percent (the lowest in bold), and its seconds.

    The arguments are `errors[dataset][method]`, `seconds[method]`, and the headers `titles[dataset]`.
    """
    methods, datasets = list(seconds), list(errors)
    rows = tuple(
        (method, *(f"{errors[dataset][method]:.2f}" for dataset in datasets), f"{seconds[method]:.1f}") for method in methods
    )
    lowest = {dataset: f"{min(errors[dataset].values()):.2f}" for dataset in datasets}
    bold = {(r, 1 + c) for r in range(len(rows)) for c, dataset in enumerate(datasets) if rows[r][1 + c] == lowest[dataset]}
    header = ("method", *(titles[dataset] for dataset in datasets), "seconds")
    return TextTable(header, rows, frozenset(bold), frozenset(range(1, len(header))))
