"""The command `samekind`: verbs only. What a verb needs is imported when it runs, so that help is instant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from samekind import __version__
from samekind.errors import SamekindError


class Sentences(TyperGroup):
    """Everything raised on purpose ends as one sentence on stderr, without a traceback, and exit code 2 (or the signal's)."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SamekindError as error:
            typer.echo(f"samekind: {error}", err=True)
            raise typer.Exit(getattr(error, "exit_code", 2)) from None


app = typer.Typer(
    cls=Sentences, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)
data_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")
labels_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Labels given on the page: verify, export, copy.")
app.add_typer(labels_app, name="labels")
cache_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What can be made again.")
app.add_typer(cache_app, name="cache")

BENCHES = (
    "toy svhn svhn-randaugment cifar10 cifar10-randaugment cifar100 ablation similarity mnist cpu, "
    "or a grid file (.toml, .json)."
)
DataNames = Annotated[list[str], typer.Argument(metavar="NAME", help="cifar10 cifar100 svhn mnist fashion_mnist")]
DataRoot = Annotated[
    Path | None, typer.Option("--root", help="Folder of all data sets; else $SAMEKIND_DATA, else data.", show_default=False)
]


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
    from rich.console import Console

    from samekind.bench import tables
    from samekind.bench.demo import QUICK, DemoSettings, run

    settings = replace(QUICK if quick else DemoSettings(), seed=seed, radii=radii)
    result = run(settings, out, Console(stderr=True))
    tables.show(result.table)
    typer.echo(f"{result.report} after {result.numbers['seconds']:.0f} s", err=True)


@app.command()
def fit(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A folder of pictures, a .npy/.npz, or a .csv/.parquet.")],
    out: Annotated[Path, typer.Option(help="Folder of the run. If it holds this fit unfinished, it goes on.")],
    labels: Annotated[str | None, typer.Option(help="CSV of path,label; else labels.csv or class folders in DATA.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of the labels in a table.")] = None,
    size: Annotated[int, typer.Option(help="Side of the pictures in pixels; 0 chooses from the data.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first file that cannot be read.")] = False,
    method: Annotated[str | None, typer.Option(help="One of `samekind methods`, or BASE+ADDITION.")] = None,
    setting: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, a setting of the method; repeat for more.")] = None,
    encoder: Annotated[str | None, typer.Option(help="Learn on features of pictures: efficientnet_lite0.")] = None,
    net: Annotated[str, typer.Option(help="Net of pictures: auto, small_conv, compact, conv13, wide_resnet.")] = "auto",
    views: Annotated[str, typer.Option(help="auto; photo, tilt or shift for pictures; walk or noise for numbers.")] = "auto",
    epochs: Annotated[float, typer.Option(help="Passes over the data; 0 chooses from its size.")] = 0.0,
    minutes: Annotated[float | None, typer.Option(help="How long to train here, instead.", show_default=False)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 0,
    save_every: Annotated[float, typer.Option(help="Seconds between two checkpoints.")] = 60.0,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard events.", show_default=False)] = None,
) -> None:
    """Learn from a few labels and all the data, and sort the rest."""
    from samekind.project.fit import FitConfig, Keep, parse_settings
    from samekind.project.fit import fit as run_fit

    wanted = FitConfig(data, labels, label_column, size or "auto", "auto", strict, method, parse_settings(setting or []))
    wanted = replace(wanted, epochs=epochs or "auto", minutes=minutes, device=device, seed=seed)
    wanted = replace(wanted, encoder=encoder, net=net, views=views)
    with _bars(of_bytes=False) as progress:
        say = partial(typer.echo, err=True)
        keep = Keep(save_every, tensorboard)
        done = run_fit(wanted, out, keep=keep, say=say, progress=progress, verbose=True)
    typer.echo(f"{done}", err=True)
    if done.new and done.bill():
        typer.echo(done.bill(), err=True)
    if done.new and done.bill() and minutes is not None:
        typer.echo(f"--epochs {done.epochs} makes the same steps again, however long they take", err=True)
    typer.echo(out / "labels.csv")


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder made by `samekind fit`.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="New data of the same kind; also a single picture.")],
    out: Annotated[Path | None, typer.Option(help="The CSV to write; else RUN/predictions.csv.", show_default=False)] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first file that cannot be read.")] = False,
) -> None:
    """Labels and confidences of new data as CSV."""
    from samekind.project.fit import predict as run_predict

    path = out or run / "predictions.csv"
    with _bars(of_bytes=False) as progress:
        n_items, skipped = run_predict(run, data, path, strict=strict, progress=progress)
    for one in skipped:
        typer.echo(f"left out {one}", err=True)
    typer.echo(f"{n_items} items, {len(skipped)} left out", err=True)
    typer.echo(path)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help=BENCHES)],
    methods: Annotated[str, typer.Option(help="Rows or methods, with commas; else those of the table.")] = "",
    labels: Annotated[str, typer.Option(help="Numbers of labels, with commas.")] = "",
    data: Annotated[str, typer.Option(help="Other data for the same rows: names or paths, with commas.")] = "",
    splits: Annotated[int | None, typer.Option(help="Draws of the labels.", show_default=False)] = None,
    first_seed: Annotated[int | None, typer.Option(help="Seed of the first draw.", show_default=False)] = None,
    budget: Annotated[str, typer.Option(help="Floating-point operations of a run, such as 1e12; several with commas.")] = "",
    scale: Annotated[str, typer.Option(help="cpu, or paper: the nets, settings and lengths of the paper.")] = "cpu",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    jobs: Annotated[int, typer.Option(min=0, help="Runs side by side; 0: one for each core, one on a GPU.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder; else runs/NAME. What is there is not repeated.")] = None,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.", show_default=False)] = None,
    tune: Annotated[int, typer.Option(min=0, help="Settings to try for each row on validation images; 0: none.")] = 0,
) -> None:
    """Make a table or figure of the paper, or a table of your own, with every run recorded."""
    from rich.console import Console

    from samekind.bench import tables
    from samekind.bench.bench import Asked, run, several

    lists = (several(methods, str, "methods"), several(labels, int, "labels"), several(data, str, "data"))
    asked = Asked(name, *lists, splits, first_seed, several(budget, float, "budget"), scale, device, jobs, dask, tune)
    result = run(asked, out, Console(stderr=True))
    tables.show(result.table)
    for remark in result.remarks:
        typer.echo(remark, err=True)
    typer.echo(result.report)


@app.command()
def table(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS", help="Folders of `samekind bench`, or .jsonl files.")],
    form: Annotated[str, typer.Option("--format", help="md, latex, csv or html.")] = "md",
    reference: Annotated[str, typer.Option(help="Row that the others are compared with.", show_default=False)] = "",
    against_compute: Annotated[bool, typer.Option("--against-compute", help="Error over floating-point operations.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write instead of stdout.", show_default=False)] = None,
    plot: Annotated[Path | None, typer.Option(help="PNG: error over operations, or every split.", show_default=False)] = None,
) -> None:
    """Tables from recorded runs: mean ± std, the paper's numbers, paired differences, cost."""
    from samekind.bench.printing import found_in, plotted, printed
    from samekind.io import atomic_write

    found = found_in(runs, form, reference)
    text = printed(found, form, against_compute=against_compute)
    if plot is not None:
        atomic_write(plot, plotted(found, against_compute=against_compute))
    if out is None:
        typer.echo(text, nl=False)
    else:
        atomic_write(out, text.encode())
    for path in (out, plot):
        if path is not None:
            typer.echo(path)


@app.command()
def query(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder made by `samekind fit`.")],
    images: Annotated[list[str] | None, typer.Argument(metavar="IMAGE", help="Pictures, folders or arrays.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many to find for each.")] = 9,
    rows: Annotated[str, typer.Option(help="Items of the run by number, such as 3,17; 0 is the first of labels.csv.")] = "",
    against: Annotated[str | None, typer.Option(help="Search this folder or array instead of the run's data.")] = None,
    out: Annotated[Path | None, typer.Option(help="OUT.png and OUT.csv; else RUN/query.", show_default=False)] = None,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Both ways count: the mean of W_ij and W_ji.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Compare with every item, however many there are.")] = False,
) -> None:
    """The most alike by learned similarity, as a picture and a table."""
    from samekind.project.query import Question, ask, parse_indices

    candidates: Any = "all" if exact else "auto"
    question = Question(tuple(images or ()), parse_indices(rows), against, k, symmetric, candidates)
    with _bars(of_bytes=False) as progress:
        answer = ask(run, question, out or run / "query", say=partial(typer.echo, err=True), progress=progress)
    for one in answer.skipped:
        typer.echo(f"left out {one}", err=True)
    typer.echo(f"{answer}", err=True)
    typer.echo(answer.panel or answer.table)


@app.command()
def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder made by `samekind fit`; or data that has no labels yet.")],
    out: Annotated[Path | None, typer.Option(help="Run of data without labels; else runs/NAME.", show_default=False)] = None,
    port: Annotated[int, typer.Option(help="0 takes any that is free.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on; this machine only by default.")] = "127.0.0.1",
    allow_host: Annotated[list[str] | None, typer.Option(help="A name that people may type to reach --host.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, change nothing.")] = False,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    token_file: Annotated[Path | None, typer.Option(help="Write the token here for programs.", show_default=False)] = None,
) -> None:
    """The page: look, ask, label, refit, export."""
    from samekind.server.serve import Wanted
    from samekind.server.serve import serve as serve_page
    from samekind.server.unlabelled_project import resolve_run

    say = partial(typer.echo, err=True)
    with _bars(of_bytes=False) as progress:
        run = resolve_run(run, out, read_only=read_only, say=say, progress=progress)
    wanted = Wanted(run, host, port, tuple(allow_host or ()), read_only, browser, token_file)
    serve_page(wanted, say=say, tell=typer.echo)


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder made by `samekind fit`.")]


@labels_app.command("verify")
def labels_verify(run: RunFolder) -> None:
    """Replay the log of all labels and compare it with what the page shows."""
    from samekind.server.store.verify import require_valid

    typer.echo(require_valid(run / "serve" / "labels.sqlite"), err=True)


@labels_app.command("export")
def labels_export(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="The file to write.")],
    format: Annotated[str, typer.Option(help="csv, csv-spreadsheet, jsonl, imagefolder, labelstudio or fiftyone.")] = "csv",
    what: Annotated[str, typer.Option(help="labels, predictions or both.")] = "labels",
    scope: Annotated[str, typer.Option(help="all, labelled, unlabelled or skipped.")] = "all",
    url_prefix: Annotated[str, typer.Option(help="Put before paths in Label Studio tasks.")] = "",
) -> None:
    """Labels and predictions as a file for other programs."""
    from samekind.server.transfer.exporters import write_file

    write_file(run, out, format, what, scope, url_prefix)
    typer.echo(out)


@labels_app.command("copy")
def labels_copy(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="Folder that is empty or not there yet.")],
    what: Annotated[str, typer.Option(help="labels, predictions, or both: a label where there is one.")] = "labels",
    link: Annotated[bool, typer.Option("--link", help="Links instead of copies.")] = False,
) -> None:
    """A folder for each class with its pictures, under their own paths."""
    from samekind.server.transfer.exporters import copy_images

    typer.echo(f"{copy_images(run, out, what, link=link)} pictures", err=True)
    typer.echo(out)


@cache_app.command("clear")
def cache_clear(run: RunFolder) -> None:
    """Remove the thumbnails of a run; the page makes them again."""
    from samekind.server.media.thumbnails import clear

    typer.echo(f"{clear(run / 'serve' / 'thumbs') / 2**20:.1f} MB removed", err=True)


@app.command()
def methods() -> None:
    """The methods there are: idea, paper, what each needs, and what a step costs."""
    from samekind.bench import overview, tables

    tables.show(overview.table())
    typer.echo(
        "cost: operations of a step, as a multiple of learning as many labelled rows. BASE+ADDITION combines two.", err=True
    )


@data_app.callback()
def data(context: typer.Context) -> None:
    """Data sets: what there is; fetch and verify them."""
    if context.invoked_subcommand is None:
        data_list()


@data_app.command("list")
def data_list(root: DataRoot = None) -> None:
    """The data sets there are, and which are in place."""
    from samekind.bench import tables
    from samekind.data.sources import Line, overview, root_of

    header = tuple(name.replace("_", " ") for name in Line._fields)
    tables.show(tables.Table(header, tuple(overview(root)), numeric=frozenset({3, 4})))
    typer.echo(f"in place: looked for in {root_of(root)}", err=True)


@data_app.command("fetch")
def data_fetch(
    names: DataNames,
    root: DataRoot = None,
    extra: Annotated[bool, typer.Option("--extra", help="Also the 531,131 extra images of svhn, 1.3 GB.")] = False,
) -> None:
    """Fetch data sets, or go on fetching them, and check every byte."""
    from samekind.data.catalogue import find
    from samekind.data.fetch import fetch

    for source in [find(name) for name in names]:
        with _bars() as on_progress:
            folder = fetch(source.name, root, extra=extra, on_progress=on_progress)
        typer.echo(folder)
        typer.echo(f"{source.name} is whole. Terms: {source.terms}. Cite: {source.cite}.", err=True)


@data_app.command("verify")
def data_verify(names: DataNames, root: DataRoot = None) -> None:
    """Check the files in place against the official ones, offline."""
    from samekind.bench import tables
    from samekind.data.catalogue import find
    from samekind.data.sources import Finding, require_sound, verify

    findings = {source.name: verify(source.name, root) for source in [find(name) for name in names]}
    for name, found in findings.items():
        tables.show(tables.Table((name, *Finding._fields[1:]), tuple(found)))
    for name, found in findings.items():
        require_sound(name, found, root)


@contextmanager
def _bars(*, of_bytes: bool = True) -> Iterator[Callable[[str, int, int], None]]:
    """Bars on stderr, one for each thing that is being done, from its first byte or item on."""
    from rich import progress as rich
    from rich.console import Console
    from rich.progress import Progress

    amount = (rich.DownloadColumn(), rich.TransferSpeedColumn()) if of_bytes else (rich.MofNCompleteColumn(),)
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), *amount, rich.TimeRemainingColumn())
    tasks: dict[str, Any] = {}
    bars = Progress(*columns, console=Console(stderr=True))

    def show(file: str, have: int, size: int) -> None:
        bars.start()
        if file not in tasks:
            tasks[file] = bars.add_task(file, total=size, completed=have)
        bars.update(tasks[file], completed=have)
        if bars.finished:
            bars.stop()  # what comes next may want the line

    try:
        yield show
    finally:
        if tasks:
            bars.stop()
