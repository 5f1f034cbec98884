"""FitOptions: the options of a fit, their validation, and the values that "auto" stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from samekind import defaults
from samekind.data.augment.transforms import Views
from samekind.errors import SettingError
from samekind.methods import (
    AUTO,
    is_iterative,
    require_settings,
    resolve_method,
    uses_unlabelled,
)
from samekind.methods.spec import DataKind
from samekind.nets.encoders.frozen_features import FeatureCache
from samekind.nets.encoders.names import AUTO as AUTO_ENCODER
from samekind.nets.encoders.names import AnyEncoder
from samekind.parameters import require_parameters
from samekind.progress import Progress
from samekind.training.engine import Precision
from samekind.training.trainer import SAVE_EVERY

# Options that only methods with training steps use. If one of them is given, method="auto" chooses such a method.
TRAINING_OPTIONS = (
    "preset",
    "net",
    "views",
    "epochs",
    "batch_size",
    "supervised_warmup",
    "optimizer",
    "learning_rate",
)


Finetune = Literal["auto", "none", "last", "all"]


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit. `SemiSupervisedClassifier` has the same parameters and documents them."""

    method: str
    settings: Mapping[str, Any] | None = None
    preset: Literal["auto", "paper"] = "auto"
    net: str | nn.Module = "auto"
    views: str | Views = "auto"
    epochs: float | Literal["auto", "quick"] = "auto"
    minutes: float | None = None
    batch_size: tuple[int, int] | Literal["auto"] = "auto"
    supervised_warmup: float | Literal["auto"] = "auto"
    optimizer: Literal["auto", "adam", "sgd"] = "auto"
    learning_rate: float | Literal["auto"] = "auto"
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False
    history: str | Path | None = None
    tensorboard: str | Path | None = None
    checkpoint: str | Path | None = None
    save_every: float = SAVE_EVERY
    precision: Precision = "auto"
    accumulation_steps: int = 1
    propagate: bool = False
    encoder: AnyEncoder | None = AUTO_ENCODER
    finetune: Finetune = "auto"
    cache: str | Path | FeatureCache | None = None
    progress: Progress | None = None

    def validate(self) -> None:
        """Raise SettingError for the first option that has an invalid value."""
        if self.method != AUTO:
            is_iterative(self.method)  # raises an error if there is no such method
        if isinstance(self.random_state, int) and not 0 <= self.random_state < 2**32:
            raise SettingError(f"random_state is {self.random_state}; expected a whole number from 0 to {2**32 - 1}, or None")
        defaults.device_for(self.device)
        require_parameters({name.name: getattr(self, name.name) for name in fields(self)})
        self.require_settings(("vectors", True), ("vectors", False), ("images", False))
        if self.minutes is not None and self.epochs != "auto":
            raise SettingError(
                f"minutes is {self.minutes!r} and epochs is {self.epochs!r}; expected only one of the two. Leave the other out."
            )

    def require_settings(self, *possible: tuple[DataKind, bool]) -> None:
        """Raise SettingError if no method that the fit may use accepts the settings.

        `possible` are the kinds of data on which the method may work, and whether these are encoded samples. A fit calls this
        before it encodes the samples, which may take minutes.
        """
        methods = [resolve_method(self.method, kind, trained=self._trains(encoded=encoded)) for kind, encoded in possible]
        require_settings(list(dict.fromkeys(methods)), self.settings or {})

    def resolve_encoder(self) -> FitOptions:
        """Return the options; if they ask for a network that is trained on the images themselves, encoder="auto" becomes
        None.
        """
        named = self.method != AUTO and is_iterative(self.method)
        return replace(self, encoder=None) if self.encoder == AUTO_ENCODER and (named or self._trains(encoded=True)) else self

    def _trains(self, *, encoded: bool) -> bool:
        """Return whether the user set an option of the training steps.

        For encoded images, epochs="quick" alone does not count as such an option.
        """
        given = {one.name for one in fields(self) if one.name in TRAINING_OPTIONS and getattr(self, one.name) != one.default}
        if encoded and self.epochs == "quick":
            given -= {"epochs"}
        return bool(given)

    def resolve(self, shape: tuple[int, ...]) -> FitOptions:
        """Return the options in which method="auto" is replaced by the method for samples of this shape."""
        trained = self._trains(encoded=self.encoder is not None)
        return replace(self, method=resolve_method(self.method, defaults.kind_of(shape), trained=trained))

    @property
    def is_paper(self) -> bool:
        """Return whether the paper's own settings are used."""
        return self.preset == "paper"

    def warmup_fraction(self, n_labelled: int, shape: tuple[int, ...]) -> float:
        """Return the fraction of the steps that train on labels only, for samples of this shape."""
        if self.supervised_warmup != "auto":
            return float(self.supervised_warmup)
        if not uses_unlabelled(self.method):
            return 0.0  # the method itself trains on labels only
        return defaults.supervised_warmup_for(n_labelled, color=defaults.is_color_image(shape), paper=self.is_paper)
