"""Tuning data: what a fine-tuning trains on. Stored feature maps if only the last blocks are trained, else the images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from samekind.data.augment.transforms import NormalizeAfter, Views, identity
from samekind.data.dataset import Dataset
from samekind.nets.encoders.efficientnet import EfficientNetLite
from samekind.nets.encoders.finetuned import finetuned
from samekind.nets.encoders.trainable_blocks import TrainableBlocks
from samekind.preprocessing.augmented_maps import AugmentedMaps, StoredViews, strong_view

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TuningData(ABC):
    """Samples of a fine-tuning: the network's inputs, their views, and the features of the frozen encoder (n, d).

    `flops` counts the floating-point operations that computed the inputs.
    """

    frozen_features: Tensor
    n_classes: int
    device: torch.device
    flops: float

    def __len__(self) -> int:
        return len(self.frozen_features)

    @property
    @abstractmethod
    def views(self) -> Views:
        """Return the views of a sample: "weak" is the sample itself, "strong" an augmentation."""

    @abstractmethod
    def dataset(self, codes: Codes) -> Dataset:
        """Return the samples with these labels (n,)."""

    @abstractmethod
    def trained_part(self, encoder: EfficientNetLite) -> nn.Module:
        """Return a copy of the part of the encoder that is trained: from the inputs to the features."""

    @abstractmethod
    def merge(self, encoder: EfficientNetLite, trained: nn.Module) -> EfficientNetLite:
        """Return the fine-tuned encoder, with the trained part in place of its own."""

    def inputs(self, which: slice) -> Tensor:
        """Return these samples in the form that the trained part takes."""
        return self.dataset(np.full(len(self), -1)).inputs(which)


@dataclass(frozen=True)
class TuningMaps(TuningData):
    """Stored feature maps, for training the blocks after the first `n_frozen`."""

    maps: AugmentedMaps
    n_frozen: int

    @property
    def views(self) -> Views:
        return {"labelled_only": identity, "weak": identity, "strong": StoredViews(self.maps.strong)}

    def dataset(self, codes: Codes) -> Dataset:
        return Dataset(self.maps.clean, torch.from_numpy(codes), self.n_classes)

    def trained_part(self, encoder: EfficientNetLite) -> TrainableBlocks:
        return TrainableBlocks(encoder, self.n_frozen)

    def merge(self, encoder: EfficientNetLite, trained: nn.Module) -> EfficientNetLite:
        assert isinstance(trained, TrainableBlocks)
        return trained.merged_into(encoder)


@dataclass(frozen=True)
class TuningImages(TuningData):
    """Images, uint8 (n, H, W, C), for training all blocks. Strong views are drawn anew in each step."""

    images: Tensor
    flip: bool

    @property
    def views(self) -> Views:
        strong = strong_view(1, min(self.images.shape[1:3]), flip=self.flip)
        return {"labelled_only": identity, "weak": identity, "strong": NormalizeAfter(strong, unit_range)}

    def dataset(self, codes: Codes) -> Dataset:
        return Dataset(self.images, torch.from_numpy(codes), self.n_classes, unit_range)

    def trained_part(self, encoder: EfficientNetLite) -> nn.Module:
        return finetuned(encoder).requires_grad_(True)

    def merge(self, encoder: EfficientNetLite, trained: nn.Module) -> EfficientNetLite:
        assert isinstance(trained, EfficientNetLite)
        return finetuned(trained)


def unit_range(images: Tensor) -> Tensor:
    """Return images with values from 0 to 255 as floats from 0 to 1."""
    return images.float() / 255.0
