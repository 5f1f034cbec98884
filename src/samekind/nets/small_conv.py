"""Small convolutional network for small images. Two CPU cores are enough to train it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from samekind.nets.classifier import SLOPE, Classifier

TINY_SIDE = 16  # images up to this side in pixels are cheap enough for the full width


class SmallConv(nn.Module):
    """Feature network for images (n, channels, H, W), whose smaller side is about `side` pixels; z has the shape (n,
    n_features).

    A block is conv 3x3 -> batch norm -> LeakyReLU(0.1) -> pool -> dropout. The channels double from block to block, from
    `width` up to `n_features`. There are as many blocks as leave 2 or more pixels a side; a last block without pooling is
    followed by the maximum over all pixels.
    """

    def __init__(self, channels: int, *, side: int = 8, width: int = 32, n_features: int = 128, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_features = n_features
        n_pools = max(side.bit_length() - 2, 0)
        layers: list[nn.Module] = []
        n_in = channels
        for depth in range(n_pools):
            n_out = min(width * 2**depth, max(width, n_features))
            # with ceil_mode at least one pixel is left, so that images smaller than `side` work too
            layers += [*_conv_block(n_in, n_out), nn.MaxPool2d(2, ceil_mode=True), nn.Dropout(dropout)]
            n_in = n_out
        self.layers = nn.Sequential(*layers, *_conv_block(n_in, n_features))

    def forward(self, x: Tensor) -> Tensor:
        # channels_last is 1.3 to 1.6 times faster on CPUs; clone() sets it also for a single channel, contiguous() does not
        maps: Tensor = self.layers(x.clone(memory_format=torch.channels_last))
        # maximum, not mean: the error on MNIST with 50 labels is 17.5 % instead of 21.1 %; on digits and CIFAR-10 it is the
        # same
        return maps.amax(dim=(2, 3))


def image_classifier(shape: tuple[int, int, int], n_classes: int, *, n_features: int = 128, dropout: float = 0.0) -> Classifier:
    """Return a classifier for images of `shape` (channels, H, W), with a small convolutional network.

    The width is 32 for images of up to 16 pixels a side, and 16 for larger ones.
    """
    channels, height, width = shape
    side = min(height, width)
    net_width = 32 if side <= TINY_SIDE else 16
    features = SmallConv(channels, side=side, width=net_width, n_features=n_features, dropout=dropout)
    return Classifier(features, n_features, n_classes)


def _conv_block(n_in: int, n_out: int) -> list[nn.Module]:
    # no bias, because batch norm would subtract it again
    return [nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.LeakyReLU(SLOPE)]
