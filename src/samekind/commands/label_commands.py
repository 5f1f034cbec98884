"""Commands on the labels of a run, and on its cache: `samekind labels` and `samekind cache`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from samekind.commands.terminal import RunArgument, log

labels_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Check, export or copy the labels given on the page."
)
cache_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Remove cached files of a run.")


@labels_app.command("verify")
def labels_verify(run: RunArgument) -> None:
    """Replay the label log and compare it with the stored labels."""
    from samekind.server.store.verify import require_valid

    log(require_valid(run / "serve" / "labels.sqlite"))


@labels_app.command("restore")
def labels_restore(run: RunArgument) -> None:
    """Restore lost labels from the backups and labels.csv.

    The files that it replaces are kept in RUN/serve/replaced-TIME.
    """
    from samekind.server.run_setup import restore_labels

    log(restore_labels(run))


@labels_app.command("export")
def labels_export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="File to write.")],
    format: Annotated[str, typer.Option(help="csv, csv-spreadsheet, jsonl, imagefolder, labelstudio or fiftyone.")] = "csv",
    what: Annotated[str, typer.Option(help="labels, predictions or both.")] = "labels",
    scope: Annotated[str, typer.Option(help="all, labelled, unlabelled or skipped.")] = "all",
    url_prefix: Annotated[str, typer.Option(help="Prefix of the paths in Label Studio tasks.")] = "",
) -> None:
    """Export labels and predictions for other programs."""
    from samekind.server.transfer.exporters import write_file

    write_file(run, out, format, what, scope, url_prefix)
    typer.echo(out)


@labels_app.command("copy")
def labels_copy(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="Folder that is empty or does not exist.")],
    what: Annotated[
        str, typer.Option(help="labels, predictions, or both: the label if there is one, else the prediction.")
    ] = "labels",
    link: Annotated[bool, typer.Option("--link", help="Create links instead of copies.")] = False,
) -> None:
    """Copy the images into one folder per class."""
    from samekind.server.transfer.exporters import copy_images

    log(f"{copy_images(run, out, what, link=link)} images")
    typer.echo(out)


@cache_app.command("clear")
def cache_clear(run: RunArgument) -> None:
    """Remove the thumbnails of a run; the page creates them again."""
    from samekind.server.media.thumbnails import clear

    log(f"{clear(run / 'serve' / 'thumbs') / 2**20:.1f} MB removed")
