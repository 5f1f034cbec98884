"""Fine-tuning: trains the encoder of images further, on the labels of a fit and on all of its unlabelled images.

The training has two rounds. Round 1 sees half of the labels of each class. The other half then tells, without having been seen,
whether the fine-tuned features are better than those of the frozen encoder, and how much each model of the ensemble should
weigh on them. Round 2 continues with all labels. Both rounds train with the method "ensemble_teacher".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from samekind.clock import Clock
from samekind.data.inputs import Labels
from samekind.defaults import classes_are_characters
from samekind.errors import SettingError
from samekind.files.io import atomic_write
from samekind.fitting.finetuning_plan import END_PART, LEAST_VIEWS, Blocks, FinetuningPlan, affordable_views, plan_finetuning
from samekind.fitting.fit_options import FitOptions
from samekind.fitting.training_run import TrainingRun
from samekind.fitting.tuning_data import TuningData, TuningImages, TuningMaps
from samekind.flops import count_flops
from samekind.image_layout import as_tensor
from samekind.methods import ensemble_teacher
from samekind.methods.base import Method
from samekind.methods.ensemble import Validated
from samekind.methods.ensemble_teacher import EnsembleTeacher
from samekind.methods.full_pass import dataset_features
from samekind.methods.predictors import DeepPredictor
from samekind.methods.wrapper import MethodWrapper
from samekind.nets.classifier import Classifier, classifier_from_features
from samekind.nets.encoders.efficientnet import EfficientNetLite
from samekind.nets.encoders.frozen_features import extract_features
from samekind.nets.encoders.trainable_blocks import FrozenBlocks, last_blocks
from samekind.preprocessing.augmented_maps import as_bytes, compute_maps
from samekind.preprocessing.preprocessor import FitInput
from samekind.progress import counting_bar, show_line
from samekind.stacking.one_thread import one_thread
from samekind.stacking.stacked_ensemble import EnsembleFit, ValidationLabels, fit_stacked_ensemble
from samekind.training.engine import Engine, open_engine, processes
from samekind.training.schedules import Schedule

Codes = npt.NDArray[np.int64]
BATCH = (16, 64)  # labelled and unlabelled samples in a batch
LEARNING_RATES = {"last": 3e-4, "all": 1e-4}
COSINE: dict[str, Any] = {"rampup": 0.1, "rampdown": 1.0, "decay": "cosine", "beta1_end": 0.9}
EMA_DECAY = 0.98  # averages over 50 steps, a third of a round for 2,000 images
MAPS = "maps"  # folder of the stored feature maps, below the folder of the cache
VIEWS_FILE = "finetuning.json"  # in the folder of the checkpoints
TIMED_IMAGES = 64  # number of images that are timed to estimate the time for their feature maps
LEAST_VALIDATION = 8  # with fewer labels that round 1 has not seen, nothing can be said about the features


@dataclass(frozen=True)
class TunedEncoder:
    """Result of a fine-tuning: the encoder, the features of all images, the known weights, and the reason in one line.

    The encoder is None if the frozen one is better. `validated` is None if too few labels could be held out. `flops` counts the
    floating-point operations of both rounds and of the stored maps.
    """

    encoder: EfficientNetLite | None
    features: Tensor
    validated: Validated | None
    reason: str
    flops: float = 0.0

    def __str__(self) -> str:
        return f"fine-tuning: {self.reason}"


def finetune_input(
    fit_input: FitInput,
    labels: Labels,
    options: FitOptions,
    device: torch.device,
    clock: Clock,
    method: str = ensemble_teacher.SPEC.name,
) -> tuple[FitInput, TunedEncoder | None]:
    """Return the input of a fit with a fine-tuned encoder, and the result of the fine-tuning.

    `method` trains the encoder. Without fine-tuning, the input is returned as it is, with None.
    """
    encoder = fit_input.preprocessor.encoder
    if not isinstance(encoder, EfficientNetLite) or options.finetune == "none":
        if options.finetune in ("last", "all"):
            raise SettingError(
                f"finetune is {options.finetune!r}, but only EfficientNet-lite can be fine-tuned, and the encoder is "
                f"{options.encoder!r}. Pass encoder='efficientnet_lite0', or leave finetune out."
            )
        return fit_input, None
    if options.finetune == "auto" and options.minutes is None:
        return fit_input, None
    if processes() > 1:
        if options.finetune != "auto":
            raise SettingError(
                f"finetune is {options.finetune!r} in {processes()} processes; an encoder is fine-tuned in one process only. "
                "Start one process, or pass finetune='none'."
            )
        return fit_input, None
    features = torch.from_numpy(np.array(fit_input.samples()))
    data = _tuning_data(encoder, fit_input.with_encoder(encoder, features.numpy()), labels, options, device, clock)
    if data is None:
        return fit_input.with_encoder(encoder, features.numpy()), None
    n_frozen = data.n_frozen if isinstance(data, TuningMaps) else 0
    blocks: Blocks = "all" if options.finetune == "all" else "last"
    plan = plan_finetuning(encoder, blocks, n_frozen, len(data), options.minutes)
    tuned = tune_encoder(encoder, data, labels.codes, options, plan, clock, method)
    if options.verbose:
        show_line(str(tuned))
    if tuned.encoder is None:
        return fit_input.with_encoder(encoder, features.numpy()), tuned
    return fit_input.with_encoder(tuned.encoder, tuned.features.numpy()), tuned


def _tuning_data(
    encoder: EfficientNetLite, fit_input: FitInput, labels: Labels, options: FitOptions, device: torch.device, clock: Clock
) -> TuningData | None:
    """Return the samples of the fine-tuning; None if finetune="auto" has too little time for it."""
    flip = not classes_are_characters(labels.classes.tolist())
    images, n_classes = fit_input.images, len(labels.classes)
    frozen_features = torch.from_numpy(np.array(fit_input.samples()))
    if options.finetune == "all":
        stored = as_tensor(images if images.dtype == np.uint8 else as_bytes(images))
        return TuningImages(frozen_features, n_classes, device, 0.0, stored, flip)
    frozen = FrozenBlocks(encoder, last_blocks(encoder))
    n_views = _n_views(frozen, images, options, clock)
    if n_views < (LEAST_VIEWS if options.finetune == "auto" else 1):
        if options.finetune == "auto":
            if options.verbose:
                show_line(f"fine-tuning: not used; {options.minutes:g} minutes are too short for it")
            return None
        n_views = 1
    cache = None if fit_input.cache is None else replace(fit_input.cache, folder=Path(fit_input.cache.folder) / MAPS)
    with counting_bar((n_views + 1) * len(images), "computing feature maps", visible=options.verbose) as draw:
        maps = compute_maps(frozen, images, n_views, flip=flip, cache=cache, on_samples=draw)
    with count_flops() as counted:
        frozen(torch.zeros(1, 3, encoder.side, encoder.side))
    flops = counted() * len(images) * (n_views + 1)
    return TuningMaps(frozen_features, n_classes, device, flops, maps, frozen.n_frozen)


def _n_views(frozen: FrozenBlocks, images: Any, options: FitOptions, clock: Clock) -> int:
    """Return the number of strong views to store. A fit that resumes takes the number with which it began."""
    path = None if options.checkpoint is None else Path(options.checkpoint) / VIEWS_FILE
    if path is not None and path.exists():
        return int(json.loads(path.read_text())["views"])
    left = None if options.minutes is None else 60.0 * END_PART * options.minutes - clock.seconds()
    timed = images[:TIMED_IMAGES]
    extract_features(frozen, timed[:1])
    timer = Clock()
    extract_features(frozen, timed)
    n_bytes = 4 * int(np.prod(frozen.map_shape()))
    found = affordable_views(len(images), n_bytes, timer.seconds() / len(timed), left)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps({"views": found}).encode())
    return found


class _Round(NamedTuple):
    """One round: its number, the labels that it sees, the network that it starts from, and the known weights."""

    number: int
    codes: Codes
    net: Classifier
    validated: Validated | None


def tune_encoder(
    encoder: EfficientNetLite,
    data: TuningData,
    codes: Codes,
    options: FitOptions,
    plan: FinetuningPlan,
    clock: Clock,
    method: str = ensemble_teacher.SPEC.name,
) -> TunedEncoder:
    """Return the encoder, trained further on these labels (n,), which are negative for unlabelled samples.

    With options.finetune="auto", the frozen encoder is kept if it predicts held-out labels better.
    """
    seed = options.random_state if isinstance(options.random_state, int) else 0
    half = hold_out_half(codes, np.random.default_rng(seed))
    validation = ValidationLabels(np.flatnonzero((codes >= 0) & (half < 0)), codes[(codes >= 0) & (half < 0)])
    tests = len(validation.y) >= LEAST_VALIDATION
    features = data.trained_part(encoder)
    net = classifier_from_features(features, data.inputs(slice(2)), data.n_classes)
    with open_engine(data.device, options.precision) as engine, torch.random.fork_rng(devices=[]):
        trainer = _Rounds(options, data, plan, engine, seed, clock, method)
        tuned = trainer.train(_Round(1, half if tests else codes, net, None))
        z = trainer.features(tuned)
        found: Validated | None = None
        reason = f"{plan}; too few labels to test it"
        if tests:
            base, first = (_fit(each, half, data.n_classes, validation) for each in (data.frozen_features, z))
            found = Validated(first.weighting, first.held_out)
            reason = f"{plan}; held-out labels: {_percent(first)} wrong, {_percent(base)} with the frozen encoder"
            if options.finetune == "auto" and _n_wrong(first) > _n_wrong(base):
                return TunedEncoder(None, data.frozen_features, None, f"not used; {reason}", trainer.flops)
        tuned = trainer.train(_Round(2, codes, tuned, found))
        z = trainer.features(tuned)
    return TunedEncoder(data.merge(encoder, tuned.features), z, found, reason, trainer.flops)


class _Rounds:
    """Trains the rounds of a fine-tuning, one after the other."""

    def __init__(
        self,
        options: FitOptions,
        data: TuningData,
        plan: FinetuningPlan,
        engine: Engine,
        seed: int,
        clock: Clock,
        method: str,
    ) -> None:
        self.data, self.plan, self.engine, self.seed, self.clock = data, plan, engine, seed, clock
        self.flops = data.flops
        self.options = replace(
            options,
            method=method,
            settings={"fit_head": True, "ema_decay": EMA_DECAY},
            preset="auto",
            epochs="auto",
            batch_size=BATCH,
            supervised_warmup=0.0,
            optimizer="adam",
            views=data.views,
            propagate=False,
            history=None,
            tensorboard=None,
        )

    def train(self, part: _Round) -> Classifier:
        """Return the EMA teacher after a round."""
        folder = self.options.checkpoint
        options = replace(
            self.options,
            net=part.net,
            minutes=self.plan.end_of_round(part.number, self.clock),
            checkpoint=None if folder is None else Path(folder) / f"finetuning_{part.number}",
        )
        torch.manual_seed(self.seed + part.number)
        dataset = self.data.dataset(part.codes)
        prepare = _with_weighting(part.validated)
        classes = list(range(self.data.n_classes))
        run = TrainingRun(options, dataset, classes, dataset.shape, self.engine, self.seed + part.number, self.clock, prepare)
        run.config = replace(run.config, schedule=Schedule(lr_max=LEARNING_RATES[self.plan.blocks], **COSINE))
        steps = None if options.minutes is not None else self.plan.steps
        result, _ = run.train(steps, at_most=self.plan.steps)
        self.flops += result.cost["flops"]
        return cast(DeepPredictor, result.predictor).classifier.requires_grad_(True)

    def features(self, net: Classifier) -> Tensor:
        """Return the features (n, d) of all images."""
        return dataset_features(net, self.data.dataset(np.full(len(self.data), -1))).float()


def hold_out_half(codes: Codes, rng: np.random.Generator) -> Codes:
    """Return the labels (n,) without half of those of each class, rounded down; -1 takes the place of a label."""
    kept = codes.copy()
    for label in np.unique(codes[codes >= 0]):
        samples = rng.permutation(np.flatnonzero(codes == label))
        kept[samples[: len(samples) // 2]] = -1
    return kept


def _with_weighting(validated: Validated | None) -> Callable[[Method], None]:
    def prepare(method: Method) -> None:
        base: Any = method.base if isinstance(method, MethodWrapper) else method
        if isinstance(base, EnsembleTeacher) and validated is not None:
            base.weighting = validated.weighting

    return prepare


def _fit(z: Tensor, codes: Codes, n_classes: int, validation: ValidationLabels) -> EnsembleFit:
    with one_thread():
        return fit_stacked_ensemble(z.double(), codes, n_classes, seed=0, validation=validation)


def _n_wrong(fit: EnsembleFit) -> int:
    assert fit.held_out is not None
    P, y = fit.held_out
    return int((P.argmax(1) != y).sum())


def _percent(fit: EnsembleFit) -> str:
    assert fit.held_out is not None
    return f"{100 * _n_wrong(fit) / len(fit.held_out[1]):.0f} %"
