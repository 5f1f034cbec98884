"""The registry: each method file is registered once, and describes its method completely."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from samekind import methods
from samekind.config import Config
from samekind.methods.base import Method
from samekind.methods.registry import METHODS, MODULES, config_defaults, method_search_space
from samekind.methods.wrapper import MethodWrapper

ROOT = Path(__file__).parents[2]
PAGES = {"lpdssl+mean_teacher": "lpdssl"}  # methods without a page of their own


def test_every_module_with_a_spec_is_registered() -> None:
    files = sorted(Path(methods.__file__).parent.glob("*.py"))
    with_spec = [path.stem for path in files if "\nSPEC = " in path.read_text(encoding="utf-8")]
    assert sorted(MODULES) == with_spec
    assert len(METHODS) == len(MODULES)


@pytest.mark.parametrize("name", METHODS)
def test_a_spec_describes_a_method_and_its_config(name: str) -> None:
    spec = METHODS[name]
    assert issubclass(spec.method, Method) and issubclass(spec.config, Config)
    assert (spec.base is not None) == issubclass(spec.method, MethodWrapper)
    assert spec.summary and spec.summary[-1] != "."
    assert set(method_search_space(name)) <= set(config_defaults(name))


@pytest.mark.parametrize(
    "name", [name for name in METHODS if name != "learned_graph"]
)  # docs/method.md; see tests/test_docs.py
def test_every_method_has_a_page_that_names_all_its_own_settings(name: str) -> None:
    page = (ROOT / "docs" / "methods" / f"{PAGES.get(name, name)}.md").read_text(encoding="utf-8")
    own = set(config_defaults(name)) - shared(name)
    assert {setting for setting in own if not re.search(rf"\b{setting}\b", page)} == set()


def shared(name: str) -> set[str]:
    """Return the settings of the base, which its own page explains."""
    base = METHODS[name].base
    return set() if base is None else set(config_defaults(base))


@pytest.mark.parametrize("module", MODULES)
def test_a_method_file_defines_the_method_that_it_registers(module: str) -> None:
    spec = import_module(f"samekind.methods.{module}").SPEC
    assert Path(inspect.getfile(spec.method)).stem == module
