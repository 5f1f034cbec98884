"""Guards of the house: the field's words, unique names, no private access, docstrings that begin with an imperative.

Every rule is also shown to fail on a planted example.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from tests.house import (
    banned_phrases,
    banned_words,
    docstring_form,
    private_access,
    repeated_classes,
    repeated_modules,
)

from samekind import SemiSupervisedClassifier

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "src" / "samekind").rglob("*.py"))
SCRIPTS = sorted([*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "scripts").glob("*.py")])
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if "house" not in path.name)  # these name the words
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(path for kind in ("*.js", "*.html", "*.css") for path in (ROOT / "src").rglob(kind)),
    ]
)
RENAMED = re.compile(r"^#### Renamed public names\n.*?(?=^#{2,4} )", re.MULTILINE | re.DOTALL)  # its table has the old names


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*MODULES, *SCRIPTS, *TESTS], ids=short)
def test_sources_use_the_words_of_the_field(path: Path) -> None:
    assert not [str(finding) for finding in banned_words(path.read_text(encoding="utf-8"), short(path))]


@pytest.mark.parametrize("path", PAGES, ids=short)
def test_documents_and_the_web_page_use_the_words_of_the_field(path: Path) -> None:
    text = RENAMED.sub("", path.read_text(encoding="utf-8"))
    assert not [str(finding) for finding in banned_phrases(text, short(path))]


@pytest.mark.parametrize(
    "source",
    [
        "teacher = frozen_copy(student)",
        "class Keeper: ...",
        "def guessed_labels(): ...",
        "x = 1  # the slow copy",
        'raise ValueError("the pool holds no labels")',
        '"""Return what is most alike."""',
    ],
)
def test_a_planted_private_word_is_found(source: str) -> None:
    assert banned_words(source)


@pytest.mark.parametrize("source", ["F.avg_pool2d(x)", "path.stat(follow_symlinks=False)", "# look up the class"])
def test_common_words_in_their_common_meaning_are_allowed(source: str) -> None:
    assert not banned_words(source)


def test_a_planted_private_phrase_in_a_document_is_found() -> None:
    assert [finding.line for finding in banned_phrases("# Training\n\nThe run goes on where it was.")] == [3]


def test_no_two_classes_have_one_name() -> None:
    assert not repeated_classes((short(path), path.read_text(encoding="utf-8")) for path in MODULES)


def test_no_two_modules_have_one_name() -> None:
    assert not repeated_modules(path.relative_to(ROOT) for path in MODULES)


def test_planted_names_that_occur_twice_are_found() -> None:
    assert repeated_classes([("a.py", "class Line: ..."), ("b.py", "class _Line: ...")]) == {"Line": ["a.py", "b.py"]}
    assert repeated_modules([Path("data/views.py"), Path("server/views.py"), Path("data/__init__.py")]) == {
        "views": ["data/views.py", "server/views.py"]
    }


@pytest.mark.parametrize("path", [*MODULES, *SCRIPTS], ids=short)
def test_no_module_touches_what_another_class_keeps_to_itself(path: Path) -> None:
    assert not [str(finding) for finding in private_access(path.read_text(encoding="utf-8"), short(path))]


@pytest.mark.parametrize("source", ["model._predictor", "from samekind.model import _read", "self.store._lock"])
def test_planted_private_access_is_found(source: str) -> None:
    assert private_access(source)


def test_private_names_of_the_module_itself_are_allowed() -> None:
    assert not private_access(
        "class A:\n    def __init__(self):\n        self._x = 1\n    def same(self, other):\n        return other._x"
    )


@pytest.mark.parametrize("path", [*MODULES, *SCRIPTS], ids=short)
def test_docstrings_of_functions_begin_with_an_imperative(path: Path) -> None:
    assert not [str(finding) for finding in docstring_form(path.read_text(encoding="utf-8"), short(path))]


@pytest.mark.parametrize(
    "text", ["What additions share.", "The nearest neighbours.", "Returns the labels.", "Return the labels"]
)
def test_a_planted_docstring_of_another_form_is_found(text: str) -> None:
    assert docstring_form(f'def f():\n    """{text}"""')


def _public(cls: type) -> list[str]:
    return [name for name, member in vars(cls).items() if not name.startswith("_") and callable(getattr(cls, name)) and member]


@pytest.mark.parametrize("name", _public(SemiSupervisedClassifier))
def test_the_estimator_documents_every_parameter_and_what_it_returns(name: str) -> None:
    method = getattr(SemiSupervisedClassifier, name)
    text = inspect.getdoc(method) or ""
    parameters = [parameter for parameter in inspect.signature(method).parameters if parameter != "self"]
    missing = [parameter for parameter in parameters if not re.search(rf"^{parameter} : \S", text, re.MULTILINE)]
    assert not missing and (name == "save" or "Returns\n-------" in text)


def test_the_estimator_documents_every_constructor_argument_with_its_default() -> None:
    text = inspect.getdoc(SemiSupervisedClassifier) or ""
    arguments = inspect.signature(SemiSupervisedClassifier).parameters
    assert not [name for name in arguments if not re.search(rf"^{name} : .*default=", text, re.MULTILINE)]
