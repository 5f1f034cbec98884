"""Features of data of which nothing is known yet: made without training, and good enough to see what differs and what is alike.

Images: responses of whitening filters (nets/compact.py) of both signs, rectified and averaged over a grid, so that they say
which edges and colours are where; their square roots, reduced to the directions in which these differ most. Vectors:
standardised columns. Every row of the answer has length 1, so that an inner product is a cosine. Of 3,000 images of CIFAR-10,
34 % of the ten most alike are of the same class, and 25 % by pixels; of handwritten digits 96 % either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from samekind.data.image_layout import as_floats, as_tensor, to_channels_first_floats
from samekind.data.inputs import read_images
from samekind.data.scaling import Scaler, fit_scaler
from samekind.nets.compact import MAX_COMPONENTS, stride_for, whitening_filters
from samekind.progress import Progress

Anything = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Look = Callable[[Tensor], Tensor]  # rows as nets see them -> what is seen of them (n, d)

GRID = 3  # cells a side over which responses are averaged
KEPT = 64  # directions that are kept,
ROWS = 8  # at most one for so many images: of fewer, most directions would be noise
WIDEST = 128  # columns of vectors that are all kept
SAMPLE = 2048  # rows that scales, filters and directions are made from
VALUES = 1 << 21  # looked at together
TOGETHER = 256  # images whose responses are in memory
SMALLEST = 4  # pixels a side: smaller images are taken as vectors
EVEN = 0.5  # 0: directions count as they vary, 1: all alike


@torch.no_grad()
def compute_baseline_features(x: Anything, progress: Progress | None = None) -> Floats:
    """Features (n, d) of vectors (n, d) or images (n, H, W) or (n, H, W, C). The same for the same x, and made in blocks."""
    sample = torch.cat([_rows(some) for _, some in _blocks(x[_everywhere(len(x))])])
    look = _sight_of_images(sample) if sample.ndim == 4 and min(sample.shape[2:]) >= SMALLEST else _sight_of_vectors(sample)
    found = np.empty((len(x), look(sample[:1]).shape[1]), dtype=np.float32)
    for start, some in _blocks(x):
        found[start : start + len(some)] = F.normalize(look(_rows(some)), eps=1e-9).numpy()
        if progress is not None:
            progress("looking at all items", start + len(some), len(x))
    return found


def _everywhere(n: int) -> npt.NDArray[np.int64]:
    """Rows from all over the data, which may be sorted by class."""
    return np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.int64)


def _blocks(x: Anything) -> Iterator[tuple[int, Anything]]:
    size = max(1, VALUES // max(1, int(np.prod(x.shape[1:]))))
    return ((start, x[start : start + size]) for start in range(0, len(x), size))


def _rows(some: Anything) -> Tensor:
    return as_floats(as_tensor(to_channels_first_floats(read_images(some)))).float()


# ---------------------------------------------------------------- images


def _sight_of_images(sample: Tensor) -> Look:
    scaler = fit_scaler(sample)
    scaled = scaler(sample)
    if not scaled.any():  # all images are one flat colour
        return lambda x: torch.zeros(len(x), 1)
    stride = stride_for(min(sample.shape[2:]))
    n_filters = min(sample.shape[1] * (2 * stride) ** 2, MAX_COMPONENTS)
    respond = partial(_responses, scaler, whitening_filters(scaled, 2 * stride, n_filters).float(), stride)
    most = max(2, min(KEPT, len(sample) // ROWS))
    reduce = _reduction(torch.cat([respond(some) for some in torch.split(sample, TOGETHER)]), most, EVEN)
    return lambda x: reduce(torch.cat([respond(some) for some in torch.split(x, TOGETHER)]))


def _responses(scaler: Scaler, filters: Tensor, stride: int, x: Tensor) -> Tensor:
    """How much of each filter and of its negative is in each cell of a grid (n, 2 * filters * cells)."""
    maps = F.conv2d(scaler(x), filters, stride=stride)
    halves = [F.adaptive_avg_pool2d(F.relu(sign * maps), GRID).flatten(1) for sign in (1.0, -1.0)]
    return torch.cat(halves, 1).sqrt()


# ---------------------------------------------------------------- vectors


def _sight_of_vectors(sample: Tensor) -> Look:
    """Standardised columns and one that is constant: without it, rows on a ray from the mean would all be alike."""
    scaler = fit_scaler(sample.flatten(1))
    d = sample[0].numel()
    reduce = _reduction(scaler(sample.flatten(1)), WIDEST, 0.0) if d > WIDEST else None

    def look(x: Tensor) -> Tensor:
        scaled = scaler(x.flatten(1))
        kept = scaled if reduce is None else reduce(scaled)
        return torch.cat([kept, torch.full((len(x), 1), d**0.5)], 1)

    return look


def _reduction(sample: Tensor, most: int, even: float) -> Look:
    """Centred rows in the directions in which the sample (n, d) varies most, brought towards equal variances."""
    mean = sample.mean(0)
    directions, variances = _directions((sample - mean).double(), most)
    scaled = (directions / variances.clamp_min(1e-12 * variances[0] + 1e-30) ** (even / 2)).float()
    return lambda x: (x - mean) @ scaled


def _directions(rows: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """(d, k) and (k,), k <= most: by columns or by rows, whichever are fewer."""
    n, d = rows.shape
    if d <= n:
        variances, directions = torch.linalg.eigh(rows.T @ rows / n)
    else:
        variances, left = torch.linalg.eigh(rows @ rows.T / n)
        directions = F.normalize(rows.T @ left, dim=0)
    order = torch.arange(len(variances) - 1, max(-1, len(variances) - 1 - most), -1)
    return directions[:, order], variances[order].clamp_min(0.0)
