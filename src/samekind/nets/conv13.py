"""CNN-13, the network of semi-supervised papers from 2017 to 2020: nine convolutions, 128 features.

Laine & Aila 2017, arXiv:1610.02242; Tarvainen & Valpola 2017, arXiv:1703.01780. It has two variants, by normalisation:

    B  weight norm with bias -> batch norm -> LeakyReLU(0.1), as in fast-SWA, ICT and LPDSSL (the default)
    A  weight norm -> mean-only batch norm -> LeakyReLU(0.1), as in Temporal Ensembling, Mean Teacher and SNTG;
       initialise it with `data_dependent_init`
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from samekind.errors import DataError, SettingError, did_you_mean
from samekind.nets.classifier import SLOPE, Classifier

Variant = Literal["A", "B"]
VARIANTS = ("A", "B")
MIN_SIDE = 12  # least side of an image, in pixels: two pooling layers leave 3, as many as the unpadded 3x3 convolution needs
V_STD = 0.05  # initial standard deviation of v in variant A, where weight norm writes a weight as g v / ||v||
# (channels at width 1, kernel, padding) of each convolution; pooling follows the first and the second group
GROUPS = (
    ((128, 3, 1), (128, 3, 1), (128, 3, 1)),
    ((256, 3, 1), (256, 3, 1), (256, 3, 1)),
    ((512, 3, 0), (256, 1, 0), (128, 1, 0)),
)


class Conv13(nn.Module):
    """Feature network for images (n, channels, H, W) of 12 pixels a side or more; the features z have the shape (n, 128 width).

    `noise` is the standard deviation of Gaussian noise on the input (0.15 in the papers of variant A). `dropout` follows both
    pooling layers. Noise and dropout act in train mode only. `weight_norm=False` makes variant B use batch norm without weight
    norm.
    """

    def __init__(
        self,
        channels: int = 3,
        *,
        variant: Variant = "B",
        width: float = 1.0,
        weight_norm: bool = True,
        noise: float = 0.0,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        _require_variant(variant, weight_norm)
        self.variant = variant
        self.weight_norm = weight_norm
        self.n_features = _scaled(128, width)
        layers: list[nn.Module] = [InputNoise(noise)] if noise > 0 else []
        n_in = channels
        for group in GROUPS:
            for full, kernel, padding in group:
                n_out = _scaled(full, width)
                conv = nn.Conv2d(n_in, n_out, kernel, padding=padding, bias=variant == "B")
                layers += [_normalized(conv, n_out, variant, weight_norm), nn.LeakyReLU(SLOPE)]
                n_in = n_out
            if group is not GROUPS[-1]:
                layers += [nn.MaxPool2d(2), nn.Dropout(dropout)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        if min(x.shape[-2:]) < MIN_SIDE:
            raise DataError(
                f"CNN-13 got images of {x.shape[-2]}x{x.shape[-1]} pixels; it needs {MIN_SIDE}x{MIN_SIDE} or more. "
                "Enlarge the images, or use image_classifier of samekind.nets.small_conv."
            )
        # channels_last is faster on CPUs; clone() sets it also for a single channel, contiguous() does not
        maps: Tensor = self.layers(x.clone(memory_format=torch.channels_last))
        return maps.mean(dim=(2, 3))


def conv13_classifier(n_classes: int, features: Conv13 | None = None) -> Classifier:
    """Return CNN-13 with a linear head, which is normalised like the convolutions.

    The head has weight norm if the convolutions have it, and in variant A mean-only batch norm too.
    """
    features = features or Conv13()
    linear = nn.Linear(features.n_features, n_classes, bias=features.variant == "B")
    if features.variant == "A":
        head: nn.Module = WeightNormUnit(linear, n_classes)
    else:
        head = parametrizations.weight_norm(linear) if features.weight_norm else linear
    return Classifier(features, features.n_features, n_classes, head=head)


class InputNoise(nn.Module):
    """Gaussian noise on the input in train mode: x + sigma * N(0, 1)."""

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.sigma = sigma

    def forward(self, x: Tensor) -> Tensor:
        return x + self.sigma * torch.randn_like(x) if self.training else x


class MeanOnlyNorm(nn.Module):
    """Mean-only batch norm: x - mean + bias for each channel. The scale is left to weight norm.

    The running mean becomes momentum * running mean + (1 - momentum) * batch mean. So here `momentum` is the weight of the
    past; in torch's BatchNorm it is the weight of the batch.
    """

    running_mean: Tensor

    def __init__(self, channels: int, momentum: float = 0.999) -> None:
        super().__init__()
        self.momentum = momentum
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.running_mean
        if self.training:
            mean = x.mean(dim=_all_but_channels(x))
            self.running_mean.lerp_(mean.detach(), 1.0 - self.momentum)
        shift = self.bias - mean
        return x + shift.view(-1, *[1] * (x.ndim - 2))


class WeightNormUnit(nn.Module):
    """Layer of variant A: weight norm without bias, then mean-only batch norm. The weights v start from N(0, 0.05^2)."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, channels: int) -> None:
        super().__init__()
        nn.init.normal_(layer.weight, std=V_STD)
        self.layer = parametrizations.weight_norm(layer)
        self.norm = MeanOnlyNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        centered: Tensor = self.norm(self.layer(x))
        return centered


def data_dependent_init(net: nn.Module, batch: Tensor) -> None:
    """Initialize variant A: scale each layer so that each channel of its output has standard deviation 1 over `batch`.

    The running means start at the means of the batch: from 0, with a momentum of 0.999, they would need thousands of steps.
    Noise and dropout act if `net` is in train mode, as they do in training.
    """
    units = [module for module in net.modules() if isinstance(module, WeightNormUnit)]
    if not units:
        raise SettingError(
            "data_dependent_init found no mean-only batch norm in the net. Only variant 'A' needs this function: do not call "
            "it for other nets."
        )
    hooks = [unit.register_forward_pre_hook(_scale_to_unit_std) for unit in units]
    try:
        with torch.no_grad():
            net(batch)
    finally:
        for hook in hooks:
            hook.remove()


def _scale_to_unit_std(unit: nn.Module, inputs: tuple[Any, ...]) -> None:
    assert isinstance(unit, WeightNormUnit)
    out: Tensor = unit.layer(*inputs)
    std, mean = torch.std_mean(out, dim=_all_but_channels(out), correction=0)
    std = torch.where(std > 1e-6, std, 1.0)  # a channel that is constant over the batch keeps its scale
    g = unit.layer.get_parameter("parametrizations.weight.original0")
    g.div_(std.view_as(g))
    unit.norm.running_mean.copy_(mean / std)


def _normalized(conv: nn.Conv2d, channels: int, variant: Variant, weight_norm: bool) -> nn.Module:
    if variant == "A":
        return WeightNormUnit(conv, channels)
    return nn.Sequential(parametrizations.weight_norm(conv) if weight_norm else conv, nn.BatchNorm2d(channels))


def _all_but_channels(x: Tensor) -> list[int]:
    return [dim for dim in range(x.ndim) if dim != 1]


def _scaled(channels: int, width: float) -> int:
    scaled = round(channels * width)
    if scaled < 1:
        raise SettingError(f"width is {width}, which leaves none of {channels} channels. Use a width of 1/128 or more.")
    return scaled


def _require_variant(variant: str, weight_norm: bool) -> None:
    if variant not in VARIANTS:
        raise SettingError(f"CNN-13 has no variant {variant!r}; {did_you_mean(variant, VARIANTS)}")
    if variant == "A" and not weight_norm:
        raise SettingError(
            "variant is 'A', which needs weight norm, but weight_norm is False. For plain batch norm use variant='B'."
        )
