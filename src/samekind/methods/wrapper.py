"""Wrapper: a method that contains another method, its base, and adds loss terms or other behaviour to it."""

from __future__ import annotations

from torch import Tensor, nn

from samekind.data.augment.transforms import Views
from samekind.data.dataset import Batch, Dataset
from samekind.methods.base import Method
from samekind.nets.classifier import Classifier


class MethodWrapper(Method):
    """Method that passes every call on to its base method. A subclass overrides the functions that it changes."""

    def __init__(self, base: Method) -> None:
        super().__init__()
        self.base = base
        self.labelled_views, self.unlabelled_views = base.labelled_views, base.unlabelled_views
        self.refresh_every = base.refresh_every
        self.images_only, self.stores_samples = base.images_only, base.stores_samples

    @classmethod
    def can_wrap(cls, base: Method) -> bool:
        """Return whether this wrapper can wrap the base method."""
        return base.iterative

    @property
    def student(self) -> Classifier:  # type: ignore[override]  # an attribute would put it into the state dict twice
        """Return the classifier that the base trains."""
        return self.base.student

    def adapt_views(self, views: Views) -> Views:
        return self.base.adapt_views(views)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        terms = self.base.losses(batch, progress)
        self.diagnostics = self.base.diagnostics
        return terms

    def after_step(self) -> None:
        self.base.after_step()

    def refresh(self, dataset: Dataset) -> None:
        self.base.refresh(dataset)

    def shortfall(self, epochs: float) -> str | None:
        return self.base.shortfall(epochs)

    def full_passes(self, steps: int) -> int:
        return self.base.full_passes(steps)

    def later_flops(self, steps: int) -> float:
        return self.base.later_flops(steps)

    def predictor(self) -> nn.Module:
        return self.base.predictor()
