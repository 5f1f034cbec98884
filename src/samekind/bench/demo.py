"""Demo: compares methods on moons, circles and handwritten digits, each with a few labels.

    samekind demo            6000 points, 1797 images
    samekind demo --quick    1000 points, 600 images, short training

One seed determines the points, the labels and the initial weights of every network. The output folder contains table.md,
results.json, the figures, and report.html, which contains all of these.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shlex
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.semi_supervised import LabelSpreading

from samekind.bench.reporting.html_report import HtmlReport, ReportFigure, collect_versions, make_output_dir, render_report
from samekind.bench.reporting.text_table import TextTable, demo_table, to_markdown
from samekind.data.dataset import UNLABELLED
from samekind.data.hub.toys import circles, digits, moons
from samekind.data.splits import hide_labels, train_test_indices
from samekind.errors import SamekindError, SettingError
from samekind.estimator import SemiSupervisedClassifier
from samekind.evaluation.metrics import error_rate, same_class
from samekind.files.io import atomic_write
from samekind.methods import METHODS, split_name
from samekind.training.determinism import single_thread

Array = npt.NDArray[Any]

OURS = "learned_graph"  # method whose learned similarity is shown in the last two figures
SPREADING = "LabelSpreading"
DEMO_METHODS = ("supervised", "pi_model", "mean_teacher", SPREADING, OURS)
EXAMPLE = """from samekind import SemiSupervisedClassifier

clf = SemiSupervisedClassifier(random_state=0).fit(X, y)   # y == -1 means "no label yet"
clf.transduction_             # a label for every sample of X
clf.predict(X_new)            # labels of new samples
clf.kneighbors(X_new)         # the most similar samples, by the learned similarity"""


@dataclass(frozen=True)
class DemoConfig:
    """Sizes and random seed of the demo. The defaults for moons and circles are the paper's."""

    seed: int = 0
    n: int = 6000  # number of points of the moons, and of the circles
    n_images: int = 1797
    moons_noise: float = 0.15
    circles_noise: float = 0.3
    radii: tuple[float, float] = (1.0, 2.5)
    moons_labels: int = 12
    circles_labels: int = 8
    digits_labels: int = 50
    methods: tuple[str, ...] = DEMO_METHODS
    epochs: float | Literal["auto"] = "auto"
    gamma: float = 20.0  # gamma of LabelSpreading's RBF kernel; scikit-learn's default
    grid: int = 150  # number of points in each direction at which decision regions are computed
    matrix_size: int = 500
    n_neighbors: int = 9


QUICK = DemoConfig(n=1000, n_images=600, epochs=30, grid=80, matrix_size=200)


@dataclass(frozen=True)
class DemoProblem:
    """Dataset of the demo: samples X, their true classes y, and the training labels `shown`, which are -1 for unlabelled
    samples.
    """

    name: str
    title: str
    X: Array
    y: Array
    shown: Array

    @property
    def hidden(self) -> Array:
        """Return the indices of the unlabelled samples."""
        return np.flatnonzero(self.shown == UNLABELLED)

    @property
    def n_labels(self) -> int:
        return len(self.y) - len(self.hidden)


@dataclass(frozen=True)
class DemoFit:
    """A model of one method, fitted to one dataset."""

    problem: DemoProblem
    method: str
    model: Any
    error: float  # error on the unlabelled samples, in percent
    seconds: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class DemoSimilarity:
    """Learned similarity of digits, with metrics of it, of a Gaussian kernel, and of a similarity by predicted labels."""

    rows: Array  # indices of the samples in the matrix, sorted by class
    W: Array
    given: Array  # predicted labels of these samples
    mse: dict[str, float]
    queries: Array
    found: dict[str, Array]
    precision: dict[str, float]


@dataclass(frozen=True)
class DemoResult:
    """Result of the demo: the table of errors, all numbers, and the path of the report."""

    table: TextTable
    numbers: dict[str, Any]
    report: Path


class LabelSpreadingBaseline:
    """scikit-learn's LabelSpreading on scaled inputs, with those functions of our estimator that the demo calls."""

    _mean: Any
    _scale: Any

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def fit(self, X: Array, y: Array) -> LabelSpreadingBaseline:
        """Scale the inputs, and fit LabelSpreading to them."""
        # columns of vectors are standardized; pixels have a common scale already and are only divided by their maximum
        self._mean, self._scale = (X.mean(0), X.std(0)) if X.ndim == 2 else (0.0, X.max())
        self._model = LabelSpreading(kernel="rbf", gamma=self.gamma, max_iter=300).fit(self._scaled(X), y)
        self.transduction_ = self._model.transduction_
        return self

    def predict_proba(self, X: Array) -> Array:
        """Return the class probabilities (n, n_classes) of new samples."""
        # in blocks, because a kernel of 22,500 x 6000 samples takes 1 GB
        blocks = np.array_split(self._scaled(X), 1 + len(X) // 2000)
        return np.concatenate([self._model.predict_proba(block) for block in blocks])

    def _scaled(self, X: Array) -> Array:
        return np.asarray(((X - self._mean) / self._scale).reshape(len(X), -1))


def run_demo(settings: DemoConfig, out: Path, console: Console | None = None) -> DemoResult:
    """Fit every method to every dataset, draw the figures, write all files to the folder `out`, and return the result.

    Progress is printed to the console, if one is given.
    """
    began = time.perf_counter()
    console = console or Console(quiet=True)
    _require_matplotlib()
    _validate(settings)
    problems = make_demo_problems(settings)
    folder = make_output_dir(out)
    with single_thread():
        fits = fit_all(problems, settings, console)
        ours = next(f for f in fits if f.method == OURS and f.problem is problems[-1])
        with console.status("figures"):
            similarity = compare_similarities(ours, settings)
            figures = draw(problems, fits, similarity, settings)
    table = _table(problems, fits)
    numbers = _numbers(settings, fits, similarity, out, seconds=time.perf_counter() - began)
    _write(folder, table, numbers, figures)
    return DemoResult(table, numbers, folder / "report.html")


# ---------------------------------------------------------------- datasets of the demo, and fits on them


def make_demo_problems(settings: DemoConfig) -> list[DemoProblem]:
    """Return the datasets moons, circles and digits, each with a few labels."""
    s = settings
    images, y = digits()
    kept = train_test_indices(y, s.n_images, s.seed)[1]
    return [
        _problem("moons", "Two moons", *moons(s.n, s.moons_noise, s.seed), s.moons_labels, s.seed),
        _problem("circles", "Two circles", *circles(s.n, s.circles_noise, s.radii, s.seed), s.circles_labels, s.seed),
        _problem("digits", "Handwritten digits", images[kept], y[kept], s.digits_labels, s.seed),
    ]


def _problem(name: str, title: str, X: Array, y: Array, n_labels: int, seed: int) -> DemoProblem:
    return DemoProblem(name, title, X, y, hide_labels(y, n_labels // len(np.unique(y)), seed))


def fit_all(problems: Sequence[DemoProblem], settings: DemoConfig, console: Console) -> list[DemoFit]:
    """Fit every method to every dataset, and print the error and the seconds of each fit."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    fits = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(problems) * len(settings.methods))
        for problem in problems:
            for method in settings.methods:
                progress.update(task, description=f"{problem.name}, {method}")
                fitted = _fit_one(problem, method, settings)
                fits.append(fitted)
                progress.advance(task)
                line = f"{problem.name:<8} {method:<14} error {fitted.error:6.2f} % {fitted.seconds:6.1f} s"
                console.print("\n".join([line, *fitted.notes]), highlight=False, soft_wrap=True)
    return fits


def _fit_one(problem: DemoProblem, method: str, settings: DemoConfig) -> DemoFit:
    model = LabelSpreadingBaseline(settings.gamma) if method == SPREADING else _estimator(method, settings)
    began = time.perf_counter()
    # warnings are collected for the report; printed to the terminal, they would break the progress bar
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model.fit(problem.X, problem.shown)
    seconds = time.perf_counter() - began
    error = error_rate(model.transduction_[problem.hidden], problem.y[problem.hidden])
    notes = tuple(f"{method} on {problem.name}: {warning.message}" for warning in caught)
    return DemoFit(problem, method, model, error, seconds, notes)


def _estimator(method: str, settings: DemoConfig) -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier(method, epochs=settings.epochs, device="cpu", random_state=settings.seed)


# ---------------------------------------------------------------- similarity of digits


def compare_similarities(ours: DemoFit, settings: DemoConfig) -> DemoSimilarity:
    """Return metrics of three similarities: the learned one, "same predicted label", and a Gaussian kernel on pixels."""
    problem, k = ours.problem, settings.n_neighbors
    rows = _stratified_sample(problem, min(settings.matrix_size, len(problem.hidden)), settings.seed)
    W = ours.model.similarity(problem.X[rows])
    given = ours.model.transduction_[rows]
    ideal = same_class(problem.y[rows], problem.y[rows])
    mse = {"learned": float(np.mean((W - ideal) ** 2)), "labels": float(np.mean(same_class(given, given) != ideal))}
    pixels = problem.X.reshape(len(problem.X), -1) / problem.X.max()
    # a Gaussian kernel of any width ranks the samples in the same order
    gaussian = np.argsort(-rbf_kernel(pixels), axis=1, kind="stable")[:, : k + 1]
    found = {"learned": drop_self(ours.model.kneighbors(problem.X, k + 1)[1]), "gaussian": drop_self(gaussian)}
    precision = {name: 100 - error_rate(problem.y[near], problem.y[:, None]) for name, near in found.items()}
    queries = _stratified_sample(problem, len(np.unique(problem.y)), settings.seed)
    return DemoSimilarity(rows, W, given, mse, queries, found, precision)


def drop_self(indices: Array) -> Array:
    """Return neighbour indices (n, k) from indices (n, k + 1), leaving out each sample itself.

    Where a sample is not among its own neighbours, the last neighbour is left out.
    """
    other = indices != np.arange(len(indices))[:, None]
    first = np.argsort(~other, axis=1, kind="stable")[:, :-1]
    return np.take_along_axis(indices, first, axis=1)


def _stratified_sample(problem: DemoProblem, n: int, seed: int) -> Array:
    """Return the indices of n unlabelled samples, stratified by class and sorted by class."""
    rows = problem.hidden[train_test_indices(problem.y[problem.hidden], n, seed)[1]]
    return np.asarray(rows[np.argsort(problem.y[rows], kind="stable")])


# ---------------------------------------------------------------- figures of the demo


def draw(
    problems: Sequence[DemoProblem], fits: Sequence[DemoFit], similarity: DemoSimilarity, settings: DemoConfig
) -> list[ReportFigure]:
    """Return the figures: decision regions on moons and circles, similarity matrices, and nearest neighbours of some digits."""
    from samekind.bench.reporting import figures

    planes = []
    for p in problems[:-1]:
        grid = figures.plane_grid(p.X, settings.grid)
        regions = [
            figures.DecisionRegions(f.method, f.error, f.model.transduction_, _second_class_probability(f.model, grid))
            for f in fits
            if f.problem is p
        ]
        planes.append(figures.regions_figure(p.name, p.title, p.X, p.y, p.shown, regions))
    images, y = problems[-1].X, problems[-1].y
    matrix = figures.matrix_figure(y[similarity.rows], similarity.W, similarity.given, similarity.mse)
    return [*planes, matrix, figures.query_figure(images, y, similarity.queries, similarity.found, similarity.precision)]


def _second_class_probability(model: Any, grid: Array) -> Array:
    size = math.isqrt(len(grid))
    return np.asarray(model.predict_proba(grid)[:, 1].reshape(size, size))


# ---------------------------------------------------------------- results and files of the demo


def _table(problems: Sequence[DemoProblem], fits: Sequence[DemoFit]) -> TextTable:
    errors = {p.name: {f.method: f.error for f in fits if f.problem is p} for p in problems}
    seconds = {method: sum(f.seconds for f in fits if f.method == method) for method in errors[problems[0].name]}
    return demo_table(errors, seconds, {p.name: f"{p.name}, {p.n_labels} labels" for p in problems})


def _numbers(
    settings: DemoConfig, fits: Sequence[DemoFit], similarity: DemoSimilarity, out: Path, seconds: float
) -> dict[str, Any]:
    return {
        "command": command(settings, out),
        "settings": asdict(settings),
        "fits": [
            {"problem": f.problem.name, "method": f.method, "error": round(f.error, 4), "seconds": round(f.seconds, 2)}
            for f in fits
        ],
        "similarity": {"rows": len(similarity.rows), "mse": {name: round(mse, 6) for name, mse in similarity.mse.items()}},
        "query": {
            "k": settings.n_neighbors,
            "precision": {name: round(value, 4) for name, value in similarity.precision.items()},
        },
        "warnings": [note for f in fits for note in f.notes],
        "seconds": round(seconds, 1),
        "finished": datetime.now().astimezone().isoformat(timespec="seconds"),
        "versions": collect_versions(),
    }


def command(settings: DemoConfig, out: Path) -> str:
    """Return the command that repeats the demo; for settings that the command cannot express, return a Python call."""
    folder = shlex.quote(str(out))
    for flag, sizes in (("", DemoConfig()), (" --quick", QUICK)):
        if settings == replace(sizes, seed=settings.seed, radii=settings.radii):
            return (
                f"samekind demo{flag} --seed {settings.seed} --radii {settings.radii[0]:g} {settings.radii[1]:g} --out {folder}"
            )
    return f"samekind.bench.demo.run_demo({settings!r}, Path({str(out)!r}))"


def _write(folder: Path, table: TextTable, numbers: dict[str, Any], figures: Sequence[ReportFigure]) -> None:
    """Write all files. This is called at the end, so that an interrupted demo leaves the folder unchanged."""
    for figure in figures:
        atomic_write(folder / figure.file, figure.png)
    atomic_write(folder / "results.json", (json.dumps(numbers, indent=2) + "\n").encode())
    atomic_write(folder / "table.md", f"{_about(numbers)}\n\n{to_markdown(table)}".encode())
    atomic_write(folder / "report.html", render_report(_report(table, numbers, figures)).encode())


def _about(numbers: dict[str, Any]) -> str:
    return (
        "Errors in per cent on the unlabelled samples, the lowest in bold, and the seconds of the three fits. This is a single "
        f"split (seed {numbers['settings']['seed']}), not a benchmark."
    )


def _report(table: TextTable, numbers: dict[str, Any], figures: Sequence[ReportFigure]) -> HtmlReport:
    seconds = round(numbers["seconds"])
    when = datetime.fromisoformat(numbers["finished"]).strftime("%d %B %Y, %H:%M")
    return HtmlReport(
        title="samekind demo",
        lead="Label a handful. Sort the rest. Ask what is alike.",
        facts=f"Took {seconds // 60} min {seconds % 60} s, finished {when}.",
        table=table,
        about_table=_about(numbers),
        method_summaries={method: _summary(method) for method in numbers["settings"]["methods"]},
        figures=figures,
        notes=numbers["warnings"],
        command=numbers["command"],
        example=EXAMPLE,
        settings={name.replace("_", " "): _join(value) for name, value in numbers["settings"].items()},
        versions=numbers["versions"],
    )


def _summary(method: str) -> str:
    return (
        "scikit-learn's label propagation on a fixed Gaussian graph"
        if method == SPREADING
        else METHODS[method.split("+")[-1]].summary
    )


def _join(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


# ---------------------------------------------------------------- checks of the settings


def _require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise SamekindError('the demo needs matplotlib, which is not installed. Get it with: pip install "samekind[plots]"')


def _validate(settings: DemoConfig) -> None:
    if not 0 <= settings.seed < 2**32:
        raise SettingError(f"seed is {settings.seed}; expected a whole number from 0 to {2**32 - 1}")
    if settings.n < 50 or not 100 <= settings.n_images <= 1797:
        raise SettingError(
            f"n is {settings.n} and n_images is {settings.n_images}; expected n of 50 or more, and n_images from 100 to 1797"
        )
    if OURS not in settings.methods:
        raise SettingError(
            f"methods are {_join(settings.methods)}; expected {OURS} among them, because the demo draws its learned "
            f"similarity. Add {OURS}."
        )
    for method in settings.methods:
        if method != SPREADING:
            split_name(method)  # raises an error for an unknown name, before minutes of training
