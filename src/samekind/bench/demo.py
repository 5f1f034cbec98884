"""The demo: moons, circles and handwritten digits with a handful of labels, beside the usual alternatives.

    samekind demo            6000 points, 1797 images
    samekind demo --quick    1000 points, 600 images, short training

One seed draws the points, the labels and the start of every network. The folder holds table.md, results.json, the figures
and report.html, which has everything in one file.
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
from samekind.io import atomic_write
from samekind.methods import METHODS, parts
from samekind.training.determinism import single_thread

Array = npt.NDArray[Any]

OURS = "learned_graph"  # whose similarity the last two figures show
SPREADING = "LabelSpreading"
SHOWN = ("supervised", "pi_model", "mean_teacher", SPREADING, OURS)
EXAMPLE = """from samekind import SemiSupervisedClassifier

clf = SemiSupervisedClassifier(random_state=0).fit(X, y)   # y == -1 means "no label yet"
clf.transduction_             # a label for every row of X
clf.predict(X_new)            # and for rows it has not seen
clf.kneighbors(X_new)         # what is most alike, by the learned similarity"""


@dataclass(frozen=True)
class DemoConfig:
    """Sizes and seed; the defaults are the experiment of the paper where it has one."""

    seed: int = 0
    n: int = 6000  # points of each toy
    n_images: int = 1797
    moons_noise: float = 0.15
    circles_noise: float = 0.3
    radii: tuple[float, float] = (1.0, 2.5)
    moons_labels: int = 12
    circles_labels: int = 8
    digits_labels: int = 50
    methods: tuple[str, ...] = SHOWN
    epochs: float | Literal["auto"] = "auto"
    gamma: float = 20.0  # width of LabelSpreading's kernel, 20 as in scikit-learn
    grid: int = 150  # points of a figure's grid in each direction
    matrix_rows: int = 500
    neighbours: int = 9


QUICK = DemoConfig(n=1000, n_images=600, epochs=30, grid=80, matrix_rows=200)


@dataclass(frozen=True)
class DemoProblem:
    """Rows X, their classes y, and what a learner gets to see of y (-1: hidden)."""

    name: str
    title: str
    X: Array
    y: Array
    shown: Array

    @property
    def hidden(self) -> Array:
        """The numbers of the rows without a label."""
        return np.flatnonzero(self.shown == UNLABELLED)

    @property
    def n_labels(self) -> int:
        return len(self.y) - len(self.hidden)


@dataclass(frozen=True)
class DemoFit:
    """One method on one problem."""

    problem: DemoProblem
    method: str
    model: Any
    error: float  # on the rows without a label, in per cent
    seconds: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class DemoSimilarity:
    """How good the learned similarity is on the digits, beside what one would use without it."""

    rows: Array  # of the matrix, sorted by class
    W: Array
    given: Array  # the labels given to these rows
    mse: dict[str, float]
    queries: Array
    found: dict[str, Array]
    precision: dict[str, float]


@dataclass(frozen=True)
class DemoResult:
    """The table to show, the numbers behind it, and where the report is."""

    table: TextTable
    numbers: dict[str, Any]
    report: Path


class LabelSpreadingBaseline:
    """scikit-learn's LabelSpreading with the verbs of our own estimator, on inputs brought to one scale."""

    _mean: Any
    _scale: Any

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def fit(self, X: Array, y: Array) -> LabelSpreadingBaseline:
        # columns of a vector are standardised; pixels share one scale already and only lose their unit
        self._mean, self._scale = (X.mean(0), X.std(0)) if X.ndim == 2 else (0.0, X.max())
        self._model = LabelSpreading(kernel="rbf", gamma=self.gamma, max_iter=300).fit(self._scaled(X), y)
        self.transduction_ = self._model.transduction_
        return self

    def predict_proba(self, X: Array) -> Array:
        blocks = np.array_split(self._scaled(X), 1 + len(X) // 2000)  # a kernel of 22,500 x 6000 would take 1 GB
        return np.concatenate([self._model.predict_proba(block) for block in blocks])

    def _scaled(self, X: Array) -> Array:
        return np.asarray(((X - self._mean) / self._scale).reshape(len(X), -1))


def run_demo(settings: DemoConfig, out: Path, console: Console | None = None) -> DemoResult:
    """Fits every method on every problem, draws, and writes the folder `out`; progress goes to the console, if any."""
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


# ---------------------------------------------------------------- problems and fits


def make_demo_problems(settings: DemoConfig) -> list[DemoProblem]:
    """Moons, circles and digits, with the labels of a few rows in sight."""
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
    """Every method on every problem, one after the other; says what is under way and what each one cost."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    fits = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(problems) * len(settings.methods))
        for problem in problems:
            for method in settings.methods:
                progress.update(task, description=f"{problem.name}, {method}")
                fitted = _fit(problem, method, settings)
                fits.append(fitted)
                progress.advance(task)
                line = f"{problem.name:<8} {method:<14} {fitted.error:6.2f} % wrong {fitted.seconds:6.1f} s"
                console.print("\n".join([line, *fitted.notes]), highlight=False, soft_wrap=True)
    return fits


def _fit(problem: DemoProblem, method: str, settings: DemoConfig) -> DemoFit:
    model = LabelSpreadingBaseline(settings.gamma) if method == SPREADING else _estimator(method, settings)
    began = time.perf_counter()
    # a warning belongs into the report; on the terminal it would break the line that shows progress
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model.fit(problem.X, problem.shown)
    seconds = time.perf_counter() - began
    error = error_rate(model.transduction_[problem.hidden], problem.y[problem.hidden])
    notes = tuple(f"{method} on {problem.name}: {warning.message}" for warning in caught)
    return DemoFit(problem, method, model, error, seconds, notes)


def _estimator(method: str, settings: DemoConfig) -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier(method, epochs=settings.epochs, device="cpu", random_state=settings.seed)


# ---------------------------------------------------------------- similarity


def compare_similarities(ours: DemoFit, settings: DemoConfig) -> DemoSimilarity:
    """The learned W beside 0/1 from predicted labels (matrix) and beside a Gaussian kernel on pixels (query)."""
    problem, k = ours.problem, settings.neighbours
    rows = _sorted_draw(problem, min(settings.matrix_rows, len(problem.hidden)), settings.seed)
    W = ours.model.similarity(problem.X[rows])
    given = ours.model.transduction_[rows]
    ideal = same_class(problem.y[rows], problem.y[rows])
    mse = {"learned": float(np.mean((W - ideal) ** 2)), "labels": float(np.mean(same_class(given, given) != ideal))}
    pixels = problem.X.reshape(len(problem.X), -1) / problem.X.max()
    # only the order counts, and the order by a Gaussian kernel is the same for every width
    gaussian = np.argsort(-rbf_kernel(pixels), axis=1, kind="stable")[:, : k + 1]
    found = {"learned": without_itself(ours.model.kneighbors(problem.X, k + 1)[1]), "gaussian": without_itself(gaussian)}
    precision = {name: 100 - error_rate(problem.y[near], problem.y[:, None]) for name, near in found.items()}
    queries = _sorted_draw(problem, len(np.unique(problem.y)), settings.seed)
    return DemoSimilarity(rows, W, given, mse, queries, found, precision)


def without_itself(indices: Array) -> Array:
    """(n, k + 1) -> (n, k): row i without i, or without its last entry where i is not among them."""
    other = indices != np.arange(len(indices))[:, None]
    first = np.argsort(~other, axis=1, kind="stable")[:, :-1]
    return np.take_along_axis(indices, first, axis=1)


def _sorted_draw(problem: DemoProblem, n: int, seed: int) -> Array:
    """n rows without a label, all classes in their share, sorted by class."""
    rows = problem.hidden[train_test_indices(problem.y[problem.hidden], n, seed)[1]]
    return np.asarray(rows[np.argsort(problem.y[rows], kind="stable")])


# ---------------------------------------------------------------- pictures


def draw(
    problems: Sequence[DemoProblem], fits: Sequence[DemoFit], similarity: DemoSimilarity, settings: DemoConfig
) -> list[ReportFigure]:
    """A plane for each toy, the similarity matrices and the query panel."""
    from samekind.bench.reporting import figures

    planes = []
    for p in problems[:-1]:
        grid = figures.plane_grid(p.X, settings.grid)
        regions = [
            figures.DecisionRegions(f.method, f.error, f.model.transduction_, _second_class(f.model, grid))
            for f in fits
            if f.problem is p
        ]
        planes.append(figures.regions_figure(p.name, p.title, p.X, p.y, p.shown, regions))
    images, y = problems[-1].X, problems[-1].y
    matrix = figures.matrix_figure(y[similarity.rows], similarity.W, similarity.given, similarity.mse)
    return [*planes, matrix, figures.query_figure(images, y, similarity.queries, similarity.found, similarity.precision)]


def _second_class(model: Any, grid: Array) -> Array:
    size = math.isqrt(len(grid))
    return np.asarray(model.predict_proba(grid)[:, 1].reshape(size, size))


# ---------------------------------------------------------------- words, numbers, files


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
            "k": settings.neighbours,
            "precision": {name: round(share, 4) for name, share in similarity.precision.items()},
        },
        "warnings": [note for f in fits for note in f.notes],
        "seconds": round(seconds, 1),
        "finished": datetime.now().astimezone().isoformat(timespec="seconds"),
        "versions": collect_versions(),
    }


def command(settings: DemoConfig, out: Path) -> str:
    """What to type to get the same again."""
    place = shlex.quote(str(out))
    for flag, sizes in (("", DemoConfig()), (" --quick", QUICK)):
        if settings == replace(sizes, seed=settings.seed, radii=settings.radii):
            return (
                f"samekind demo{flag} --seed {settings.seed} --radii {settings.radii[0]:g} {settings.radii[1]:g} --out {place}"
            )
    return f"samekind.bench.demo.run({settings!r}, Path({str(out)!r}))"


def _write(folder: Path, table: TextTable, numbers: dict[str, Any], figures: Sequence[ReportFigure]) -> None:
    """All files in a row at the very end, so that a run that is stopped leaves the folder as it was."""
    for picture in figures:
        atomic_write(folder / picture.file, picture.png)
    atomic_write(folder / "results.json", (json.dumps(numbers, indent=2) + "\n").encode())
    atomic_write(folder / "table.md", f"{_about(numbers)}\n\n{to_markdown(table)}".encode())
    atomic_write(folder / "report.html", render_report(_report(table, numbers, figures)).encode())


def _about(numbers: dict[str, Any]) -> str:
    return (
        "Errors in per cent on the rows without a label, lowest in bold, and the seconds that the three fits took. One draw of "
        f"points and labels (seed {numbers['settings']['seed']}): a look, not a benchmark."
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
        ideas={method: _summary(method) for method in numbers["settings"]["methods"]},
        figures=figures,
        notes=numbers["warnings"],
        command=numbers["command"],
        example=EXAMPLE,
        settings={name.replace("_", " "): _join(value) for name, value in numbers["settings"].items()},
        versions=numbers["versions"],
    )


def _summary(method: str) -> str:
    return (
        "scikit-learn's: labels spread over a fixed Gaussian graph"
        if method == SPREADING
        else METHODS[method.split("+")[-1]].idea
    )


def _join(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


# ---------------------------------------------------------------- refusals


def _require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise SamekindError('the demo needs matplotlib, which is not installed. Get it with: pip install "samekind[plots]"')


def _validate(settings: DemoConfig) -> None:
    if not 0 <= settings.seed < 2**32:
        raise SettingError(f"seed is {settings.seed}; expected a whole number from 0 to {2**32 - 1}")
    if settings.n < 50 or not 100 <= settings.n_images <= 1797:
        raise SettingError(f"n is {settings.n} and n_images {settings.n_images}; expected 50 or more, and 100 to 1797")
    if OURS not in settings.methods:
        raise SettingError(f"methods are {_join(settings.methods)}; expected {OURS} among them, whose similarity is shown")
    for method in settings.methods:
        if method != SPREADING:
            parts(method)  # an unknown name is refused here, not after minutes of work
