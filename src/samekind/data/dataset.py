"""The dataset of one run, of which a few samples have labels, and the batches that a method trains on."""

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
    """Samples x (n, ...) and labels y (n,), where UNLABELLED means no label. Labelled samples are also used as unlabelled ones.

    x holds vectors (n, d) or float images (n, C, H, W), ready for the network. Or it holds uint8 images (n, H, W, C), for
    example a memory-mapped file. Then `scaler` turns only the requested samples into floats. It is a Scaler, or any function of
    a batch, such as those in data/augment/normalize.py.
    """

    x: Tensor
    y: Tensor
    n_classes: int
    scaler: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def inputs(self, which: Tensor | slice) -> Tensor:
        """Return these samples in the form that the network takes.

        Without a scaler, uint8 images stay uint8, as (n, C, H, W).
        """
        samples = self.x[which]
        return channels_first(samples) if self.scaler is None else self.scaler(as_floats(samples))

    def raw_images(self, which: Tensor | slice) -> Tensor:
        """Return these images as uint8 (n, C, H, W); raise DataError if the dataset has no uint8 images."""
        if not is_uint8_images(self.x):
            raise DataError(
                f"an augmentation needs uint8 images, but the dataset holds {self.x.dtype} of shape "
                f"{tuple(self.x.shape)}. Pass images as uint8 (n, H, W, C), or use an augmentation that takes floats."
            )
        return channels_first(self.x[which])

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one sample in the form that the network takes: (d,) or (C, H, W)."""
        return sample_shape(self.x)

    @property
    def labelled(self) -> Tensor:
        """Return the indices of the labelled samples."""
        return torch.nonzero(self.y != UNLABELLED).flatten()


def scaled_dataset(x: Tensor, scaler: Scaler, y: Tensor, n_classes: int) -> Dataset:
    """Return a dataset of the unscaled samples x.

    Uint8 images are scaled later, batch by batch; other samples are scaled now.
    """
    return Dataset(x, y, n_classes, scaler) if is_uint8_images(x) else Dataset(scaler(x), y, n_classes)


@dataclass(frozen=True)
class Batch:
    """Samples of one training step: a tuple of tensors for labelled samples (x_l) and for unlabelled samples (x_u).

    The tuples have one tensor for each view that the method asks for.
    """

    x_l: tuple[Tensor, ...]
    y_l: Tensor
    x_u: tuple[Tensor, ...]
    index: Tensor  # positions of the samples x_u in the dataset
    labelled: Tensor | None = None  # positions of the samples x_l among all labelled samples

    def to(self, device: torch.device) -> Batch:
        """Return the batch with all tensors moved to another device."""
        if device.type == "cpu":
            return self
        return Batch(
            x_l=tuple(x.to(device) for x in self.x_l),
            y_l=self.y_l.to(device),
            x_u=tuple(x.to(device) for x in self.x_u),
            index=self.index.to(device),
            labelled=None if self.labelled is None else self.labelled.to(device),
        )

    def labelled_positions(self) -> Tensor:
        """Return the positions of the samples x_l among all labelled samples; raise DataError if they are not known."""
        if self.labelled is None:
            raise DataError(
                "Batch.labelled is None; expected the positions of the batch's labelled samples among all labelled samples, "
                "as BatchSampler sets them"
            )
        return self.labelled

    def part(self, k: int, of: int) -> Batch:
        """Return part k of the batch, which is split into `of` equal parts.

        Sample i of the first half and sample i of the second half are always in the same part, because some methods use them as
        a pair.
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
    """Return the indices of piece k of the first half of n samples, followed by those of piece k of the second half."""
    half, size = n // 2, n // 2 // of
    piece = torch.arange(k * size, (k + 1) * size)
    return torch.cat([piece, half + piece])
