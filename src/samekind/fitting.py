"""Fitting: from X, labels and options to a trained model. The estimator and the benchmark share it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import nn

from samekind import defaults
from samekind.clock import Clock
from samekind.data.augment.transforms import Views
from samekind.data.dataset import Dataset, scaled_dataset
from samekind.data.image_layout import as_tensor, sample_shape
from samekind.data.inputs import Labels, read_labels
from samekind.data.scaling import identity_scaler
from samekind.data.texts import parse_texts
from samekind.encoder_choice import choose_encoder
from samekind.errors import DataError, SettingError
from samekind.label_quality import LabelQuality, assess
from samekind.methods import (
    AUTO,
    build,
    is_iterative,
    method_defaults,
    resolve_method,
    scales_inputs,
    supervised_loss_fraction,
    supervised_method,
    uses_unlabelled,
)
from samekind.methods.base import Method, Task
from samekind.methods.predictors import AnyPredictor, DeepPredictor
from samekind.model import FittedModel, inference_block_size, inference_dtype, prepare_for_inference
from samekind.nets.classifier import Classifier, classifier_from_features
from samekind.nets.encoders.frozen_features import Encoder, FeatureCache
from samekind.nets.encoders.names import AUTO as AUTO_ENCODER
from samekind.nets.encoders.names import AnyEncoder, encoder_name
from samekind.nets.text.text_encoder_names import resolve_text_encoder
from samekind.parameters import require_parameters
from samekind.preprocessing import FitInput, build_encoder, open_input
from samekind.progress import Progress, show_line
from samekind.text_encoder_choice import choose_text_encoder
from samekind.text_input import TextInput
from samekind.training.checkpointer import checkpoint_seed
from samekind.training.determinism import thread_count
from samekind.training.engine import Engine, Precision, open_engine, round_batch_size
from samekind.training.time_budget import (
    INFERENCE_PART,
    STEPS_PART,
    THREADS_PART,
    TIMED,
    WARM,
    WORTH_TIMING,
    WORTH_TIMING_MINUTES,
    StepBudget,
    StepSeconds,
    faster_thread_count,
    load_step_budget,
    load_thread_count,
    plan_steps,
    save_step_budget,
    save_thread_count,
    time_inference,
    time_step,
)
from samekind.training.time_limit import StageTime, TimeLimit
from samekind.training.trainer import SAVE_EVERY, TrainConfig, TrainResult, TrainStage, train_stages

# options that only methods with training steps use: if one of them is given, method="auto" chooses such a method
TRAINING_OPTIONS = (
    "preset",
    "net",
    "views",
    "epochs",
    "batch_size",
    "supervised_warmup",
    "optimizer",
    "learning_rate",
)
TIMED_SAMPLES = 256  # samples timed to estimate a full inference pass


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit. `SemiSupervisedClassifier` has the same parameters and documents them."""

    method: str
    settings: Mapping[str, Any] | None = None
    preset: Literal["auto", "paper"] = "auto"
    net: str | nn.Module = "auto"
    views: str | Views = "auto"
    epochs: float | Literal["auto", "quick"] = "auto"
    minutes: float | None = None
    batch_size: tuple[int, int] | Literal["auto"] = "auto"
    supervised_warmup: float | Literal["auto"] = "auto"
    optimizer: Literal["auto", "adam", "sgd"] = "auto"
    learning_rate: float | Literal["auto"] = "auto"
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False
    history: str | Path | None = None
    tensorboard: str | Path | None = None
    checkpoint: str | Path | None = None
    save_every: float = SAVE_EVERY
    precision: Precision = "auto"
    accumulation_steps: int = 1
    encoder: AnyEncoder | None = AUTO_ENCODER
    cache: str | Path | FeatureCache | None = None
    progress: Progress | None = None

    def validate(self) -> None:
        """Raise SettingError for the first option whose value is not accepted."""
        if self.method != AUTO:
            is_iterative(self.method)  # raises if there is no such method
        if isinstance(self.random_state, int) and not 0 <= self.random_state < 2**32:
            raise SettingError(f"random_state is {self.random_state}; expected a whole number from 0 to {2**32 - 1}, or None")
        defaults.device_for(self.device)
        require_parameters({name.name: getattr(self, name.name) for name in fields(self)})
        if self.minutes is not None and self.epochs != "auto":
            raise SettingError(f"minutes is {self.minutes!r} and epochs is {self.epochs!r}; expected one of them only")

    def resolve_encoder(self) -> FitOptions:
        """Return the options without encoder="auto" if they ask for a net that is trained on the images themselves."""
        named = self.method != AUTO and is_iterative(self.method)
        return replace(self, encoder=None) if self.encoder == AUTO_ENCODER and (named or self._trains(encoded=True)) else self

    def _trains(self, *, encoded: bool) -> bool:
        """Return whether an option of the training is given. For encoded images, epochs="quick" alone is none."""
        given = {one.name for one in fields(self) if one.name in TRAINING_OPTIONS and getattr(self, one.name) != one.default}
        if encoded and self.epochs == "quick":
            given -= {"epochs"}
        return bool(given)

    def resolve(self, shape: tuple[int, ...]) -> FitOptions:
        """Return the options with the method that "auto" stands for, for samples of this shape."""
        trained = self._trains(encoded=self.encoder is not None)
        return replace(self, method=resolve_method(self.method, defaults.kind_of(shape), trained=trained))

    @property
    def is_paper(self) -> bool:
        """Return whether the paper's own settings are used."""
        return self.preset == "paper"

    def warmup_fraction(self, n_labelled: int, shape: tuple[int, ...]) -> float:
        """Return the fraction of the steps that train on labels only, for samples of this shape."""
        if self.supervised_warmup != "auto":
            return float(self.supervised_warmup)
        if not uses_unlabelled(self.method):
            return 0.0  # the method itself trains on labels only
        return defaults.supervised_warmup_for(n_labelled, color=defaults.is_color_image(shape), paper=self.is_paper)


class ModelFit(NamedTuple):
    """Result of a fit: the model, the trained method, the log records, the cost, and the quality if labels were held out."""

    model: FittedModel
    method: Method
    history: list[dict[str, Any]]
    cost: dict[str, Any]
    steps: int
    epochs: float
    quality: LabelQuality | None = None


def fit_model(
    X: Any, y: Any, options: FitOptions, *, steps: int | None = None, keep_training_set: bool = True, elapsed: float = 0.0
) -> ModelFit:
    """Train a model.

    Parameters
    ----------
    X : array-like of shape (n, d), (n, H, W) or (n, H, W, C), or a list of image paths
        Samples, labelled and unlabelled.
    y : array-like of shape (n,)
        Class of each sample; -1, or None among strings, for unlabelled samples.
    options : FitOptions
        Options of the fit.
    steps : int or None, default=None
        Number of training steps, in place of `options.epochs` and `options.minutes`.
    keep_training_set : bool, default=True
        Whether the model keeps the features and predicted classes of X, which takes an inference pass over X.
    elapsed : float, default=0.0
        Seconds that the caller has spent on this fit already; they count towards `options.minutes`.

    Returns
    -------
    ModelFit
        The model, the trained method, the log records and the cost.
    """
    options.validate()
    clock = Clock(elapsed)  # `minutes` includes reading and encoding
    device = defaults.device_for(options.device)
    if parse_texts(X) is None:  # a net is trained on images, but never on texts themselves
        options = options.resolve_encoder()
    with open_input(
        X, encoder=options.encoder, cache=options.cache, device=device, verbose=options.verbose, minutes=options.minutes
    ) as fit_input:
        labels = read_labels(y, len(fit_input))
        if isinstance(fit_input, TextInput):
            fit_input, options = _encode_texts(fit_input, labels, options)
        elif options.encoder == AUTO_ENCODER:
            fit_input, options = _choose_encoder(fit_input, labels, options, device)
        samples = as_tensor(fit_input.samples())
        if len(samples) < 2:
            raise DataError("X has one sample only (n_samples = 1). Pass at least two samples, of two classes.")
        codes, options = torch.from_numpy(labels.codes), options.resolve(sample_shape(samples))
        if scales_inputs(options.method):
            scaler = identity_scaler(samples)
        else:
            scaler = defaults.choose_scaler(samples, codes, keep_columns=isinstance(options.net, nn.Module))
        dataset, shape = scaled_dataset(samples, scaler, codes, len(labels.classes)), sample_shape(samples)
        # the fit works on a copy of torch's random state, so that the caller's state stays as it was
        with open_engine(device, options.precision, options.accumulation_steps) as engine, torch.random.fork_rng(devices=[]):
            seed = int(engine.share(str(_draw_seed(options)).encode()))
            torch.manual_seed(seed)
            run = _TrainingRun(options, dataset, labels.classes.tolist(), shape, engine, seed, clock)
            result, steps = run.train(steps)
        model = FittedModel(
            labels.classes,
            fit_input.preprocessor,
            scaler,
            shape,
            run.finish(cast(AnyPredictor, result.predictor)),
            net=options.net if isinstance(options.net, str) else None,
            encoder=encoder_name(options.encoder),
            device=options.device,
            cache=options.cache,
            verbose=options.verbose,
        )
        if keep_training_set:
            model = model.with_training_set(dataset, result.method.train_probabilities())
    epochs = steps * run.task.batch_unlabelled / len(dataset)
    quality = _quality(result.method, labels)
    return ModelFit(model, result.method, result.history, result.cost, steps, epochs, quality)


def _quality(method: Method, labels: Labels) -> LabelQuality | None:
    """Return what held-out labels tell about the fit; None if the method holds no labels out."""
    evidence = method.label_evidence()
    if evidence is None:
        return None
    counts = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.classes))
    return assess(evidence.predicted, evidence.true, counts, labels.classes.tolist(), evidence.graph_weight)


def _choose_encoder(
    fit_input: FitInput, labels: Labels, options: FitOptions, device: torch.device
) -> tuple[FitInput, FitOptions]:
    """Return the input and the options with the encoder that suits the images, or without one."""
    built: dict[str, Encoder] = {}

    def encode(name: str, images: Any) -> Any:
        built[name] = build_encoder(name, device)
        return replace(fit_input, images=images).encode(built[name])

    choice = choose_encoder(fit_input.images, labels.codes, len(labels.classes), options.minutes, encode)
    if options.verbose and fit_input.images.ndim > 2:
        show_line(str(choice))
    options = replace(options, encoder=choice.encoder)
    if choice.encoder is None:
        return fit_input.with_side(choice.side), options
    return fit_input.with_encoder(built[choice.encoder], choice.features), options


def _encode_texts(fit_input: TextInput, labels: Labels, options: FitOptions) -> tuple[TextInput, FitOptions]:
    """Return the texts with the encoder that was asked for, or that suits them."""
    if options.encoder is None:
        raise SettingError("encoder is None, and X holds texts, which no net is trained on. Leave it out, or pass 'tfidf'.")
    if options.encoder != AUTO_ENCODER:
        return fit_input.with_encoder(resolve_text_encoder(options.encoder).fitted(fit_input.texts)), options
    choice = choose_text_encoder(fit_input, labels.codes, len(labels.classes))
    if options.verbose:
        show_line(str(choice))
    return choice.fit_input, replace(options, encoder=choice.encoder)


def _draw_seed(options: FitOptions) -> int:
    """Draw a seed from `random_state`; if that is None, a fit that resumes keeps the seed of its checkpoint."""
    if options.checkpoint is not None and options.random_state is None:
        saved = checkpoint_seed(Path(options.checkpoint))
        if saved is not None:
            return saved
    return int(check_random_state(options.random_state).randint(2**31 - 1))


class _TrainingRun:
    """Training on a prepared dataset: chooses views, net, batch sizes, schedule and number of steps."""

    def __init__(
        self,
        options: FitOptions,
        dataset: Dataset,
        classes: list[Any],
        shape: tuple[int, ...],
        engine: Engine,
        seed: int,
        clock: Clock,
    ) -> None:
        self.clock = clock
        self.options, self.dataset, self.shape, self.engine = options, dataset, shape, engine
        n, n_classes, color = len(dataset), dataset.n_classes, defaults.is_color_image(dataset.shape)
        if options.batch_size == "auto":
            sizes = defaults.default_batch_sizes(n, color=color, paper=options.is_paper)
        else:
            sizes = defaults.BatchSizes(options.batch_size[0], min(options.batch_size[1], n))
        labelled = round_batch_size(sizes.labelled, engine.n_parts)
        unlabelled = round_batch_size(sizes.unlabelled, engine.n_parts, n)
        iterative = is_iterative(options.method)
        self.views = self._choose_views(classes, seed) if iterative else defaults.ViewDefaults({})
        self.net = self._build_net().to(engine.device) if iterative else None
        self.task = Task(n_classes, len(dataset.labelled), n, 0, labelled, unlabelled, self.views.unlabelled_weight)
        optimizer, schedule = defaults.optimizer_and_schedule(
            defaults.optimizer_for(options.optimizer, color=color, paper=options.is_paper), options.learning_rate
        )
        self.config = TrainConfig(
            0,
            labelled,
            unlabelled,
            schedule,
            seed,
            title=options.method,
            verbose=options.verbose,
            history=options.history,
            tensorboard=options.tensorboard,
            checkpoint=options.checkpoint,
            save_every=options.save_every,
            settings=self._identity(classes),
            progress=options.progress,
            optimizer=optimizer,
        )

    def train(self, steps: int | None = None) -> tuple[TrainResult, int]:
        """Train the supervised warm-up, if there is one, and the method; return the result and the number of steps."""
        if self.net is None:
            return train_stages(self._stages(0), self.dataset, self.views.views, self.engine), 0
        with thread_count(self._choose_threads(self.net, steps)):
            budget = self._budget_for(self.options.minutes, self.net) if steps is None and self.options.minutes else None
            if budget is not None:
                steps = budget.steps
            elif steps is None:
                steps = self._choose_steps()
            result = train_stages(self._stages(steps, budget), self.dataset, self.views.views, self.engine)
            cost = {**result.cost, "threads": self._n_threads(), **({} if budget is None else {"planned_steps": steps})}
            return result._replace(cost=cost), int(cost.get("steps", steps))

    def _n_threads(self) -> int:
        return 1 if len(self.dataset.shape) == 1 else torch.get_num_threads()

    def _choose_threads(self, net: Classifier, steps: int | None) -> int | None:
        """Return the number of threads of the training, None for torch's own; a run that resumes keeps its number.

        Nets for vectors always train with one thread. For images, a long run first times a few steps with one and with all
        threads.
        """
        if self._n_threads() == 1 or self.engine.processes > 1 or self.engine.device.type != "cpu":
            return None
        folder = None if self.options.checkpoint is None else Path(self.options.checkpoint)
        chosen = None if folder is None else load_thread_count(folder)
        if chosen is None:
            chosen = torch.get_num_threads()
            minutes = self.options.minutes
            if minutes is None or steps is not None:
                worth_it, limit = (steps or self._choose_steps()) >= WORTH_TIMING, float("inf")
            else:
                worth_it, limit = minutes >= WORTH_TIMING_MINUTES, THREADS_PART * 60.0 * minutes
            if worth_it:
                chosen = faster_thread_count(lambda: self._time_step(net, warm=2, timed=4, limit=limit / 2).mean, chosen)
            if folder is not None:
                save_thread_count(folder, chosen)
        return chosen

    def finish(self, predictor: AnyPredictor) -> AnyPredictor:
        """Return the trained predictor, ready for inference."""
        predictor = prepare_for_inference(predictor, self.shape)
        if isinstance(predictor, DeepPredictor):
            predictor.mirrored = self._averages_flips
        return predictor

    def _stages(self, steps: int, budget: StepBudget | None = None) -> list[TrainStage]:
        options, net = self.options, self.net
        warmup_steps = round(self._warmup_fraction * steps)
        task = replace(self.task, steps=steps - warmup_steps)
        warmup, config = replace(self.config, steps=steps).split_warmup(warmup_steps)
        if config.optimizer.kind == "sgd":
            rate = config.schedule.lr_max / supervised_loss_fraction(options.method, task)
            config = replace(config, schedule=replace(config.schedule, lr_max=rate))
        if budget is not None:
            limit = TimeLimit(budget.seconds, self.clock.seconds)
            warmup = replace(warmup, time=StageTime(limit, budget.seconds - budget.warmup_seconds))
            config = replace(config, time=StageTime(limit))
        stage = TrainStage(options.method, lambda: self._build_method(net, task), config)
        if net is None or not warmup_steps:
            return [stage]
        with torch.random.fork_rng(devices=[]):
            self._build_method(copy.deepcopy(net), task)  # wrong settings raise here, and not only after the warm-up
        return [TrainStage("supervised warm-up", lambda: supervised_method(net, task), warmup), stage]

    def _build_method(self, net: Classifier | None, task: Task) -> Method:
        start = {} if self.options.is_paper else method_defaults(self.options.method, defaults.kind_of(self.dataset.shape))
        return build(self.options.method, net, task, {**start, **(self.options.settings or {})})

    def _build_net(self) -> Classifier:
        dataset, net = self.dataset, self.options.net
        if isinstance(net, nn.Module):
            return classifier_from_features(copy.deepcopy(net), dataset.inputs(slice(2)), dataset.n_classes)
        built = defaults.net_for(dataset.shape, dataset.n_classes, net)
        defaults.initialize_whitening(built, dataset)
        return built

    def _choose_views(self, classes: list[Any], seed: int) -> defaults.ViewDefaults:
        views = self.options.views
        if not isinstance(views, str):
            return defaults.ViewDefaults(views)
        return defaults.view_defaults(self.dataset, seed, views, flip=not defaults.classes_are_characters(classes))

    def _choose_steps(self) -> int:
        options, n = self.options, len(self.dataset)
        if options.epochs in ("auto", "quick"):
            steps = defaults.steps_for(n)
            return steps if options.epochs == "auto" else max(1, steps // 4)
        return max(1, round(float(options.epochs) * n / self.task.batch_unlabelled))

    def _budget_for(self, minutes: float, net: Classifier) -> StepBudget:
        """Return the plan for these minutes, from a few timed steps of each stage on copies of the net.

        A run that resumes begins with the plan that it had.
        """
        folder = None if self.options.checkpoint is None else Path(self.options.checkpoint)
        budget = None if folder is None else load_step_budget(folder, minutes)
        if budget is None:
            seconds = self._time_step(net, limit=STEPS_PART * 60.0 * minutes)
            inference = self._time_training_set(net, limit=INFERENCE_PART * 60.0 * minutes)
            budget = plan_steps(minutes, seconds, spent=self.clock.seconds(), inference=inference)
        budget = StepBudget(*json.loads(self.engine.share(json.dumps(astuple(budget)).encode())))
        if folder is not None and self.engine.rank == 0:
            save_step_budget(folder, budget)
        return budget

    def _time_step(self, net: Classifier, *, warm: int = WARM, timed: int = TIMED, limit: float) -> StepSeconds:
        """Return the seconds of a step of warm-up and method; each is timed for at most half of `limit` and one step."""
        data, engine, fraction = (self.dataset, self.views.views), self.engine, self._warmup_fraction

        def supervised(steps: int) -> Method:
            return supervised_method(copy.deepcopy(net), replace(self.task, steps=steps))

        def method(steps: int) -> Method:
            built: Any = self._build_method(copy.deepcopy(net), replace(self.task, steps=steps))
            return cast(Method, built.to(engine.device))

        length: dict[str, Any] = {"warm": warm, "timed": timed, "limit": limit / 2 if fraction else limit}
        seconds = time_step(method, *data, self.config, engine, **length)
        if not fraction:
            return StepSeconds(seconds, seconds, 0.0)
        config = self.config.split_warmup(0)[0]
        return StepSeconds(time_step(supervised, *data, config, engine, **length), seconds, fraction)

    def _time_training_set(self, net: Classifier, limit: float) -> float:
        """Return the seconds of an inference pass over the training set."""
        untimed = DeepPredictor(copy.deepcopy(net), mirrored=self._averages_flips).eval()
        predictor = prepare_for_inference(untimed, self.shape)
        n_timed = min(inference_block_size(self.shape), TIMED_SAMPLES)
        timed = self.dataset.inputs(slice(n_timed)).to(inference_dtype(self.shape))
        return time_inference(predictor.features, timed, len(self.dataset), limit)

    @property
    def _warmup_fraction(self) -> float:
        return self.options.warmup_fraction(self.task.n_labelled, self.dataset.shape)

    @property
    def _averages_flips(self) -> bool:
        """Return whether features are averaged over an image and its horizontal flip."""
        return self.views.flips and not self.options.is_paper

    def _identity(self, classes: list[Any]) -> dict[str, Any]:
        """Return the settings that a checkpoint must match to be resumed, besides those of the training itself."""
        options = self.options
        views, net = options.views, options.net
        return {
            "method": options.method,
            "preset": options.preset,
            "views": views if isinstance(views, str) else {name: type(view).__name__ for name, view in views.items()},
            "architecture": net if isinstance(net, str) else type(net).__name__,
            "precision": options.precision,
            "classes": classes,
            "supervised_warmup": options.supervised_warmup,
        }
