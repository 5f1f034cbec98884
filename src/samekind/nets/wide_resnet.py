"""Wide residual network of semi-supervised papers from 2018 on: by default WRN-28-2, with 128 features.

Zagoruyko & Komodakis 2016, arXiv:1605.07146, with LeakyReLU(0.1) as in Oliver et al. 2018, arXiv:1804.09170. Batch norm and
activation come before each convolution. Only the first convolution has a bias.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.errors import SettingError
from samekind.nets.classifier import SLOPE, Classifier

FIRST_CHANNELS = 16  # number of channels after the first convolution, for any width
STAGES = (1, 2, 4)  # a stage has 16 x this number x width channels; the second and the third stage halve the image
LAST_EPS = 1e-3  # eps of the last batch norm


class WideResNet(nn.Module):
    """Feature network for images (n, channels, H, W) of any size; the features z have the shape (n, 64 width).

    `depth` is 6 k + 4 for k blocks per stage: 10, 16, 22, 28, 40. `momentum` is the weight of a batch in the running statistics
    of batch norm. The papers' 0.001 suits hundreds of thousands of steps. With a few thousand steps it must be larger;
    otherwise the initial statistics still count at the end.
    """

    def __init__(self, channels: int = 3, *, depth: int = 28, width: float = 2, momentum: float = 0.001) -> None:
        super().__init__()
        blocks = _blocks_per_stage(depth)
        channels_of = [_scaled(stage, width) for stage in STAGES]
        self.n_features = channels_of[-1]
        self.first = nn.Conv2d(channels, FIRST_CHANNELS, 3, padding=1)
        layers: list[nn.Module] = []
        n_in = FIRST_CHANNELS
        for stage, n_out in enumerate(channels_of):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(ResidualBlock(n_in, n_out, stride, momentum, activate_shortcut=not layers))
                n_in = n_out
        self.blocks = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(n_in, momentum=momentum, eps=LAST_EPS)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, a=SLOPE, mode="fan_out", nonlinearity="leaky_relu")
        assert self.first.bias is not None
        nn.init.zeros_(self.first.bias)

    def forward(self, x: Tensor) -> Tensor:
        # channels_last is faster on CPUs; clone() sets it also for a single channel, contiguous() does not
        maps = self.blocks(self.first(x.clone(memory_format=torch.channels_last)))
        return F.leaky_relu(self.norm(maps), SLOPE).mean(dim=(2, 3))


class ResidualBlock(nn.Module):
    """Residual block: x + conv(act(norm(conv(act(norm(x)))))), where act is LeakyReLU and norm is batch norm.

    If the block changes the shape, x passes through a 1x1 convolution before it is added. In the first block of the net,
    act(norm(x)) is added instead of x, because there x comes directly from a convolution.
    """

    def __init__(self, n_in: int, n_out: int, stride: int, momentum: float, *, activate_shortcut: bool) -> None:
        super().__init__()
        self.activate_shortcut, self.stride = activate_shortcut, stride
        self.norm1 = nn.BatchNorm2d(n_in, momentum=momentum)
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out, momentum=momentum)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        same_shape = stride == 1 and n_in == n_out
        self.shortcut = nn.Identity() if same_shape else nn.Conv2d(n_in, n_out, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.leaky_relu(self.norm1(x), SLOPE)
        change: Tensor = self.conv2(F.leaky_relu(self.norm2(self.conv1(active)), SLOPE))
        # Slice the input instead of using a stride. With fewer than 8 channels in the channels_last layout, oneDNN's gradient
        # of a strided 1x1 convolution writes past its memory (uxlfoundation/oneDNN#6035).
        subsampled = (active if self.activate_shortcut else x)[:, :, :: self.stride, :: self.stride]
        shortcut: Tensor = self.shortcut(subsampled)
        return shortcut + change


def wide_resnet_classifier(n_classes: int, features: WideResNet | None = None) -> Classifier:
    """Return a classifier: a wide residual network with a linear head, initialised by Glorot's normal distribution."""
    features = features or WideResNet()
    head = nn.Linear(features.n_features, n_classes)
    nn.init.xavier_normal_(head.weight)
    nn.init.zeros_(head.bias)
    return Classifier(features, features.n_features, n_classes, head=head)


def _blocks_per_stage(depth: int) -> int:
    blocks, rest = divmod(depth - 4, 6)
    if blocks < 1 or rest:
        raise SettingError(f"depth is {depth}; expected 4 more than a multiple of 6, such as 10, 16, 22, 28 or 40")
    return blocks


def _scaled(stage: int, width: float) -> int:
    scaled = round(FIRST_CHANNELS * stage * width)
    if scaled < 1:
        raise SettingError(f"width is {width}; expected at least 1/16, which leaves one channel")
    return scaled
