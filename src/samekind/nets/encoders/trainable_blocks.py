"""Trainable blocks: the last blocks of an EfficientNet-lite as a network of their own, for fine-tuning.

The first blocks stay frozen, so their feature maps are computed once and stored. A training step then runs only the last
blocks, where the maps are small.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from samekind.nets.encoders.efficientnet import STAGES, EfficientNetLite, relu6
from samekind.nets.encoders.finetuned import finetuned


class TrainableBlocks(nn.Module):
    """Network from the feature maps (n, C, h, w) after `n_frozen` blocks to the features (n, 1280) of the encoder."""

    def __init__(self, encoder: EfficientNetLite, n_frozen: int) -> None:
        super().__init__()
        self.n_frozen = n_frozen
        self.blocks = copy.deepcopy(encoder.blocks[n_frozen:]).requires_grad_(True)
        self.head = copy.deepcopy(encoder.head).requires_grad_(True)

    def forward(self, maps: Tensor) -> Tensor:
        maps = maps.contiguous(memory_format=torch.channels_last)
        return relu6(self.head(self.blocks(maps))).mean(dim=(2, 3))

    def merged_into(self, encoder: EfficientNetLite) -> EfficientNetLite:
        """Return a fine-tuned copy of the encoder, with these blocks in place of its own last blocks."""
        net = copy.deepcopy(encoder)
        net.blocks[self.n_frozen :].load_state_dict(self.blocks.state_dict())
        net.head.load_state_dict(self.head.state_dict())
        return finetuned(net)

    def extra_repr(self) -> str:
        return f"n_frozen={self.n_frozen}"


class FrozenBlocks(nn.Module):
    """Encoder from images (n, C, H, W) to the flattened feature maps after the first `n_frozen` blocks."""

    def __init__(self, encoder: EfficientNetLite, n_frozen: int) -> None:
        super().__init__()
        self.encoder, self.n_frozen = encoder, n_frozen

    def forward(self, images: Tensor) -> Tensor:
        return self.encoder.inner_maps(images, self.n_frozen).flatten(1)

    def map_shape(self) -> tuple[int, ...]:
        """Return the shape (C, h, w) of the feature maps of one image."""
        with torch.inference_mode():
            side = self.encoder.side
            return tuple(self.encoder.inner_maps(torch.zeros(1, 3, side, side), self.n_frozen).shape[1:])

    def extra_repr(self) -> str:
        return f"n_frozen={self.n_frozen}"


def count_frozen_blocks(encoder: EfficientNetLite) -> int:
    """Return how many first blocks stay frozen: all before the last stage with stride 2, which are 11 of 16 for lite0.

    These blocks take most of the time, so fine-tuning leaves them frozen.
    """
    repeats = [stage.repeats for stage in encoder.variant.stages()]
    last_halving = max(number for number, stage in enumerate(STAGES) if stage.stride == 2)
    return sum(repeats[:last_halving])
