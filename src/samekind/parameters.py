"""Parameters of a fit: the values each one accepts, declared once.

Validation, error messages and the types in the docstring of `SemiSupervisedClassifier` come from this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

from samekind.errors import SettingError, did_you_mean


class Constraint(NamedTuple):
    """Values that a parameter accepts: their description, a test, and the strings among them (`options`)."""

    description: str
    accepts: Callable[[Any], bool]
    options: tuple[str, ...] = ()

    def __or__(self, other: Constraint) -> Constraint:
        """Return the constraint that accepts the values of both constraints."""
        return Constraint(
            f"{self.description}, or {other.description}",
            lambda value: self.accepts(value) or other.accepts(value),
            self.options + other.options,
        )


def one_of(*options: str) -> Constraint:
    """Return the constraint that accepts these strings."""
    quoted = [repr(word) for word in options]
    description = quoted[0] if len(options) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return Constraint(description, lambda value: isinstance(value, str) and value in options, options)


def number(description: str, accepts: Callable[[Any], bool], kind: type = Real) -> Constraint:
    """Return the constraint that accepts numbers of type `kind` that pass the test `accepts`."""
    return Constraint(description, lambda value: isinstance(value, kind) and not isinstance(value, bool) and accepts(value))


def _is_pair(value: Any) -> bool:
    sizes = tuple(value) if isinstance(value, (tuple, list)) else ()
    return len(sizes) == 2 and all(isinstance(size, int) and size >= 2 for size in sizes)


NONE = Constraint("None", lambda value: value is None)
AUTO = one_of("auto")
POSITIVE = number("a number above 0", lambda value: 0 < value < math.inf)
MAX_EPOCHS, MAX_MINUTES = 10**9, 10**7  # more than any fit can take
PARAMETERS: dict[str, Constraint] = {
    "preset": one_of("auto", "paper"),
    "epochs": number("a number above 0", lambda value: 0 < value <= MAX_EPOCHS) | one_of("auto", "quick"),
    "minutes": number("a number above 0", lambda value: 0 < value <= MAX_MINUTES) | NONE,
    "batch_size": Constraint("two whole numbers of 2 or more, such as (20, 64)", _is_pair) | AUTO,
    "supervised_warmup": number("a fraction from 0 to below 1", lambda value: 0 <= value < 1) | AUTO,
    "optimizer": one_of("auto", "adam", "sgd"),
    "learning_rate": POSITIVE | AUTO,
    "save_every": number("a number of seconds, 0 or more", lambda value: value >= 0),
    "precision": one_of("auto", "float32", "float16", "bfloat16"),
    "accumulation_steps": number("a whole number, 1 or more", lambda value: value >= 1, Integral),
}


def require_parameter(name: str, value: Any) -> None:
    """Raise SettingError if the parameter does not accept the value."""
    constraint = PARAMETERS[name]
    if not constraint.accepts(value):
        hint = f" ({did_you_mean(value, constraint.options)})" if isinstance(value, str) and constraint.options else ""
        raise SettingError(f"{name} is {value!r}; expected {constraint.description}{hint}")


def require_parameters(values: Mapping[str, Any]) -> None:
    """Raise SettingError at the first declared parameter whose value is not accepted."""
    for name in PARAMETERS:
        require_parameter(name, values[name])
