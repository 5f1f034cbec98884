"""What a net costs: its parameters, and the floating-point operations of a pass and of a step of training.

A multiplication with its addition counts as two operations. Convolutions, linear layers and other matrix products count;
normalisation, activation and pooling do not, as in the papers' numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from samekind.errors import SettingError


@dataclass(frozen=True)
class Cost:
    """Of a net: what an optimiser moves, and the operations per row (an image, or a pair) in a pass."""

    parameters: int
    forward: int
    training: int  # forward and backward together


@dataclass(frozen=True)
class Passes:
    """Rows that go through a net in one step of training: `trained` forward and backward, `seen` forward only."""

    cost: Cost
    trained: int
    seen: int = 0


def step_flops(*passes: Passes) -> int:
    """Operations of one step of training: SUM trained * (forward + backward) + seen * forward over the nets."""
    return sum(p.trained * p.cost.training + p.seen * p.cost.forward for p in passes)


def cost_of(net: nn.Module, *rows: Tensor, through_input: bool = False) -> Cost:
    """Counted while `rows` pass through a copy of the net. All arguments hold the same number of rows.

    `through_input` says that the gradient goes on into the rows, as it does for a net on top of another one. The first
    layer of a net on data is spared that.
    """
    twin = copy.deepcopy(net).eval()
    with torch.no_grad(), counted() as forward:
        twin(*rows)
    with torch.enable_grad(), counted() as training:
        outputs = _tensors(twin(*[x.detach().requires_grad_(through_input) for x in rows]))
        total = torch.stack([output.sum() for output in outputs]).sum()
        if total.requires_grad:
            torch.autograd.backward(total)
    n = len(rows[0])
    return Cost(parameters_of(net), forward() // n, training() // n)


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """Counts what is done inside; what it yields says how much that was. On device "meta" it need not even be done."""
    backward = {torch.ops.aten.convolution_backward: _convolution_backward}
    with FlopCounterMode(display=False, custom_mapping=backward) as counter:
        yield counter.get_total_flops


def parameters_of(net: nn.Module) -> int:
    """Numbers that an optimiser may move; of a weight-normed layer both g and v."""
    return sum(p.numel() for p in net.parameters() if p.requires_grad)


def _convolution_backward(gradient: Sequence[int], x: Sequence[int], weight: Sequence[int], *rest: Any, **_: Any) -> int:
    """Each gradient that is wanted costs what the forward pass did. torch's own count is too high where there are groups."""
    transposed: bool = rest[4]
    wanted: Sequence[bool] = rest[7]
    forward = 2 * prod(x if transposed else gradient) * prod(weight[1:])
    return forward * sum(wanted[:2])  # the bias' gradient is a sum, without products


def _tensors(output: object) -> list[Tensor]:
    """The tensors of what a net gave: one, or some in a tuple."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, tuple) and output and all(isinstance(part, Tensor) for part in output):
        return list(output)
    raise SettingError(f"the net gave {type(output).__name__}; expected a tensor, or a tuple of tensors, to count its cost")
