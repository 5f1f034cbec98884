"""Execution of one run: draw a split by its seed, train on it, evaluate once on the test set, and return a record.

In a hyperparameter search, the error is that on samples held out of the training set, and the test set is not read. Two
networks are evaluated: the one that predicts, which in some methods is an EMA teacher or an average, and the student.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

import samekind
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
from samekind.fitting.fit_model import ModelFit, fit_model
from samekind.fitting.fit_options import FitOptions
from samekind.methods import is_iterative
from samekind.methods.base import Method
from samekind.methods.predictors import AnyPredictor, DeepPredictor
from samekind.model import FittedModel
from samekind.search.pair_scores import make_pair_score
from samekind.search.pairwise import pairwise_similarity
from samekind.training.determinism import single_thread
from samekind.training.engine import open_engine
from samekind.training.metering import MB, memory

Array = npt.NDArray[Any]
PROBE_STEPS = 4  # number of steps in the short fit; enough that loss terms which start later are counted too
PROBE_SAMPLES = 500  # number of unlabelled samples in the short fit in which the FLOPs of a step are counted
GRID = 100  # number of points in each direction at which decision regions are computed


@dataclass(frozen=True)
class RunContext:
    """Device of a run, and the folder for its checkpoints and caches."""

    device: str = "auto"
    folder: Path | None = None  # not used if it does not exist, as on a worker on another machine

    def subfolder(self, name: str) -> Path | None:
        """Return the path of a subfolder; None if there is no folder."""
        return self.folder / name if self.folder is not None and self.folder.is_dir() else None

    def checkpoint_folder(self, key: str) -> Path | None:
        """Return the folder for the checkpoints of the run with this key; None if there is no folder."""
        unfinished = self.subfolder("unfinished")
        return None if unfinished is None else unfinished / key

    def delete_checkpoint(self, key: str) -> None:
        """Delete the checkpoints of the run with this key."""
        checkpoint = self.checkpoint_folder(key)
        if checkpoint is not None:
            shutil.rmtree(checkpoint, ignore_errors=True)


class RunResult(NamedTuple):
    """Result of a run: its record, and arrays for the figures."""

    record: dict[str, Any]
    arrays: dict[str, Array]


class TrainedRun(NamedTuple):
    """Trained model, as functions that return the class indices of samples, and the cost of its training."""

    predict: Callable[[Array], Array]
    student_predict: Callable[[Array], Array] | None  # None: the student is the network that predicts, or there is no student
    model: Any  # model with predict_proba or similarity, for further measurements
    cost: dict[str, Any]


def student_of(method: Method, predictor: AnyPredictor) -> DeepPredictor | None:
    """Return a predictor with the student network; None if the method has no student, or predicts with the student."""
    student = getattr(method, "student", None)
    if student is None or getattr(predictor, "classifier", None) is student:
        return None
    return DeepPredictor(student, mirrored=getattr(predictor, "mirrored", False)).eval()


def execute_run(spec: RunSpec, context: RunContext | None = None) -> RunResult:
    """Train the model of a run, or resume its training from a checkpoint, and evaluate the final model."""
    context = context or RunContext()
    data = load_bench_data(spec.data, spec.test, context.subfolder("cache"))
    n_validation = validation_size(spec.data, len(data.y)) if spec.validation else 0
    split = draw_split(data.y, spec.labels, spec.seed, n_validation=n_validation)
    checkpoint = context.checkpoint_folder(spec.key)
    # one thread, so that results do not depend on the number of runs at the same time
    with single_thread(not spec.preset), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = _fit_at_paper_scale if spec.preset else _fit_at_cpu_scale
        fitted = fit(spec, data, split, context, checkpoint)
        x, y = _evaluation_set(data, split)
        predicted = fitted.predict(x)
        by_student = predicted if fitted.student_predict is None else fitted.student_predict(x)
        measures, arrays = _measure(spec, data, split, fitted)
    record = {
        **spec.as_dict(),
        "judged_on": "validation" if spec.validation else "test" if len(data.y_test) else "unlabelled",
        "error": error_rate(predicted, y),
        "student_error": error_rate(by_student, y),
        **measures,
        "split": split.record(),
        "cost": fitted.cost,
        "code": code_version(),
        "warnings": sorted({str(one.message) for one in caught if issubclass(one.category, UserWarning)}),
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    return RunResult(json.loads(json.dumps(record)), arrays)


def _evaluation_set(data: BenchData, split: Split) -> tuple[Array, Array]:
    """Return the samples to evaluate on, and their true classes.

    These are the validation samples if the split has any, else the test samples, else the unlabelled samples.
    """
    if len(split.validation):
        return data.x[split.validation], data.y[split.validation]
    if len(data.y_test):
        return data.x_test, data.y_test
    return data.x[split.unlabelled], data.y[split.unlabelled]


# ---------------------------------------------------------------- training at CPU scale


def _fit_at_cpu_scale(spec: RunSpec, data: BenchData, split: Split, context: RunContext, checkpoint: Path | None) -> TrainedRun:
    names = np.array([*data.classes, None], dtype=object)  # an unlabelled sample has index -1, and so the name None
    x, y = data.x[split.train], names[split.y]
    options = replace(_fit_options(spec, context.device), checkpoint=checkpoint)
    steps = steps_in_budget(spec, x, y) if spec.budget is not None and is_iterative(spec.method) else None
    began = time.perf_counter(), time.process_time()
    # The training set need not be kept, because its predicted labels and features are not used, and computing them takes time.
    fit = fit_model(x, y, options, steps=steps, keep_training_set=False)
    clock = {"seconds": time.perf_counter() - began[0], "cpu_seconds": time.process_time() - began[1]}
    without_steps = {"steps": 0, "rows": 0, "peak_memory_mb": round(memory() / MB, 1)}
    cost = {**{name: round(spent, 3) for name, spent in clock.items()}, **without_steps, **fit.cost}
    index = {name: i for i, name in enumerate(data.classes)}

    def class_indices(model: FittedModel) -> Callable[[Array], Array]:
        return lambda samples: np.array([index[name] for name in model.predict(samples)])

    student = student_of(fit.method, fit.model.predictor)
    by_student = None if student is None else class_indices(fit.model.with_predictor(student))
    return TrainedRun(class_indices(fit.model), by_student, fit.model, cost)


def _fit_options(spec: RunSpec, device: str) -> FitOptions:
    # encoder None, so that all methods of a comparison learn from the same images, unless a row names an encoder
    settings, options = _lists_to_tuples(spec.settings), {"encoder": None, **_lists_to_tuples(spec.options)}
    return FitOptions(spec.method, settings=settings, random_state=spec.seed, device=device, **options)


def _lists_to_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with lists as tuples, because JSON and TOML have only lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def steps_in_budget(spec: RunSpec, x: Array, y: Array) -> int:
    """Return the number of steps that the budget of the run allows.

    The FLOPs F of a step are counted in short fits on a few samples. The supervised warm-up takes a fraction s of the steps, so
    without full passes over the dataset, steps = budget / (s F_warmup + (1 - s) F_method). Methods with full passes get fewer
    steps, because the FLOPs of all passes in such a training count too.
    """
    budget = spec.budget or 0.0
    labelled = np.array([label is not None for label in y])
    some = np.sort(np.concatenate([np.flatnonzero(labelled), np.flatnonzero(~labelled)[:PROBE_SAMPLES]]))
    options = _fit_options(spec, "cpu")

    def probe(steps: int, supervised_warmup: float) -> ModelFit:
        short = replace(options, supervised_warmup=supervised_warmup)
        return fit_model(x[some], y[some], short, steps=steps, keep_training_set=False)

    def step_flops(fit: ModelFit) -> float:
        return float(fit.cost["flops"] - fit.cost["full_pass_flops"])

    short = probe(PROBE_STEPS, 0.0)
    method = step_flops(short) / PROBE_STEPS
    fraction = options.warmup_fraction(int(labelled.sum()), short.model.shape)
    step = fraction * (step_flops(probe(2, 0.5)) - method) + (1 - fraction) * method if fraction else method
    if not short.method.full_passes(PROBE_STEPS) and not short.method.later_flops(PROBE_STEPS):
        return max(1, int(budget / step))
    zero_steps = fit_model(x, y, options, steps=0, keep_training_set=False)
    full_pass = zero_steps.cost["flops"]

    def flops(steps: int) -> float:
        after_warmup, method = round((1 - fraction) * steps), zero_steps.method
        return float(steps * step + method.full_passes(after_warmup) * full_pass + method.later_flops(after_warmup))

    steps = bisect_right(range(1, int(budget / step) + 1), budget, key=flops)
    if not steps:
        raise SettingError(
            f"one full pass of {spec.method} over the dataset takes {full_pass / 1e12:.3g} TFLOP, but the budget is "
            f"only {budget / 1e12:.3g} TFLOP. Use a budget of {2 * full_pass:.2g} FLOPs or more."
        )
    return steps


# ---------------------------------------------------------------- training at paper scale


class PresetModel:
    """Predictor of a run at paper scale, with the function `similarity` of the estimator."""

    def __init__(self, predictor: Any, prepared: PreparedRun) -> None:
        self._predictor, self._normalize = predictor, prepared.normalize

    def similarity(self, x: Array) -> Array:
        """Return the similarities W (n, n) of all pairs of n samples."""
        z = compute_features(self._predictor, x, self._normalize)
        return pairwise_similarity(make_pair_score(self._predictor.cpu()), z, z).numpy()


def _fit_at_paper_scale(
    spec: RunSpec, data: BenchData, split: Split, context: RunContext, checkpoint: Path | None
) -> TrainedRun:
    preset, n_classes = find_preset(spec.preset), len(data.classes)
    steps = None
    if spec.budget is not None:
        shape = (data.x.shape[-1], *data.x.shape[1:3])
        counted = count_step_flops(preset, n_classes, spec.width, shape)
        if counted is None:
            raise SettingError(
                f"the floating-point operations of a step of {preset.method} cannot be counted. Leave out --budget at "
                "paper scale."
            )
        steps = max(1, int(spec.budget / counted))
    with open_engine(defaults.device_for(context.device)) as engine, torch.random.fork_rng(devices=[]):
        options = PaperRunOptions(steps, spec.width, checkpoint)
        prepared = prepare_run(preset, data.x, split, n_classes, options)
        trained = prepared.train(engine)
    predictor: Any = trained.predictor
    student = student_of(trained.method, predictor)
    return TrainedRun(
        lambda x: predict_classes(predictor, x, prepared.normalize),
        None if student is None else lambda x: predict_classes(student, x, prepared.normalize),
        PresetModel(predictor, prepared),
        trained.cost,
    )


# ---------------------------------------------------------------- measurements besides the error


def _measure(spec: RunSpec, data: BenchData, split: Split, fitted: TrainedRun) -> tuple[dict[str, Any], dict[str, Array]]:
    if spec.validation or not spec.measure:
        return {}, {}
    if spec.measure == "regions":
        return {}, _decision_regions(data, split, fitted)
    from samekind.bench.running.similarity_measures import measure_similarity

    return measure_similarity(data, fitted.model, fitted.predict, spec.seed)


def _decision_regions(data: BenchData, split: Split, fitted: TrainedRun) -> dict[str, Array]:
    """Return the predicted class of every point, and the probability of class 1 on a grid over all points."""
    from samekind.bench.reporting.figures import plane_grid

    probability = fitted.model.predict_proba(plane_grid(data.x, GRID))[:, 1].reshape(GRID, GRID)
    return {
        "labelled": split.labelled,
        "predicted": fitted.predict(data.x).astype(np.uint8),
        "probability": np.round(255 * probability).astype(np.uint8),
    }


# ---------------------------------------------------------------- version of the code


@lru_cache(maxsize=1)
def code_version() -> dict[str, str]:
    """Return the version of samekind, the version of torch, and a hash of all source files of samekind."""
    package = Path(samekind.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return {"version": __version__, "hash": digest.hexdigest()[:12], "torch": torch.__version__}
