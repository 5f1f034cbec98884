"""f = h ∘ g: a feature network and the linear classifier on top of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from samekind.errors import SettingError
from samekind.nets.forward import eval_mode

SLOPE = 0.1  # of every LeakyReLU in the package


class Output(NamedTuple):
    """What a classifier says about a batch: features z (n, d) and logits (n, C)."""

    z: Tensor
    logits: Tensor


def split(output: Output, sizes: Sequence[int]) -> list[Output]:
    """What was said about each of the batches that went through a classifier together."""
    z, logits = (torch.split(answers, list(sizes)) for answers in output)
    return [Output(*pair) for pair in zip(z, logits, strict=True)]


class Classifier(nn.Module):
    """Features by `features`, classes by a layer on them: a linear one, or `head` from (n, n_features) to (n, n_classes)."""

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
    """At least float32: in mixed precision nets may compute in half, but losses see what they would see without it."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def classifier_from_features(features: nn.Module, sample: Tensor, n_classes: int) -> Classifier:
    """A classifier on any module that turns a batch into feature vectors; the width is found by trying `sample`."""
    with torch.no_grad(), eval_mode(features):
        z = features(sample)
    if not isinstance(z, Tensor) or z.ndim != 2 or len(z) != len(sample):
        found = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise SettingError(
            f"net gave {found} for a batch of {tuple(sample.shape)}; expected features of shape ({len(sample)}, d). "
            "End the net with a pooling or flattening layer, without a classifier."
        )
    return Classifier(features, z.shape[1], n_classes)
