"""Configs: a value outside the declared range or choices is refused with what was expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from samekind.config import Config, Fraction, FractionBelowOne, NonNegativeInt, Positive, PositiveInt
from samekind.errors import SettingError


@dataclass(frozen=True)
class ExampleConfig(Config):
    rate: Positive = 0.1
    decay: Fraction | None = None
    start: FractionBelowOne = 0.5
    neighbors: PositiveInt = 5
    rounds: NonNegativeInt = 0
    mode: Literal["exact", "auto"] = "auto"
    sizes: Literal["labels"] | tuple[float, ...] = "labels"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": 0.0}, "rate is 0.0; expected a number above 0"),
        ({"rate": float("nan")}, "rate is nan; expected a number above 0"),
        ({"rate": "0.1"}, "rate is '0.1'; expected a number above 0"),
        ({"decay": 1.5}, "decay is 1.5; expected a number from 0 to 1, or None for the default rule"),
        ({"start": 1.0}, "start is 1.0; expected a number from 0 to below 1"),
        ({"neighbors": 2.5}, "neighbors is 2.5; expected a whole number, 1 or more"),
        ({"neighbors": True}, "neighbors is True; expected a whole number, 1 or more"),
        ({"rounds": -1}, "rounds is -1; expected a whole number, 0 or more"),
        ({"mode": "exakt"}, "mode is 'exakt'; did you mean 'exact'?"),
        ({"sizes": "label"}, "sizes is 'label'; did you mean 'labels'?"),
    ],
)
def test_a_value_out_of_range_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        ExampleConfig(**settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [{}, {"decay": 0}, {"decay": 1}, {"start": 0.0}, {"rate": np.float32(0.5)}, {"neighbors": np.int64(3)}, {"sizes": (1.0,)}],
)
def test_a_value_in_range_is_accepted(settings: dict[str, Any]) -> None:
    ExampleConfig(**settings)
