"""A compact net for images on CPUs: a fixed stem that whitens small patches, then few convolutions.

The stem's filters are the principal directions of the pool's patches, scaled to unit variance, each with both signs. They
need no training and no gradient, and spare the net the first and slowest thing it would have to learn. The comparison
that led here is in docs/nets.md.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.errors import DataError, SettingError
from samekind.nets.classifier import Classifier

SMALLEST_SIDE = 8
STEM_SIDE = 24  # the stem's stride doubles while it leaves this many pixels or more
LARGEST_STRIDE = 8  # a stem of 16x16 patches: 768 numbers in colour, still quick to decompose
MOST_DIRECTIONS = 24  # kept of a patch; each gives two filters
FEWEST_BLOCKS = 3
SMALL_MAP = 5  # pixels a side
FLOOR = 5e-4  # of the mean variance, added to every variance, so that what hardly varies is not blown up
SAMPLE = 1000  # images that the filters are made from
PATCHES = 10  # a side, of each of them


class CompactNet(nn.Module):
    """Images (n, channels, H, W) to z (n, n_features), made for images whose smaller side is about `side` pixels.

    Call `init_whitening(net, images)` first. A block is conv 3x3 -> pool -> batch norm -> GELU, its channels double from
    `width` up to `n_features`, and each but the first is followed by x + block(x). The mean over the last 3 to 6 pixels a side
    is z.

    `quick` pools right after the stem, goes on to 2 or 3 pixels and adds nothing to x: three times the images a second.
    With many labels that wins; with few it learns them by heart sooner.
    """

    def __init__(self, channels: int, *, side: int = 32, width: int = 32, n_features: int = 128, quick: bool = False) -> None:
        super().__init__()
        if side < SMALLEST_SIDE:
            raise SettingError(f"side is {side}; expected {SMALLEST_SIDE} or more pixels. Smaller images suit SmallConv.")
        self.n_features = n_features
        self.stem = WhiteningStem(channels, stride_for(side))
        halvings = round(math.log2(side // self.stem.stride - 1)) - (1 if quick else 2)
        at_once = quick and halvings > 3  # full resolution is where the time goes
        self.pool = HalvingMaxPool() if at_once else nn.Identity()
        n_pooled = halvings - at_once
        n_blocks = n_pooled + 1 if quick else max(n_pooled, FEWEST_BLOCKS)
        widths = [self.stem.n_filters, *(min(width * 2**depth, n_features) for depth in range(n_blocks - 1)), n_features]
        layers: list[nn.Module] = []
        for depth, (wide, next_wide) in enumerate(pairwise(widths)):
            layers.append(_convolved(wide, next_wide, pooled=depth < n_pooled))
            if depth > 0 and not quick:
                layers.append(Residual(_convolved(next_wide, next_wide, pooled=False)))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        # 1.3 to 1.6 times faster on CPUs; clone, because contiguous() leaves a single channel as it is
        stem = self.stem(x.clone(memory_format=torch.channels_last))
        maps: Tensor = self.layers(F.gelu(self.pool(stem)))
        return maps.mean(dim=(2, 3))


class HalvingMaxPool(nn.Module):
    """The maximum of 2x2 pixels. An odd one is dropped, which saves work, unless a map so small would be left with too few."""

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, 2, ceil_mode=min(x.shape[-2:]) <= SMALL_MAP)


class Residual(nn.Module):
    """x + change(x)."""

    def __init__(self, change: nn.Module) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.change(x)
        return x + change


class WhiteningStem(nn.Module):
    """Patches of 2x2 pixels (of 2s x 2s for a stride s > 1) by fixed filters, and a learnt bias.

    The filters are a buffer: no optimiser moves them, and they are saved, loaded and copied with the net.
    """

    filters: Tensor

    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.channels, self.stride, self.kernel = channels, stride, 2 * stride
        n_directions = min(channels * self.kernel**2, MOST_DIRECTIONS)
        self.n_filters = 2 * n_directions
        self.register_buffer("filters", torch.zeros(self.n_filters, channels, self.kernel, self.kernel))
        self.bias = nn.Parameter(torch.zeros(self.n_filters))

    def forward(self, x: Tensor) -> Tensor:
        if min(x.shape[-2:]) < self.kernel:
            raise DataError(
                f"the net got images of {x.shape[-2]}x{x.shape[-1]} pixels; its stem needs {self.kernel} or more. "
                "Make it for their size: CompactNet(channels, side=...)."
            )
        if not self.filters.any():
            raise SettingError("the stem has no filters yet. Call init_whitening(net, images) with images of the pool first.")
        return F.conv2d(x, self.filters, self.bias, stride=self.stride)


@torch.no_grad()
def init_whitening(net: nn.Module, images: Tensor) -> None:
    """Gives every whitening stem of `net` its filters, from up to 1000 of the images (n, C, H, W) as the net will see them.

    Filters are +-v/sqrt(lambda + floor) for the largest variances lambda of patches and their directions v. A net without
    such a stem is left as it is. Copies of the net made afterwards have the same filters.
    """
    for module in net.modules():
        if isinstance(module, WhiteningStem):
            filters = whitening_filters(images, module.kernel, module.n_filters // 2)
            module.filters.copy_(torch.cat([filters, -filters]))


def whitening_filters(images: Tensor, kernel: int, n: int) -> Tensor:
    """(n, C, kernel, kernel): patches times filters are uncorrelated and have variance 1, the strongest direction first."""
    everywhere = torch.linspace(0, len(images) - 1, min(len(images), SAMPLE)).long()  # a pool may be sorted by class
    covariance = _patch_covariance(images[everywhere], kernel)
    variances, directions = torch.linalg.eigh(covariance)
    mean = variances.mean()
    if not mean > 0:
        raise DataError("the images given to whiten are all zero: there is no direction to keep. Pass images that differ.")
    scaled: Tensor = directions / torch.sqrt(variances.clamp_min(0.0) + FLOOR * mean)
    return scaled.T.flip(0)[:n].reshape(n, images.shape[1], kernel, kernel)


def stride_for(side: int) -> int:
    """1 up to 47 pixels, 2 up to 95, 4 up to 191, then 8: the stem leaves 24 to 48 pixels of images of up to 384."""
    stride = 1
    while stride < LARGEST_STRIDE and side // (2 * stride) >= STEM_SIDE:
        stride *= 2
    return stride


def compact_classifier(
    shape: tuple[int, int, int], n_classes: int, *, n_features: int = 128, quick: bool = False
) -> Classifier:
    """A classifier for images of `shape` (channels, H, W). Whiten it before use."""
    channels, height, width = shape
    features = CompactNet(channels, side=min(height, width), n_features=n_features, quick=quick)
    return Classifier(features, n_features, n_classes)


def _patch_covariance(images: Tensor, kernel: int) -> Tensor:
    """Mean of p p^T over patches p, about 100 of each image: (d, d) with d = C kernel^2. In double precision."""
    step = max(1, min(images.shape[2:]) // PATCHES)
    total, n = torch.zeros(()), 0
    for some in torch.split(images, 32):
        patches = F.unfold(some.double(), kernel, stride=step).transpose(1, 2).flatten(0, 1)
        total, n = total + patches.T @ patches, n + len(patches)
    return total / n


def _convolved(wide: int, next_wide: int, *, pooled: bool) -> nn.Sequential:
    # no bias: batch norm would subtract it again; the pool comes first, so that the rest has a quarter of the work
    conv = nn.Conv2d(wide, next_wide, 3, padding=1, bias=False)
    pool = HalvingMaxPool() if pooled else nn.Identity()
    return nn.Sequential(conv, pool, nn.BatchNorm2d(next_wide), nn.GELU())
