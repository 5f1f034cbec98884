"""Counting of floating-point operations (FLOPs) while they run.

A multiplication and the addition of its result count as two operations. Convolutions, linear layers, other matrix products and
solvers of linear systems count. As in the papers, normalisation, activation and pooling do not count. Torch reports its
operations itself. Code that computes with numpy or scipy reports them with `add_flops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any

# operations reported by code with numpy and scipy; None: they are not being counted
_reported: ContextVar[list[int] | None] = ContextVar("reported_flops", default=None)


def add_flops(operations: float) -> None:
    """Report operations that torch does not know of, such as those of numpy.

    Outside a `count_flops` block this does nothing.
    """
    reported = _reported.get()
    if reported is not None:
        reported.append(round(operations))


@contextmanager
def count_flops() -> Iterator[Callable[[], int]]:
    """Count the operations inside the block, forward and backward; yield a function that returns their number so far.

    If a block is inside another one, the outer block counts its operations too.
    """
    import torch  # imported here, because modules without torch report their operations too
    from torch.utils.flop_counter import FlopCounterMode

    backward = {torch.ops.aten.convolution_backward: _convolution_backward}
    outer, reported = _reported.get(), list[int]()
    token = _reported.set(reported)
    try:
        with FlopCounterMode(display=False, custom_mapping=backward) as counter:
            yield lambda: int(counter.get_total_flops()) + sum(reported)
    finally:
        _reported.reset(token)
        if outer is not None:
            outer.extend(reported)


def _convolution_backward(gradient: Sequence[int], x: Sequence[int], weight: Sequence[int], *rest: Any, **_: Any) -> int:
    """Return the operations of a convolution's backward pass: each gradient takes as many operations as the forward pass.

    Torch's own formula is not used, because it counts too many operations for grouped convolutions.
    """
    transposed: bool = rest[4]
    needed: Sequence[bool] = rest[7]  # whether the gradients of the input, the weight and the bias are computed
    forward = 2 * prod(x if transposed else gradient) * prod(weight[1:])
    return forward * sum(needed[:2])  # the gradient of the bias is a sum without products
