"""fit_model: from X, labels and options to a trained model. The estimator and the benchmarks call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from sklearn.utils import check_random_state
from torch import nn

from samekind import defaults
from samekind.clock import Clock
from samekind.data.dataset import scaled_dataset
from samekind.data.inputs import Labels, read_labels
from samekind.data.scaling import identity_scaler
from samekind.data.texts import parse_texts
from samekind.errors import DataError, SettingError
from samekind.fitting.finetuned_input import finetune_input, require_tunable
from samekind.fitting.finetuning import TunedEncoder
from samekind.fitting.fit_options import FitOptions
from samekind.fitting.label_quality import LabelQuality
from samekind.fitting.label_updates import UpdatableFit, assess_evidence
from samekind.fitting.propagation_at_end import propagate_at_end
from samekind.fitting.training_run import TrainingRun
from samekind.image_layout import as_tensor, sample_shape
from samekind.methods import ensemble_teacher, scales_inputs
from samekind.methods.base import Method
from samekind.methods.ensemble import Ensemble
from samekind.methods.predictors import AnyPredictor
from samekind.methods.spec import DataKind
from samekind.model import FittedModel
from samekind.nets.encoders.frozen_features import Encoder
from samekind.nets.encoders.names import AUTO as AUTO_ENCODER
from samekind.nets.encoders.names import encoder_name
from samekind.nets.encoders.plan import find_plan
from samekind.nets.text.text_encoder_names import resolve_text_encoder
from samekind.preprocessing.encoder_choice import choose_encoder, unsuitable_for_encoders
from samekind.preprocessing.encoding_limit import EncodingLimit
from samekind.preprocessing.preprocessor import FitInput, build_encoder, open_input
from samekind.preprocessing.table_input import TableInput
from samekind.preprocessing.text_encoder_choice import choose_text_encoder
from samekind.preprocessing.text_input import TextInput
from samekind.progress import show_line
from samekind.training.checkpointer import checkpoint_seed
from samekind.training.engine import open_engine


class ModelFit(NamedTuple):
    """Result of a fit: the model, the trained method, the log records, the cost, and what only some methods have.

    `quality` is None if the method holds out no labels. `updates` is None if changed labels need a new fit.
    """

    model: FittedModel
    method: Method
    history: list[dict[str, Any]]
    cost: dict[str, Any]
    steps: int
    epochs: float
    quality: LabelQuality | None = None
    updates: UpdatableFit | None = None


def fit_model(
    X: Any,
    y: Any,
    options: FitOptions,
    *,
    steps: int | None = None,
    keep_training_set: bool = True,
    elapsed: float = 0.0,
    finetuning_method: str = ensemble_teacher.SPEC.name,
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
    finetuning_method : str
        Name of the method that trains the encoder, if it is fine-tuned.

    Returns
    -------
    ModelFit
        The model, the trained method, the log records and the cost.
    """
    options.validate()
    clock = Clock(elapsed)  # `minutes` includes the time for reading and encoding
    device = defaults.device_for(options.device)
    if parse_texts(X) is None:  # a network can be trained on images instead of encoding them, but not on texts
        options = options.resolve_encoder()
    with open_input(
        X, encoder=options.encoder, cache=options.cache, device=device, verbose=options.verbose, minutes=options.minutes
    ) as fit_input:
        labels = read_labels(y, len(fit_input))
        options.require_settings(*_possible_data(fit_input, options))
        if isinstance(fit_input, TextInput):
            fit_input, options = _encode_texts(fit_input, labels, options)
        elif isinstance(fit_input, TableInput):
            options = replace(options, encoder=None)  # the columns of texts in a table are already encoded
        elif options.encoder == AUTO_ENCODER:
            fit_input, options = _choose_encoder(fit_input, labels, options, device, clock)
        tuned: TunedEncoder | None = None
        if not isinstance(fit_input, FitInput):
            require_tunable(None, options)
        else:
            fit_input, tuned = finetune_input(fit_input, labels, options, device, clock, finetuning_method)
        samples = as_tensor(fit_input.samples())
        if len(samples) < 2:
            raise DataError("X has one sample only (n_samples = 1). Pass at least two samples, of two classes.")
        codes, options = torch.from_numpy(labels.codes), options.resolve(sample_shape(samples))
        if scales_inputs(options.method):
            scaler = identity_scaler(samples)
        else:
            scaler = defaults.choose_scaler(samples, codes, keep_columns=isinstance(options.net, nn.Module))
        dataset, shape = scaled_dataset(samples, scaler, codes, len(labels.classes)), sample_shape(samples)
        # torch's random state is restored after the fit, so that the caller's state does not change
        with open_engine(device, options.precision, options.accumulation_steps) as engine, torch.random.fork_rng(devices=[]):
            seed = int(engine.share(str(_draw_seed(options)).encode()))
            torch.manual_seed(seed)
            prepare, table = _with_validated(tuned), isinstance(fit_input, TableInput) and not fit_input.like_array
            classes = labels.classes.tolist()
            run = TrainingRun(options, dataset, classes, shape, engine, seed, clock, prepare=prepare, table=table)
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
        if keep_training_set or options.propagate:
            model = model.with_training_set(dataset, result.method.train_probabilities())
        if options.propagate:
            model = propagate_at_end(model, labels.codes)
            model = model if keep_training_set else model.without_training_set()
    epochs = steps * run.task.batch_unlabelled / len(dataset)
    quality = assess_evidence(result.method.label_evidence(), labels)
    updater = result.method.label_updater() if keep_training_set else None
    updates = None if updater is None else UpdatableFit(labels, updater)
    cost = result.cost if tuned is None else {**result.cost, "flops": result.cost["flops"] + tuned.flops}
    return ModelFit(model, result.method, result.history, cost, steps, epochs, quality, updates)


def _possible_data(fit_input: FitInput | TextInput | TableInput, options: FitOptions) -> list[tuple[DataKind, bool]]:
    """Return the kinds of data on which the method may work, each with whether the samples are encoded.

    With encoder="auto", colour images are expected to be encoded. For grey images, held-out labels decide that later.
    """
    if not isinstance(fit_input, FitInput):
        return [("vectors", isinstance(fit_input, TextInput))]
    shape, is_auto = fit_input.preprocessor.shape, options.encoder == AUTO_ENCODER
    if options.encoder is None or (is_auto and unsuitable_for_encoders(fit_input.images) is not None):
        return [(defaults.kind_of(shape), False)]
    return [("vectors", True), ("images", False)] if is_auto and shape[0] == 1 else [("vectors", True)]


def _choose_encoder(
    fit_input: FitInput, labels: Labels, options: FitOptions, device: torch.device, clock: Clock
) -> tuple[FitInput, FitOptions]:
    """Return the input and the options with the encoder that suits the images, or without an encoder."""
    built: dict[str, Encoder] = {}
    limit = None if options.minutes is None else EncodingLimit(clock, options.minutes)

    def encode(name: str, images: Any) -> Any:
        built[name] = build_encoder(name, device)
        watch = None if limit is None else limit.watch(find_plan(name), len(fit_input))
        return replace(fit_input, images=images).encode(built[name], watch)

    choice = choose_encoder(fit_input.images, labels.codes, len(labels.classes), options.minutes, encode, limit)
    if options.verbose and fit_input.images.ndim > 2:
        show_line(str(choice))
    options = replace(options, encoder=choice.encoder)
    if choice.encoder is None:
        return fit_input.with_side(choice.side), options
    return fit_input.with_encoder(built[choice.encoder], choice.features), options


def _encode_texts(fit_input: TextInput, labels: Labels, options: FitOptions) -> tuple[TextInput, FitOptions]:
    """Return the texts and the options with the encoder that the user chose; for "auto", with the one that suits the texts."""
    if options.encoder is None:
        raise SettingError(
            "encoder is None, but X holds texts, which need an encoder. Leave encoder out, or pass encoder='tfidf'."
        )
    if options.encoder != AUTO_ENCODER:
        return fit_input.with_encoder(resolve_text_encoder(options.encoder).fitted(fit_input.texts)), options
    choice = choose_text_encoder(fit_input, labels.codes, len(labels.classes))
    if options.verbose:
        show_line(str(choice))
    return choice.fit_input, replace(options, encoder=choice.encoder)


def _with_validated(tuned: TunedEncoder | None) -> Callable[[Method], None]:
    """Return a function that gives an ensemble the weights that a fine-tuning has determined.

    Held-out labels cannot determine them, because the fine-tuned features were trained on all labels.
    """

    def prepare(method: Method) -> None:
        if isinstance(method, Ensemble) and tuned is not None:
            method.validated = tuned.validated

    return prepare


def _draw_seed(options: FitOptions) -> int:
    """Return a seed drawn from `random_state`. If that is None, a fit that resumes uses the seed of its checkpoint."""
    if options.checkpoint is not None and options.random_state is None:
        saved = checkpoint_seed(Path(options.checkpoint))
        if saved is not None:
            return saved
    return int(check_random_state(options.random_state).randint(2**31 - 1))
