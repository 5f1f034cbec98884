"""Cost of a net: its parameters, and the floating-point operations (FLOPs) of a forward pass and of a training step."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.errors import SettingError
from samekind.flops import count_flops


@dataclass(frozen=True)
class NetCost:
    """Number of trainable parameters of a net, and its FLOPs per sample (per pair for the similarity network)."""

    parameters: int
    forward: int
    training: int  # FLOPs of a forward and a backward pass together


@dataclass(frozen=True)
class StepPasses:
    """How many samples pass through a net in one training step: with forward and backward pass, and with forward pass only."""

    cost: NetCost
    n_training: int
    n_inference: int = 0


def step_flops(*passes: StepPasses) -> int:
    """Return the FLOPs of one training step, summed over all nets."""
    return sum(p.n_training * p.cost.training + p.n_inference * p.cost.forward for p in passes)


def measure_net_cost(net: nn.Module, *inputs: Tensor, through_input: bool = False) -> NetCost:
    """Return the cost of a net, counted while `inputs` pass through a copy of it.

    All inputs have the same number of samples. With `through_input`, the gradient with respect to the inputs is counted too. It
    is needed for a net on top of another net, but not for a net whose inputs are data.
    """
    net_copy = copy.deepcopy(net).eval()
    with torch.no_grad(), count_flops() as forward:
        net_copy(*inputs)
    with torch.enable_grad(), count_flops() as training:
        outputs = _tensors(net_copy(*[x.detach().requires_grad_(through_input) for x in inputs]))
        total = torch.stack([output.sum() for output in outputs]).sum()
        if total.requires_grad:
            torch.autograd.backward(total)
    n = len(inputs[0])
    return NetCost(count_parameters(net), forward() // n, training() // n)


def count_parameters(net: nn.Module) -> int:
    """Return the number of trainable parameters. With weight norm, both the length g and the direction v of a weight count."""
    return sum(p.numel() for p in net.parameters() if p.requires_grad)


def _tensors(output: object) -> list[Tensor]:
    """Return the output of a net, a tensor or a tuple of tensors, as a list."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, tuple) and output and all(isinstance(part, Tensor) for part in output):
        return list(output)
    raise SettingError(f"the net returned {type(output).__name__}; expected a tensor or a tuple of tensors to count its cost")
