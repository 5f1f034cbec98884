"""Reduction of images to a smaller size, for a network that is trained from scratch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from samekind.image_layout import channels_first_view, planes_to_channels_last

Pixels = npt.NDArray[np.uint8]
BLOCK = 256  # number of images that are reduced at a time


class ImageBlocks(Protocol):
    """Sequence of uint8 images; a slice is an array (n, H, W, C)."""

    def __len__(self) -> int: ...
    def __getitem__(self, which: slice, /) -> Any: ...


@dataclass(frozen=True)
class ReducedImages:
    """Images that are reduced when they are read, so that the longer side has `side` pixels.

    Smaller images stay as they are.
    """

    images: ImageBlocks
    side: int

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, which: slice) -> Pixels:
        return reduce_images(self.images[which], self.side)

    def in_memory(self) -> Pixels:
        """Return all images as one array."""
        return np.concatenate([self[start : start + BLOCK] for start in range(0, len(self), BLOCK)])


def reduced_size(height: int, width: int, side: int) -> tuple[int, int]:
    """Return the height and width of an image after its longer side is reduced to `side` pixels."""
    factor = min(1.0, side / max(height, width))
    return max(1, round(height * factor)), max(1, round(width * factor))


def reduce_images(images: Any, side: int) -> Pixels:
    """Return uint8 images (n, H, W, C), reduced by an antialiased linear filter so that the longer side has `side` pixels."""
    height, width = images.shape[1:3]
    size = reduced_size(height, width, side)
    if size == (height, width):
        return np.asarray(images)
    x = channels_first_view(torch.from_numpy(np.array(images))).float()
    reduced = F.interpolate(x, size, mode="bilinear", antialias=True).round().clamp(0, 255).to(torch.uint8)
    return np.ascontiguousarray(planes_to_channels_last(reduced.numpy()))
