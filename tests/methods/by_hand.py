"""Nets and datasets so simple that the results can be computed by hand."""

from __future__ import annotations

import torch
from sklearn.datasets import make_moons
from torch import Tensor, nn

from samekind.data.dataset import Dataset
from samekind.nets.classifier import Classifier


def linear() -> Classifier:
    """Return a net whose features are the inputs, and whose logits are the features."""
    head = nn.Linear(2, 2, bias=False)
    head.weight.data.copy_(torch.eye(2))
    return Classifier(nn.Identity(), 2, 2, head=head)


def weight(net: Classifier) -> Tensor:
    return net.head.get_parameter("weight")


def moons(n: int = 200, dtype: torch.dtype = torch.float32) -> tuple[Dataset, Tensor]:
    """Return a dataset with three labels per moon, and the true classes."""
    x, truth = make_moons(n, noise=0.05, random_state=0)
    truth = torch.from_numpy(truth)
    y = torch.full((n,), -1)
    for c in (0, 1):
        y[torch.nonzero(truth == c).flatten()[:3]] = c
    return Dataset(torch.from_numpy(x).to(dtype), y, 2), truth
