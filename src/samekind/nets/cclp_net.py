"""The net of CCLP's paper: nine 3x3 convolutions with ELU and batch norm, z the mean of the last maps.

Kamnitsas et al. 2018, arXiv:1806.02679, and its public code: 96 channels, then 192, for CIFAR-10; 64, then 128, for SVHN, where
a tenth of the channels of the input are dropped too. Nothing is dropped right before z, which makes the graph: half of z is
dropped for the classifier alone.
"""

from __future__ import annotations

from torch import Tensor, nn

from samekind.nets.classifier import Classifier

GROUPS = (1, 2, 2)  # channels of three convolutions each, in units of the first; a pool follows the first and the second
KEPT = 0.99  # of the running mean and variance at each step
EPS = 1e-3  # of batch norm


class CclpNet(nn.Module):
    """Images (n, channels, H, W) of 4 pixels or more to z (n, 2 maps)."""

    def __init__(self, channels: int = 3, *, maps: int = 96, channel_dropout: float = 0.0, dropout: float = 0.5) -> None:
        super().__init__()
        self.n_features = maps * GROUPS[-1]
        layers: list[nn.Module] = [nn.Dropout2d(channel_dropout)] if channel_dropout > 0 else []
        wide = channels
        for number, times in enumerate(GROUPS):
            if number > 0:
                layers += [nn.MaxPool2d(2), nn.Dropout(dropout)]
            for _ in range(3):
                layers += [_convolution(wide, times * maps), nn.BatchNorm2d(times * maps, EPS, momentum=1.0 - KEPT), nn.ELU()]
                wide = times * maps
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.layers(x)
        return maps.mean(dim=(2, 3))


def cclp_classifier(n_classes: int, features: CclpNet, dropout: float = 0.5) -> Classifier:
    linear = nn.Linear(features.n_features, n_classes)
    nn.init.kaiming_normal_(linear.weight)
    nn.init.zeros_(linear.bias)
    return Classifier(features, features.n_features, n_classes, head=nn.Sequential(nn.Dropout(dropout), linear))


def _convolution(n_in: int, n_out: int) -> nn.Conv2d:
    layer = nn.Conv2d(n_in, n_out, 3, padding=1)
    nn.init.xavier_uniform_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
