"""Floating-point operations, counted while they are done.

A multiplication with its addition counts as two. Convolutions, linear layers and other matrix products count; normalisation,
activation and pooling do not, as in the papers' numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch


@contextmanager
def count_flops() -> Iterator[Callable[[], int]]:
    """Counts what is done inside, forward and backward; what it yields says how much that was so far."""
    from torch.utils.flop_counter import FlopCounterMode

    backward = {torch.ops.aten.convolution_backward: _convolution_backward}
    with FlopCounterMode(display=False, custom_mapping=backward) as counter:
        yield counter.get_total_flops


def _convolution_backward(gradient: Sequence[int], x: Sequence[int], weight: Sequence[int], *rest: Any, **_: Any) -> int:
    """Each gradient that is wanted costs what the forward pass did. torch's own count is too high where there are groups."""
    transposed: bool = rest[4]
    wanted: Sequence[bool] = rest[7]
    forward = 2 * prod(x if transposed else gradient) * prod(weight[1:])
    return forward * sum(wanted[:2])  # the bias' gradient is a sum, without products
