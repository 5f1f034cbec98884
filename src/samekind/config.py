"""Configs: frozen dataclasses whose field types declare the allowed values, and the function that checks them.

A field such as `ema_decay: Fraction | None = None` declares its range, and `Config` checks all fields when an object is
created.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from samekind.errors import SettingError, did_you_mean


@dataclass(frozen=True)
class NumberRange:
    """Range of allowed numbers, from `low` to `high`. `open_low` and `open_high` exclude `low` and `high` themselves."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    whole: bool = False

    def contains(self, value: object) -> bool:
        """Return whether the value is a finite number in the range."""
        try:
            number = math.nan if isinstance(value, bool | str) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            return False
        if not math.isfinite(number) or (self.whole and not number.is_integer()):
            return False
        above = number > self.low if self.open_low else number >= self.low
        return above and (number < self.high if self.open_high else number <= self.high)

    def __str__(self) -> str:
        number = "a whole number" if self.whole else "a number"
        low = f"above {self.low:g}" if self.open_low else f"from {self.low:g}"
        if self.high == math.inf:
            return f"{number} {low}" if self.open_low else f"{number}, {self.low:g} or more"
        return f"{number} {low} to {'below ' if self.open_high else ''}{self.high:g}"


Fraction = Annotated[float, NumberRange(0.0, 1.0)]
FractionBelowOne = Annotated[float, NumberRange(0.0, 1.0, open_high=True)]
Positive = Annotated[float, NumberRange(0.0, open_low=True)]
NonNegative = Annotated[float, NumberRange(0.0)]
PositiveInt = Annotated[int, NumberRange(1, whole=True)]
NonNegativeInt = Annotated[int, NumberRange(0, whole=True)]


@dataclass(frozen=True)
class Config:
    """Base class of settings. They are checked against their declared types when an object is created."""

    def __post_init__(self) -> None:
        validate_config(self)


def validate_config(config: Any) -> None:
    """Raise SettingError for the first field of a dataclass whose value is not among its declared choices, or out of range."""
    for name, hint in get_type_hints(type(config), include_extras=True).items():
        value = getattr(config, name)
        choices = [choice for option in _options(hint) if get_origin(option) is Literal for choice in get_args(option)]
        if isinstance(value, str) and choices and value not in choices:
            raise SettingError(f"{name} is {value!r}; {did_you_mean(value, choices)}")
        intervals = [mark for option in _options(hint) for mark in get_args(option)[1:] if isinstance(mark, NumberRange)]
        optional = type(None) in get_args(hint)
        if (isinstance(value, str) and choices) or (value is None and optional):
            continue
        if intervals and not any(one.contains(value) for one in intervals):
            expected = " or ".join(map(str, intervals)) + (", or None for the default rule" if optional else "")
            raise SettingError(f"{name} is {value!r}; expected {expected}")


def _options(hint: Any) -> Iterator[Any]:
    """Yield the type itself; if it is a union, also its members."""
    yield hint
    if get_origin(hint) is not Annotated:
        yield from get_args(hint)
