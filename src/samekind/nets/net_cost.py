"""What a net costs: its parameters, and the floating-point operations of a pass and of a step of training."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.errors import SettingError
from samekind.flops import count_flops


@dataclass(frozen=True)
class NetCost:
    """Of a net: what an optimiser moves, and the operations per row (an image, or a pair) in a pass."""

    parameters: int
    forward: int
    training: int  # forward and backward together


@dataclass(frozen=True)
class StepPasses:
    """Rows that go through a net in one step of training: `trained` forward and backward, `seen` forward only."""

    cost: NetCost
    trained: int
    seen: int = 0


def step_flops(*passes: StepPasses) -> int:
    """Operations of one step of training: SUM trained * (forward + backward) + seen * forward over the nets."""
    return sum(p.trained * p.cost.training + p.seen * p.cost.forward for p in passes)


def measure_net_cost(net: nn.Module, *rows: Tensor, through_input: bool = False) -> NetCost:
    """Counted while `rows` pass through a copy of the net. All arguments hold the same number of rows.

    `through_input` says that the gradient goes on into the rows, as it does for a net on top of another one. The first
    layer of a net on data is spared that.
    """
    twin = copy.deepcopy(net).eval()
    with torch.no_grad(), count_flops() as forward:
        twin(*rows)
    with torch.enable_grad(), count_flops() as training:
        outputs = _tensors(twin(*[x.detach().requires_grad_(through_input) for x in rows]))
        total = torch.stack([output.sum() for output in outputs]).sum()
        if total.requires_grad:
            torch.autograd.backward(total)
    n = len(rows[0])
    return NetCost(count_parameters(net), forward() // n, training() // n)


def count_parameters(net: nn.Module) -> int:
    """Numbers that an optimiser may move; of a weight-normed layer both g and v."""
    return sum(p.numel() for p in net.parameters() if p.requires_grad)


def _tensors(output: object) -> list[Tensor]:
    """The tensors of what a net gave: one, or some in a tuple."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, tuple) and output and all(isinstance(part, Tensor) for part in output):
        return list(output)
    raise SettingError(f"the net gave {type(output).__name__}; expected a tensor, or a tuple of tensors, to count its cost")
