"""Command line interface. Each command imports what it needs when it runs, so that `samekind --help` is fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from samekind import __version__
from samekind.clock import Clock
from samekind.commands.bench_commands import bench, demo, methods, table
from samekind.commands.data_commands import data_app
from samekind.commands.label_commands import cache_app, labels_app
from samekind.commands.terminal import ErrorFormatter, RunArgument, log, log_skipped
from samekind.progress import progress_bars

app = typer.Typer(
    cls=ErrorFormatter, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)
app.add_typer(data_app, name="data")
app.add_typer(labels_app, name="labels")
app.add_typer(cache_app, name="cache")

ENCODERS = (
    "Features of images: auto, none (train from scratch), lite0, lite1, lite2, timm:NAME, hf:NAME, FILE.onnx; @224: size. "
    "Features of texts: auto, use, minilm, tfidf, st:NAME_OR_FOLDER."
)
FINETUNE = "Train the encoder of images further: none, last (blocks), all; auto: the last blocks if --minutes allows it."
TEXT = "Column of a table that holds texts to classify; other columns are then no features."


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


app.command()(demo)


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
    propagate: Annotated[
        bool, typer.Option("--propagate", help="At the end, propagate the labels over the features of the trained network.")
    ] = False,
    finetune: Annotated[str, typer.Option(help=FINETUNE)] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = 0,
    save_every: Annotated[float, typer.Option(help="Seconds between checkpoints.")] = 60.0,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard event files.", show_default=False)] = None,
) -> None:
    """Train on a few labels and predict a label for every item.

    The unlabelled items take part in the training. Results: RUN/labels.csv and RUN/model.
    """
    clock = Clock()  # started before the imports, because --minutes includes loading torch and decoding images
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
        propagate=propagate,
        finetune=finetune,
    )
    output = OutputOptions(save_every, tensorboard)
    with progress_bars() as progress:
        result = fit_run(config, out, output=output, log=log, progress=progress, verbose=True, clock=clock)
    log(f"{result}")
    for line in result.quality_summary():
        log(line)
    cost = result.cost_summary()
    if cost and not result.already_finished:
        log(cost)
        if minutes is not None:
            log(_how_to_repeat(result.epochs, result.cost["steps"], result.cost["planned_steps"]))
    typer.echo(out / "labels.csv")


def _how_to_repeat(epochs: float, steps: float, planned: float) -> str:
    """Return a sentence that says how to repeat a fit with --minutes by a command that does not depend on the clock."""
    if steps == planned:
        return f"to repeat exactly these steps, pass --epochs {epochs} instead of --minutes"
    return (
        f"{steps:.0f} of {planned:.0f} planned steps fitted into the time, because the machine became slower; "
        f"--epochs {epochs} makes as many steps, but another model"
    )


@app.command()
def predict(
    run: RunArgument,
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
    log_skipped(skipped)
    log(f"{n_items} items predicted, {len(skipped)} skipped")
    typer.echo(path)


app.command()(bench)
app.command()(table)


@app.command()
def query(
    run: RunArgument,
    images: Annotated[
        list[str] | None, typer.Argument(metavar="IMAGE", help="Query images, folders, arrays or tables.")
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="A text to find similar texts to; repeatable.")] = None,
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
    config = QueryConfig(
        tuple(images or ()),
        tuple(text or ()),
        parse_indices(items),
        against=against,
        k=k,
        symmetric=symmetric,
        candidates=candidates,
    )
    with progress_bars() as progress:
        result = run_query(run, config, out or run / "query", log=log, progress=progress)
    log_skipped(result.skipped)
    log(f"{result}")
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
            log=log,
            progress=progress,
        )
    config = ServeConfig(run, host, port, tuple(allow_host or ()), read_only, browser, token_file)
    with exit_when_stopped(log):
        serve_page(config, log=log, print_link=typer.echo)


app.command()(methods)
