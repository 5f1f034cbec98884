"""Feature networks for vectors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from samekind.nets.classifier import SLOPE, Classifier


def mlp(widths: Sequence[int], *, dropout: float = 0.0) -> nn.Sequential:
    """Linear, LeakyReLU(0.1) and dropout for each step of `widths`; z is the last activation."""
    layers: list[nn.Module] = []
    for wide, next_wide in pairwise(widths):
        layers += [nn.Linear(wide, next_wide), nn.LeakyReLU(SLOPE)]
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


def vector_classifier(n_inputs: int, n_classes: int, hidden: Sequence[int] = (100,), *, dropout: float = 0.0) -> Classifier:
    """The paper's toy net by default: n_inputs -> 100 -> LeakyReLU(0.1) -> n_classes, z the 100 activations."""
    return Classifier(mlp([n_inputs, *hidden], dropout=dropout), hidden[-1], n_classes)
