"""Count floating-point operations while they run.

A multiplication and the addition of its result count as two operations. Convolutions, linear layers and other matrix products
count; normalisation, activation and pooling do not, as in the papers' numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch


@contextmanager
def count_flops() -> Iterator[Callable[[], int]]:
    """Count the operations inside the block, forward and backward; yield a function that returns the count so far."""
    from torch.utils.flop_counter import FlopCounterMode

    backward = {torch.ops.aten.convolution_backward: _convolution_backward}
    with FlopCounterMode(display=False, custom_mapping=backward) as counter:
        yield counter.get_total_flops


def _convolution_backward(gradient: Sequence[int], x: Sequence[int], weight: Sequence[int], *rest: Any, **_: Any) -> int:
    """Return the operations of a convolution's backward pass: each gradient takes as many operations as the forward pass.

    Torch's own formula is not used, because its count is too high for grouped convolutions.
    """
    transposed: bool = rest[4]
    needed: Sequence[bool] = rest[7]  # gradients of the input, the weight and the bias
    forward = 2 * prod(x if transposed else gradient) * prod(weight[1:])
    return forward * sum(needed[:2])  # the gradient of the bias is a sum, without products
