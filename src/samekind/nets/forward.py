"""Passes through a net in train mode that leave less behind than a plain one would."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call

from samekind.nets.classifier import Classifier, Output


def without_trace(net: Classifier, x: Tensor) -> Output:
    """The answers of a plain pass, but batch-norm statistics, and all other buffers, are afterwards what they were."""
    passing = {name: buffer.clone() for name, buffer in net.named_buffers()}
    output: Output = functional_call(net, passing, (x,))
    return output


def dealt(net: Classifier, x: Tensor, hands: int) -> Tensor:
    """Logits (n, C) of x (n, ...), dealt out like cards to so many passes that each sees a cut through all of x.

    Batch norm then normalises what stands first in x together with what stands last. Statistics are kept of the first pass.
    """
    places = [torch.arange(hand, len(x), hands, device=x.device) for hand in range(min(hands, len(x)))]
    first, *others = places
    said = [net(x[first]).logits, *(without_trace(net, x[place]).logits for place in others)]
    return torch.cat(said)[torch.argsort(torch.cat(places))]


def chance(device: torch.device) -> Tensor:
    """The random state that nets on this device draw from."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_chance(state: Tensor, device: torch.device) -> None:
    """Nets on this device draw again what they drew from this state on."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
