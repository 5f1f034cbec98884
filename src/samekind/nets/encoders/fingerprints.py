"""Fingerprints: hashes of encoders. The cache of features and saved models use them to recognize an encoder."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn


def fingerprint_of(encoder: Any) -> str | None:
    """Return the hash of an encoder: its attribute `fingerprint`, or a hash of a module's weights; None for other functions."""
    own = getattr(encoder, "fingerprint", None)
    if isinstance(own, str):
        return own
    return weights_fingerprint(encoder) if isinstance(encoder, nn.Module) else None


def weights_fingerprint(module: nn.Module, settings: str = "") -> str:
    """Return a hash of the names, shapes and values of all weights of a module, and of the text `settings`."""
    digest = hashlib.sha256(f"{type(module).__qualname__} {settings}\n".encode())
    add_weights(digest, module)
    return digest.hexdigest()


def add_weights(digest: Any, module: nn.Module) -> None:
    """Add the names, shapes and values of all weights of a module to a hash."""
    for name, value in module.state_dict().items():
        tensor = value.detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
