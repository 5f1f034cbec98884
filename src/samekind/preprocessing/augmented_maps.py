"""Augmented maps: feature maps of the frozen part of an encoder, for the images themselves and for strong views of them.

The strong views are drawn once and stored, so that a training step runs only the trained part of the encoder. View k of an
image is the same in every run with the same seed, whichever images are requested together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from samekind.data.augment.randaugment import FIXMATCH, PAPER
from samekind.data.augment.transforms import Compose, RandomShift, Transform
from samekind.image_layout import as_tensor, channels_first, planes_to_channels_last
from samekind.nets.encoders.frozen_features import FeatureCache, OnSamples, SliceableImages, extract_features
from samekind.nets.encoders.trainable_blocks import FrozenBlocks

Array = npt.NDArray[Any]
CHUNK = 32  # number of images that are augmented at a time, with random numbers of their own
LARGEST_SHIFT = 14  # views are shifted by up to this part of the side


@dataclass(frozen=True)
class AugmentedImages:
    """Sequence of augmented images (n, H, W, C), uint8, that are computed when they are read."""

    images: SliceableImages
    transform: Transform
    seed: int

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, which: slice) -> Array:
        start, stop, _ = which.indices(len(self))
        first = start // CHUNK * CHUNK
        chunks = [self._chunk(begin) for begin in range(first, stop, CHUNK)]
        return np.concatenate(chunks)[start - first : stop - first]

    def _chunk(self, begin: int) -> Array:
        images = channels_first(torch.from_numpy(as_bytes(self.images[begin : begin + CHUNK])))
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + begin)
        index = torch.arange(begin, begin + len(images))
        return planes_to_channels_last(self.transform(images, index, generator).numpy())


def as_bytes(images: Any) -> Array:
    """Return images as uint8; floats from 0 to 1 are scaled to 0 to 255."""
    array = np.asarray(images)
    return np.array(array) if array.dtype == np.uint8 else (255.0 * array).round().astype(np.uint8)


def strong_view(number: int, side: int, *, flip: bool) -> Transform:
    """Return the augmentation of strong view 1, 2, ... of images with this shorter side.

    Odd numbers get two operations of RandAugment, even numbers the strong view of FixMatch, with cutout.
    """
    operations = PAPER if number % 2 else FIXMATCH
    return Compose(operations, RandomShift(max(1, side // LARGEST_SHIFT), flip=flip))


@dataclass(frozen=True)
class StoredViews:
    """Transform that replaces each sample by one of its stored views, which is drawn at random."""

    views: tuple[Tensor, ...]  # one tensor (n, C, h, w) for each view

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        chosen = torch.randint(len(self.views), (len(index),), generator=generator)
        return torch.stack([self.views[view][sample] for view, sample in zip(chosen.tolist(), index.tolist(), strict=True)])


@dataclass(frozen=True)
class AugmentedMaps:
    """Feature maps (n, C, h, w) of all images, and of each strong view of them."""

    clean: Tensor
    strong: tuple[Tensor, ...]


def compute_maps(
    frozen: FrozenBlocks,
    images: SliceableImages,
    n_views: int,
    *,
    flip: bool = True,
    seed: int = 0,
    cache: FeatureCache | None = None,
    on_samples: OnSamples | None = None,
    is_late: Callable[[], bool] = lambda: False,
) -> AugmentedMaps:
    """Return the maps of the images and of `n_views` strong views, computed one view after the other.

    `on_samples(done, total)` counts the images of all views. If `is_late` returns True after a strong view, the views that are
    missing are left out.
    """
    n, shape = len(images), frozen.map_shape()
    side = min(images[:1].shape[1:3])
    total = n * (n_views + 1)
    maps: list[Tensor] = []
    for number in range(n_views + 1):
        seen: Any = AugmentedImages(images, strong_view(number, side, flip=flip), seed + number) if number else images

        def count(done: int, _: int, before: int = number * n) -> None:
            if on_samples is not None:
                on_samples(before + done, total)

        features = extract_features(frozen, seen, cache=cache, batch=CHUNK, on_samples=count)
        maps.append(as_tensor(features).view(n, *shape))
        if number and is_late():
            break
    return AugmentedMaps(maps[0], tuple(maps[1:]))
