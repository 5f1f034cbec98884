"""NormalizedEncoder: any image network as an encoder; images get the size and scaling that the network was trained with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.errors import DataError, SettingError

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class NormalizedEncoder(nn.Module):
    """Encoder: images (n, 1 or 3, H, W) with values from 0 to 1 to features (n, d) of the network `net`.

    Images are resized to side x side, and normalized by `mean` and `std`. If the network returns feature maps (n, d, h, w),
    they are averaged over their pixels; of tokens (n, t, d), the first is taken. `source` is the name of the encoder in
    messages.
    """

    def __init__(
        self,
        net: nn.Module,
        side: int,
        *,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        source: str = "the encoder",
    ) -> None:
        super().__init__()
        self.net, self.side, self.source = net, side, source
        self.fingerprint: str | None = None  # hash of the weights; None: it is computed when it is needed
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        x = resize_and_normalize(images, self.side, self.get_buffer("mean"), self.get_buffer("std"), source=self.source)
        return pool_features(self.run(x), source=self.source)

    def run(self, x: Tensor) -> Any:
        """Return the output of the network, which may be a tensor or an object of transformers."""
        return self.net(x)

    def extra_repr(self) -> str:
        mean, std = (self.get_buffer(name).flatten().tolist() for name in ("mean", "std"))
        return f"side={self.side}, mean={mean}, std={std}"


def resize_and_normalize(images: Tensor, side: int, mean: Tensor, std: Tensor, *, source: str) -> Tensor:
    """Return images (n, 1 or 3, H, W) resized to (n, 3, side, side), minus the mean and divided by the standard deviation."""
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise DataError(f"{source} got an input of shape {tuple(images.shape)}; expected images (n, 1 or 3, H, W)")
    if not (images.amin() >= 0.0 and images.amax() <= 1.0):
        found = f"from {float(images.amin()):g} to {float(images.amax()):g}"
        raise DataError(
            f"{source} got pixel values {found}; expected values from 0 to 1. Pass uint8 images, or divide by the "
            "largest value."
        )
    if images.shape[2:] != (side, side):
        images = F.interpolate(images, (side, side), mode="bicubic", antialias=True).clamp(0.0, 1.0)
    x = (images.expand(-1, 3, -1, -1) - mean) / std
    return x.contiguous(memory_format=torch.channels_last)


def pool_features(output: Any, *, source: str) -> Tensor:
    """Return the output of a network as features (n, d).

    Feature maps are averaged over their pixels, and of tokens the first is taken.
    """
    found = getattr(output, "pooler_output", None)
    if found is None:
        found = getattr(output, "last_hidden_state", output)
    if not isinstance(found, Tensor):
        raise SettingError(
            f"{source} returned {type(output).__name__}; expected one tensor of features. Wrap the encoder in a "
            "module that returns features (n, d)."
        )
    if found.ndim == 4:
        return found.mean(dim=(2, 3))
    if found.ndim == 3:
        return found[:, 0]
    if found.ndim != 2:
        raise SettingError(f"{source} returned a tensor of shape {tuple(found.shape)}; expected features (n, d) or maps.")
    return found
