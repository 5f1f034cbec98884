"""Fine-tuning: trains the encoder of images further, on the labels of a fit and on all of its unlabelled images.

The training has two rounds. Round 1 sees half of the labels of each class. The other half then tells, without having been seen,
whether the fine-tuned features are better than those of the frozen encoder, and how much each model of the ensemble should
weigh on them. Round 2 continues with all labels. Both rounds train with the method "ensemble_teacher".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from samekind.clock import Clock
from samekind.fitting.finetuning_plan import FinetuningPlan
from samekind.fitting.fit_options import FitOptions
from samekind.fitting.training_run import TrainingRun
from samekind.fitting.tuning_data import TuningData
from samekind.methods import ensemble_teacher
from samekind.methods.base import Method
from samekind.methods.ensemble import Validated
from samekind.methods.ensemble_teacher import EnsembleTeacher
from samekind.methods.full_pass import dataset_features
from samekind.methods.predictors import DeepPredictor
from samekind.methods.wrapper import MethodWrapper
from samekind.nets.classifier import Classifier, classifier_from_features
from samekind.nets.encoders.efficientnet import EfficientNetLite
from samekind.stacking.ensemble_fit import EnsembleFit, ValidationLabels
from samekind.stacking.one_thread import one_thread
from samekind.stacking.stacked_ensemble import fit_stacked_ensemble
from samekind.training.engine import Engine, open_engine
from samekind.training.schedules import Schedule

Codes = npt.NDArray[np.int64]
BATCH = (16, 64)  # labelled and unlabelled samples in a batch
LEARNING_RATES = {"last": 3e-4, "all": 1e-4}
COSINE: dict[str, Any] = {"rampup": 0.1, "rampdown": 1.0, "decay": "cosine", "beta1_end": 0.9}
EMA_DECAY = 0.98  # averages over 50 steps, a third of a round for 2,000 images
LEAST_VALIDATION = 8  # with fewer labels that round 1 has not seen, nothing can be said about the features


@dataclass(frozen=True)
class TunedEncoder:
    """Result of a fine-tuning: the encoder, the known weights, and the reason in one line.

    The encoder is None if the frozen one is better. `validated` is None if too few labels could be held out. `flops` counts the
    floating-point operations of both rounds and of the stored maps.
    """

    encoder: EfficientNetLite | None
    validated: Validated | None
    reason: str
    flops: float = 0.0

    def __str__(self) -> str:
        return f"fine-tuning: {self.reason}"


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
                return TunedEncoder(None, None, f"not used; {reason}", trainer.flops)
        tuned = trainer.train(_Round(2, codes, tuned, found))
    return TunedEncoder(data.merge(encoder, tuned.features), found, reason, trainer.flops)


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
        seed = self.seed + part.number
        run = TrainingRun(options, dataset, classes, dataset.shape, self.engine, seed, self.clock, prepare=prepare)
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
