"""Multilayer perceptrons: the feature network for vectors, and the projection head for contrastive losses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from samekind.nets.classifier import SLOPE, Classifier, at_least_float32


def mlp(widths: Sequence[int], *, dropout: float = 0.0) -> nn.Sequential:
    """Return a net with Linear -> LeakyReLU(0.1) -> dropout for each pair of consecutive widths."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), nn.LeakyReLU(SLOPE)]
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


def vector_classifier(n_inputs: int, n_classes: int, hidden: Sequence[int] = (100,), *, dropout: float = 0.0) -> Classifier:
    """Return a classifier for vectors. By default it is the paper's net for toy data: one hidden layer of 100 units."""
    return Classifier(mlp([n_inputs, *hidden], dropout=dropout), hidden[-1], n_classes)


class Projection(nn.Module):
    """Projection head: maps features z (n, d) by Linear -> LeakyReLU(0.1) -> Linear to embeddings (n, size) of length 1."""

    def __init__(self, n_features: int, size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_features, n_features), nn.LeakyReLU(SLOPE), nn.Linear(n_features, size))

    def forward(self, z: Tensor) -> Tensor:
        return F.normalize(at_least_float32(self.layers(z)), dim=-1)
