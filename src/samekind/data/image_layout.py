"""Images as bytes (n, H, W, C), as files and cameras have them, and a few at a time as nets want them: floats (n, C, H, W).

A byte is a quarter of a float, and a file of bytes can be mapped instead of read; so a pool of bytes may be larger than memory.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

VALUES = 2**20  # bytes looked at together


def is_uint8_images(x: Tensor) -> bool:
    """Whether x are images that stay bytes until they are needed."""
    return x.dtype == torch.uint8 and x.ndim == 4


def as_tensor(rows: npt.NDArray[Any]) -> Tensor:
    """The same memory as a tensor, a read-only map of a file too: nobody writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(rows)


def channels_first(x: Tensor) -> Tensor:
    """Images of bytes as bytes (n, C, H, W); anything else as it is."""
    return x.permute(0, 3, 1, 2).contiguous() if is_uint8_images(x) else x


def as_floats(x: Tensor) -> Tensor:
    """Images of bytes as floats (n, C, H, W); anything else as it is."""
    if not is_uint8_images(x):
        return x
    return x.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)


def sample_shape(x: Tensor) -> tuple[int, ...]:
    """The shape of one row as nets see it."""
    shape = tuple(x.shape[1:])
    return (shape[2], shape[0], shape[1]) if is_uint8_images(x) else shape


def channel_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (C,) of images of bytes, from sums of whole numbers in blocks: exact, and little memory."""
    total = torch.zeros(x.shape[3], dtype=torch.int64)
    squares = torch.zeros_like(total)
    for block in torch.split(x, max(1, VALUES // x[0].numel())):
        pixels = block.reshape(-1, x.shape[3]).to(torch.int32)
        total += pixels.sum(0)
        squares += (pixels * pixels).sum(0)
    n = x.numel() // x.shape[3]
    mean = total.double() / n
    return mean, (squares.double() / n - mean.square()).clamp_min(0.0).sqrt()
