"""SNTG: two samples get similar features if the teacher predicts the same class for both, and dissimilar features otherwise.

Luo, Zhu, Li, Ren & Zhang 2018, "Smooth Neighbors on Teacher Graphs", arXiv:1711.00258. This is an add-on: the base method
provides the targets, and the weight of its consistency term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from samekind.config import Config, Fraction, NonNegative, Positive
from samekind.data.dataset import UNLABELLED, Batch, Dataset
from samekind.losses.laplacian import contrastive
from samekind.methods.base import Method, Task
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.methods.wrapper import MethodWrapper
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay


@dataclass(frozen=True)
class SNTGConfig(Config):
    """Settings of SNTG; the defaults are the paper's."""

    k: NonNegative = 0.4  # weight of the pair loss, as a multiple of the base method's consistency weight
    margin: Positive = 1.0  # m, the distance up to which samples of different classes are pushed apart
    eps: Positive = 1e-8  # added inside the square root, whose gradient is infinite at 0
    evaluate: Literal["ema", "base"] = "ema"  # network that predicts after training; ignored if the base has a teacher
    # decay per step of the moving average for evaluate="ema"; None: averages over 2 % of the steps
    ema_decay: Fraction | None = None


class SNTG(MethodWrapper):
    """Adds a contrastive loss on pairs of samples: those of one class are pulled together, others pushed apart.

    The class of an unlabelled sample is the class of its target. `y` (n_samples,) are the labels.
    """

    y: Tensor
    step: Tensor

    def __init__(self, base: Method, task: Task, config: SNTGConfig | None = None) -> None:
        super().__init__(base)
        self.config = config or SNTGConfig()
        self.ema = None if base.teacher is not None or self.config.evaluate == "base" else ema_copy(base.student)
        self.ema_decay = ema_decay_for(self.config.ema_decay, task)
        self.register_buffer("y", torch.full((task.n_samples,), UNLABELLED))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    @classmethod
    def can_wrap(cls, base: Method) -> bool:
        return base.keeps_output

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        terms = super().losses(batch, progress)
        output = self.base.last_output
        assert output is not None
        classes = torch.where(self.y[batch.index] == UNLABELLED, _target_classes(output.target), self.y[batch.index])
        pairs = [_pair_halves(output.unlabelled.z, classes), _pair_halves(output.labelled.z, batch.y_l)]
        z_i, z_j, class_i, class_j = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        per_pair = contrastive(z_i, z_j, class_i == class_j, self.config.margin, self.config.eps)
        known = (class_i != UNLABELLED) & (class_j != UNLABELLED)
        return {**terms, "graph": output.weight * self.config.k * (known * per_pair).sum() / max(len(known), 1)}

    def after_step(self) -> None:
        self.step += 1
        super().after_step()
        if self.ema is not None:
            update_ema(self.ema, self.base.student, warmed_up_decay(self.ema_decay, int(self.step)), statistics="copy")

    def refresh(self, dataset: Dataset) -> None:
        """Refresh the base method, and store the labels of the dataset."""
        super().refresh(dataset)
        self.y.copy_(dataset.y)

    def predictor(self) -> nn.Module:
        return super().predictor() if self.ema is None else DeepPredictor(self.ema)


def _target_classes(target: Tensor) -> Tensor:
    """Return the class (n,) of each target (n, C), or UNLABELLED where a target has only zeros."""
    return torch.where(target.sum(1) > 0, target.argmax(1), UNLABELLED)


def _pair_halves(z: Tensor, classes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the features of the first and the second half, then the classes of both. Element k of both halves is a pair."""
    half = len(z) // 2
    return z[:half], z[half : 2 * half], classes[:half], classes[half : 2 * half]


SPEC = MethodSpec(
    "sntg",
    SNTG,
    SNTGConfig,
    "samples of one class according to the teacher get similar features",
    paper="Luo, Zhu, Li, Ren & Zhang 2018, arXiv:1711.00258",
    base="mean_teacher",
    search_space={"k": LogUniform(0.1, 1.0)},
)
