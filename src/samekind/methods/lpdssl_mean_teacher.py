"""LPDSSL with Mean Teacher: propagated pseudo-labels in addition to the consistency term of a base method.

Iscen, Tolias, Avrithis & Chum 2019, "Label Propagation for Deep Semi-supervised Learning", arXiv:1904.04717.
"""

from __future__ import annotations

from torch import Tensor

from samekind.data.dataset import Batch, Dataset
from samekind.methods.base import Method, Task
from samekind.methods.lpdssl import DEFAULTS, SEARCH_SPACE, LPDSSLConfig, PropagatedLabels
from samekind.methods.spec import MethodSpec
from samekind.methods.wrapper import MethodWrapper


class LPDSSLWrapper(MethodWrapper):
    """Replaces the supervised loss of the base method by the loss terms of LPDSSL, and keeps all other terms of the base
    method.
    """

    def __init__(self, base: Method, task: Task, config: LPDSSLConfig | None = None) -> None:
        super().__init__(base)
        self.config = config or LPDSSLConfig()
        self.propagated = PropagatedLabels(task, self.config)
        self.refresh_every = self.propagated.refresh_every

    @classmethod
    def can_wrap(cls, base: Method) -> bool:
        return base.keeps_output

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        terms = super().losses(batch, progress)
        output = self.base.last_output
        assert output is not None
        return {**terms, **self.propagated.terms(output.unlabelled, output.labelled, batch)}

    def after_step(self) -> None:
        self.propagated.step += 1
        super().after_step()

    def refresh(self, dataset: Dataset) -> None:
        super().refresh(dataset)
        self.propagated.refresh(self.student, dataset)

    def full_passes(self, steps: int) -> int:
        return self.propagated.passes.count(steps)


SPEC = MethodSpec(
    "lpdssl+mean_teacher",
    LPDSSLWrapper,
    LPDSSLConfig,
    "LPDSSL with the consistency term of Mean Teacher",
    paper="Iscen, Tolias, Avrithis & Chum 2019, arXiv:1904.04717",
    base="mean_teacher",
    defaults=DEFAULTS,
    search_space=SEARCH_SPACE,
)
