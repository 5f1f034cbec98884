"""Nets and pools so plain that what comes of them can be worked out on paper."""

from __future__ import annotations

import torch
from sklearn.datasets import make_moons
from torch import Tensor, nn

from samekind.data.dataset import Dataset
from samekind.nets.classifier import Classifier


def linear() -> Classifier:
    """Features are the inputs, and logits the features."""
    head = nn.Linear(2, 2, bias=False)
    head.weight.data.copy_(torch.eye(2))
    return Classifier(nn.Identity(), 2, 2, head=head)


def weight(net: Classifier) -> Tensor:
    return net.head.get_parameter("weight")


def moons(n: int = 200, dtype: torch.dtype = torch.float32) -> tuple[Dataset, Tensor]:
    """A pool with three labels per moon, and the whole truth."""
    x, truth = make_moons(n, noise=0.05, random_state=0)
    truth = torch.from_numpy(truth)
    y = torch.full((n,), -1)
    for c in (0, 1):
        y[torch.nonzero(truth == c).flatten()[:3]] = c
    return Dataset(torch.from_numpy(x).to(dtype), y, 2), truth
