"""All the data of one run: every row, and the labels of a few."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

UNLABELLED = -1


@dataclass(frozen=True)
class Pool:
    """Rows x (n, ...) and y (n,), a class number or UNLABELLED. Labelled rows are part of the pool like any other."""

    x: Tensor
    y: Tensor
    n_classes: int

    def __len__(self) -> int:
        return len(self.x)

    @property
    def labelled(self) -> Tensor:
        """The numbers of the labelled rows."""
        return torch.nonzero(self.y != UNLABELLED).flatten()


@dataclass(frozen=True)
class Batch:
    """What a method sees in one step: for each declared view, the labelled and the pool rows as seen through it."""

    x_l: tuple[Tensor, ...]
    y_l: Tensor
    x_u: tuple[Tensor, ...]
    index: Tensor  # rows of the pool behind x_u

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        if device.type == "cpu":
            return self
        return Batch(
            x_l=tuple(x.to(device) for x in self.x_l),
            y_l=self.y_l.to(device),
            x_u=tuple(x.to(device) for x in self.x_u),
            index=self.index.to(device),
        )
