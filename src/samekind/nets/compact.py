"""Compact net for images on CPUs: a fixed first layer, the stem, that whitens small patches, and a few convolutions after it.

The filters of the stem are the principal components of image patches, scaled to unit variance, each with both signs. They are
not trained, which saves time, and the net need not learn its first layer. docs/design/networks.md compares it with other nets.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.errors import DataError, SettingError
from samekind.nets.classifier import Classifier

MIN_SIDE = 8
STEM_SIDE = 24  # the stride of the stem is doubled while its output still has this many pixels a side
# largest stride of the stem: its patches have 16x16 pixels, in colour 768 values. For larger patches, the principal components
# would take too long.
MAX_STRIDE = 8
MAX_COMPONENTS = 24  # largest number of principal components of patches; each gives two filters
MIN_BLOCKS = 3
# side of a feature map, in pixels; on maps with an odd side, pooling drops the last row and column only above this
SMALL_MAP = 5
FLOOR = 5e-4  # this fraction of the mean variance is added to every variance, so that whitening does not amplify noise
N_IMAGES = 1000  # number of images from which the whitening filters are computed
PATCHES_PER_SIDE = 10  # number of patches along each side of an image


class CompactNet(nn.Module):
    """Feature network for images (n, channels, H, W), whose smaller side is about `side` pixels; z has the shape (n,
    n_features).

    Call `init_whitening(net, images)` before use. A block is conv 3x3 -> pool -> batch norm -> GELU. The channels double from
    block to block, from `width` up to `n_features`, and every block but the first is followed by a residual block. The last
    feature map has 3 to 6 pixels a side, and z is its mean.

    With `quick`, the net pools directly after the stem, pools down to 2 or 3 pixels a side, and has no residual blocks. It then
    processes three times as many images per second. In a given time it is more accurate with many labels; with few it overfits
    sooner.
    """

    def __init__(self, channels: int, *, side: int = 32, width: int = 32, n_features: int = 128, quick: bool = False) -> None:
        super().__init__()
        if side < MIN_SIDE:
            raise SettingError(f"side is {side}; expected {MIN_SIDE} or more pixels. Use SmallConv for smaller images.")
        self.n_features = n_features
        self.stem = WhiteningStem(channels, stride_for(side))
        halvings = round(math.log2(side // self.stem.stride - 1)) - (1 if quick else 2)
        # convolutions at full resolution take most of the time, so the quick net pools first
        pool_stem = quick and halvings > 3
        self.stem_pool = HalvingMaxPool() if pool_stem else nn.Identity()
        n_pooled = halvings - pool_stem
        n_blocks = n_pooled + 1 if quick else max(n_pooled, MIN_BLOCKS)
        widths = [self.stem.n_filters, *(min(width * 2**depth, n_features) for depth in range(n_blocks - 1)), n_features]
        layers: list[nn.Module] = []
        for depth, (n_in, n_out) in enumerate(pairwise(widths)):
            layers.append(_conv_block(n_in, n_out, pooled=depth < n_pooled))
            if depth > 0 and not quick:
                layers.append(Residual(_conv_block(n_out, n_out, pooled=False)))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        # channels_last is 1.3 to 1.6 times faster on CPUs; clone() sets it also for a single channel, contiguous() does not
        stem = self.stem(x.clone(memory_format=torch.channels_last))
        maps: Tensor = self.layers(F.gelu(self.stem_pool(stem)))
        return maps.mean(dim=(2, 3))


class HalvingMaxPool(nn.Module):
    """2x2 max pooling. On an odd side it drops the last row and column, which saves work, except on small feature maps."""

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, 2, ceil_mode=min(x.shape[-2:]) <= SMALL_MAP)


class Residual(nn.Module):
    """Residual connection: returns x + change(x)."""

    def __init__(self, change: nn.Module) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.change(x)
        return x + change


class WhiteningStem(nn.Module):
    """First layer of the compact net: fixed whitening filters on patches, and a trained bias.

    The patches have 2x2 pixels at stride 1, and 2s x 2s at a larger stride s. The filters are a buffer: they are saved, loaded
    and copied with the net, but not trained.
    """

    filters: Tensor

    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.channels, self.stride, self.kernel = channels, stride, 2 * stride
        n_components = min(channels * self.kernel**2, MAX_COMPONENTS)
        self.n_filters = 2 * n_components
        self.register_buffer("filters", torch.zeros(self.n_filters, channels, self.kernel, self.kernel))
        self.bias = nn.Parameter(torch.zeros(self.n_filters))

    def forward(self, x: Tensor) -> Tensor:
        if min(x.shape[-2:]) < self.kernel:
            raise DataError(
                f"the net got images of {x.shape[-2]}x{x.shape[-1]} pixels; its stem needs {self.kernel} or more. "
                "Create the net for images of this size: CompactNet(channels, side=...)."
            )
        if not self.filters.any():
            raise SettingError("the stem has no filters yet. Call init_whitening(net, images) with training images first.")
        return F.conv2d(x, self.filters, self.bias, stride=self.stride)


@torch.no_grad()
def init_whitening(net: nn.Module, images: Tensor) -> None:
    """Compute the filters of each whitening stem in `net` from up to 1000 of the images (n, C, H, W), scaled as in training.

    The filters are +v and -v, divided by sqrt(lambda + floor), for the principal components v of image patches with the largest
    variances lambda. A net without a whitening stem is left unchanged. Copies of the net that are made later have the same
    filters.
    """
    for module in net.modules():
        if isinstance(module, WhiteningStem):
            filters = whitening_filters(images, module.kernel, module.n_filters // 2)
            module.filters.copy_(torch.cat([filters, -filters]))


def whitening_filters(images: Tensor, kernel: int, n: int) -> Tensor:
    """Return n filters (n, C, kernel, kernel) whose responses are uncorrelated and have variance 1, largest component first."""
    # evenly spaced images, because images may be sorted by class
    evenly = torch.linspace(0, len(images) - 1, min(len(images), N_IMAGES)).long()
    covariance = _patch_covariance(images[evenly], kernel)
    variances, components = torch.linalg.eigh(covariance)
    mean = variances.mean()
    if not mean > 0:
        raise DataError(
            "the images given to init_whitening are all zero, so that no filter can be computed. Pass images that differ."
        )
    scaled: Tensor = components / torch.sqrt(variances.clamp_min(0.0) + FLOOR * mean)
    return scaled.T.flip(0)[:n].reshape(n, images.shape[1], kernel, kernel)


def stride_for(side: int) -> int:
    """Return the stride of the stem for images of `side` pixels: 1 up to 47 pixels, 2 up to 95, 4 up to 191, then 8.

    So for images of up to 384 pixels, the output of the stem has 24 to 48 pixels a side.
    """
    stride = 1
    while stride < MAX_STRIDE and side // (2 * stride) >= STEM_SIDE:
        stride *= 2
    return stride


def compact_classifier(
    shape: tuple[int, int, int], n_classes: int, *, n_features: int = 128, quick: bool = False
) -> Classifier:
    """Return a classifier with a compact net, for images of `shape` (channels, H, W).

    Call `init_whitening` on it before use.
    """
    channels, height, width = shape
    features = CompactNet(channels, side=min(height, width), n_features=n_features, quick=quick)
    return Classifier(features, n_features, n_classes)


def _patch_covariance(images: Tensor, kernel: int) -> Tensor:
    """Return the mean of p p^T over about 100 patches p of each image, shape (d, d) with d = C kernel^2, in float64."""
    step = max(1, min(images.shape[2:]) // PATCHES_PER_SIDE)
    total, n = torch.zeros(()), 0
    for block in torch.split(images, 32):
        patches = F.unfold(block.double(), kernel, stride=step).transpose(1, 2).flatten(0, 1)
        total, n = total + patches.T @ patches, n + len(patches)
    return total / n


def _conv_block(n_in: int, n_out: int, *, pooled: bool) -> nn.Sequential:
    # No bias, because batch norm would subtract it again. Pooling comes early, so that the layers after it have a quarter of
    # the work.
    conv = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False)
    pooling = HalvingMaxPool() if pooled else nn.Identity()
    return nn.Sequential(conv, pooling, nn.BatchNorm2d(n_out), nn.GELU())
