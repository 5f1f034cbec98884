"""Commands on datasets: `samekind data list`, `fetch` and `verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from samekind.commands.terminal import log
from samekind.progress import progress_bars

data_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
DataNames = Annotated[list[str], typer.Argument(metavar="NAME", help="cifar10 cifar100 svhn mnist fashion_mnist")]
DataRoot = Annotated[
    Path | None, typer.Option("--root", help="Folder of all datasets. [default: $SAMEKIND_DATA, or data]", show_default=False)
]


@data_app.callback()
def data(context: typer.Context) -> None:
    """List, download and verify datasets."""
    if context.invoked_subcommand is None:
        data_list()


@data_app.command("list")
def data_list(root: DataRoot = None) -> None:
    """List the datasets, and which are downloaded."""
    from samekind.bench.reporting import text_table
    from samekind.data.hub.catalogue import data_root
    from samekind.data.hub.verification import DatasetSummary, list_datasets

    header = tuple(name.replace("_", " ") for name in DatasetSummary._fields)
    text_table.print_table(text_table.TextTable(header, tuple(list_datasets(root)), numeric=frozenset({3, 4})))
    log(f"datasets are searched in {data_root(root)}")


@data_app.command("fetch")
def data_fetch(
    names: DataNames,
    root: DataRoot = None,
    extra: Annotated[bool, typer.Option("--extra", help="Also the 531,131 extra images of svhn (1.3 GB).")] = False,
) -> None:
    """Download datasets and verify their checksums.

    An interrupted download is resumed.
    """
    from samekind.data.hub.catalogue import find_dataset
    from samekind.data.hub.download import download_dataset

    for source in [find_dataset(name) for name in names]:
        with progress_bars(unit="bytes") as on_progress:
            folder = download_dataset(source.name, root, extra=extra, on_progress=on_progress)
        typer.echo(folder)
        log(f"{source.name} is complete. Terms: {source.terms}. Cite: {source.cite}.")


@data_app.command("verify")
def data_verify(names: DataNames, root: DataRoot = None) -> None:
    """Check downloaded files against the official checksums, offline."""
    from samekind.bench.reporting import text_table
    from samekind.data.hub.catalogue import find_dataset
    from samekind.data.hub.verification import FileCheck, require_intact, verify_dataset

    findings = {source.name: verify_dataset(source.name, root) for source in [find_dataset(name) for name in names]}
    for name, found in findings.items():
        text_table.print_table(text_table.TextTable((name, *FileCheck._fields[1:]), tuple(found)))
    for name, found in findings.items():
        require_intact(name, found, root)
