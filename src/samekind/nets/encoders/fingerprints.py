"""Fingerprints: hashes by which encoders are recognized, in the cache of features and in saved models."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn


def fingerprint_of(encoder: Any) -> str | None:
    """Return the hash of an encoder: its own `fingerprint`, or that of the weights of a module; None for other functions."""
    own = getattr(encoder, "fingerprint", None)
    if isinstance(own, str):
        return own
    return weights_fingerprint(encoder) if isinstance(encoder, nn.Module) else None


def weights_fingerprint(module: nn.Module, settings: str = "") -> str:
    """Return a hash of the names, shapes and values of all weights of a module, and of a text."""
    digest = hashlib.sha256(f"{type(module).__qualname__} {settings}\n".encode())
    add_weights(digest, module)
    return digest.hexdigest()


def add_weights(digest: Any, module: nn.Module) -> None:
    """Add the names, shapes and values of all weights of a module to a hash."""
    for name, value in module.state_dict().items():
        tensor = value.detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
