"""Forward passes without side effects: temporary eval mode, unchanged buffers, interleaved batches, and random states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

if TYPE_CHECKING:
    from samekind.nets.classifier import Classifier, Output


@contextmanager
def eval_mode(net: nn.Module) -> Iterator[None]:
    """Put the net in eval mode inside the block, and restore the mode of each of its modules afterwards."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def forward_without_buffer_updates(net: Classifier, x: Tensor) -> Output:
    """Return the output of a forward pass; batch-norm statistics and all other buffers keep their values."""
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    output: Output = functional_call(net, buffers, (x,))
    return output


def interleaved_logits(net: Classifier, x: Tensor, n_batches: int) -> Tensor:
    """Return the logits (n, C) of x (n, ...), computed in k = `n_batches` interleaved batches: x[0::k], x[1::k], ...

    So each batch has samples from all parts of x, such as labelled and unlabelled ones, and batch norm uses the statistics of
    all. Only the first batch updates the running statistics.
    """
    batches = [torch.arange(start, len(x), n_batches, device=x.device) for start in range(min(n_batches, len(x)))]
    first, *others = batches
    logits = [net(x[first]).logits, *(forward_without_buffer_updates(net, x[batch]).logits for batch in others)]
    return torch.cat(logits)[torch.argsort(torch.cat(batches))]


def get_rng_state(device: torch.device) -> Tensor:
    """Return the state of the random number generator that networks on this device use."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_rng_state(state: Tensor, device: torch.device) -> None:
    """Restore a state that `get_rng_state` returned, so that the same random numbers are drawn again."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
