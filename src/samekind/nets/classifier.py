"""Classifier: a feature network g and a head h on top of it, so that f = h(g(x))."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from samekind.errors import SettingError
from samekind.nets.forward import eval_mode

SLOPE = 0.1  # negative slope of every LeakyReLU in samekind


class Output(NamedTuple):
    """Output of a classifier for a batch: features z (n, d) and logits (n, C)."""

    z: Tensor
    logits: Tensor


def split_output(output: Output, sizes: Sequence[int]) -> list[Output]:
    """Split the output of one forward pass over concatenated batches into the outputs of the batches, whose sizes are given."""
    z, logits = (torch.split(tensor, list(sizes)) for tensor in output)
    return [Output(*pair) for pair in zip(z, logits, strict=True)]


class Classifier(nn.Module):
    """Feature network and head. The head maps features (n, n_features) to logits (n, n_classes); by default it is linear."""

    def __init__(self, features: nn.Module, n_features: int, n_classes: int, head: nn.Module | None = None) -> None:
        super().__init__()
        self.features = features
        self.n_features = n_features
        self.n_classes = n_classes
        self.head = nn.Linear(n_features, n_classes) if head is None else head

    def forward(self, x: Tensor) -> Output:
        z = self.features(x)
        return Output(at_least_float32(z), at_least_float32(self.head(z)))


def at_least_float32(x: Tensor) -> Tensor:
    """Return half-precision tensors as float32 and others unchanged, so that losses are computed in float32 in mixed
    precision.
    """
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def classifier_from_features(features: nn.Module, sample: Tensor, n_classes: int) -> Classifier:
    """Return a classifier with a linear head on any module that maps a batch to feature vectors.

    The batch `sample` is passed through the module once, to find the number of features.
    """
    with torch.no_grad(), eval_mode(features):
        z = features(sample)
    if not isinstance(z, Tensor) or z.ndim != 2 or len(z) != len(sample):
        found = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise SettingError(
            f"net returned {found} for a batch of {tuple(sample.shape)}; expected features of shape ({len(sample)}, d). "
            "End the net with a pooling or flattening layer, without a classifier."
        )
    return Classifier(features, z.shape[1], n_classes)
