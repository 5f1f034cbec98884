"""Command line interface. A command imports what it needs when it runs, so that `samekind --help` is fast."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from samekind import __version__
from samekind.clock import Clock
from samekind.errors import SamekindError
from samekind.progress import progress_bars


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


app = typer.Typer(
    cls=ErrorFormatter, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)
data_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")
labels_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Check, export or copy the labels given on the page."
)
app.add_typer(labels_app, name="labels")
cache_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Remove cached files of a run.")
app.add_typer(cache_app, name="cache")

ENCODERS = (
    "Features of images: auto, none (train from scratch), lite0, lite1, lite2, timm:NAME, hf:NAME, FILE.onnx; @224: size."
)
TEXT = "Column of a table that holds texts to classify; other columns are then no features."
BENCHES = (
    "toy svhn svhn-randaugment cifar10 cifar10-randaugment cifar100 ablation similarity mnist cpu, "
    "or a grid file (.toml, .json)"
)
DataNames = Annotated[list[str], typer.Argument(metavar="NAME", help="cifar10 cifar100 svhn mnist fashion_mnist")]
DataRoot = Annotated[
    Path | None, typer.Option("--root", help="Folder of all datasets. [default: $SAMEKIND_DATA, or data]", show_default=False)
]


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"samekind {__version__}")
        raise typer.Exit


@app.callback()
def samekind(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train on a few labels, predict the rest of the data, and search it by similarity."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the table, the figures and the report.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Random seed of the data, the labels and the initial weights.")] = 0,
    radii: Annotated[tuple[float, float], typer.Option(help="Radii of the two circles.")] = (1.0, 2.5),
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version.")] = False,
) -> None:
    """Compare methods on moons, circles and digits with a few labels."""
    from rich.console import Console

    from samekind.bench.demo import QUICK, DemoConfig, run_demo
    from samekind.bench.reporting import text_table

    settings = replace(QUICK if quick else DemoConfig(), seed=seed, radii=radii)
    result = run_demo(settings, out, Console(stderr=True))
    text_table.print_table(result.table)
    _log(f"{result.report} after {result.numbers['seconds']:.0f} s")


@app.command()
def fit(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A folder of images or .txt files, a .npy/.npz, or a .csv/.jsonl/.parquet.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the run (RUN); an unfinished fit in it is resumed.")],
    labels: Annotated[str | None, typer.Option(help="CSV of path,label; else labels.csv or class folders in DATA.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Label column of a table.")] = None,
    text: Annotated[str | None, typer.Option(help=TEXT)] = None,
    image_size: Annotated[int, typer.Option(help="Side of the decoded images in pixels; 0: chosen from the data.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first file that cannot be read.")] = False,
    method: Annotated[str | None, typer.Option(help="A name from `samekind methods`, or METHOD+ADDON.")] = None,
    setting: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, a hyperparameter of the method; repeatable.")] = None,
    encoder: Annotated[str, typer.Option(help=ENCODERS)] = "auto",
    net: Annotated[str, typer.Option(help="Network for images: auto, small_conv, compact, conv13, wide_resnet.")] = "auto",
    views: Annotated[
        str, typer.Option(help="Augmentation: auto; shift_flip, affine, shift (images); random_walk, noise (vectors).")
    ] = "auto",
    epochs: Annotated[float, typer.Option(help="Passes over the data; 0: chosen from its size.")] = 0.0,
    minutes: Annotated[
        float | None, typer.Option(help="Time in which the fit ends, instead of --epochs.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = 0,
    save_every: Annotated[float, typer.Option(help="Seconds between checkpoints.")] = 60.0,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard event files.", show_default=False)] = None,
) -> None:
    """Train on a few labels and predict a label for every item.

    The unlabelled items take part in the training. Results: RUN/labels.csv and RUN/model.
    """
    clock = Clock()  # --minutes includes loading torch and decoding
    from samekind.project.fit import FitConfig, OutputOptions, parse_settings
    from samekind.project.fit import fit as fit_run

    config = FitConfig(
        data,
        labels=labels,
        label_column=label_column,
        size=image_size or "auto",
        strict=strict,
        method=method,
        settings=parse_settings(setting or []),
        epochs=epochs or "auto",
        minutes=minutes,
        device=device,
        seed=seed,
        encoder=None if encoder == "none" else encoder,
        net=net,
        views=views,
        text=text,
    )
    output = OutputOptions(save_every, tensorboard)
    with progress_bars() as progress:
        result = fit_run(config, out, output=output, log=_log, progress=progress, verbose=True, clock=clock)
    _log(f"{result}")
    for line in result.quality_summary():
        _log(line)
    cost = result.cost_summary()
    if cost and not result.already_finished:
        _log(cost)
        if minutes is not None:
            _log(_how_to_repeat(result.epochs, result.cost["steps"], result.cost["planned_steps"]))
    typer.echo(out / "labels.csv")


def _how_to_repeat(epochs: float, steps: float, planned: float) -> str:
    """Return how to repeat a fit within a time limit by a command without a clock."""
    if steps == planned:
        return f"to repeat exactly these steps, pass --epochs {epochs} instead of --minutes"
    return (
        f"{steps:.0f} of {planned:.0f} planned steps fitted into the time, because the machine became slower; "
        f"--epochs {epochs} makes as many steps, but another model"
    )


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder made by `samekind fit`.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="New data of the same type, or a single image.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write. [default: RUN/predictions.csv]", show_default=False)
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first file that cannot be read.")] = False,
    reject_below: Annotated[
        float | None, typer.Option(help="Leave the label empty below this confidence.", show_default=False, min=0.0, max=1.0)
    ] = None,
) -> None:
    """Predict labels and confidences of new data."""
    from samekind.project.predict import predict as predict_run

    path = out or run / "predictions.csv"
    with progress_bars() as progress:
        n_items, skipped = predict_run(run, data, path, strict=strict, reject_below=reject_below, progress=progress)
    _log_skipped(skipped)
    _log(f"{n_items} items predicted, {len(skipped)} skipped")
    typer.echo(path)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help=BENCHES)],
    methods: Annotated[str, typer.Option(help="Methods or rows of the table, separated by commas; else all.")] = "",
    labels: Annotated[str, typer.Option(help="Numbers of labels, separated by commas.")] = "",
    data: Annotated[str, typer.Option(help="Other datasets for the same methods: names or paths, separated by commas.")] = "",
    splits: Annotated[int | None, typer.Option(help="Number of random labelled/unlabelled splits.", show_default=False)] = None,
    first_seed: Annotated[
        int | None, typer.Option(min=0, max=2**31 - 1, help="Seed of the first split.", show_default=False)
    ] = None,
    budget: Annotated[
        str, typer.Option(help="Compute budget of a run in FLOPs, such as 1e12; several separated by commas.")
    ] = "",
    scale: Annotated[
        str, typer.Option(help="cpu, or paper: the networks, settings and training lengths of the paper.")
    ] = "cpu",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    jobs: Annotated[int, typer.Option(min=0, help="Number of parallel runs; 0: one per core, or one on a GPU.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; finished runs in it are not repeated. [default: runs/NAME]")
    ] = None,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.", show_default=False)] = None,
    tune: Annotated[int, typer.Option(min=0, help="Hyperparameter trials per method on validation data; 0: no search.")] = 0,
) -> None:
    """Run a benchmark of the paper, or a grid file of your own."""
    from rich.console import Console

    from samekind.bench.benchmark import BenchConfig, run_benchmark, split_csv
    from samekind.bench.reporting import text_table

    lists = (split_csv(methods, str, "methods"), split_csv(labels, int, "labels"), split_csv(data, str, "data"))
    config = BenchConfig(name, *lists, splits, first_seed, split_csv(budget, float, "budget"), scale, device, jobs, dask, tune)
    result = run_benchmark(config, out, Console(stderr=True))
    text_table.print_table(result.table)
    for remark in result.remarks:
        _log(remark)
    typer.echo(result.report)


@app.command()
def table(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS", help="Folders of `samekind bench`, or .jsonl files.")],
    form: Annotated[str, typer.Option("--format", help="md, latex, csv or html.")] = "md",
    reference: Annotated[str, typer.Option(help="Method that the others are compared with.", show_default=False)] = "",
    against_compute: Annotated[bool, typer.Option("--against-compute", help="Show the error against FLOPs.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write instead of stdout.", show_default=False)] = None,
    plot: Annotated[
        Path | None, typer.Option(help="PNG to write: error against FLOPs, or every split.", show_default=False)
    ] = None,
) -> None:
    """Print a table of recorded runs.

    Shows mean ± std, the paper's numbers, paired differences and cost.
    """
    from samekind.bench.reporting.render import plot_comparison, read_comparison, render_comparison
    from samekind.files.io import write_output

    found = read_comparison(runs, form, reference)
    text = render_comparison(found, form, against_compute=against_compute)
    if plot is not None:
        write_output(plot, plot_comparison(found, against_compute=against_compute))
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_output(out, text.encode())
    for path in (out, plot):
        if path is not None:
            typer.echo(path)


@app.command()
def query(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder made by `samekind fit`.")],
    images: Annotated[list[str] | None, typer.Argument(metavar="IMAGE", help="Query images, folders or arrays.")] = None,
    k: Annotated[int, typer.Option("-k", help="Number of neighbours of each query.")] = 9,
    items: Annotated[
        str, typer.Option(help="Query items of the run by number, such as 3,17; 0 is the first in labels.csv.")
    ] = "",
    against: Annotated[str | None, typer.Option(help="Folder or array to search instead of the run's data.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write OUT.png and OUT.csv. [default: RUN/query]", show_default=False)
    ] = None,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Symmetric similarity: the mean of W_ij and W_ji.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Exact search: compare with every item, also in large data.")] = False,
) -> None:
    """Find the most similar items by the learned similarity.

    Writes a table, and for images a figure.
    """
    from samekind.project.query import QueryConfig, parse_indices, run_query

    candidates: Any = "all" if exact else "auto"
    config = QueryConfig(tuple(images or ()), parse_indices(items), against, k, symmetric, candidates)
    with progress_bars() as progress:
        result = run_query(run, config, out or run / "query", log=_log, progress=progress)
    _log_skipped(result.skipped)
    _log(f"{result}")
    typer.echo(result.figure or result.table)


@app.command()
def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder made by `samekind fit`, or unlabelled data.")],
    out: Annotated[
        Path | None, typer.Option(help="Run folder of unlabelled data. [default: runs/NAME]", show_default=False)
    ] = None,
    text: Annotated[str | None, typer.Option(help=TEXT)] = None,
    encoder: Annotated[str, typer.Option(help=ENCODERS)] = "auto",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on. The default accepts this machine only.")] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Host name that browsers may use to reach --host; repeatable.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, change nothing.")] = False,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    token_file: Annotated[
        Path | None, typer.Option(help="Write the access token to this file, for scripts.", show_default=False)
    ] = None,
) -> None:
    """Open the labelling page of a run in the browser.

    On the page: browse, search, label, refit, export.
    """
    from samekind.server.serve import ServeConfig
    from samekind.server.serve import serve as serve_page
    from samekind.server.stop_signals import exit_when_stopped
    from samekind.server.unlabelled_project import resolve_run

    with progress_bars() as progress:
        run = resolve_run(
            run,
            out,
            encoder=None if encoder == "none" else encoder,
            text=text,
            read_only=read_only,
            log=_log,
            progress=progress,
        )
    config = ServeConfig(run, host, port, tuple(allow_host or ()), read_only, browser, token_file)
    with exit_when_stopped(_log):
        serve_page(config, log=_log, print_link=typer.echo)


RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder made by `samekind fit`.")]


@labels_app.command("verify")
def labels_verify(run: RunArgument) -> None:
    """Replay the label log and compare it with the stored labels."""
    from samekind.server.store.verify import require_valid

    _log(require_valid(run / "serve" / "labels.sqlite"))


@labels_app.command("restore")
def labels_restore(run: RunArgument) -> None:
    """Restore lost labels from the backups and labels.csv.

    The files that it replaces are kept in RUN/serve/replaced-TIME.
    """
    from samekind.server.run_setup import restore_labels

    _log(restore_labels(run))


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

    _log(f"{copy_images(run, out, what, link=link)} images")
    typer.echo(out)


@cache_app.command("clear")
def cache_clear(run: RunArgument) -> None:
    """Remove the thumbnails of a run; the page creates them again."""
    from samekind.server.media.thumbnails import clear

    _log(f"{clear(run / 'serve' / 'thumbs') / 2**20:.1f} MB removed")


@app.command()
def methods() -> None:
    """List the methods with idea, paper, requirements and cost."""
    from samekind.bench import method_overview
    from samekind.bench.reporting import text_table

    text_table.print_table(method_overview.method_table())
    typer.echo(
        "cost: FLOPs of a step, relative to supervised training with as many labelled samples. "
        "METHOD+ADDON is the method with an add-on.",
        err=True,
    )


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
    _log(f"datasets are searched in {data_root(root)}")


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
        _log(f"{source.name} is complete. Terms: {source.terms}. Cite: {source.cite}.")


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


def _log(message: str) -> None:
    typer.echo(message, err=True)


def _log_skipped(skipped: Iterable[object]) -> None:
    for file in skipped:
        _log(f"skipped {file}")
