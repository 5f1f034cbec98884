"""What a method remembers of earlier steps. All of it is in buffers, so that a checkpoint holds it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.losses.weak_strong_losses import aligned

EMPTY = -1  # class of a slot that has not been filled


class DistributionAlignment(nn.Module):
    """The mean answers of the last `length` batches: what the pool's answers are held to be evenly spread against."""

    means: Tensor
    count: Tensor

    def __init__(self, length: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(length, n_classes))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def aligned(self, q: Tensor) -> Tensor:
        """q (n, C) by the mean of the last batches, this one among them."""
        means = self.means.clone()
        means[self._at] = q.mean(0)
        return aligned(q, means.sum(0) / min(int(self.count) + 1, len(means)))

    def keep(self, q: Tensor) -> None:
        """The answers q (n, C) of one batch, in place of the oldest."""
        self.means[self._at] = q.mean(0)
        self.count += 1

    @property
    def _at(self) -> int:
        return int(self.count) % len(self.means)


class LabelledMemoryBank(nn.Module):
    """One slot for each labelled row: where it lies on the sphere (n, d), and its class (n,)."""

    points: Tensor
    y: Tensor

    def __init__(self, n_slots: int, size: int) -> None:
        super().__init__()
        self.register_buffer("points", torch.zeros(n_slots, size))
        self.register_buffer("y", torch.full((n_slots,), EMPTY))

    def filled(self) -> tuple[Tensor, Tensor]:
        """Points and classes of the slots that hold something."""
        there = self.y != EMPTY
        return self.points[there], self.y[there]

    def keep(self, slots: Tensor, points: Tensor, y: Tensor, alpha: float) -> None:
        """Each slot keeps alpha of its point; an empty one keeps nothing, and a row that came twice comes as its mean."""
        sums = torch.zeros_like(self.points).index_add_(0, slots, points)
        came = torch.zeros_like(self.y).index_add_(0, slots, torch.ones_like(slots)) > 0
        mean = F.normalize(sums[came], dim=-1)
        share = torch.where(self.y[came] == EMPTY, 0.0, alpha)[:, None].to(mean.dtype)
        self.points[came] = F.normalize(share * self.points[came] + (1.0 - share) * mean, dim=-1)
        self.y[slots] = y


class FeatureQueue(nn.Module):
    """The last `length` rows: where they lie on the sphere (n, d), and the answers to them (n, C)."""

    points: Tensor
    answers: Tensor
    count: Tensor

    def __init__(self, length: int, size: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("points", torch.zeros(length, size))
        self.register_buffer("answers", torch.zeros(length, n_classes))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @property
    def full(self) -> bool:
        return int(self.count) >= len(self.points)

    def keep(self, points: Tensor, answers: Tensor) -> None:
        """New rows in place of the oldest; of more than there is room for, the last."""
        length, n = len(self.points), len(points)
        at = (int(self.count) + torch.arange(n, device=points.device))[-length:] % length
        self.points[at], self.answers[at] = points[-length:], answers[-length:]
        self.count += n
