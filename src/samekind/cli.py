"""The command `samekind`: verbs only. What a verb needs is imported when it runs, so that help is instant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from samekind import __version__
from samekind.errors import SamekindError


class Sentences(TyperGroup):
    """Everything raised on purpose ends as one sentence on stderr and exit code 2, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SamekindError as error:
            typer.echo(f"samekind: {error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=Sentences, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"samekind {__version__}")
        raise typer.Exit


@app.callback()
def samekind(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Label a handful. Sort the rest. Ask what is alike."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the table, the figures and the report.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Draws the points, the labels and the start of every network.")] = 0,
    radii: Annotated[tuple[float, float], typer.Option(help="Radii of the two circles.")] = (1.0, 2.5),
    quick: Annotated[bool, typer.Option("--quick", help="A small version.")] = False,
) -> None:
    """Moons, circles and handwritten digits with a handful of labels, beside the usual alternatives."""
    from dataclasses import replace

    from rich.console import Console

    from samekind.experiments import tables
    from samekind.experiments.demo import QUICK, DemoSettings, run

    settings = replace(QUICK if quick else DemoSettings(), seed=seed, radii=radii)
    result = run(settings, out, Console(stderr=True))
    tables.show(result.table)
    typer.echo(f"{result.report} after {result.numbers['seconds']:.0f} s", err=True)


@app.command()
def methods() -> None:
    """The methods there are: name, idea and kind."""
    from samekind.experiments import tables
    from samekind.methods import METHODS

    tables.show(tables.methods_table(METHODS))
