"""What a net makes of the whole pool, looked up while it is trained, without leaving a trace."""

from __future__ import annotations

import torch
from torch import Tensor

from samekind.data.dataset import Dataset
from samekind.nets.classifier import Classifier
from samekind.nets.forward import eval_mode

ROWS = 1024  # in a block,
VALUES = 2**21  # or fewer, if they are large images and hold more numbers than this


def dataset_features(net: Classifier, pool: Dataset) -> Tensor:
    """z (n, d) of every row of the pool as it is, in eval mode and without gradient, on the CPU."""
    device = next(net.parameters()).device
    size = max(1, min(ROWS, VALUES // max(1, pool.inputs(slice(1)).numel())))
    with torch.no_grad(), torch.random.fork_rng(devices=[]), eval_mode(net):
        blocks = (pool.inputs(slice(start, start + size)) for start in range(0, len(pool), size))
        return torch.cat([net(block.to(device)).z.cpu() for block in blocks])


def refresh_interval(epochs: float, steps_per_epoch: float, steps: int) -> int:
    """Steps between two looks at the pool: so many epochs, and at least ten looks in a run."""
    return max(1, min(round(epochs * steps_per_epoch), steps // 10))
