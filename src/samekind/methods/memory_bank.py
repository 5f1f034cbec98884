"""Memories of predictions and embeddings of earlier steps, kept as buffers, so that a checkpoint contains them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.losses.weak_strong_losses import align_to_uniform

EMPTY = -1  # class of a slot that has not been filled


class DistributionAlignment(nn.Module):
    """Mean predictions of the last `length` batches, by which predictions are aligned to equal class fractions."""

    means: Tensor
    count: Tensor

    def __init__(self, length: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(length, n_classes))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def align(self, q: Tensor) -> Tensor:
        """Return predictions q (n, C) aligned by the mean of the last batches, the current one included."""
        means = self.means.clone()
        means[self._position] = q.mean(0)
        return align_to_uniform(q, means.sum(0) / min(int(self.count) + 1, len(means)))

    def update(self, q: Tensor) -> None:
        """Store the mean of the predictions q (n, C) of one batch in place of the oldest stored mean."""
        self.means[self._position] = q.mean(0)
        self.count += 1

    @property
    def _position(self) -> int:
        return int(self.count) % len(self.means)


class LabelledMemoryBank(nn.Module):
    """One slot for each labelled sample: its embedding on the unit sphere (n, d), and its class (n,)."""

    points: Tensor
    y: Tensor

    def __init__(self, n_slots: int, size: int) -> None:
        super().__init__()
        self.register_buffer("points", torch.zeros(n_slots, size))
        self.register_buffer("y", torch.full((n_slots,), EMPTY))

    def filled(self) -> tuple[Tensor, Tensor]:
        """Return the embeddings and the classes of the filled slots."""
        filled = self.y != EMPTY
        return self.points[filled], self.y[filled]

    def update(self, slots: Tensor, points: Tensor, y: Tensor, decay: float) -> None:
        """Move slots towards new embeddings; an empty slot takes over its embedding, a repeated slot uses the mean."""
        sums = torch.zeros_like(self.points).index_add_(0, slots, points)
        present = torch.zeros_like(self.y).index_add_(0, slots, torch.ones_like(slots)) > 0
        mean = F.normalize(sums[present], dim=-1)
        kept = torch.where(self.y[present] == EMPTY, 0.0, decay)[:, None].to(mean.dtype)
        self.points[present] = F.normalize(kept * self.points[present] + (1.0 - kept) * mean, dim=-1)
        self.y[slots] = y


class FeatureQueue(nn.Module):
    """The last `length` samples: their embeddings on the unit sphere (n, d), and their class probabilities (n, C)."""

    points: Tensor
    probabilities: Tensor
    count: Tensor

    def __init__(self, length: int, size: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("points", torch.zeros(length, size))
        self.register_buffer("probabilities", torch.zeros(length, n_classes))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @property
    def full(self) -> bool:
        """Return whether every place has been filled."""
        return int(self.count) >= len(self.points)

    def push(self, points: Tensor, probabilities: Tensor) -> None:
        """Store new samples in place of the oldest; if more than `length` are given, store only the last ones."""
        length, n = len(self.points), len(points)
        at = (int(self.count) + torch.arange(n, device=points.device))[-length:] % length
        self.points[at], self.probabilities[at] = points[-length:], probabilities[-length:]
        self.count += n
