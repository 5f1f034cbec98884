"""Trainable blocks: the last blocks of an encoder compute its features, and go back into it after a training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from samekind.nets.encoders.efficientnet import LITE0, LITE2, EfficientNetLite, efficientnet_lite
from samekind.nets.encoders.finetuned import is_finetuned
from samekind.nets.encoders.trainable_blocks import FrozenBlocks, TrainableBlocks, count_frozen_blocks

SIDE = 32


@pytest.fixture(scope="module")
def encoder() -> EfficientNetLite:
    return efficientnet_lite(side=SIDE)


def images(n: int = 3) -> Tensor:
    return torch.rand((n, 3, SIDE, SIDE), generator=torch.Generator().manual_seed(0))


def maps_of(encoder: EfficientNetLite, n_frozen: int) -> Tensor:
    frozen = FrozenBlocks(encoder, n_frozen)
    with torch.no_grad():
        maps: Tensor = frozen(images())
    return maps.view(3, *frozen.map_shape())


@pytest.mark.parametrize("n_frozen", [0, 11, 15])
def test_frozen_and_trainable_blocks_together_compute_the_features_of_the_encoder(
    encoder: EfficientNetLite, n_frozen: int
) -> None:
    torch.testing.assert_close(TrainableBlocks(encoder, n_frozen)(maps_of(encoder, n_frozen)), encoder(images()))


def test_a_training_changes_the_blocks_and_neither_the_encoder_nor_its_first_blocks(encoder: EfficientNetLite) -> None:
    blocks, before = TrainableBlocks(encoder, 14), encoder(images())
    maps = maps_of(encoder, 14)
    torch.optim.SGD(blocks.parameters(), 0.01).zero_grad()
    torch.autograd.backward(blocks(maps).square().mean())
    assert all(parameter.grad is not None for parameter in blocks.parameters())
    torch.optim.SGD(blocks.parameters(), 0.01).step()
    merged = blocks.merged_into(encoder)
    assert torch.equal(encoder(images()), before) and not torch.allclose(merged(images()), before)
    torch.testing.assert_close(merged(images()), blocks(maps).detach())
    assert torch.equal(merged.inner_maps(images(), 14), encoder.inner_maps(images(), 14))


def test_a_merged_encoder_is_frozen_and_counts_as_finetuned(encoder: EfficientNetLite) -> None:
    merged = TrainableBlocks(encoder, 14).merged_into(encoder)
    assert is_finetuned(merged) and not is_finetuned(encoder)
    assert not any(parameter.requires_grad for parameter in merged.parameters())


def test_the_last_blocks_begin_where_the_maps_are_halved_for_the_last_time() -> None:
    for variant, n_frozen in ((LITE0, 11), (LITE2, 15)):
        net = EfficientNetLite(64, variant)
        assert count_frozen_blocks(net) == n_frozen
        strides = [block.get_submodule("depthwise") for block in net.blocks]
        assert [k for k, conv in enumerate(strides) if isinstance(conv, nn.Conv2d) and conv.stride[0] == 2][-1] == n_frozen
