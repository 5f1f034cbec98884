"""What all commands share: messages on stderr, errors without a traceback, and the argument RUN."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from samekind.errors import SamekindError

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder made by `samekind fit`.")]


class ErrorFormatter(TyperGroup):
    """Command group that prints a SamekindError as one line on stderr, and exits with code 2 or that of the signal."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; print an error without a traceback."""
        try:
            return super().invoke(ctx)
        except SamekindError as error:
            typer.echo(f"samekind: {error}", err=True)
            raise typer.Exit(getattr(error, "exit_code", 2)) from None
        except OSError as error:  # of a path that is too long, in a folder without permission, or on a full disk
            if error.errno == errno.EPIPE or not error.strerror:
                raise
            place = "" if error.filename is None else f"{str(error.filename)[:300]!r} cannot be used: "
            typer.echo(f"samekind: {place}{error.strerror}. Check the path, its permissions and the free space.", err=True)
            raise typer.Exit(2) from None


def log(message: str) -> None:
    """Print a message on stderr."""
    typer.echo(message, err=True)


def log_skipped(skipped: Iterable[object]) -> None:
    """Print a line on stderr for each file that was skipped."""
    for file in skipped:
        log(f"skipped {file}")
