"""Full passes over the dataset between training steps, without side effects on the net or the random state."""

from __future__ import annotations

import torch
from torch import Tensor

from samekind.data.dataset import Dataset
from samekind.nets.classifier import Classifier
from samekind.nets.forward import eval_mode

BLOCK = 1024  # most samples in one forward pass
BLOCK_VALUES = 2**21  # most input values in one forward pass: large samples get smaller blocks


def dataset_features(net: Classifier, dataset: Dataset) -> Tensor:
    """Return the features z (n, d) of all samples without augmentation, in eval mode and without gradient, on the CPU."""
    device = next(net.parameters()).device
    size = max(1, min(BLOCK, BLOCK_VALUES // max(1, dataset.inputs(slice(1)).numel())))
    with torch.no_grad(), torch.random.fork_rng(devices=[]), eval_mode(net):
        blocks = (dataset.inputs(slice(start, start + size)) for start in range(0, len(dataset), size))
        return torch.cat([net(block.to(device)).z.cpu() for block in blocks])


def refresh_interval(epochs: float, steps_per_epoch: float, steps: int) -> int:
    """Return the number of steps between two full passes: `epochs` epochs, or fewer if training would have under ten passes."""
    return max(1, min(round(epochs * steps_per_epoch), steps // 10))
