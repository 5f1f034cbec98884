"""Training with presets: builds dataset, augmentations, network and method of a preset, and trains for any number of steps.

    train_preset(find_preset("cifar10/learned_graph/4000"), load_dataset("cifar10"), seed=0)

In a run with fewer steps than its preset, every ramp keeps its fraction of the run. Images are normalised, then shifted and
flipped, and noise is added. Strong augmentations are applied before that, to the uint8 images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from samekind.bench.presets.paper_preset import NetSpec, OptimizerSpec, PaperPreset, ScheduleSpec
from samekind.data.augment import randaugment
from samekind.data.augment.normalize import SYMMETRIC, NormalizePerImage, Normalizer, per_channel, zca
from samekind.data.augment.transforms import Compose, NormalizeAfter, RandomShift, Transform, Views, identity
from samekind.data.dataset import Batch, Dataset
from samekind.data.hub.loaders import BenchmarkData
from samekind.data.splits import Split, draw_split
from samekind.errors import DataError, SettingError
from samekind.evaluation.metrics import error_rate
from samekind.flops import count_flops
from samekind.image_layout import as_tensor, channels_first
from samekind.methods import build, config_defaults, uses_unlabelled
from samekind.methods.base import Method, Task
from samekind.nets.cclp_net import CclpNet, cclp_classifier
from samekind.nets.classifier import Classifier
from samekind.nets.conv13 import Conv13, conv13_classifier, data_dependent_init
from samekind.nets.wide_resnet import WideResNet
from samekind.training.engine import Engine
from samekind.training.loop import LOCAL_ENGINE
from samekind.training.schedules import OptimizerConfig, Schedule
from samekind.training.trainer import TrainConfig, TrainResult, TrainStage, train_stages

INFERENCE_BATCH = 500
NORMALIZERS: dict[str, Callable[[Tensor], Normalizer]] = {
    "per_image": lambda images: NormalizePerImage(),
    "per_channel": per_channel,
    "zca": zca,
    "symmetric": lambda images: SYMMETRIC,
}


@dataclass(frozen=True)
class PaperRunOptions:
    """Number of steps and width of a run at paper scale, and the folder of its checkpoints."""

    steps: int | None = None  # None: as many as the preset has
    width: float = 1.0  # factor on the number of channels of the network
    out: str | Path | None = None  # folder for the training log and the checkpoints; an unfinished run in it is resumed
    verbose: bool = False


class PreparedRun(NamedTuple):
    """Stages of a run, and the normalizer. Only the labels of the split's labelled samples are used to make them.

    A preset has one stage, or two stages if its method starts from a network that another method has trained.
    """

    stages: tuple[TrainStage, ...]
    dataset: Dataset
    views: Views
    normalize: Normalizer

    @property
    def config(self) -> TrainConfig:
        """Return the configuration of the last stage, in which the method of the preset is trained."""
        return self.stages[-1].config

    def train(self, engine: Engine = LOCAL_ENGINE) -> TrainResult:
        """Train all stages; return the result of the last stage, with the cost of all stages together."""
        return train_stages(self.stages, self.dataset, self.views, engine)


class PaperRunResult(NamedTuple):
    """Finished run: the trained model, its errors in percent, and the split."""

    trained: TrainResult
    test_error: float
    validation_error: float | None
    split: Split

    def record(self, preset: PaperPreset) -> dict[str, Any]:
        """Return the result as a dict of JSON values."""
        errors = {"test_error": self.test_error, "validation_error": self.validation_error}
        paper = preset.published
        published = {"published": paper and paper.error, "published_spread": paper and paper.spread}
        return {"preset": preset.name, "split": self.split.record(), **errors, **published, "cost": self.trained.cost}


FULL_RUN = PaperRunOptions()


def train_preset(
    preset: PaperPreset,
    data: BenchmarkData,
    seed: int,
    options: PaperRunOptions = FULL_RUN,
    *,
    validate: bool = False,
    engine: Engine = LOCAL_ENGINE,
) -> PaperRunResult:
    """Draw a split, train on it, and evaluate the final model.

    With `validate`, a validation set is held out of the training set.
    """
    split = draw_split(data.y, preset.labels, seed, n_validation=preset.n_validation if validate else 0)
    return train_split(preset, data, split, options, engine)


def train_split(
    preset: PaperPreset, data: BenchmarkData, split: Split, options: PaperRunOptions = FULL_RUN, engine: Engine = LOCAL_ENGINE
) -> PaperRunResult:
    """Train on a given split and evaluate the final model. The hidden labels of `data` are only read after the training."""
    prepared = prepare_run(preset, data.x, split, len(data.classes), options)
    trained = prepared.train(engine)
    test = _error(trained.predictor, data.x_test, data.y_test, prepared.normalize)
    held_out = split.validation
    validation = _error(trained.predictor, data.x[held_out], data.y[held_out], prepared.normalize) if len(held_out) else None
    return PaperRunResult(trained, test, validation, split)


def prepare_run(
    preset: PaperPreset,
    x: npt.NDArray[np.uint8],
    split: Split,
    n_classes: int,
    options: PaperRunOptions = FULL_RUN,
) -> PreparedRun:
    """Return the stages of a run, made from images (n, H, W, C) and the labels of the split's labelled samples."""
    reason = missing_requirement(preset)
    if reason is not None:
        raise SettingError(f"the preset {preset.name} cannot run: {reason}")
    if x.dtype != np.uint8 or x.ndim != 4:
        raise DataError(f"found images of {x.dtype} and shape {x.shape}; expected uint8 images (n, H, W, C)")
    out = None if options.out is None else Path(options.out)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(split.seed)
    images = as_tensor(x[split.train])
    normalize = NORMALIZERS[preset.normalization](images)
    dataset = Dataset(images, torch.from_numpy(split.y), n_classes, normalize)
    views = build_views(preset, normalize)
    net = build_net(preset.net, n_classes, options.width, channels=dataset.shape[0])
    if preset.net.variant == "A":
        data_dependent_init(net.train(), _first_batch(dataset, views, preset.batch_unlabelled, split.seed))
    steps = (preset.n_stages * preset.schedule.steps) if options.steps is None else options.steps
    first_steps = steps // 2 if preset.first_stage else 0
    task = Task(n_classes, len(split.labelled), len(dataset), 0, preset.batch_labelled, preset.batch_unlabelled)
    config = TrainConfig(
        steps - first_steps,
        preset.batch_labelled,
        preset.batch_unlabelled,
        build_schedule(preset.optimizer, preset.schedule),
        split.seed,
        title=preset.name,
        verbose=options.verbose,
        history=None if out is None else out / "history.jsonl",
        checkpoint=None if out is None else out / "checkpoint",
        settings={"preset": asdict(preset), "split": split.record(), "width": options.width},
        optimizer=OptimizerConfig(preset.optimizer.kind, preset.optimizer.momentum, preset.optimizer.weight_decay),
    )
    stages = [TrainStage(preset.method, _method_builder(preset.method, net, task, config, method_settings(preset)), config)]
    if first_steps:
        stages.insert(0, _first_stage(preset, net, task, replace(config, steps=first_steps)))
    return PreparedRun(tuple(stages), dataset, views, normalize)


def _first_stage(preset: PaperPreset, net: Classifier, task: Task, config: TrainConfig) -> TrainStage:
    """Return the stage in which the network is trained before the method of the preset begins. It has the same schedule."""
    name, alone = preset.first_stage, not uses_unlabelled(preset.first_stage)
    if alone:  # a batch of a supervised stage has only labelled samples
        config = replace(config, n_labelled=config.n_labelled + config.n_unlabelled)
    checkpoint = None if config.checkpoint is None else Path(config.checkpoint) / "first_stage"
    config = replace(config, title=f"{preset.name}: {name}", history=None, checkpoint=checkpoint)
    known = config_defaults(name)
    settings = {key: value for key, value in method_settings(preset).items() if key in known}
    return TrainStage(name, _method_builder(name, net, task, config, settings), config)


def _method_builder(
    name: str, net: Classifier, task: Task, config: TrainConfig, settings: Mapping[str, Any]
) -> Callable[[], Method]:
    """Return a function that builds the method.

    It is called when the stage begins, because the method may copy trained weights.
    """
    return lambda: build(name, net, replace(task, steps=config.steps), settings)


def missing_requirement(preset: PaperPreset) -> str | None:
    """Return what the preset needs and samekind does not have (a method, a setting or a network); None if nothing is
    missing.
    """
    try:
        _build_on_meta(preset, 10)
    except SettingError as error:
        return str(error)
    return None


def method_settings(preset: PaperPreset) -> dict[str, Any]:
    """Return the settings of the method: those of the preset, and `strong_view` if the preset uses RandAugment."""
    return {**preset.settings, **({"strong_view": True} if preset.augmentation.strong == "randaugment" else {})}


def build_views(preset: PaperPreset, normalize: Normalizer) -> dict[str, Transform]:
    """Return the augmentations of a preset, by name. "labelled_only" is the same as "weak"."""
    a = preset.augmentation
    move = RandomShift(a.shift, a.flip, a.noise)
    weak = Compose(NormalizeAfter(identity, normalize), move)
    return {"labelled_only": weak, "weak": weak, "strong": Compose(NormalizeAfter(randaugment.PAPER, normalize), move)}


def build_net(net: NetSpec, n_classes: int, width: float = 1.0, *, channels: int = 3) -> Classifier:
    """Return the network of a preset as a classifier. `width` is a factor on the number of channels in the paper."""
    if net.kind == "conv13":
        features = Conv13(channels, variant=net.variant, width=width, weight_norm=net.weight_norm, dropout=net.dropout)
        return conv13_classifier(n_classes, features)
    if net.kind == "wide_resnet":
        wide = WideResNet(channels, width=2 * width)
        return Classifier(wide, wide.n_features, n_classes)
    elu = CclpNet(channels, maps=round(net.maps * width), channel_dropout=net.channel_dropout, dropout=net.dropout)
    return cclp_classifier(n_classes, elu, net.dropout)


def build_schedule(optimizer: OptimizerSpec, schedule: ScheduleSpec) -> Schedule:
    """Return the schedule of the learning rate, with all lengths as fractions of the run."""
    return Schedule(
        lr_max=optimizer.lr,
        rampup=schedule.rampup / schedule.steps,
        rampdown=schedule.rampdown / schedule.steps,
        beta1_end=optimizer.beta1_end,
        beta2_start=optimizer.beta2_start,
        beta2=optimizer.beta2,
        decay="none" if schedule.decay == "cycles" else schedule.decay,  # a cyclic schedule is part of the method
        milestones=tuple((step / schedule.steps, factor) for step, factor in schedule.milestones),
    )


def count_step_flops(
    preset: PaperPreset, n_classes: int, width: float = 1.0, shape: tuple[int, ...] = (3, 32, 32)
) -> int | None:
    """Return the FLOPs of one training step, counted on meta tensors, which have a shape but no values.

    None is returned for a method whose step needs values, for example because it chooses pairs by class.
    """
    try:
        method = _build_on_meta(preset, n_classes, width, shape[0])
        with torch.device("meta"), count_flops() as flops:
            labelled, unlabelled = torch.zeros(preset.batch_labelled, *shape), torch.zeros(preset.batch_unlabelled, *shape)
            batch = Batch(
                x_l=tuple(labelled for _ in method.labelled_views),
                y_l=torch.zeros(preset.batch_labelled, dtype=torch.long),
                x_u=tuple(unlabelled for _ in method.unlabelled_views),
                index=torch.arange(preset.batch_unlabelled),
            )
            torch.autograd.backward(torch.stack(list(method.losses(batch, 1.0).values())).sum())
    except (NotImplementedError, RuntimeError):  # raised by operations that need the values of tensors
        return None
    return flops()


def _build_on_meta(preset: PaperPreset, n_classes: int, width: float = 1.0, channels: int = 3) -> Method:
    """Return the method and its network on the meta device, which takes no memory for weights."""
    with torch.device("meta"):
        task = Task(n_classes, preset.labels, 10 * preset.labels, 1, preset.batch_labelled, preset.batch_unlabelled)
        net = build_net(preset.net, n_classes, width, channels=channels)
        return build(preset.method, net, task, method_settings(preset))


def _first_batch(dataset: Dataset, views: Mapping[str, Transform], n: int, seed: int) -> Tensor:
    """Return a batch of augmented images, from which the network's initial scales are computed."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(dataset), generator=generator)[:n]
    return views["weak"](dataset.raw_images(rows), rows, generator)


def predict_classes(predictor: nn.Module, x: npt.NDArray[np.uint8], normalize: Normalizer) -> npt.NDArray[np.int64]:
    """Return the predicted class (n,) of each image. Images are not augmented."""
    model: Any = predictor
    predictions: npt.NDArray[np.int64] = compute_features(
        predictor, x, normalize, lambda z: model.probabilities(z).argmax(1)
    ).numpy()
    return predictions


@torch.no_grad()
def compute_features(
    predictor: nn.Module, x: npt.NDArray[np.uint8], normalize: Normalizer, then: Callable[[Tensor], Tensor] = lambda z: z
) -> Tensor:
    """Return the features z of all images, computed in batches; if `then` is given, the result of then(z)."""
    model: Any = predictor
    device = next(model.parameters()).device
    blocks = (normalize(channels_first(block)).to(device) for block in torch.split(as_tensor(x), INFERENCE_BATCH))
    return torch.cat([then(model.features(block)).cpu() for block in blocks])


def _error(predictor: nn.Module, x: npt.NDArray[np.uint8], y: npt.NDArray[np.int64], normalize: Normalizer) -> float:
    """Return the error of the predictions in percent."""
    return error_rate(predict_classes(predictor, x, normalize), y)
