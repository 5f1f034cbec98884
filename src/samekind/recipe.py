"""The choices that `auto` makes: net, views and length of training, from the data alone.

Each is a function of what was given; the reasons and the measurements behind them are in docs/defaults.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from samekind.data.pool import Pool
from samekind.data.scaling import Scaler, common_scale, reduced, scaler_for
from samekind.data.views import Both, Noise, Shift, Tilt, Views, Walk
from samekind.errors import SettingError
from samekind.graphs.neighbours import nearest
from samekind.graphs.walks import LONGEST, mistaken_labels, tell_more_than_labels, trusted_levels, walk_graph, walk_maps
from samekind.nets.classifier import Classifier
from samekind.nets.mlp import vector_classifier
from samekind.nets.small_conv import image_classifier

DISTRUST = 0.0  # weight of unlabelled rows where the labels speak against the neighbourhoods they would learn from
WIDE = 80  # columns from which on a pool may be reduced to the directions that stand out of noise
FAR_WIDER = 10.0  # times the middle column: columns of such different width are in units of their own
CLEARLY = 0.03  # share of labelled rows by which another scale must agree better before it is taken
SAMPLE = 3000  # rows on which scales are compared
PIECES_PER_CLASS = 3.0  # a walk may go on while the pool falls into this many pieces for each class


@dataclass(frozen=True)
class BatchSizes:
    labelled: int
    unlabelled: int


def net_for(shape: tuple[int, ...], n_classes: int) -> Classifier:
    """Vectors: two hidden layers of 100. Images: the small convolutional net."""
    if len(shape) == 1:
        return vector_classifier(shape[0], n_classes, (100, 100))
    return image_classifier((shape[0], shape[1], shape[2]), n_classes)


def scaler_for_pool(x: Tensor, y: Tensor, *, keep_columns: bool = False) -> Scaler:
    """Each column of vectors to deviation 1; or, where the labels agree better with it, all by one scale or reduced.

    One scale is thought of where no column is far wider than the others, directions that stand out of noise where there
    are many columns and a net does not insist on them. Images: each channel to deviation 1.
    """
    plain = scaler_for(x)
    if x.ndim > 2:
        return plain
    rows = _sample(y)
    candidates = [plain, *[common_scale(plain)] * _comparable(plain.scale)]
    if x.shape[1] >= WIDE and not keep_columns:
        candidates += [reduced(candidate, x[rows]) for candidate in candidates]
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
    return mistaken_labels(walk_graph(*nearest(x, x, neighbours_for(len(x)), exclude_self=True)), y.numpy())


@dataclass(frozen=True)
class Looks:
    """The views of a pool, and how far what they say of unlabelled rows is to be trusted."""

    views: Views
    trust: float = 1.0


def looks_for(pool: Pool, seed: int, wanted: str = "auto") -> Looks:
    """Images are tilted and shifted. Vectors walk along the pool, as far as it and the labels allow, and get noise."""
    known = ("auto", "shift") if pool.x.ndim > 2 else ("auto", "noise", "walk")
    if wanted not in known:
        raise SettingError(f"views is {wanted!r}; expected one of {', '.join(known)} for such data, or views of your own")
    if pool.x.ndim > 2:
        # moved by up to a fourteenth of the side: 1 pixel of 8, 2 of 28 or 32
        shift = Shift(max(1, min(pool.shape[1:]) // 14), sigma=0.05)
        view = shift if wanted == "shift" else Both(Tilt(), shift)
        return Looks({"solo": view, "weak": view})
    distances, indices = nearest(pool.x, pool.x, neighbours_for(len(pool)), exclude_self=True)
    noise = Noise(near_noise(distances, n_columns=pool.x.shape[1]))
    W = walk_graph(distances, indices)
    if wanted == "noise":
        return Looks({"solo": noise, "weak": noise})
    said = trusted_levels(W, pool.y.numpy())
    doubted = said.heard and said.confirmed == 0
    free = wanted == "walk" or doubted or not said.heard or said.confirmed == said.asked
    most = LONGEST + 1 if free else said.confirmed
    maps = walk_maps(W, PIECES_PER_CLASS * pool.n_classes, seed, least=said.confirmed, most=most)
    if wanted == "auto" and doubted and not tell_more_than_labels(W, pool.x.double().numpy(), pool.y.numpy(), len(maps)):
        return Looks({"solo": noise, "weak": noise}, trust=DISTRUST)
    return Looks({"solo": noise, "weak": Both(Walk(pool.x, maps), noise)})


def neighbours_for(n: int) -> int:
    """k of the walk's graph: 10 up to 1000 rows, 20 at 6000, 50 at most, and never more than a tenth of a small pool."""
    wanted = 10 if n <= 1000 else round(10 * math.sqrt(n / 1000) * 0.8)
    return max(1, min(wanted, 50, max(3, n // 10), n - 1))


def near_noise(distances: Tensor, n_columns: int) -> float:
    """Noise as long as half the way to the k-th neighbour, spread over all columns."""
    return 0.5 * float(distances[:, -1].median()) / math.sqrt(n_columns)


def batch_sizes(n: int, *, paper: bool = False) -> BatchSizes:
    """2 x 10 labelled rows as in the paper; 100 of the pool there, here 64, whose 32 x 32 pairs a small machine likes."""
    return BatchSizes(labelled=20, unlabelled=min(100 if paper else 64, n))


def steps_for(n: int, shape: tuple[int, ...]) -> int:
    """Length of training: 1000 rows take 1000 steps, and four times the rows twice the steps."""
    return round(max(400.0, min(4000.0, 1000.0 * math.sqrt(n / 1000))))


def device_for(wanted: str) -> torch.device:
    if wanted != "auto":
        return torch.device(wanted)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
