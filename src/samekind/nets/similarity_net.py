"""Phi, the similarity network: from the features of two samples, the logits of "same class" and "different class"."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.nets.classifier import SLOPE, at_least_float32

IMAGE_LAYERS = (512, 512, 128, 64)  # the paper's Phi for images
TOY_LAYERS = (512, 128, 64)  # the paper's Phi for two moons and two circles


class SimilarityNet(nn.Module):
    """Phi([z_i; z_j]) -> two logits, (same, different).

    The first layer acts on a concatenation, so it splits: V [z_i; z_j] = V_left z_i + V_right z_j. Each half is computed
    once per sample, however many pairs the sample is in. Dropout follows every hidden layer but the last.
    """

    slope = SLOPE  # negative slope of the LeakyReLU after every layer but the last

    def __init__(self, n_features: int, layers: Sequence[int] = IMAGE_LAYERS, *, dropout: float = 0.2) -> None:
        super().__init__()
        self.n_features = n_features
        self.dropout = dropout
        self.hidden = list(layers)
        widths = [2 * n_features, *layers, 2]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def left(self, z: Tensor) -> Tensor:
        """Return the contribution of z_i to the first layer, bias included."""
        first = self._first
        return F.linear(z, first.weight[:, : self.n_features], first.bias)

    def right(self, z: Tensor) -> Tensor:
        """Return the contribution of z_j to the first layer."""
        return F.linear(z, self._first.weight[:, self.n_features :])

    def combine(self, left: Tensor, right: Tensor) -> Tensor:
        """Return logits (..., 2) from the outputs of `left` and `right`, which broadcast against each other."""
        hidden = left + right
        last_dropout = len(self.layers) - 3
        for depth, layer in enumerate(self.layers[1:]):
            hidden = F.leaky_relu(hidden, self.slope)
            if self.dropout > 0 and depth <= last_dropout:
                hidden = F.dropout(hidden, self.dropout, self.training)
            hidden = layer(hidden)
        return at_least_float32(hidden)

    def forward(self, z_i: Tensor, z_j: Tensor) -> Tensor:
        """Return logits (n, 2) for the n pairs (z_i[k], z_j[k])."""
        return self.combine(self.left(z_i), self.right(z_j))

    def pairs(self, z: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Return logits (m, 2) for the m pairs (z[i[k]], z[j[k]])."""
        return self.combine(self.left(z).index_select(0, i), self.right(z).index_select(0, j))

    def grid(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """Return logits (n_a, n_b, 2) for every pair of a sample of z_a and a sample of z_b."""
        return self.combine(self.left(z_a)[:, None], self.right(z_b)[None, :])

    @property
    def _first(self) -> nn.Linear:
        first = self.layers[0]
        assert isinstance(first, nn.Linear)
        return first


def same_probability(pair_logits: Tensor, log_odds: float = 0.0) -> Tensor:
    """Return W, the probability of "same class", from Phi's two logits.

    `log_odds` = ln((1-pi)/pi) shifts W from balanced training pairs to a same-class rate pi.
    """
    return torch.sigmoid(pair_logits[..., 0] - pair_logits[..., 1] - log_odds)
