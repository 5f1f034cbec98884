"""A projection: features to points of a sphere, on which likeness is an inner product."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from samekind.nets.classifier import SLOPE, in_full


class Projection(nn.Module):
    """z (n, d) -> d -> LeakyReLU(0.1) -> e (n, size) of length one."""

    def __init__(self, n_features: int, size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_features, n_features), nn.LeakyReLU(SLOPE), nn.Linear(n_features, size))

    def forward(self, z: Tensor) -> Tensor:
        return F.normalize(in_full(self.layers(z)), dim=-1)
