"""A map of all items: features in two dimensions, at once by principal components, later so that neighbours stay together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float32]
EPOCHS = 200
NEGATIVES = 5  # pushes for each pull
NEAR = 1e-3
REACH = 4.0  # no step is longer


def by_components(z: Floats) -> Floats:
    """(n, 2): the two directions in which the features (n, d) differ most."""
    some = np.asarray(z[:: max(1, len(z) // 20_000)], dtype=np.float64)
    mean = some.mean(axis=0)
    _, directions = np.linalg.eigh(np.cov((some - mean).T).reshape(z.shape[1], z.shape[1]))
    plane = directions[:, ::-1][:, :2]
    flat = (np.asarray(z) - mean.astype(np.float32)) @ plane.astype(np.float32)
    return np.asarray(flat if flat.shape[1] == 2 else np.concatenate([flat, np.zeros_like(flat)], axis=1), dtype=np.float32)


def by_neighbours(neighbours: Tensor, start: Floats, *, seed: int = 0, epochs: int = EPOCHS) -> Floats:
    """(n, 2): points that pull their neighbours (n, k) towards themselves and push others away.

    Closeness on the map is q = 1 / (1 + d^2). Each epoch climbs log q along every edge, and log(1 - q) for random pairs, with
    steps that shrink to nothing.
    """
    n, k = neighbours.shape
    generator = torch.Generator().manual_seed(seed)
    scale = 10.0 / max(1e-9, float(np.abs(start).max()))
    points = torch.from_numpy(start * scale).float()
    points += 1e-3 * torch.randn(n, 2, generator=generator)
    left = torch.arange(n).repeat_interleave(k)
    right = neighbours.reshape(-1)
    for epoch in range(epochs):
        rate = 1.0 - epoch / epochs
        moves = torch.zeros_like(points)
        gap = points[left] - points[right]
        pull = (-2.0 * gap / (1.0 + gap.square().sum(1, keepdim=True))).clamp(-REACH, REACH)
        moves.index_add_(0, left, pull)
        moves.index_add_(0, right, -pull)
        for _ in range(NEGATIVES):
            other = torch.randint(n, (n,), generator=generator)
            gap = points - points[other]
            d2 = gap.square().sum(1, keepdim=True)
            moves += (2.0 * gap / ((NEAR + d2) * (1.0 + d2))).clamp(-REACH, REACH)
        points += rate * moves.clamp(-REACH, REACH) / 2
    return np.asarray(points.numpy(), dtype=np.float32)


def in_a_square(points: Floats) -> Floats:
    """The same in [0, 1] x [0, 1], without letting a few far ones press all others together."""
    low, high = np.quantile(points, 0.002, axis=0), np.quantile(points, 0.998, axis=0)
    span = float(max((high - low).max(), 1e-9))
    middle = (low + high) / 2
    return np.asarray(np.clip((points - middle) / (1.04 * span) + 0.5, 0.0, 1.0), dtype="<f4")
