"""The choices that `auto` makes: net, views and length of training, from the data alone.

Each is a function of what was given; the reasons and the measurements behind them are in docs/defaults.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from samekind.data.pool import Pool
from samekind.data.views import Both, Noise, Shift, Tilt, Views, Walk
from samekind.errors import SettingError
from samekind.graphs.neighbours import nearest
from samekind.graphs.walks import LONGEST, trusted_levels, walk_graph, walk_maps
from samekind.nets.classifier import Classifier
from samekind.nets.mlp import vector_classifier
from samekind.nets.small_conv import image_classifier

DISTRUST = 0.0  # weight of unlabelled rows where the labels speak against the neighbourhoods they would learn from
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
        shift = Shift(max(1, min(pool.x.shape[2:]) // 14), sigma=0.05)
        view = shift if wanted == "shift" else Both(Tilt(), shift)
        return Looks({"solo": view, "weak": view})
    distances, indices = nearest(pool.x, pool.x, neighbours_for(len(pool)), exclude_self=True)
    noise = Noise(near_noise(distances, n_columns=pool.x.shape[1]))
    W = walk_graph(distances, indices)
    levels = {"noise": 0, "walk": LONGEST + 1}.get(wanted)
    levels = trusted_levels(W, pool.y.numpy()) if levels is None else levels
    if levels == 0:
        return Looks({"solo": noise, "weak": noise}, trust=1.0 if wanted == "noise" else DISTRUST)
    maps = walk_maps(W, PIECES_PER_CLASS * pool.n_classes, seed, most=levels)
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
