"""Full passes over the dataset between training steps, which change neither the network nor the random state."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from samekind.data.dataset import Dataset
from samekind.methods.base import Task
from samekind.nets.classifier import Classifier
from samekind.nets.forward import eval_mode

BLOCK = 1024  # largest number of samples in one forward pass
INTERVALS = 5  # least number of intervals between full passes into which a training is divided
BLOCK_VALUES = 2**21  # largest number of input values in one forward pass, so that large samples get smaller blocks


def dataset_features(net: Classifier, dataset: Dataset) -> Tensor:
    """Return the features z (n, d) of all samples, on the CPU. Samples are not augmented, and the network is in eval mode."""
    device = next(net.parameters()).device
    size = max(1, min(BLOCK, BLOCK_VALUES // max(1, dataset.inputs(slice(1)).numel())))
    with torch.no_grad(), torch.random.fork_rng(devices=[]), eval_mode(net):
        blocks = (dataset.inputs(slice(start, start + size)) for start in range(0, len(dataset), size))
        return torch.cat([net(block.to(device)).z.cpu() for block in blocks])


class PassPlan(NamedTuple):
    """Plan of full passes, for a method that is first trained on the labels alone, and then makes a pass every `epochs`
    epochs.
    """

    start: float  # fraction of training before the first pass
    epochs: float  # epochs between two passes
    steps_per_epoch: float

    @classmethod
    def of(cls, start: float, epochs: float, task: Task) -> PassPlan:
        """Return the plan for the batch sizes of this task."""
        return cls(start, epochs, task.n_samples / max(task.batch_unlabelled, 1))

    def interval(self, steps: int) -> int:
        """Return the number of steps between two passes: the length of `epochs` epochs, or a fifth of the training if
        that is less.
        """
        return max(1, min(round(self.epochs * self.steps_per_epoch), steps // INTERVALS))

    def count(self, steps: int) -> int:
        """Return the number of passes in a training of `steps` steps."""
        return sum(done >= self.start * steps for done in range(0, steps, self.interval(steps)))
