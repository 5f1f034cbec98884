"""The choices that `auto` makes: net, views and length of training, from the data alone.

Each is a function of what was given; the reasons and the measurements behind them are in docs/defaults.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from samekind.data.augment.normalize import NormalizePerChannel
from samekind.data.augment.randaugment import PAPER
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
from samekind.data.image_layout import is_uint8_images
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
from samekind.nets.classifier import Classifier
from samekind.nets.compact import N_IMAGES as WHITENED
from samekind.nets.compact import compact_classifier, init_whitening
from samekind.nets.conv13 import Conv13, conv13_classifier
from samekind.nets.mlp import vector_classifier
from samekind.nets.small_conv import image_classifier
from samekind.nets.wide_resnet import WideResNet, wide_resnet_classifier
from samekind.parameters import require_parameter
from samekind.training.schedules import OptimizerConfig, Schedule

DISTRUST = 0.0  # weight of unlabelled rows where the labels speak against the neighbourhoods they would learn from
WIDE = 80  # columns from which on a pool may be reduced to the directions that stand out of noise
FAR_WIDER = 10.0  # times the middle column: columns of such different width are in units of their own
CLEARLY = 0.03  # share of labelled rows by which another scale must agree better before it is taken
SAMPLE = 3000  # rows on which scales are compared
MANY_LABELS = 4000  # of photos: that many have something to teach alone for LABELS_FIRST of a run
LABELS_FIRST = 0.4
RATES = {"adam": 0.003, "sgd": 0.2}
WEIGHT_DECAY = 5e-4  # of SGD
RISE = 0.1  # share of the run in which its rate rises
PHOTO_SIDE = 24  # pixels from which on an image in colour is taken for a photo
PIECES_PER_CLASS = 3.0  # a walk may go on while the pool falls into this many pieces for each class


@dataclass(frozen=True)
class BatchSizes:
    labelled: int
    unlabelled: int


Shape = tuple[int, int, int]  # channels, height, width
IMAGE_NETS: dict[str, Callable[[Shape, int], Classifier]] = {
    "small_conv": image_classifier,
    "compact": compact_classifier,
    "compact_quick": lambda shape, n_classes: compact_classifier(shape, n_classes, quick=True),
    "conv13": lambda shape, n_classes: conv13_classifier(n_classes, Conv13(shape[0])),
    "wide_resnet": lambda shape, n_classes: wide_resnet_classifier(n_classes, WideResNet(shape[0])),
}


def net_for(shape: tuple[int, ...], n_classes: int, wanted: str = "auto") -> Classifier:
    """Vectors: two hidden layers of 100. Images: the compact net for photos, the small convolutional net for the rest."""
    if len(shape) == 1:
        if wanted != "auto":
            raise SettingError(f"net is {wanted!r}, and the rows are vectors; expected 'auto' or a torch.nn.Module")
        return vector_classifier(shape[0], n_classes, (100, 100))
    chosen = ("compact" if is_photo(shape) else "small_conv") if wanted == "auto" else wanted
    if chosen not in IMAGE_NETS:
        raise SettingError(f"no net is called {chosen!r}; {did_you_mean(chosen, IMAGE_NETS)}, or pass a torch.nn.Module")
    return IMAGE_NETS[chosen]((shape[0], shape[1], shape[2]), n_classes)


def initialize_whitening(net: Classifier, pool: Dataset) -> None:
    """Gives a whitening stem, if the net has one, the patches of this pool."""
    some = torch.linspace(0, len(pool) - 1, min(len(pool), WHITENED)).long()
    init_whitening(net, pool.inputs(some))


def is_photo(shape: tuple[int, ...]) -> bool:
    """In colour and large enough to show a scene; drawings, digits and spectrograms are grey."""
    return len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= PHOTO_SIDE


def kind_of(shape: tuple[int, ...]) -> Literal["vectors", "images", "photos"]:
    """What rows of this shape are taken for."""
    return "vectors" if len(shape) == 1 else "photos" if is_photo(shape) else "images"


def classes_are_characters(classes: Iterable[object]) -> bool:
    """Whether classes are named by single digits or letters, as where things are characters, which have no mirror image."""
    return all(isinstance(name, str) and len(name) == 1 and name.isalnum() for name in classes)


def choose_scaler(x: Tensor, y: Tensor, *, keep_columns: bool = False) -> Scaler:
    """Each column of vectors to deviation 1; or, where the labels agree better with it, all by one scale or reduced.

    One scale is thought of where no column is far wider than the others, directions that stand out of noise where there
    are many columns and a net does not insist on them. Images: each channel to deviation 1.
    """
    plain = fit_scaler(x)
    if x.ndim > 2:
        return plain
    rows = _sample(y)
    candidates = [plain, *[with_common_scale(plain)] * _comparable(plain.scale)]
    if x.shape[1] >= WIDE and not keep_columns:
        candidates += [with_pca_basis(candidate, x[rows]) for candidate in candidates]
    if len(candidates) == 1:
        return plain
    mistakes = [_mistakes(candidate(x[rows]), y[rows]) for candidate in candidates]
    best = min(range(len(candidates)), key=mistakes.__getitem__)
    return candidates[best] if mistakes[best] < mistakes[0] - CLEARLY else plain


def _comparable(scale: Tensor) -> bool:
    """Whether columns may well be in one unit: not all alike in width, and none far wider than the middle one."""
    return bool(scale.max() > 1.5 * scale.min()) and bool(scale.max() <= FAR_WIDER * scale.median())


def _sample(y: Tensor) -> Tensor:
    """The labelled rows and some others, SAMPLE in all; always the same."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    return order[torch.argsort(y[order] < 0, stable=True)][: max(SAMPLE, int((y >= 0).sum()))]


def _mistakes(x: Tensor, y: Tensor) -> float:
    return walk_error_rate(random_walk_graph(*nearest_neighbors(x, x, neighbours_for(len(x)), exclude_self=True)), y.numpy())


@dataclass(frozen=True)
class ViewDefaults:
    """The views of a pool, and how far what they say of unlabelled rows is to be trusted."""

    views: Views
    unlabelled_weight: float = 1.0
    mirrored: bool = False  # an image and its mirror image are one to the net: it may be asked about both


def view_defaults(pool: Dataset, seed: int, wanted: str = "auto", *, mirror: bool = True) -> ViewDefaults:
    """Images are shifted, photos mirrored (if they may be), others tilted. Vectors walk along the pool, as far as it and the
    labels allow, and get noise."""
    known = ("auto", "photo", "shift", "tilt") if pool.x.ndim > 2 else ("auto", "noise", "walk")
    if wanted not in known:
        raise SettingError(f"views is {wanted!r}; expected one of {', '.join(known)} for such data, or views of your own")
    if pool.x.ndim > 2:
        chosen = ("photo" if is_photo(pool.shape) else "tilt") if wanted == "auto" else wanted
        return ViewDefaults(_image_views(pool, chosen, mirror=mirror), mirrored=mirror and chosen == "photo")
    distances, indices = nearest_neighbors(pool.x, pool.x, neighbours_for(len(pool)), exclude_self=True)
    noise = GaussianNoise(noise_scale(distances, n_columns=pool.x.shape[1]))
    W = random_walk_graph(distances, indices)
    more = GaussianNoise(2.0 * noise.sigma)
    if wanted == "noise":
        return ViewDefaults({"labelled_only": noise, "weak": noise, "strong": more})
    said = label_consistent_levels(W, pool.y.numpy())
    doubted = said.enough_evidence and said.confirmed == 0
    free = wanted == "walk" or doubted or not said.enough_evidence or said.confirmed == said.tested
    most = MAX_LEVEL + 1 if free else said.confirmed
    maps = random_walk_maps(W, PIECES_PER_CLASS * pool.n_classes, seed, min_levels=said.confirmed, max_levels=most)
    if wanted == "auto" and doubted and not walks_beat_linear_baseline(W, pool.x.double().numpy(), pool.y.numpy(), len(maps)):
        return ViewDefaults({"labelled_only": noise, "weak": noise, "strong": more}, unlabelled_weight=DISTRUST)
    walk = RandomWalk(pool.x, maps)
    return ViewDefaults({"labelled_only": noise, "weak": Compose(walk, noise), "strong": Compose(walk, more)})


def _image_views(pool: Dataset, kind: str, *, mirror: bool) -> Views:
    # moved by up to a fourteenth of the side: 1 pixel of 8, 2 of 28 or 32
    pixels = max(1, min(pool.shape[1:]) // 14)
    if kind == "photo":
        moved = RandomShift(pixels, flip=mirror)
        weak = _of_bytes(pool, moved) if is_uint8_images(pool.x) else moved
    else:
        moved = RandomShift(pixels)
        noisy = RandomShift(pixels, sigma=0.05)
        weak = noisy if kind == "shift" else Compose(RandomAffine(), noisy)
    return {"labelled_only": weak, "weak": weak, "strong": _of_bytes(pool, Compose(PAPER, moved))}


def _of_bytes(pool: Dataset, view: Transform) -> Transform:
    """A view of bytes as one of this pool, whatever it holds."""
    if isinstance(pool.scaler, Scaler):
        return NormalizeAfter(view, NormalizePerChannel(pool.scaler))
    over_rows = (0, *range(2, pool.x.ndim))
    low, high = (extreme(pool.x, dim=over_rows)[:, None, None] for extreme in (torch.amin, torch.amax))
    return Uint8Adapter(view, low, high)


def neighbours_for(n: int) -> int:
    """k of the walk's graph: 10 up to 1000 rows, 20 at 6000, 50 at most, and never more than a tenth of a small pool."""
    wanted = 10 if n <= 1000 else round(10 * math.sqrt(n / 1000) * 0.8)
    return max(1, min(wanted, 50, max(3, n // 10), n - 1))


def noise_scale(distances: Tensor, n_columns: int) -> float:
    """Noise as long as half the way to the k-th neighbour, spread over all columns."""
    return 0.5 * float(distances[:, -1].median()) / math.sqrt(n_columns)


def default_batch_sizes(n: int, *, photos: bool = False, paper: bool = False) -> BatchSizes:
    """2 x 10 labelled rows as in the paper; 100 of the pool there, here 64, whose 32 x 32 pairs a small machine likes.

    Photos take as many labelled rows as pool rows: their labels are what a short run learns from. And few of both: more steps
    are worth more than larger ones.
    """
    if photos and not paper:
        return BatchSizes(labelled=32, unlabelled=min(32, n))
    return BatchSizes(labelled=20, unlabelled=min(100 if paper else 64, n))


def supervised_warmup_for(n_labelled: int, *, photos: bool = False, paper: bool = False) -> float:
    """Share of the run spent on the labels alone, before the pool is heard: half of it for a quarter of the labels."""
    if not photos or paper:
        return 0.0
    return LABELS_FIRST * min(1.0, math.sqrt(n_labelled / MANY_LABELS))


def optimizer_for(wanted: str, *, photos: bool = False, paper: bool = False) -> Literal["adam", "sgd"]:
    """Photos are learnt by SGD, all else by Adam, as in the paper."""
    require_parameter("optimizer", wanted)
    if wanted == "auto":
        return "sgd" if photos and not paper else "adam"
    return "adam" if wanted == "adam" else "sgd"


def optimizer_and_schedule(
    optimizer: Literal["adam", "sgd"], learning_rate: float | Literal["auto"] = "auto"
) -> tuple[OptimizerConfig, Schedule]:
    """Adam with the paper's ramps; SGD with weight decay, and a rate that falls along a line over the whole run."""
    require_parameter("learning_rate", learning_rate)
    rate = RATES[optimizer] if learning_rate == "auto" else float(learning_rate)
    if optimizer == "adam":
        return OptimizerConfig(), Schedule(lr_max=rate)
    return OptimizerConfig("sgd", weight_decay=WEIGHT_DECAY), Schedule(lr_max=rate, rampup=RISE, rampdown=1.0, fall="linear")


def steps_for(n: int, shape: tuple[int, ...]) -> int:
    """Length of training: 1000 rows take 1000 steps, and four times the rows twice the steps."""
    return round(max(400.0, min(4000.0, 1000.0 * math.sqrt(n / 1000))))


def device_for(wanted: str) -> torch.device:
    if wanted != "auto":
        return torch.device(wanted)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
