"""Full passes over the dataset between training steps, which change neither the network nor the random state."""

from __future__ import annotations

import torch
from torch import Tensor

from samekind.data.dataset import Dataset
from samekind.nets.classifier import Classifier
from samekind.nets.forward import eval_mode

BLOCK = 1024  # largest number of samples in one forward pass
BLOCK_VALUES = 2**21  # largest number of input values in one forward pass, so that large images are passed in smaller blocks


def dataset_features(net: Classifier, dataset: Dataset) -> Tensor:
    """Return the features z (n, d) of all samples, on the CPU. Samples are not augmented, and the network is in eval mode."""
    device = next(net.parameters()).device
    size = max(1, min(BLOCK, BLOCK_VALUES // max(1, dataset.inputs(slice(1)).numel())))
    with torch.no_grad(), torch.random.fork_rng(devices=[]), eval_mode(net):
        blocks = (dataset.inputs(slice(start, start + size)) for start in range(0, len(dataset), size))
        return torch.cat([net(block.to(device)).z.cpu() for block in blocks])


def refresh_interval(epochs: float, steps_per_epoch: float, steps: int) -> int:
    """Return the number of steps between two full passes over the dataset.

    It is the length of `epochs` epochs, or a tenth of the training if that is shorter.
    """
    return max(1, min(round(epochs * steps_per_epoch), steps // 10))
