"""Rules for JSON files: the first wrong value is named, with what was expected."""

from __future__ import annotations

from typing import Any

import pytest

from samekind.files.json_rules import (
    BOOLEAN,
    NUMBER,
    SHAPE,
    TEXT,
    ListOf,
    MapOf,
    OrNull,
    Record,
    Rule,
    matching,
    one_of_texts,
    whole,
)

RULE = Record({"name": TEXT, "sizes": ListOf(whole(1, 9), 1, 3)}, {"more": OrNull(MapOf(NUMBER))}, closed=True)


def test_what_fits_the_rule_has_no_problem() -> None:
    assert RULE.problem({"name": "a", "sizes": [1, 2]}) is None
    assert RULE.problem({"name": "a", "sizes": [9], "more": None}) is None
    assert RULE.problem({"name": "a", "sizes": [9], "more": {"x": -1.5, "y": 2}}) is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (3, "run is 3; expected an object"),
        ({"name": "a"}, "run.sizes is missing"),
        ({"name": None, "sizes": [1]}, "run.name is None; expected text"),
        ({"name": "a", "sizes": []}, "run.sizes has 0 values; expected 1 to 3"),
        ({"name": "a", "sizes": [1, 10]}, "run.sizes[1] is 10; expected a whole number from 1 to 9"),
        ({"name": "a", "sizes": [True]}, "run.sizes[0] is True; expected a whole number from 1 to 9"),
        ({"name": "a", "sizes": [1], "more": {"x": float("nan")}}, "run.more.x is nan; expected a finite number"),
        ({"name": "a", "sizes": [1], "code": 1}, "run.'code' is not a known key"),
    ],
)
def test_the_first_problem_is_named(value: Any, problem: str) -> None:
    assert RULE.problem(value, "run") == problem


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        (TEXT, ["a\0b", "\ud800", 1]),
        (BOOLEAN, [0, 1, "true", None]),
        (NUMBER, [float("inf"), 10**400, "1", True]),
        (SHAPE, [[], [1, 2], [0], [2**40], [2**13] * 3, [1.0], [True], "4"]),
        (matching("a+", "a"), ["aab", "", "a\n", 1]),
        (one_of_texts("a", "b"), ["c", None, []]),
        (ListOf(TEXT), ["text", {}, [1]]),
    ],
)
def test_values_that_only_look_right_are_refused(rule: Rule, wrong: list[Any]) -> None:
    assert all(rule.problem(value, "x") for value in wrong)


def test_a_file_name_that_is_not_utf8_is_text() -> None:
    assert TEXT.problem(b"\xff.jpg".decode("utf-8", "surrogateescape")) is None
