"""Ranges of parameters: one declaration for validation, messages and docstrings."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest

from samekind import SemiSupervisedClassifier
from samekind.errors import SettingError
from samekind.fitting.fit_options import FitOptions
from samekind.parameters import PARAMETERS, require_parameter

ARGUMENTS = inspect.signature(SemiSupervisedClassifier).parameters


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_default_is_accepted(name: str) -> None:
    require_parameter(name, ARGUMENTS[name].default)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epochs", True),
        ("epochs", "slow"),
        ("minutes", float("nan")),
        ("batch_size", (20,)),
        ("batch_size", (20, 1)),
        ("supervised_warmup", 1.0),
        ("supervised_warmup", -0.1),
        ("learning_rate", "high"),
        ("save_every", -1),
        ("accumulation_steps", 1.5),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_declared_range(name: str, value: Any) -> None:
    message = f"{name} is {value!r}; expected {PARAMETERS[name].description}"
    with pytest.raises(SettingError, match=re.escape(message)):
        require_parameter(name, value)


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", np.int64(3)), ("learning_rate", np.float32(0.1)), ("batch_size", [4, 8])]
)
def test_numbers_of_numpy_and_lists_are_accepted(name: str, value: Any) -> None:
    require_parameter(name, value)


def test_a_misspelt_option_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SettingError, match=r"optimizer is 'adan'; expected 'auto', 'adam' or 'sgd' \(did you mean 'adam'\?\)"):
        require_parameter("optimizer", "adan")


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_docstring_states_the_declared_range_and_the_default(name: str) -> None:
    line = f"{name} : {PARAMETERS[name].description}, default={ARGUMENTS[name].default!r}"
    assert line in (inspect.getdoc(SemiSupervisedClassifier) or "").splitlines()


def test_options_of_a_fit_are_the_parameters_of_the_estimator() -> None:
    options = {option.name: option.default for option in fields(FitOptions)}
    assert options.pop("method") is MISSING
    assert options == {name: argument.default for name, argument in ARGUMENTS.items() if name != "method"}
