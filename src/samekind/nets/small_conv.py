"""Small convolutional network for small images, fast enough to train on two CPU cores."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from samekind.nets.classifier import SLOPE, Classifier

TINY_SIDE = 16  # pixels: images up to this side are cheap enough for the full width


class SmallConv(nn.Module):
    """Feature network: images (n, channels, H, W), whose smaller side is about `side` pixels, to z (n, n_features).

    A block is conv 3x3 -> batch norm -> LeakyReLU(0.1) -> pool -> dropout; its channels double from `width` up to
    `n_features`. Blocks are added while the pooled side is 2 or more; a last one without pooling is followed by global max
    pooling.
    """

    def __init__(self, channels: int, *, side: int = 8, width: int = 32, n_features: int = 128, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_features = n_features
        n_pools = max(side.bit_length() - 2, 0)
        layers: list[nn.Module] = []
        n_in = channels
        for depth in range(n_pools):
            n_out = min(width * 2**depth, max(width, n_features))
            # ceil_mode keeps at least one pixel, so that images smaller than `side` work too
            layers += [*_conv_block(n_in, n_out), nn.MaxPool2d(2, ceil_mode=True), nn.Dropout(dropout)]
            n_in = n_out
        self.layers = nn.Sequential(*layers, *_conv_block(n_in, n_features))

    def forward(self, x: Tensor) -> Tensor:
        # channels_last is 1.3 to 1.6 times faster on CPUs; contiguous() would not set it for a single channel, clone() does
        maps: Tensor = self.layers(x.clone(memory_format=torch.channels_last))
        # error on MNIST with 50 labels: 17.5 % with max pooling, 21.1 % with mean pooling; equal on digits and CIFAR-10
        return maps.amax(dim=(2, 3))


def image_classifier(shape: tuple[int, int, int], n_classes: int, *, n_features: int = 128, dropout: float = 0.0) -> Classifier:
    """Return a classifier for images of `shape` (channels, H, W): width 32 up to 16 pixels a side, 16 above."""
    channels, height, width = shape
    side = min(height, width)
    net_width = 32 if side <= TINY_SIDE else 16
    features = SmallConv(channels, side=side, width=net_width, n_features=n_features, dropout=dropout)
    return Classifier(features, n_features, n_classes)


def _conv_block(n_in: int, n_out: int) -> list[nn.Module]:
    # no bias: batch norm would subtract it again
    return [nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.LeakyReLU(SLOPE)]
