"""SNTG: rows that the teacher gives one class are drawn together in feature space, rows of two classes kept apart.

Luo, Zhu, Li, Ren & Zhang 2018, "Smooth Neighbors on Teacher Graphs", arXiv:1711.00258. An addition: the base says what the
target of each row is, and how much it is to be trusted by now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from samekind.data.dataset import UNLABELLED, Batch, Dataset
from samekind.errors import SettingError
from samekind.losses.laplacian import contrastive
from samekind.methods.base import Onlooker, Task, refuse_unknown_values
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.predictors import DeepPredictor
from samekind.methods.wrapper import MethodWrapper
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay


@dataclass(frozen=True)
class SNTGConfig:
    k: float = 0.4  # weight of the graph term, as a multiple of the base's consistency weight
    margin: float = 1.0  # m, how far apart rows of two classes are kept
    eps: float = 1e-8  # added inside the square root
    evaluate: Literal["average", "base"] = "average"  # a slow copy answers; the base's own teacher, if it has one
    average: float | None = None  # how much of itself that copy keeps per step; None: an average over 2 % of the run

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        if not self.margin > 0 or not self.eps > 0:
            raise SettingError(f"margin is {self.margin} and eps is {self.eps}; expected numbers above 0")


class SNTG(MethodWrapper[Onlooker]):
    """`y` (n_pool,) holds the labels that are known: a labelled row is its own teacher."""

    rides_on: ClassVar[tuple[str, ...]] = ("student", "look")
    y: Tensor
    step: Tensor

    def __init__(self, base: Onlooker, task: Task, config: SNTGConfig | None = None) -> None:
        super().__init__(base)
        self.config = config or SNTGConfig()
        has_teacher = getattr(base, "teacher", None) is not None
        self.own_slow = None if has_teacher or self.config.evaluate == "base" else ema_copy(base.student)
        self.alpha = ema_decay_for(self.config.average, task)
        self.register_buffer("y", torch.full((task.n_samples,), UNLABELLED))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        terms = super().losses(batch, progress)
        look = self.base.look
        assert look is not None
        kinds = torch.where(self.y[batch.index] == UNLABELLED, _said(look.target), self.y[batch.index])
        edges = [_by_halves(look.pool.z, kinds), _by_halves(look.labelled.z, batch.y_l)]
        z_i, z_j, kind_i, kind_j = (torch.cat(ends) for ends in zip(*edges, strict=True))
        per_pair = contrastive(z_i, z_j, kind_i == kind_j, self.config.margin, self.config.eps)
        known = (kind_i != UNLABELLED) & (kind_j != UNLABELLED)
        return {**terms, "graph": look.w * self.config.k * (known * per_pair).sum() / max(len(known), 1)}

    def after_step(self) -> None:
        self.step += 1
        super().after_step()
        if self.own_slow is not None:
            update_ema(self.own_slow, self.base.student, warmed_up_decay(self.alpha, int(self.step)), statistics="copy")

    def refresh(self, pool: Dataset) -> None:
        """The labels of the pool are remembered."""
        super().refresh(pool)
        self.y.copy_(pool.y)

    def predictor(self) -> nn.Module:
        return super().predictor() if self.own_slow is None else DeepPredictor(self.own_slow)


def _said(target: Tensor) -> Tensor:
    """The class (n,) of each target (n, C); none where the target is 0 throughout."""
    return torch.where(target.sum(1) > 0, target.argmax(1), UNLABELLED)


def _by_halves(z: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Row i of the first half beside row i of the second: both features, both classes."""
    half = len(z) // 2
    return z[:half], z[half : 2 * half], kinds[:half], kinds[half : 2 * half]
