"""Commands on methods and benchmarks: `samekind demo`, `bench`, `table` and `methods`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from samekind.commands.terminal import log

BENCHES = (
    "toy svhn svhn-randaugment cifar10 cifar10-randaugment cifar100 ablation similarity mnist cpu, "
    "or a grid file (.toml, .json)"
)


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
    log(f"{result.report} after {result.numbers['seconds']:.0f} s")


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
        log(remark)
    typer.echo(result.report)


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
