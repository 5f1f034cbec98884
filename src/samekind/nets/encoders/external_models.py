"""Encoders from timm, torch.hub and transformers. Each of these libraries is imported only when one of its models is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from samekind.errors import ModelFileError, SettingError
from samekind.nets.encoders.batch_norm import fold_batch_norms
from samekind.nets.encoders.fingerprints import weights_fingerprint
from samekind.nets.encoders.normalized import IMAGENET_MEAN, IMAGENET_STD, NormalizedEncoder

DEFAULT_SIDE = 224
HEADS = ("fc", "classifier", "head", "heads")  # attribute names of the last layer in common image classifiers


def timm_encoder(name: str, side: int | None = None) -> nn.Module:
    """Return a pretrained model of timm without its classifier; images get the size and scaling of its training."""
    try:
        import timm
    except ImportError as error:
        raise SettingError(f"timm:{name} needs the package timm. Run: pip install 'samekind[timm]'") from error
    source = f"timm:{name}"
    try:
        net = timm.create_model(name, pretrained=True, num_classes=0)
        settings = timm.data.resolve_model_data_config(net)
    except Exception as error:  # for example an unknown name, no network, or a damaged download
        raise _not_loaded(source, error) from error
    found = side or int(settings["input_size"][-1])
    return _frozen(NormalizedEncoder(net, found, mean=settings["mean"], std=settings["std"], source=source))


def hub_encoder(name: str, side: int | None = None) -> nn.Module:
    """Return a model of torch.hub, "REPO:NAME", without its classifier. REPO is a folder, or OWNER/REPOSITORY on GitHub.

    torch.hub runs the file hubconf.py of the repository.
    """
    repository, colon, model = name.rpartition(":")
    source = f"hub:{name}"
    if not colon or not model:
        raise SettingError(f"encoder is {source!r}; expected hub:REPO:NAME, such as hub:pytorch/vision:resnet18")
    place = "local" if Path(repository).is_dir() else "github"
    try:
        net = _load_pretrained(repository, model, place)
    except Exception as error:  # the code of the repository may raise any error
        raise _not_loaded(source, error) from error
    if not isinstance(net, nn.Module):
        raise ModelFileError(
            f"{source} returned a {type(net).__name__}; expected a torch.nn.Module. Choose another model of the repository."
        )
    return _frozen(NormalizedEncoder(without_classifier(net), side or DEFAULT_SIDE, source=source))


def _load_pretrained(repository: str, model: str, place: str) -> Any:
    """Return a model of torch.hub with its pretrained weights.

    Most models have the option `pretrained`. The others have no untrained form and are loaded without it.
    """
    options = {"source": place, "trust_repo": True, "verbose": False}
    try:
        return torch.hub.load(repository, model, pretrained=True, **options)  # type: ignore[no-untyped-call]
    except TypeError as error:
        if "pretrained" not in str(error):
            raise
        return torch.hub.load(repository, model, **options)  # type: ignore[no-untyped-call]


def without_classifier(net: nn.Module) -> nn.Module:
    """Return the network with its last layer, an attribute such as `fc` or `head`, replaced by the identity.

    A network that has no such attribute is returned as it is.
    """
    for name in HEADS:
        if isinstance(getattr(net, name, None), (nn.Linear, nn.Sequential)):
            setattr(net, name, nn.Identity())
            return net
    return net


class HuggingFaceEncoder(NormalizedEncoder):
    """Encoder: an image model of transformers. Of a model for images and texts, only the image part is used."""

    def run(self, x: Tensor) -> Any:
        """Return the output of the network for images."""
        net: Any = self.net
        return net.get_image_features(pixel_values=x) if hasattr(net, "get_image_features") else net(pixel_values=x)


def huggingface_encoder(name: str, side: int | None = None) -> nn.Module:
    """Return an image model of transformers by its name or folder. Only safetensors weights are read, and no code is run."""
    try:
        import transformers
        from transformers.utils.hub import cached_file
    except ImportError as error:
        raise SettingError(f"hf:{name} needs the package transformers. Run: pip install 'samekind[transformers]'") from error
    source = f"hf:{name}"
    try:
        net = transformers.AutoModel.from_pretrained(name, use_safetensors=True, trust_remote_code=False)
        file = cached_file(name, "preprocessor_config.json", _raise_exceptions_for_missing_entries=False)
        settings = json.loads(Path(file).read_text(encoding="utf-8")) if file else {}
    except Exception as error:  # for example an unknown name, no network, or weights in another format
        raise _not_loaded(source, error) from error
    if net.main_input_name != "pixel_values" and not hasattr(net, "get_image_features"):
        raise ModelFileError(
            f"{source} takes the input {net.main_input_name}; expected a model that takes images. Choose another model."
        )
    found = side or _side_of(settings, net.config)
    mean, std = settings.get("image_mean") or IMAGENET_MEAN, settings.get("image_std") or IMAGENET_STD
    return _frozen(HuggingFaceEncoder(net, found, mean=mean, std=std, source=source))


def _side_of(settings: Mapping[str, Any], config: Any) -> int:
    """Return the size of the images in pixels: that of the crop, else of the resizing, else of the network's configuration."""
    for size in (settings.get("crop_size"), settings.get("size"), getattr(config, "image_size", None)):
        if isinstance(size, Mapping):
            size = size.get("height") or size.get("shortest_edge")
        if isinstance(size, int) and size > 0:
            return size
    return DEFAULT_SIDE


def _frozen(encoder: NormalizedEncoder) -> nn.Module:
    encoder.requires_grad_(False).eval()
    encoder.fingerprint = weights_fingerprint(encoder.net, encoder.extra_repr())
    images = torch.rand(2, 3, encoder.side, encoder.side, generator=torch.Generator().manual_seed(0))
    return fold_batch_norms(encoder, images)


def _not_loaded(source: str, error: Exception) -> ModelFileError:
    reason = " ".join(str(error).split())[:300]
    return ModelFileError(f"the encoder {source} cannot be loaded ({reason}). Check the name, and that it was downloaded once.")
