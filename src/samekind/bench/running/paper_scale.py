"""What a preset means when it is run: pool, views, net, method and plan, at the size of the paper or any smaller one.

    train_preset(find_preset("cifar10/learned_graph/4000"), load("cifar10"), seed=0, how=How(out="runs/cifar10"))

Fewer steps are the same run in short: every ramp keeps its share of it. Images are normalised first, then shifted, flipped and
given noise; strong views are drawn on the bytes before that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
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
from samekind.data.image_layout import as_tensor, channels_first
from samekind.data.splits import Split, draw_split
from samekind.errors import DataError, SettingError
from samekind.evaluation.metrics import error_rate
from samekind.flops import count_flops
from samekind.methods import build
from samekind.methods.base import Method, Task
from samekind.nets.cclp_net import CclpNet, cclp_classifier
from samekind.nets.classifier import Classifier
from samekind.nets.conv13 import Conv13, conv13_classifier, data_dependent_init
from samekind.nets.wide_resnet import WideResNet
from samekind.training.engine import Engine
from samekind.training.loop import LOCAL_ENGINE
from samekind.training.schedules import OptimizerConfig, Schedule
from samekind.training.trainer import TrainConfig, TrainResult, train

ROWS = 500  # images that are looked at together when a net is tested
NORMALISERS: dict[str, Callable[[Tensor], Normalizer]] = {
    "per_image": lambda images: NormalizePerImage(),
    "per_channel": per_channel,
    "zca": zca,
    "symmetric": lambda images: SYMMETRIC,
}


@dataclass(frozen=True)
class PaperRunOptions:
    """How much of the paper's run, and what is kept and shown of it."""

    steps: int | None = None  # None: all of its steps
    width: float = 1.0  # factor on the channels of the net
    out: str | Path | None = None  # folder of history and checkpoint; a run in it is taken up
    verbose: bool = False


class PreparedRun(NamedTuple):
    """All that training takes. It was made without a look at any label but those that the split shows."""

    method: Method
    pool: Dataset
    views: Views
    plan: TrainConfig
    normalise: Normalizer


class PaperRunResult(NamedTuple):
    """A run that is over: what came of it, its errors in per cent, and the split that it was told of."""

    trained: TrainResult
    test_error: float
    validation_error: float | None
    split: Split

    def record(self, preset: PaperPreset) -> dict[str, Any]:
        """For a JSON line."""
        errors = {"test_error": self.test_error, "validation_error": self.validation_error}
        there = preset.published
        published = {"published": there and there.error, "published_spread": there and there.spread}
        return {"preset": preset.name, "split": self.split.record(), **errors, **published, "cost": self.trained.cost}


WHOLE = PaperRunOptions()


def train_preset(
    preset: PaperPreset,
    data: BenchmarkData,
    seed: int,
    how: PaperRunOptions = WHOLE,
    *,
    validate: bool = False,
    engine: Engine = LOCAL_ENGINE,
) -> PaperRunResult:
    """Draws a split, trains, and tests the end of it. `validate` holds validation rows out of the pool."""
    split = draw_split(data.y, preset.labels, seed, n_validation=preset.n_validation if validate else 0)
    return train_split(preset, data, split, how, engine)


def train_split(
    preset: PaperPreset, data: BenchmarkData, split: Split, how: PaperRunOptions = WHOLE, engine: Engine = LOCAL_ENGINE
) -> PaperRunResult:
    """The same for a split that is drawn already. Labels of `data` are looked at when all training is done."""
    ready = prepare_run(preset, data.x, split, len(data.classes), how, engine)
    trained = train(ready.method, ready.pool, ready.views, ready.plan, engine)
    test = _error(trained.predictor, data.x_test, data.y_test, ready.normalise)
    kept = split.validation
    validation = _error(trained.predictor, data.x[kept], data.y[kept], ready.normalise) if len(kept) else None
    return PaperRunResult(trained, test, validation, split)


def prepare_run(
    preset: PaperPreset,
    x: npt.NDArray[np.uint8],
    split: Split,
    n_classes: int,
    how: PaperRunOptions = WHOLE,
    engine: Engine = LOCAL_ENGINE,
) -> PreparedRun:
    """Dataset, views, net, method and plan from images (n, H, W, C) and what the split shows of their labels."""
    reason = missing_requirement(preset)
    if reason is not None:
        raise SettingError(f"{preset.name} cannot run yet: {reason}")
    if x.dtype != np.uint8 or x.ndim != 4:
        raise DataError(f"found images of {x.dtype} and shape {x.shape}; expected bytes (n, H, W, C), as load() gives them")
    out = None if how.out is None else Path(how.out)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(split.seed)
    images = as_tensor(x[split.train])
    normalise = NORMALISERS[preset.normalisation](images)
    pool = Dataset(images, torch.from_numpy(split.y), n_classes, normalise)
    views = build_views(preset, normalise)
    net = build_net(preset.net, n_classes, how.width, channels=pool.shape[0])
    if preset.net.variant == "A":
        data_dependent_init(net.train(), _first_batch(pool, views, preset.batch_unlabelled, split.seed))
    steps = preset.times.steps if how.steps is None else how.steps
    task = Task(n_classes, len(split.labelled), len(pool), steps, preset.batch_labelled, preset.batch_unlabelled)
    method: Any = build(preset.method, net, task, method_settings(preset))
    plan = TrainConfig(
        steps,
        preset.batch_labelled,
        preset.batch_unlabelled,
        build_schedule(preset.optimizer, preset.times),
        split.seed,
        title=preset.name,
        verbose=how.verbose,
        history=None if out is None else out / "history.jsonl",
        checkpoint=None if out is None else out / "checkpoint",
        settings={"preset": asdict(preset), "split": split.record(), "width": how.width},
        optimizer=OptimizerConfig(preset.optimizer.kind, preset.optimizer.momentum, preset.optimizer.weight_decay),
    )
    return PreparedRun(method.to(engine.device), pool, views, plan, normalise)


def missing_requirement(preset: PaperPreset) -> str | None:
    """What is missing before the preset can run: a method, a setting or a net. None if nothing is."""
    try:
        _without_numbers(preset, 10)
    except SettingError as error:
        return str(error)
    return None


def method_settings(preset: PaperPreset) -> dict[str, Any]:
    """The settings of the method: those of the preset, and whether it looks through strong views."""
    return {**preset.settings, **({"strong": True} if preset.augmentation.strong == "randaugment" else {})}


def build_views(preset: PaperPreset, normalise: Normalizer) -> dict[str, Transform]:
    """The views by name; "labelled_only" is "weak", as neither looks at other rows."""
    a = preset.augmentation
    move = RandomShift(a.shift, a.flip, a.noise)
    weak = Compose(NormalizeAfter(identity, normalise), move)
    return {"labelled_only": weak, "weak": weak, "strong": Compose(NormalizeAfter(randaugment.PAPER, normalise), move)}


def build_net(net: NetSpec, n_classes: int, width: float = 1.0, *, channels: int = 3) -> Classifier:
    """The net with its classifier; `width` is a factor on what the paper has."""
    if net.kind == "conv13":
        features = Conv13(channels, variant=net.variant, width=width, weight_norm=net.weight_norm, dropout=net.dropout)
        return conv13_classifier(n_classes, features)
    if net.kind == "wide_resnet":
        wide = WideResNet(channels, width=2 * width)
        return Classifier(wide, wide.n_features, n_classes)
    elu = CclpNet(channels, maps=round(net.maps * width), channel_dropout=net.channel_dropout, dropout=net.dropout)
    return cclp_classifier(n_classes, elu, net.dropout)


def build_schedule(optimizer: OptimizerSpec, times: ScheduleSpec) -> Schedule:
    """The schedule in shares of the run."""
    return Schedule(
        lr_max=optimizer.lr,
        rampup=times.rampup / times.steps,
        rampdown=times.rampdown / times.steps,
        beta1_end=optimizer.beta1_end,
        beta2_start=optimizer.beta2_start,
        beta2=optimizer.beta2,
        fall="none" if times.fall == "cycles" else times.fall,  # the method has the cycles itself
        stairs=tuple((step / times.steps, share) for step, share in times.stairs),
    )


def count_step_flops(
    preset: PaperPreset, n_classes: int, width: float = 1.0, shape: tuple[int, ...] = (3, 32, 32)
) -> int | None:
    """Floating-point operations of one step, counted while the method takes it on tensors that hold no numbers.

    None for a method whose step depends on the numbers, as where partners are drawn by class, or has a part that torch does not
    know without any: a run counts its own.
    """
    try:
        method = _without_numbers(preset, n_classes, width, shape[0])
        with torch.device("meta"), count_flops() as flops:
            labelled, pool = torch.zeros(preset.batch_labelled, *shape), torch.zeros(preset.batch_unlabelled, *shape)
            batch = Batch(
                x_l=tuple(labelled for _ in method.labelled_views),
                y_l=torch.zeros(preset.batch_labelled, dtype=torch.long),
                x_u=tuple(pool for _ in method.unlabelled_views),
                index=torch.arange(preset.batch_unlabelled),
            )
            torch.autograd.backward(torch.stack(list(method.losses(batch, 1.0).values())).sum())
    except (NotImplementedError, RuntimeError):  # torch's own words for "there is no number here"
        return None
    return flops()


def _without_numbers(preset: PaperPreset, n_classes: int, width: float = 1.0, channels: int = 3) -> Method:
    """The method on its net, all shapes and no memory."""
    with torch.device("meta"):
        task = Task(n_classes, preset.labels, 10 * preset.labels, 1, preset.batch_labelled, preset.batch_unlabelled)
        net = build_net(preset.net, n_classes, width, channels=channels)
        return build(preset.method, net, task, method_settings(preset))


def _first_batch(pool: Dataset, views: Mapping[str, Transform], n: int, seed: int) -> Tensor:
    """A batch as the net will see it, for a start that depends on the data."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(pool), generator=generator)[:n]
    return views["weak"](pool.raw_images(rows), rows, generator)


def predict_classes(predictor: nn.Module, x: npt.NDArray[np.uint8], normalise: Normalizer) -> npt.NDArray[np.int64]:
    """The class (n,) of each image, as it is but for its scale."""
    model: Any = predictor
    answers: npt.NDArray[np.int64] = compute_features(
        predictor, x, normalise, lambda z: model.probabilities(z).argmax(1)
    ).numpy()
    return answers


@torch.no_grad()
def compute_features(
    predictor: nn.Module, x: npt.NDArray[np.uint8], normalise: Normalizer, then: Callable[[Tensor], Tensor] = lambda z: z
) -> Tensor:
    """`then` of the features z of all images, some at a time."""
    model: Any = predictor
    device = next(model.parameters()).device
    blocks = (normalise(channels_first(block)).to(device) for block in torch.split(as_tensor(x), ROWS))
    return torch.cat([then(model.features(block)).cpu() for block in blocks])


def _error(predictor: nn.Module, x: npt.NDArray[np.uint8], y: npt.NDArray[np.int64], normalise: Normalizer) -> float:
    """Share of wrong answers in per cent."""
    return error_rate(predict_classes(predictor, x, normalise), y)
