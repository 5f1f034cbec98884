"""Schemas of JSON files: rules that say which values are allowed. A check returns the first value that breaks a rule, in words.

RUN = Record({"finished": BOOLEAN, "config": Record({"data": TEXT})}, optional={"result": MapOf(NUMBER)}) RUN.problem(content,
"run.json") # "config.data is 3; expected text", or None
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from samekind.files.io import shorten

MAX_WHOLE = 2**53  # not all programs that read JSON represent larger whole numbers exactly


class Rule(Protocol):
    """Interface of a rule for a JSON value."""

    def problem(self, value: Any, name: str = "") -> str | None:
        """Return a clause that says what is wrong with the value, which is called `name`; None if the rule accepts it."""


@dataclass(frozen=True)
class Value:
    """Rule that accepts the values for which the function `accepts` returns True; `expected` describes them."""

    expected: str
    accepts: Callable[[Any], bool]

    def problem(self, value: Any, name: str = "") -> str | None:
        """Return a clause that says what is wrong with the value; None if nothing is."""
        return None if self.accepts(value) else f"{name or 'the content'} is {shorten(value)}; expected {self.expected}"


@dataclass(frozen=True)
class OrNull:
    """Rule that accepts null, and the values that another rule accepts."""

    rule: Rule

    def problem(self, value: Any, name: str = "") -> str | None:
        """Return a clause that says what is wrong with the value; None if nothing is."""
        return None if value is None else self.rule.problem(value, name)


@dataclass(frozen=True)
class ListOf:
    """Rule for a list of `fewest` to `most` values, each of which another rule must accept."""

    rule: Rule
    fewest: int = 0
    most: int | None = None

    def problem(self, value: Any, name: str = "") -> str | None:
        """Return a clause that says what is wrong with the list, or with the first wrong value in it; None if nothing is."""
        if not isinstance(value, list):
            return f"{name or 'the content'} is {shorten(value)}; expected a list"
        if len(value) < self.fewest or (self.most is not None and len(value) > self.most):
            most = "" if self.most is None else f" to {self.most}"
            return f"{name} has {len(value)} values; expected {self.fewest}{most}{'' if most else ' or more'}"
        found = (self.rule.problem(one, f"{name}[{place}]") for place, one in enumerate(value))
        return next((problem for problem in found if problem is not None), None)


@dataclass(frozen=True)
class MapOf:
    """Rule for an object with any keys, whose values another rule must accept."""

    rule: Rule

    def problem(self, value: Any, name: str = "") -> str | None:
        """Return a clause that says what is wrong with the object, or with the first wrong value in it; None if nothing is."""
        if not isinstance(value, dict):
            return f"{name or 'the content'} is {shorten(value)}; expected an object"
        found = (self.rule.problem(one, _below(name, key)) for key, one in value.items())
        return next((problem for problem in found if problem is not None), None)


@dataclass(frozen=True)
class Record:
    """Rule for an object with these required and optional keys. Other keys are refused if `closed`, and ignored otherwise."""

    required: Mapping[str, Rule]
    optional: Mapping[str, Rule] = field(default_factory=dict)
    closed: bool = False

    def problem(self, value: Any, name: str = "") -> str | None:
        """Return a clause that says what is wrong with the object, or with the first wrong value in it; None if nothing is."""
        if not isinstance(value, dict):
            return f"{name or 'the content'} is {shorten(value)}; expected an object"
        for key in self.required:
            if key not in value:
                return f"{_below(name, key)} is missing"
        rules = {**self.optional, **self.required}
        for key, one in value.items():
            if key not in rules and self.closed:
                return f"{_below(name, shorten(key))} is not a known key"
            problem = rules[key].problem(one, _below(name, key)) if key in rules else None
            if problem is not None:
                return problem
        return None


def one_of_texts(*options: str) -> Value:
    """Return a rule that accepts only these texts."""
    return Value(" or ".join(map(repr, options)), lambda value: isinstance(value, str) and value in options)


def matching(pattern: str, expected: str) -> Value:
    """Return a rule that accepts texts which match a regular expression from beginning to end."""
    compiled = re.compile(pattern, re.ASCII)
    return Value(expected, lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None)


def whole(low: int, high: int = MAX_WHOLE) -> Value:
    """Return a rule that accepts whole numbers from `low` to `high`."""
    expected = f"a whole number, {low} or more" if high == MAX_WHOLE else f"a whole number from {low} to {high}"
    return Value(expected, lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high)


def number(low: float = -math.inf) -> Value:
    """Return a rule that accepts finite numbers of at least `low`."""
    return Value("a finite number" if low == -math.inf else f"a finite number, {low:g} or more", lambda v: _is_number(v, low))


def either(*rules: Value) -> Value:
    """Return a rule that accepts a value if at least one of these rules accepts it."""
    return Value(", or ".join(rule.expected for rule in rules), lambda value: any(rule.accepts(value) for rule in rules))


def _is_number(value: Any, low: float) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= 1e300 and value >= low  # this is False for NaN


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    return not any("\ud800" <= letter <= "\udfff" and not "\udc80" <= letter <= "\udcff" for letter in value)


def _below(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


ANYTHING = Value("anything", lambda value: True)
BOOLEAN = Value("true or false", lambda value: isinstance(value, bool))
# File names that are not UTF-8 are stored with the surrogates U+DC80 to U+DCFF, so these are allowed in a text.
TEXT = Value("text", _is_text)
NUMBER = number()
COUNT = whole(0)
SHAPE = Value(
    "1 or 3 whole numbers above 0 with a product of at most 2**26",
    lambda value: (
        isinstance(value, list)
        and len(value) in (1, 3)
        and all(isinstance(side, int) and not isinstance(side, bool) and 1 <= side <= 2**26 for side in value)
        and math.prod(value) <= 2**26
    ),
)
