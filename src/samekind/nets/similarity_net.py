"""Similarity network, Phi in the paper: from the features of two samples to the logits of "same class" and "different
classes".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.nets.classifier import SLOPE, at_least_float32

IMAGE_LAYERS = (512, 512, 128, 64)  # hidden layers of the paper's similarity network for images
TOY_LAYERS = (512, 128, 64)  # hidden layers of the paper's similarity network for two moons and two circles


class SimilarityNet(nn.Module):
    """Similarity network: maps features z_i and z_j of two samples to two logits, "same class" and "different classes".

    The first layer is linear on the concatenation of both features, so it can be computed as a sum: V [z_i; z_j] = V_left z_i +
    V_right z_j. Each term is computed once per sample, in however many pairs the sample occurs. Dropout follows every hidden
    layer but the last.
    """

    slope = SLOPE  # negative slope of the LeakyReLU, which follows every layer but the last

    def __init__(self, n_features: int, layers: Sequence[int] = IMAGE_LAYERS, *, dropout: float = 0.2) -> None:
        super().__init__()
        self.n_features = n_features
        self.dropout = dropout
        self.hidden = list(layers)
        widths = [2 * n_features, *layers, 2]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def left(self, z: Tensor) -> Tensor:
        """Return the part of the first layer that comes from the first sample of a pair, including the bias."""
        first = self._first
        return F.linear(z, first.weight[:, : self.n_features], first.bias)

    def right(self, z: Tensor) -> Tensor:
        """Return the part of the first layer that comes from the second sample of a pair."""
        return F.linear(z, self._first.weight[:, self.n_features :])

    def combine(self, left: Tensor, right: Tensor) -> Tensor:
        """Return logits (..., 2) from the results of `left` and `right`, whose shapes are broadcast."""
        hidden = left + right
        last_dropout = len(self.layers) - 3
        for depth, layer in enumerate(self.layers[1:]):
            hidden = F.leaky_relu(hidden, self.slope)
            if self.dropout > 0 and depth <= last_dropout:
                hidden = F.dropout(hidden, self.dropout, self.training)
            hidden = layer(hidden)
        return at_least_float32(hidden)

    def forward(self, z_i: Tensor, z_j: Tensor) -> Tensor:
        """Return logits (n, 2) for n pairs: sample k of z_i with sample k of z_j."""
        return self.combine(self.left(z_i), self.right(z_j))

    def pairs(self, z: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Return logits (m, 2) for m pairs of the samples z: number i[k] with number j[k]."""
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
    """Return W, the probability that two samples have the same class, from the two logits of the similarity network.

    A network that was trained on as many same-class as other pairs assumes that half of all pairs have the same class. If the
    fraction is pi instead, `log_odds` = ln((1-pi)/pi) corrects W.
    """
    return torch.sigmoid(pair_logits[..., 0] - pair_logits[..., 1] - log_odds)
