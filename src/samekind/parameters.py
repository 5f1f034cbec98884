"""Parameters of a fit: the values that each parameter accepts, declared once.

Validation and error messages use this table, and a test compares the docstring of `SemiSupervisedClassifier` with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

from samekind.errors import SettingError, did_you_mean


class Constraint(NamedTuple):
    """Values that a parameter accepts: their description, a test of a value, and the accepted strings (`options`)."""

    description: str
    accepts: Callable[[Any], bool]
    options: tuple[str, ...] = ()

    def __or__(self, other: Constraint) -> Constraint:
        """Return a constraint that accepts the values which at least one of both constraints accepts."""
        return Constraint(
            f"{self.description}, or {other.description}",
            lambda value: self.accepts(value) or other.accepts(value),
            self.options + other.options,
        )


def one_of(*options: str) -> Constraint:
    """Return a constraint that accepts only these strings."""
    quoted = [repr(word) for word in options]
    description = quoted[0] if len(options) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return Constraint(description, lambda value: isinstance(value, str) and value in options, options)


def number(description: str, accepts: Callable[[Any], bool], kind: type = Real) -> Constraint:
    """Return a constraint that accepts numbers of the type `kind` for which `accepts` returns True."""
    return Constraint(description, lambda value: isinstance(value, kind) and not isinstance(value, bool) and accepts(value))


def _is_pair(value: Any) -> bool:
    sizes = tuple(value) if isinstance(value, (tuple, list)) else ()
    return len(sizes) == 2 and all(isinstance(size, int) and size >= 2 for size in sizes)


NONE = Constraint("None", lambda value: value is None)
AUTO = one_of("auto")
POSITIVE = number("a number above 0", lambda value: 0 < value < math.inf)
MAX_EPOCHS, MAX_MINUTES = 10**9, 10**7  # larger than any fit can need
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
    "finetune": one_of("auto", "none", "last", "all"),
    "propagate": Constraint("True or False", lambda value: isinstance(value, bool)),
    "accumulation_steps": number("a whole number, 1 or more", lambda value: value >= 1, Integral),
}


def require_parameter(name: str, value: Any) -> None:
    """Raise SettingError if this parameter does not accept the value."""
    constraint = PARAMETERS[name]
    if not constraint.accepts(value):
        hint = f" ({did_you_mean(value, constraint.options)})" if isinstance(value, str) and constraint.options else ""
        raise SettingError(f"{name} is {value!r}; expected {constraint.description}{hint}")


def require_parameters(values: Mapping[str, Any]) -> None:
    """Raise SettingError for the first parameter in PARAMETERS that does not accept its value."""
    for name in PARAMETERS:
        require_parameter(name, values[name])
