"""Network of the CCLP paper: nine 3x3 convolutions with ELU and batch norm.

The features z are the mean of the last feature maps.

Kamnitsas et al. 2018, arXiv:1806.02679, and the authors' public code. For CIFAR-10 it has 96 channels and then 192; for SVHN,
64 and then 128, and a tenth of the input channels is dropped. There is no dropout just before z, because CCLP builds its graph
from z; the head has its own dropout of 0.5.
"""

from __future__ import annotations

from torch import Tensor, nn

from samekind.nets.classifier import Classifier

# Channels of the three groups of convolutions, in multiples of `maps`. A group has three convolutions; pooling follows the
# first and the second group.
GROUPS = (1, 2, 2)
STATISTICS_DECAY = 0.99  # decay of the running mean and variance in batch norm
BATCH_NORM_EPS = 1e-3


class CclpNet(nn.Module):
    """Feature network for images (n, channels, H, W) of 4 pixels a side or more; the features z have the shape (n, 2 maps)."""

    def __init__(self, channels: int = 3, *, maps: int = 96, channel_dropout: float = 0.0, dropout: float = 0.5) -> None:
        super().__init__()
        self.n_features = maps * GROUPS[-1]
        layers: list[nn.Module] = [nn.Dropout2d(channel_dropout)] if channel_dropout > 0 else []
        n_in = channels
        for group, factor in enumerate(GROUPS):
            n_out = factor * maps
            if group > 0:
                layers += [nn.MaxPool2d(2), nn.Dropout(dropout)]
            for _ in range(3):
                norm = nn.BatchNorm2d(n_out, BATCH_NORM_EPS, momentum=1.0 - STATISTICS_DECAY)
                layers += [_convolution(n_in, n_out), norm, nn.ELU()]
                n_in = n_out
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.layers(x)
        return maps.mean(dim=(2, 3))


def cclp_classifier(n_classes: int, features: CclpNet, dropout: float = 0.5) -> Classifier:
    """Return a classifier: the CCLP network, then dropout and a linear head."""
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
