"""The projection head returns unit vectors."""

from __future__ import annotations

import torch
from torch import nn

from samekind.nets.mlp import Projection


def test_every_projection_has_length_one() -> None:
    torch.manual_seed(0)
    e = Projection(5, 3)(torch.randn(7, 5))
    assert e.shape == (7, 3)
    torch.testing.assert_close(e.norm(dim=1), torch.ones(7))


def test_a_leaky_relu_separates_the_two_layers() -> None:
    projection = Projection(2, 2)
    for layer in projection.layers:
        if isinstance(layer, nn.Linear):
            layer.weight.data.copy_(torch.eye(2))
            layer.bias.data.zero_()
    torch.testing.assert_close(projection(torch.tensor([[3.0, -40.0]])), torch.tensor([[0.6, -0.8]]))


def test_in_mixed_precision_projections_are_float32() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert Projection(4, 3)(torch.randn(2, 4)).dtype == torch.float32
