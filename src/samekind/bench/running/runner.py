"""One run under the one protocol: a split drawn by seed, training on what it shows, one look at the test set, a record.

While settings are chosen, images are held out of the training set and judged instead; the test set is then not looked at. Two
nets are judged: the one that answers in the end, an average where the method keeps one, and the student.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from samekind import __version__, defaults
from samekind.bench.bench_data import BenchData, load_bench_data, validation_size
from samekind.bench.grid import RunSpec
from samekind.bench.presets.lookup import find_preset
from samekind.bench.running.paper_scale import (
    PaperRunOptions,
    PreparedRun,
    compute_features,
    count_step_flops,
    predict_classes,
    prepare_run,
)
from samekind.data.splits import Split, draw_split
from samekind.errors import SettingError
from samekind.evaluation.metrics import error_rate
from samekind.fitting import FitOptions, ModelFit, fit_model
from samekind.methods import is_iterative
from samekind.methods.base import Method
from samekind.methods.predictors import AnyPredictor, DeepPredictor
from samekind.model import FittedModel
from samekind.search.pair_scores import make_pair_score
from samekind.search.pairwise import pairwise_similarity
from samekind.training.determinism import single_thread
from samekind.training.engine import open_engine
from samekind.training.metering import MB, memory
from samekind.training.trainer import train

Array = npt.NDArray[Any]
PROBE_ROWS = 500  # of the pool, besides the labelled ones, when a step is counted
GRID = 100  # points of a plane in each direction


@dataclass(frozen=True)
class RunContext:
    """Where a run is made: on which device, and in which folder it may keep what it needs to be taken up again."""

    device: str = "auto"
    folder: Path | None = None  # used only if it is there: a worker may sit on another machine

    def place(self, name: str) -> Path | None:
        return self.folder / name if self.folder is not None and self.folder.is_dir() else None

    def unfinished(self, key: str) -> Path | None:
        """The folder of a run that is not over."""
        place = self.place("unfinished")
        return None if place is None else place / key

    def forget(self, key: str) -> None:
        place = self.unfinished(key)
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)


class RunResult(NamedTuple):
    """What is left of a run: its line, and arrays for the figures."""

    record: dict[str, Any]
    arrays: dict[str, Array]


class TrainedRun(NamedTuple):
    """What was trained: classes as numbers of any rows, by the net that answers and by the student; and what it cost."""

    answers: Callable[[Array], Array]
    student_answers: Callable[[Array], Array] | None  # None: the student answers, or there is none
    model: Any  # for what else is measured: predict_proba, similarity
    cost: dict[str, Any]


def student_of(method: Method, predictor: AnyPredictor) -> DeepPredictor | None:
    """The student as a predictor of its own; None if it is the one that answers, or there is none."""
    student = getattr(method, "student", None)
    if student is None or getattr(predictor, "classifier", None) is student:
        return None
    return DeepPredictor(student, mirrored=getattr(predictor, "mirrored", False)).eval()


def run(cell: RunSpec, where: RunContext | None = None) -> RunResult:
    """Makes the run of a cell, or goes on with it, and judges its end."""
    where = where or RunContext()
    problem = load_bench_data(cell.data, cell.test, where.place("cache"))
    n_validation = validation_size(cell.data, len(problem.y)) if cell.validation else 0
    split = draw_split(problem.y, cell.labels, cell.seed, n_validation=n_validation)
    keep = where.unfinished(cell.key)
    # runs of a grid go side by side, and one thread each gives the same numbers whatever else is running
    with single_thread(not cell.preset), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = _at_paper_scale(cell, problem, split, where, keep) if cell.preset else _fit(cell, problem, split, where, keep)
        rows, true = _judged(problem, split)
        answers = fitted.answers(rows)
        by_student = answers if fitted.student_answers is None else fitted.student_answers(rows)
        more, arrays = _measured(cell, problem, split, fitted)
    record = {
        **cell.as_dict(),
        "judged_on": "validation" if cell.validation else "test" if len(problem.y_test) else "unlabelled",
        "error": error_rate(answers, true),
        "student_error": error_rate(by_student, true),
        **more,
        "split": split.record(),
        "cost": fitted.cost,
        "code": code_version(),
        "warnings": sorted({str(one.message) for one in caught if issubclass(one.category, UserWarning)}),
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    return RunResult(json.loads(json.dumps(record)), arrays)


def _judged(problem: BenchData, split: Split) -> tuple[Array, Array]:
    """Rows and their true classes: validation rows if there are any, else the test set, else what shows no label."""
    if len(split.validation):
        return problem.x[split.validation], problem.y[split.validation]
    if len(problem.y_test):
        return problem.x_test, problem.y_test
    return problem.x[split.unlabelled], problem.y[split.unlabelled]


# ---------------------------------------------------------------- at CPU scale


def _fit(cell: RunSpec, problem: BenchData, split: Split, where: RunContext, keep: Path | None) -> TrainedRun:
    names = np.array([*problem.classes, None], dtype=object)  # -1 is the last: no label
    x, y = problem.x[split.train], names[split.y]
    options = replace(_options(cell, where.device), checkpoint=keep)
    steps = steps_in_budget(cell, x, y) if cell.budget is not None and is_iterative(cell.method) else None
    began = time.perf_counter(), time.process_time()
    # no features of the training set: nothing here needs the labels or the neighbours of its samples
    fit = fit_model(x, y, options, steps=steps, keep_training_set=False)
    clock = {"seconds": time.perf_counter() - began[0], "cpu_seconds": time.process_time() - began[1]}
    without_steps = {"flops": 0, "steps": 0, "rows": 0, "peak_memory_mb": round(memory() / MB, 1)}
    cost = {**{name: round(spent, 3) for name, spent in clock.items()}, **without_steps, **fit.cost}
    numbers = {name: number for number, name in enumerate(problem.classes)}

    def class_numbers(model: FittedModel) -> Callable[[Array], Array]:
        return lambda rows: np.array([numbers[name] for name in model.predict(rows)])

    student = student_of(fit.method, fit.model.predictor)
    by_student = None if student is None else class_numbers(fit.model.with_predictor(student))
    return TrainedRun(class_numbers(fit.model), by_student, fit.model, cost)


def _options(cell: RunSpec, device: str) -> FitOptions:
    return FitOptions(
        cell.method, settings=_with_tuples(cell.settings), random_state=cell.seed, device=device, **_with_tuples(cell.options)
    )


def _with_tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with tuples in place of lists: JSON and TOML have lists only."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


def steps_in_budget(cell: RunSpec, x: Array, y: Array) -> int:
    """Return how many steps the budget of floating-point operations allows, from one counted step of each stage.

    The supervised warm-up takes a fraction s of the steps: steps = budget/(s F_warmup + (1 - s) F_method).
    """
    shown = np.array([label is not None for label in y])
    some = np.sort(np.concatenate([np.flatnonzero(shown), np.flatnonzero(~shown)[:PROBE_ROWS]]))
    options = _options(cell, "cpu")

    def probe(steps: int, supervised_warmup: float) -> ModelFit:
        shortened = replace(options, supervised_warmup=supervised_warmup)
        return fit_model(x[some], y[some], shortened, steps=steps, keep_training_set=False)

    one_step = probe(1, 0.0)
    method = float(one_step.cost["flops"])
    fraction = options.warmup_fraction(int(shown.sum()), one_step.model.shape)
    step = fraction * (probe(2, 0.5).cost["flops"] - method) + (1 - fraction) * method if fraction else method
    return max(1, int((cell.budget or 0.0) / step))


# ---------------------------------------------------------------- at paper scale


class PresetModel:
    """The predictor of a preset's run, with the verb of the estimator that figures ask for."""

    def __init__(self, predictor: Any, ready: PreparedRun) -> None:
        self._predictor, self._normalise = predictor, ready.normalise

    def similarity(self, rows: Array) -> Array:
        z = compute_features(self._predictor, rows, self._normalise)
        return pairwise_similarity(make_pair_score(self._predictor.cpu()), z, z).numpy()


def _at_paper_scale(cell: RunSpec, problem: BenchData, split: Split, where: RunContext, keep: Path | None) -> TrainedRun:
    chosen, n_classes = find_preset(cell.preset), len(problem.classes)
    steps = None
    if cell.budget is not None:
        shape = (problem.x.shape[-1], *problem.x.shape[1:3])
        counted = count_step_flops(chosen, n_classes, cell.width, shape)
        if counted is None:
            raise SettingError(f"a step of {chosen.method} cannot be counted beforehand. Leave --budget out at paper scale.")
        steps = max(1, int(cell.budget / counted))
    with open_engine(defaults.device_for(where.device)) as engine, torch.random.fork_rng(devices=[]):
        how = PaperRunOptions(steps, cell.width, keep)
        ready = prepare_run(chosen, problem.x, split, n_classes, how, engine)
        trained = train(ready.method, ready.pool, ready.views, ready.plan, engine)
    predictor: Any = trained.predictor
    student = student_of(ready.method, predictor)
    return TrainedRun(
        lambda rows: predict_classes(predictor, rows, ready.normalise),
        None if student is None else lambda rows: predict_classes(student, rows, ready.normalise),
        PresetModel(predictor, ready),
        trained.cost,
    )


# ---------------------------------------------------------------- what else is measured


def _measured(cell: RunSpec, problem: BenchData, split: Split, fitted: TrainedRun) -> tuple[dict[str, Any], dict[str, Array]]:
    if cell.validation or not cell.measure:
        return {}, {}
    if cell.measure == "regions":
        return {}, _regions(problem, split, fitted)
    from samekind.bench.running.similarity_measures import alike

    return alike(problem, fitted.model, fitted.answers, cell.seed)


def _regions(problem: BenchData, split: Split, fitted: TrainedRun) -> dict[str, Array]:
    """What a plane looks like to the net: a class for every row, and P(class 1) on a grid over all of them."""
    from samekind.bench.reporting.figures import plane_grid

    probability = fitted.model.predict_proba(plane_grid(problem.x, GRID))[:, 1].reshape(GRID, GRID)
    return {
        "labelled": split.labelled,
        "predicted": fitted.answers(problem.x).astype(np.uint8),
        "probability": np.round(255 * probability).astype(np.uint8),
    }


# ---------------------------------------------------------------- inside


@lru_cache(maxsize=1)
def code_version() -> dict[str, str]:
    """The version of the package, and 12 hex digits of the sha256 of all its files: runs with the same ran the same code."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return {"version": __version__, "hash": digest.hexdigest()[:12], "torch": torch.__version__}
