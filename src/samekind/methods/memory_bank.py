"""Memories of predictions and embeddings from earlier steps. They are buffers, so that checkpoints contain them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.losses.weak_strong_losses import align_to_uniform

EMPTY = -1  # class of a slot that no sample has filled yet


class DistributionAlignment(nn.Module):
    """Distribution alignment: scales predictions so that their mean over the last `length` batches is the same for all
    classes.
    """

    means: Tensor
    count: Tensor

    def __init__(self, length: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(length, n_classes))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def align(self, q: Tensor) -> Tensor:
        """Return predictions q (n, C), divided by their mean over the last batches, including this batch, and normalized."""
        means = self.means.clone()
        means[self._position] = q.mean(0)
        return align_to_uniform(q, means.sum(0) / min(int(self.count) + 1, len(means)))

    def update(self, q: Tensor) -> None:
        """Store the mean of the predictions q (n, C) of a batch in place of the oldest stored mean."""
        self.means[self._position] = q.mean(0)
        self.count += 1

    @property
    def _position(self) -> int:
        return int(self.count) % len(self.means)


class LabelledMemoryBank(nn.Module):
    """Memory with one slot for each labelled sample: its embedding of length 1, and its class.

    `points` (n, d) are the embeddings and `y` (n,) the classes.
    """

    points: Tensor
    y: Tensor

    def __init__(self, n_slots: int, size: int) -> None:
        super().__init__()
        self.register_buffer("points", torch.zeros(n_slots, size))
        self.register_buffer("y", torch.full((n_slots,), EMPTY))

    def filled(self) -> tuple[Tensor, Tensor]:
        """Return the embeddings and the classes in the filled slots."""
        filled = self.y != EMPTY
        return self.points[filled], self.y[filled]

    def update(self, slots: Tensor, points: Tensor, y: Tensor, decay: float) -> None:
        """Move the embeddings in `slots` towards new ones: old <- decay * old + (1 - decay) * new, scaled to length 1.

        An empty slot stores the new embedding itself. If a slot occurs several times, the mean of its new embeddings is used.
        """
        sums = torch.zeros_like(self.points).index_add_(0, slots, points)
        present = torch.zeros_like(self.y).index_add_(0, slots, torch.ones_like(slots)) > 0
        mean = F.normalize(sums[present], dim=-1)
        kept = torch.where(self.y[present] == EMPTY, 0.0, decay)[:, None].to(mean.dtype)
        self.points[present] = F.normalize(kept * self.points[present] + (1.0 - kept) * mean, dim=-1)
        self.y[slots] = y


class FeatureQueue(nn.Module):
    """Memory of the last `length` samples: their embeddings of length 1 (n, d), and their class probabilities (n, C)."""

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
        """Return whether `length` samples have been stored."""
        return int(self.count) >= len(self.points)

    def push(self, points: Tensor, probabilities: Tensor) -> None:
        """Store samples in place of the oldest ones; if more than `length` are given, store only the last of them."""
        length, n = len(self.points), len(points)
        at = (int(self.count) + torch.arange(n, device=points.device))[-length:] % length
        self.points[at], self.probabilities[at] = points[-length:], probabilities[-length:]
        self.count += n
