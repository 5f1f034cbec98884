"""Positions of the items on the map: first by principal components, and later by a nearest-neighbour layout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float32]
EPOCHS = 200
NEGATIVES = 5  # number of random points that repel each point in an epoch
EPSILON = 1e-3  # limits the repulsion between points at the same position
MAX_STEP = 4.0


def principal_components(z: Floats) -> Floats:
    """Return the first two principal components (n, 2) of features (n, d)."""
    some = np.asarray(z[:: max(1, len(z) // 20_000)], dtype=np.float64)
    mean = some.mean(axis=0)
    _, directions = np.linalg.eigh(np.cov((some - mean).T).reshape(z.shape[1], z.shape[1]))
    plane = directions[:, ::-1][:, :2]
    flat = (np.asarray(z) - mean.astype(np.float32)) @ plane.astype(np.float32)
    return np.asarray(flat if flat.shape[1] == 2 else np.concatenate([flat, np.zeros_like(flat)], axis=1), dtype=np.float32)


def neighbor_layout(neighbors: Tensor, start: Floats, *, seed: int = 0, epochs: int = EPOCHS) -> Floats:
    """Return positions (n, 2) in which neighbours attract each other and random pairs repel each other.

    `neighbors` (n, k) are the indices of each item's neighbours. The similarity of two points at distance d is q = 1 / (1 +
    d^2). Each epoch takes a gradient step on ln q for all neighbours and on ln(1 - q) for random pairs. The step size falls
    linearly to 0.
    """
    n, k = neighbors.shape
    generator = torch.Generator().manual_seed(seed)
    scale = 10.0 / max(1e-9, float(np.abs(start).max()))
    points = torch.from_numpy(start * scale).float()
    points += 1e-3 * torch.randn(n, 2, generator=generator)
    left = torch.arange(n).repeat_interleave(k)
    right = neighbors.reshape(-1)
    for epoch in range(epochs):
        rate = 1.0 - epoch / epochs
        moves = torch.zeros_like(points)
        gap = points[left] - points[right]
        pull = (-2.0 * gap / (1.0 + gap.square().sum(1, keepdim=True))).clamp(-MAX_STEP, MAX_STEP)
        moves.index_add_(0, left, pull)
        moves.index_add_(0, right, -pull)
        for _ in range(NEGATIVES):
            other = torch.randint(n, (n,), generator=generator)
            gap = points - points[other]
            d2 = gap.square().sum(1, keepdim=True)
            moves += (2.0 * gap / ((EPSILON + d2) * (1.0 + d2))).clamp(-MAX_STEP, MAX_STEP)
        points += rate * moves.clamp(-MAX_STEP, MAX_STEP) / 2
    return np.asarray(points.numpy(), dtype=np.float32)


def fit_into_square(points: Floats) -> Floats:
    """Return the points scaled into [0, 1] x [0, 1].

    The few outermost points are moved to the border, so that the others are not too close.
    """
    low, high = np.quantile(points, 0.002, axis=0), np.quantile(points, 0.998, axis=0)
    span = float(max((high - low).max(), 1e-9))
    middle = (low + high) / 2
    return np.asarray(np.clip((points - middle) / (1.04 * span) + 0.5, 0.0, 1.0), dtype="<f4")
