"""The dataset of one run, with labels for a few samples, and the batches that a method trains on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from samekind.data.scaling import Scaler
from samekind.errors import DataError
from samekind.image_layout import as_floats, channels_first, is_uint8_images, sample_shape

UNLABELLED = -1


@dataclass(frozen=True)
class Dataset:
    """Samples x (n, ...) and labels y (n,): a class number or UNLABELLED. The labelled samples are part of the unlabelled set.

    x holds vectors (n, d) or float images (n, C, H, W), ready for the net. Or it holds uint8 images (n, H, W, C), perhaps a
    memory-mapped file: then `scaler` turns only the requested samples into floats. It is a Scaler or any function of a batch,
    such as those of data/augment/normalize.py.
    """

    x: Tensor
    y: Tensor
    n_classes: int
    scaler: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def inputs(self, which: Tensor | slice) -> Tensor:
        """Return these samples as the net takes them; without a scaler, uint8 images stay uint8, channels first."""
        samples = self.x[which]
        return channels_first(samples) if self.scaler is None else self.scaler(as_floats(samples))

    def raw_images(self, which: Tensor | slice) -> Tensor:
        """Return these images as uint8 (n, C, H, W)."""
        if not is_uint8_images(self.x):
            raise DataError(
                f"an augmentation takes uint8 images, and the dataset holds {self.x.dtype} of shape {tuple(self.x.shape)}. "
                "Give images as uint8 (n, H, W, C), or an augmentation of floats."
            )
        return channels_first(self.x[which])

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one sample as the net takes it: (d,) or (C, H, W)."""
        return sample_shape(self.x)

    @property
    def labelled(self) -> Tensor:
        """Return the indices of the labelled samples."""
        return torch.nonzero(self.y != UNLABELLED).flatten()


def scaled_dataset(x: Tensor, scaler: Scaler, y: Tensor, n_classes: int) -> Dataset:
    """Return the dataset of raw inputs x: uint8 images are scaled batch by batch later, other inputs now."""
    return Dataset(x, y, n_classes, scaler) if is_uint8_images(x) else Dataset(scaler(x), y, n_classes)


@dataclass(frozen=True)
class Batch:
    """Input of one training step: one tensor for each view that the method declared, labelled (x_l) and unlabelled (x_u)."""

    x_l: tuple[Tensor, ...]
    y_l: Tensor
    x_u: tuple[Tensor, ...]
    index: Tensor  # positions of x_u in the dataset
    labelled: Tensor | None = None  # positions of x_l among the labelled samples

    def to(self, device: torch.device) -> Batch:
        """Return the batch on another device."""
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
        """Return part k of the batch, split into `of` equal parts.

        Sample i of the first half and sample i of the second half are in the same part, because some methods pair them.
        """
        if of == 1:
            return self
        labelled, unlabelled = _part_index(len(self.y_l), k, of), _part_index(len(self.index), k, of)
        return Batch(
            x_l=tuple(x[labelled] for x in self.x_l),
            y_l=self.y_l[labelled],
            x_u=tuple(x[unlabelled] for x in self.x_u),
            index=self.index[unlabelled],
            labelled=None if self.labelled is None else self.labelled[labelled],
        )


def _part_index(n: int, k: int, of: int) -> Tensor:
    """Return the indices of the k-th piece of the first half, then of the same piece of the second half."""
    half, size = n // 2, n // 2 // of
    piece = torch.arange(k * size, (k + 1) * size)
    return torch.cat([piece, half + piece])
