"""Defaults: how "auto" chooses scaling, network, augmentation, batch sizes, optimizer and number of steps from the data.

docs/defaults.md gives the reasons, and docs/design/ the measurements.
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

WIDE = 80  # least number of columns of vectors that may be reduced to their leading principal components
MAX_SCALE_RATIO = 10.0  # columns are taken to have different units if the scale of one is more than this times the median scale
MIN_GAIN = 0.03  # another scaling is only chosen if it lowers the leave-one-out error on the labels by more than this
SCALING_SAMPLES = 3000  # number of samples on which scalings are compared
# number of labels from which the supervised warm-up for colour images takes the whole WARMUP_FRACTION of the steps
MANY_LABELS = 4000
WARMUP_FRACTION = 0.4
LEARNING_RATES = {"adam": 0.003, "sgd": 0.2}
SGD_WEIGHT_DECAY = 5e-4
SGD_RAMPUP = 0.1  # length of the ramp-up of SGD's learning rate, as a fraction of the run
COLOR_SIDE = 24  # smaller colour images, by their shorter side in pixels, are treated like grey images
# random walks become longer only while they separate at least this number of clusters for each class
COMPONENTS_PER_CLASS = 3.0


@dataclass(frozen=True)
class BatchSizes:
    """Numbers of labelled and unlabelled samples in a batch."""

    labelled: int
    unlabelled: int


ImageShape = tuple[int, int, int]  # (channels, height, width)
IMAGE_NETS: dict[str, Callable[[ImageShape, int], Classifier]] = {
    "small_conv": image_classifier,
    "compact": compact_classifier,
    "compact_quick": lambda shape, n_classes: compact_classifier(shape, n_classes, quick=True),
    "conv13": lambda shape, n_classes: conv13_classifier(n_classes, Conv13(shape[0])),
    "wide_resnet": lambda shape, n_classes: wide_resnet_classifier(n_classes, WideResNet(shape[0])),
}


def net_for(shape: tuple[int, ...], n_classes: int, name: str = "auto", *, paper: bool = False) -> Classifier:
    """Return a network for samples of this shape, by name.

    "auto" is a network with two hidden layers of 100 units for vectors, or with one hidden layer as in the paper if `paper` is
    True. For colour images it is the compact network, and for other images the small convolutional network.
    """
    if len(shape) == 1:
        if name != "auto":
            raise SettingError(f"net is {name!r}, but the samples are vectors; expected 'auto' or a torch.nn.Module")
        return vector_classifier(shape[0], n_classes, (100,) if paper else (100, 100))
    chosen = ("compact" if is_color_image(shape) else "small_conv") if name == "auto" else name
    if chosen not in IMAGE_NETS:
        raise SettingError(f"there is no network {chosen!r}; {did_you_mean(chosen, IMAGE_NETS)}, or pass a torch.nn.Module")
    return IMAGE_NETS[chosen]((shape[0], shape[1], shape[2]), n_classes)


def initialize_whitening(net: Classifier, dataset: Dataset) -> None:
    """Initialize the whitening layer of the network, if it has one, from patches of images in this dataset."""
    some = torch.linspace(0, len(dataset) - 1, min(len(dataset), WHITENED)).long()
    init_whitening(net, dataset.inputs(some))


def is_color_image(shape: tuple[int, ...]) -> bool:
    """Return whether samples of this shape are colour images of COLOR_SIDE pixels or more.

    Smaller ones count as grey images.
    """
    return len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= COLOR_SIDE


def kind_of(shape: tuple[int, ...]) -> Literal["vectors", "images", "photos"]:
    """Return the kind of data with samples of this shape: "vectors", "photos" (colour images) or "images" (other images).

    The defaults of methods differ between these kinds.
    """
    return "vectors" if len(shape) == 1 else "photos" if is_color_image(shape) else "images"


def classes_are_characters(classes: Iterable[object]) -> bool:
    """Return whether all class names are single digits or letters. Images of characters must not be flipped."""
    return all(isinstance(name, str) and len(name) == 1 and name.isalnum() for name in classes)


def choose_scaler(x: Tensor, y: Tensor, *, keep_columns: bool = False) -> Scaler:
    """Return the scaler for a dataset: it gives each column of vectors, or channel of images, standard deviation 1.

    For vectors, two alternatives are tried: the same scale for all columns, if no column is far wider than the others; and the
    leading principal components, if there are many columns and `keep_columns` is False. An alternative is chosen if the labels
    of neighbouring samples then agree clearly better.
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
    """Return whether columns may have the same unit, that is, no scale is far above the median.

    If all scales are nearly equal, the result is False, because a common scale would change nothing.
    """
    return bool(scale.max() > 1.5 * scale.min()) and bool(scale.max() <= MAX_SCALE_RATIO * scale.median())


def _scaling_samples(y: Tensor) -> Tensor:
    """Return the indices of all labelled samples and of some unlabelled ones, drawn with a fixed seed."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    return order[torch.argsort(y[order] < 0, stable=True)][: max(SCALING_SAMPLES, int((y >= 0).sum()))]


def _neighbor_error(x: Tensor, y: Tensor) -> float:
    distances, indices = nearest_neighbors(x, x, default_n_neighbors(len(x)), exclude_self=True)
    return walk_error_rate(random_walk_graph(distances, indices), y.numpy())


@dataclass(frozen=True)
class ViewDefaults:
    """Augmentations for a dataset, the factor on the unlabelled loss with them, and whether they flip images."""

    views: Views
    unlabelled_weight: float = 1.0  # factor on the unlabelled loss; 0 if the labels contradict the neighbourhoods
    flips: bool = False  # True: images are flipped in training, so predictions may be averaged over an image and its flip


def view_defaults(dataset: Dataset, seed: int, name: str = "auto", *, flip: bool = True) -> ViewDefaults:
    """Return the augmentations for a dataset, by name.

    For images: "shift_flip" is a random shift and, if `flip`, a horizontal flip; "affine" is a random affine map and a shift;
    and there is "shift". "auto" is "shift_flip" for colour images, else "affine". For vectors: "noise", or "random_walk"
    (random walks and noise). "auto" makes random walks longer only as long as their ends agree with the labels. If even direct
    neighbours contradict the labels, it uses only noise, and gives unlabelled samples the weight 0.
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
    # the largest shift is a fourteenth of the side: 1 pixel for a side of 8, and 2 for 28 or 32
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
    """Return a transform of uint8 images as a transform for the images of this dataset, which may be floats."""
    if isinstance(dataset.scaler, Scaler):
        return NormalizeAfter(transform, NormalizePerChannel(dataset.scaler))
    over_samples = (0, *range(2, dataset.x.ndim))
    low, high = (extreme(dataset.x, dim=over_samples)[:, None, None] for extreme in (torch.amin, torch.amax))
    return Uint8Adapter(transform, low, high)


def default_n_neighbors(n: int) -> int:
    """Return the number of neighbours of each sample in a graph of n samples.

    It is 10 up to 1000 samples, 20 at 6000, and at most 50. For few samples it is n / 10, but at least 3.
    """
    k = 10 if n <= 1000 else round(10 * math.sqrt(n / 1000) * 0.8)
    return max(1, min(k, 50, max(3, n // 10), n - 1))


def noise_scale(distances: Tensor, n_columns: int) -> float:
    """Return the standard deviation of noise in each column, from the distances (n, k) to nearest neighbours.

    A noise vector is on average half as long as the median distance to the k-th neighbour.
    """
    return 0.5 * float(distances[:, -1].median()) / math.sqrt(n_columns)


def default_batch_sizes(n: int, *, color: bool = False, paper: bool = False) -> BatchSizes:
    """Return the batch sizes for n samples. `color` is True for colour images, and `paper` for the paper's settings.

    The paper has 20 labelled and 100 unlabelled samples in a batch. The default is 20 and 64, which is faster on a CPU. For
    colour images it is 32 and 32: a short run learns mostly from the labels, and gains more from many steps with small batches
    than from few steps with large ones.
    """
    if color and not paper:
        return BatchSizes(labelled=32, unlabelled=min(32, n))
    return BatchSizes(labelled=20, unlabelled=min(100 if paper else 64, n))


def supervised_warmup_for(n_labelled: int, *, color: bool = False, paper: bool = False) -> float:
    """Return the fraction of steps that train on labels only, the supervised warm-up.

    For colour images, it grows with the square root of the number of labels, up to WARMUP_FRACTION; for other data it is 0.
    """
    if not color or paper:
        return 0.0
    return WARMUP_FRACTION * min(1.0, math.sqrt(n_labelled / MANY_LABELS))


def optimizer_for(name: str, *, color: bool = False, paper: bool = False) -> Literal["adam", "sgd"]:
    """Return the name of the optimizer. "auto" is SGD for colour images, and Adam, as in the paper, for other data."""
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
    """Return the number of steps for n samples: 1000 for 1000 samples, growing with the square root of n, between 400 and
    4000.
    """
    return round(max(400.0, min(4000.0, 1000.0 * math.sqrt(n / 1000))))


def device_for(name: str) -> torch.device:
    """Return the torch device of this name. "auto" is a GPU if there is one, else the CPU."""
    if name != "auto":
        return _usable_device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _usable_device(name: str) -> torch.device:
    """Return the torch device of this name; raise SettingError if the machine does not have it, or if it cannot store
    numbers.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        here = "cpu, cuda" if torch.cuda.is_available() else "cpu"
        raise SettingError(f"device {name!r} is not on this machine; expected auto, or one of: {here}.") from error
    return device
