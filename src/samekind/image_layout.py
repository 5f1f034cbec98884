"""Order of image channels: only this module converts between channels last and channels first.

- numpy arrays of images, from users, files and caches: channels last, (n, H, W, C);
- uint8 tensors of stored images: channels last too, because they share the memory of such arrays;
- float tensors, and uint8 batches for augmentations: channels first, (n, C, H, W), as torch expects.

Images stay uint8 as long as possible. They then take a quarter of the memory, and a memory-mapped file may be larger than
memory.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]
BLOCK_VALUES = 2**20  # number of values that are converted at a time
CHANNEL_COUNTS = (1, 2, 3, 4)


# ---------------------------------------------------------------- images as numpy arrays


def to_channels_last(array: Array) -> Array:
    """Return images (n, H, W), (n, H, W, C) or (n, C, H, W) as (n, H, W, C). Vectors are returned unchanged.

    Images count as channels first only if axis 1 has 1 to 4 entries, as channels have, and axis 3 has more.
    """
    if array.ndim == 3:
        return array[..., None]
    channels_first = array.ndim == 4 and array.shape[3] not in CHANNEL_COUNTS and array.shape[1] in CHANNEL_COUNTS
    return planes_to_channels_last(array) if channels_first else array


def to_channels_first_floats(array: Array) -> Array:
    """Return float images (n, H, W, C) as float32 (n, C, H, W). Vectors and uint8 images are returned unchanged."""
    if array.ndim != 4 or array.dtype == np.uint8:
        return array
    return np.ascontiguousarray(np.moveaxis(array, 3, 1), dtype=np.float32)


def array_sample_shape(array: Array) -> tuple[int, ...]:
    """Return the shape of one sample in the form that a network takes: (d,) for vectors, (C, H, W) for images.

    Images are given as (n, H, W) or (n, H, W, C).
    """
    if array.ndim == 2:
        return array.shape[1:]
    channels = array.shape[3] if array.ndim == 4 else 1
    return (channels, *array.shape[1:3])


def channels_last_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return (H, W, C) for (C, H, W). Any other shape is returned unchanged."""
    return (*shape[1:], shape[0]) if len(shape) == 3 else shape


def planes_to_channels_last(planes: Array) -> Array:
    """Return images (n, C, H, W) as a view (n, H, W, C)."""
    return np.moveaxis(planes, 1, 3)


# ---------------------------------------------------------------- images as torch tensors


def as_tensor(array: Array) -> Tensor:
    """Return a tensor that shares the memory of an array. The array may be read-only, because nothing writes to the tensor."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def is_uint8_images(x: Tensor) -> bool:
    """Return whether x are stored images, that is, uint8 (n, H, W, C)."""
    return x.dtype == torch.uint8 and x.ndim == 4


def channels_first_view(x: Tensor) -> Tensor:
    """Return images (n, H, W) or (n, H, W, C) of any dtype as a view (n, C, H, W). Other tensors are returned unchanged."""
    if x.ndim == 3:
        return x[:, None]
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x


def channels_first(x: Tensor) -> Tensor:
    """Return stored images, uint8 (n, H, W, C), as uint8 (n, C, H, W). Other tensors are returned unchanged."""
    return channels_first_view(x).contiguous() if is_uint8_images(x) else x


def as_floats(x: Tensor) -> Tensor:
    """Return stored images, uint8 (n, H, W, C), as float32 (n, C, H, W) from 0 to 255. Other tensors are returned unchanged."""
    if not is_uint8_images(x):
        return x
    return channels_first_view(x).to(torch.float32, memory_format=torch.contiguous_format)


def sample_shape(x: Tensor) -> tuple[int, ...]:
    """Return the shape of one sample in the form that a network takes: (d,) or (C, H, W)."""
    shape = tuple(x.shape[1:])
    return (shape[2], shape[0], shape[1]) if is_uint8_images(x) else shape


def channel_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of each channel (C,) of stored images.

    They are exact, as integers are summed.
    """
    total = torch.zeros(x.shape[3], dtype=torch.int64)
    squares = torch.zeros_like(total)
    for block in torch.split(x, max(1, BLOCK_VALUES // x[0].numel())):
        pixels = block.reshape(-1, x.shape[3]).to(torch.int32)
        total += pixels.sum(0)
        squares += (pixels * pixels).sum(0)
    n = x.numel() // x.shape[3]
    mean = total.double() / n
    return mean, (squares.double() / n - mean.square()).clamp_min(0.0).sqrt()
