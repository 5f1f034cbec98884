"""Defaults: what "auto" chooses for scaling, net, views, batch sizes, optimizer and number of steps, from the data alone.

docs/defaults.md gives the reasons, docs/design/ the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from samekind.data.augment.normalize import NormalizePerChannel
from samekind.data.augment.randaugment import FIXMATCH, PAPER
from samekind.data.augment.transforms import (
    Compose,
    GaussianNoise,
    NormalizeAfter,
    RandomAffine,
    RandomShift,
    RandomWalk,
    Transform,
    Uint8Adapter,
    Views,
)
from samekind.data.dataset import Dataset
from samekind.data.scaling import Scaler, fit_scaler, with_common_scale, with_pca_basis
from samekind.errors import SettingError, did_you_mean
from samekind.graphs.nearest_neighbors import nearest_neighbors
from samekind.graphs.random_walks import (
    MAX_LEVEL,
    label_consistent_levels,
    random_walk_graph,
    random_walk_maps,
    walk_error_rate,
    walks_beat_linear_baseline,
)
from samekind.image_layout import is_uint8_images
from samekind.nets.classifier import Classifier
from samekind.nets.compact import N_IMAGES as WHITENED
from samekind.nets.compact import compact_classifier, init_whitening
from samekind.nets.conv13 import Conv13, conv13_classifier
from samekind.nets.mlp import vector_classifier
from samekind.nets.small_conv import image_classifier
from samekind.nets.wide_resnet import WideResNet, wide_resnet_classifier
from samekind.parameters import require_parameter
from samekind.training.schedules import OptimizerConfig, Schedule

WIDE = 80  # vectors with at least this many columns may be reduced to their leading principal components
MAX_SCALE_RATIO = 10.0  # columns are taken to have different units if a scale is more than this times the median
MIN_GAIN = 0.03  # another scaling is chosen only if it lowers the leave-one-out error on the labels by more than this
SCALING_SAMPLES = 3000  # samples on which scalings are compared
MANY_LABELS = 4000  # with this many labels or more, the supervised warm-up of colour images takes the whole WARMUP_FRACTION
WARMUP_FRACTION = 0.4
LEARNING_RATES = {"adam": 0.003, "sgd": 0.2}
SGD_WEIGHT_DECAY = 5e-4
SGD_RAMPUP = 0.1  # length of the learning rate's ramp-up with SGD, as a fraction of the run
COLOR_SIDE = 24  # pixels; smaller images in colour are treated like grey ones
COMPONENTS_PER_CLASS = 3.0  # random walks are lengthened only while they separate at least this many clusters per class


@dataclass(frozen=True)
class BatchSizes:
    """Samples in a batch."""

    labelled: int
    unlabelled: int


ImageShape = tuple[int, int, int]  # channels, height, width
IMAGE_NETS: dict[str, Callable[[ImageShape, int], Classifier]] = {
    "small_conv": image_classifier,
    "compact": compact_classifier,
    "compact_quick": lambda shape, n_classes: compact_classifier(shape, n_classes, quick=True),
    "conv13": lambda shape, n_classes: conv13_classifier(n_classes, Conv13(shape[0])),
    "wide_resnet": lambda shape, n_classes: wide_resnet_classifier(n_classes, WideResNet(shape[0])),
}


def net_for(shape: tuple[int, ...], n_classes: int, name: str = "auto") -> Classifier:
    """Return a net for samples of this shape, by name.

    "auto" is a net with two hidden layers of 100 units for vectors, the compact net for colour images, and the small
    convolutional net for other images.
    """
    if len(shape) == 1:
        if name != "auto":
            raise SettingError(f"net is {name!r}, but the samples are vectors; expected 'auto' or a torch.nn.Module")
        return vector_classifier(shape[0], n_classes, (100, 100))
    chosen = ("compact" if is_color_image(shape) else "small_conv") if name == "auto" else name
    if chosen not in IMAGE_NETS:
        raise SettingError(f"there is no network {chosen!r}; {did_you_mean(chosen, IMAGE_NETS)}, or pass a torch.nn.Module")
    return IMAGE_NETS[chosen]((shape[0], shape[1], shape[2]), n_classes)


def initialize_whitening(net: Classifier, dataset: Dataset) -> None:
    """Initialize the whitening layer of the net, if it has one, from patches of this dataset."""
    some = torch.linspace(0, len(dataset) - 1, min(len(dataset), WHITENED)).long()
    init_whitening(net, dataset.inputs(some))


def is_color_image(shape: tuple[int, ...]) -> bool:
    """Return whether samples are colour images of COLOR_SIDE pixels or more; smaller ones are treated like grey images."""
    return len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= COLOR_SIDE


def kind_of(shape: tuple[int, ...]) -> Literal["vectors", "images", "photos"]:
    """Return the kind of data, by which method defaults differ; "photos" are images in colour."""
    return "vectors" if len(shape) == 1 else "photos" if is_color_image(shape) else "images"


def classes_are_characters(classes: Iterable[object]) -> bool:
    """Return whether all class names are single digits or letters: images of characters must not be flipped."""
    return all(isinstance(name, str) and len(name) == 1 and name.isalnum() for name in classes)


def choose_scaler(x: Tensor, y: Tensor, *, keep_columns: bool = False) -> Scaler:
    """Return the scaler of a dataset: standard deviation 1 for each column of vectors or channel of images.

    For vectors two alternatives are tried, and chosen if neighbours then agree clearly better with the labels: one scale for
    all columns, if no column is far wider than the others; and leading principal components, if there are many columns and
    `keep_columns` is False.
    """
    standard = fit_scaler(x)
    if x.ndim > 2:
        return standard
    some = _scaling_samples(y)
    candidates = [standard, *[with_common_scale(standard)] * _may_share_unit(standard.scale)]
    if x.shape[1] >= WIDE and not keep_columns:
        candidates += [with_pca_basis(candidate, x[some]) for candidate in candidates]
    if len(candidates) == 1:
        return standard
    errors = [_neighbor_error(candidate(x[some]), y[some]) for candidate in candidates]
    best = min(range(len(candidates)), key=errors.__getitem__)
    return candidates[best] if errors[best] < errors[0] - MIN_GAIN else standard


def _may_share_unit(scale: Tensor) -> bool:
    """Return whether columns may share one unit: none has a scale far above the median. False if the scales hardly differ."""
    return bool(scale.max() > 1.5 * scale.min()) and bool(scale.max() <= MAX_SCALE_RATIO * scale.median())


def _scaling_samples(y: Tensor) -> Tensor:
    """Return the indices of all labelled samples and of some others, drawn with a fixed seed."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    return order[torch.argsort(y[order] < 0, stable=True)][: max(SCALING_SAMPLES, int((y >= 0).sum()))]


def _neighbor_error(x: Tensor, y: Tensor) -> float:
    distances, indices = nearest_neighbors(x, x, default_n_neighbors(len(x)), exclude_self=True)
    return walk_error_rate(random_walk_graph(distances, indices), y.numpy())


@dataclass(frozen=True)
class ViewDefaults:
    """Views for a dataset, the factor on the unlabelled loss when training with them, and whether they flip images."""

    views: Views
    unlabelled_weight: float = 1.0  # factor on the unlabelled loss; 0 if the labels contradict the neighbourhoods
    flips: bool = False  # images are flipped in training, so predictions may average an image and its flip


def view_defaults(dataset: Dataset, seed: int, name: str = "auto", *, flip: bool = True) -> ViewDefaults:
    """Return the views of a dataset, by name.

    Images: "shift_flip" (random shift and, if `flip`, horizontal flip), "affine" (random affine map and shift) or "shift".
    "auto" is "shift_flip" in colour, else "affine". Vectors: "noise", or "random_walk" (random walks and noise). "auto"
    lengthens random walks only while their ends agree with the labels; if even direct neighbours contradict the labels, it uses
    noise only and gives unlabelled samples no weight.
    """
    known = ("auto", "shift_flip", "shift", "affine") if dataset.x.ndim > 2 else ("auto", "noise", "random_walk")
    if name not in known:
        raise SettingError(
            f"views is {name!r}; expected one of {', '.join(known)} for "
            f"{'images' if dataset.x.ndim > 2 else 'vectors'}, or a dict of functions"
        )
    if dataset.x.ndim > 2:
        chosen = ("shift_flip" if is_color_image(dataset.shape) else "affine") if name == "auto" else name
        return ViewDefaults(_image_views(dataset, chosen, flip=flip), flips=flip and chosen == "shift_flip")
    distances, indices = nearest_neighbors(dataset.x, dataset.x, default_n_neighbors(len(dataset)), exclude_self=True)
    noise = GaussianNoise(noise_scale(distances, n_columns=dataset.x.shape[1]))
    W = random_walk_graph(distances, indices)
    more = GaussianNoise(2.0 * noise.sigma)
    if name == "noise":
        return ViewDefaults({"labelled_only": noise, "weak": noise, "strong": more})
    levels = label_consistent_levels(W, dataset.y.numpy())
    contradicted = levels.enough_evidence and levels.confirmed == 0
    unlimited = name == "random_walk" or contradicted or not levels.enough_evidence or levels.confirmed == levels.tested
    most = MAX_LEVEL + 1 if unlimited else levels.confirmed
    maps = random_walk_maps(W, COMPONENTS_PER_CLASS * dataset.n_classes, seed, min_levels=levels.confirmed, max_levels=most)
    if name == "auto" and contradicted:
        x, y = dataset.x.double().numpy(), dataset.y.numpy()
        if not walks_beat_linear_baseline(W, x, y, len(maps)):
            return ViewDefaults({"labelled_only": noise, "weak": noise, "strong": more}, unlabelled_weight=0.0)
    walk = RandomWalk(dataset.x, maps)
    return ViewDefaults({"labelled_only": noise, "weak": Compose(walk, noise), "strong": Compose(walk, more)})


def _image_views(dataset: Dataset, name: str, *, flip: bool) -> Views:
    # shift by up to a fourteenth of the side: by 1 pixel if the side is 8, by 2 if it is 28 or 32
    pixels = max(1, min(dataset.shape[1:]) // 14)
    if name == "shift_flip":
        shift = RandomShift(pixels, flip=flip)
        weak = _on_uint8(dataset, shift) if is_uint8_images(dataset.x) else shift
    else:
        shift = RandomShift(pixels)
        noisy = RandomShift(pixels, sigma=0.05)
        weak = noisy if name == "shift" else Compose(RandomAffine(), noisy)
    strong, fixmatch_strong = (_on_uint8(dataset, Compose(operations, shift)) for operations in (PAPER, FIXMATCH))
    return {"labelled_only": weak, "weak": weak, "strong": strong, "fixmatch_strong": fixmatch_strong}


def _on_uint8(dataset: Dataset, transform: Transform) -> Transform:
    """Adapt a transform of uint8 images to this dataset, which may hold floats."""
    if isinstance(dataset.scaler, Scaler):
        return NormalizeAfter(transform, NormalizePerChannel(dataset.scaler))
    over_samples = (0, *range(2, dataset.x.ndim))
    low, high = (extreme(dataset.x, dim=over_samples)[:, None, None] for extreme in (torch.amin, torch.amax))
    return Uint8Adapter(transform, low, high)


def default_n_neighbors(n: int) -> int:
    """Return the number of neighbours in a graph of n samples: 10 up to 1000, 20 at 6000, 50 at most; n / 10 if n is small."""
    k = 10 if n <= 1000 else round(10 * math.sqrt(n / 1000) * 0.8)
    return max(1, min(k, 50, max(3, n // 10), n - 1))


def noise_scale(distances: Tensor, n_columns: int) -> float:
    """Return the standard deviation of noise per column: the length of a noise vector is half the distance to a neighbour."""
    return 0.5 * float(distances[:, -1].median()) / math.sqrt(n_columns)


def default_batch_sizes(n: int, *, color: bool = False, paper: bool = False) -> BatchSizes:
    """Return the batch sizes for n samples; `color` is True for colour images.

    The paper has 20 labelled and 100 unlabelled samples in a batch; the default is 20 and 64, which is faster on a CPU. Colour
    images take 32 and 32: a short run learns mostly from the labels, and gains more from many steps on small batches than from
    few on large ones.
    """
    if color and not paper:
        return BatchSizes(labelled=32, unlabelled=min(32, n))
    return BatchSizes(labelled=20, unlabelled=min(100 if paper else 64, n))


def supervised_warmup_for(n_labelled: int, *, color: bool = False, paper: bool = False) -> float:
    """Return the fraction of steps on labels only: for colour images proportional to the root of the label count, else 0."""
    if not color or paper:
        return 0.0
    return WARMUP_FRACTION * min(1.0, math.sqrt(n_labelled / MANY_LABELS))


def optimizer_for(name: str, *, color: bool = False, paper: bool = False) -> Literal["adam", "sgd"]:
    """Return the optimizer; "auto" is SGD for colour images, and Adam, as in the paper, for the rest."""
    require_parameter("optimizer", name)
    if name == "auto":
        return "sgd" if color and not paper else "adam"
    return "adam" if name == "adam" else "sgd"


def optimizer_and_schedule(
    optimizer: Literal["adam", "sgd"], learning_rate: float | Literal["auto"] = "auto"
) -> tuple[OptimizerConfig, Schedule]:
    """Return Adam with the schedule of the paper, or SGD with weight decay and a linear decay of the learning rate."""
    require_parameter("learning_rate", learning_rate)
    rate = LEARNING_RATES[optimizer] if learning_rate == "auto" else float(learning_rate)
    if optimizer == "adam":
        return OptimizerConfig(), Schedule(lr_max=rate)
    schedule = Schedule(lr_max=rate, rampup=SGD_RAMPUP, rampdown=1.0, decay="linear")
    return OptimizerConfig("sgd", weight_decay=SGD_WEIGHT_DECAY), schedule


def steps_for(n: int) -> int:
    """Return the number of steps for n samples: 1000 steps for 1000 samples, twice as many for four times the samples."""
    return round(max(400.0, min(4000.0, 1000.0 * math.sqrt(n / 1000))))


def device_for(name: str) -> torch.device:
    """Return the device; "auto" is a GPU if there is one."""
    if name != "auto":
        return _usable_device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _usable_device(name: str) -> torch.device:
    """Return the device of this name; raise SettingError if there is none, or if it cannot hold numbers."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        here = "cpu, cuda" if torch.cuda.is_available() else "cpu"
        raise SettingError(f"device {name!r} is not on this machine; expected auto, or one of: {here}.") from error
    return device
