"""What additions share that add to their base: all that they do not change is the base's."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from torch import Tensor, nn

from samekind.data.augment.transforms import Views
from samekind.data.dataset import Batch, Dataset
from samekind.methods.base import Learner, OwnViews
from samekind.nets.classifier import Classifier

B = TypeVar("B", bound=Learner)


class MethodWrapper(nn.Module, Generic[B]):
    """A method that does what its base does. An addition holds a base, and says what is different."""

    iterative = True
    rides_on: ClassVar[tuple[str, ...]] = ("student",)  # what the base must have

    def __init__(self, base: B) -> None:
        super().__init__()
        self.base = base
        self.labelled_views, self.unlabelled_views = base.labelled_views, base.unlabelled_views
        self.refresh_every = int(getattr(base, "refresh_every", 0))
        self.images_only = bool(getattr(base, "images_only", False))

    @property
    def student(self) -> Classifier:
        return self.base.student

    @property
    def observed(self) -> dict[str, Tensor]:
        return self.base.observed

    def own_views(self, views: Views) -> Views:
        return self.base.own_views(views) if isinstance(self.base, OwnViews) else views

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        return self.base.losses(batch, progress)

    def after_step(self) -> None:
        self.base.after_step()

    def refresh(self, pool: Dataset) -> None:
        self.base.refresh(pool)

    def predictor(self) -> nn.Module:
        return self.base.predictor()
