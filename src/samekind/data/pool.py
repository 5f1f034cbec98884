"""All the data of one run: every row, and the labels of a few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from samekind.data.images import as_floats, channels_first, holds_bytes, row_shape
from samekind.data.scaling import Scaler
from samekind.errors import DataError

UNLABELLED = -1


@dataclass(frozen=True)
class Pool:
    """Rows x (n, ...) and y (n,), a class number or UNLABELLED. Labelled rows are part of the pool like any other.

    x holds vectors (n, d) or images (n, C, H, W) as nets see them. Or it holds images as bytes (n, H, W, C), perhaps in a
    file that is mapped into memory: then only the rows that are asked for become floats, by `scaler`, a Scaler or any other
    function of a batch, as in data/normalise.py.
    """

    x: Tensor
    y: Tensor
    n_classes: int
    scaler: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, which: Tensor | slice) -> Tensor:
        """These rows as nets see them; bytes that no scaler waits for stay bytes, with their channels first."""
        some = self.x[which]
        return channels_first(some) if self.scaler is None else self.scaler(as_floats(some))

    def stored(self, which: Tensor | slice) -> Tensor:
        """These images as bytes (n, C, H, W)."""
        if not holds_bytes(self.x):
            raise DataError(
                f"a view looks at images as bytes, and the pool holds {self.x.dtype} of shape {tuple(self.x.shape)}. "
                "Give images as uint8 (n, H, W, C), or a view of floats."
            )
        return channels_first(self.x[which])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row as nets see it: (d,) or (C, H, W)."""
        return row_shape(self.x)

    @property
    def labelled(self) -> Tensor:
        """The numbers of the labelled rows."""
        return torch.nonzero(self.y != UNLABELLED).flatten()


def pool_of(rows: Tensor, scaler: Scaler, y: Tensor, n_classes: int) -> Pool:
    """The pool of rows as they were read: scaled at once, or batch by batch where they are bytes."""
    return Pool(rows, y, n_classes, scaler) if holds_bytes(rows) else Pool(scaler(rows), y, n_classes)


@dataclass(frozen=True)
class Batch:
    """What a method sees in one step: for each declared view, the labelled and the pool rows as seen through it."""

    x_l: tuple[Tensor, ...]
    y_l: Tensor
    x_u: tuple[Tensor, ...]
    index: Tensor  # rows of the pool behind x_u
    labelled: Tensor | None = None  # which of the labelled rows are behind x_l: the first of the pool is 0, the next is 1

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        if device.type == "cpu":
            return self
        return Batch(
            x_l=tuple(x.to(device) for x in self.x_l),
            y_l=self.y_l.to(device),
            x_u=tuple(x.to(device) for x in self.x_u),
            index=self.index.to(device),
            labelled=None if self.labelled is None else self.labelled.to(device),
        )

    def part(self, k: int, of: int) -> Batch:
        """Part k of `of` equal ones. Row i of a half and row i of the other are a pair for some methods, and stay together."""
        if of == 1:
            return self
        labelled, pool = _part(len(self.y_l), k, of), _part(len(self.index), k, of)
        return Batch(
            x_l=tuple(x[labelled] for x in self.x_l),
            y_l=self.y_l[labelled],
            x_u=tuple(x[pool] for x in self.x_u),
            index=self.index[pool],
            labelled=None if self.labelled is None else self.labelled[labelled],
        )


def _part(n: int, k: int, of: int) -> Tensor:
    """The k-th piece of the first half, and the same piece of the second."""
    half, size = n // 2, n // 2 // of
    piece = torch.arange(k * size, (k + 1) * size)
    return torch.cat([piece, half + piece])
