"""The pages of the documentation: links resolve, commands exist, and tables show what the code and the recorded runs say."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from samekind.cli import app
from samekind.methods import config_defaults, method_defaults

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CLI: Any = typer.main.get_command(app)


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|^ {4}.*?$|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code_lines(text: str) -> Iterator[str]:
    """Yield the lines of fenced and indented code blocks, without the prompt."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip().removeprefix("$ ")


def commands(page: Path, program: str) -> list[list[str]]:
    lines = [line for line in code_lines(page.read_text(encoding="utf-8")) if line.startswith(f"{program} ")]
    return [shlex.split(line.rstrip("&"), comments=True) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_of_a_page_points_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(target)
    assert broken == []


def test_commands_are_found_in_fenced_and_indented_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("samekind is prose\n\n```console\n$ samekind fit a\n```\nsamekind again\n\n    samekind table b  # note\n")
    assert commands(page, "samekind") == [["samekind", "fit", "a"], ["samekind", "table", "b"]]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_samekind_command_of_a_page_exists_with_its_options(page: Path) -> None:
    unknown = []
    for _, *arguments in commands(page, "samekind"):
        command = CLI
        while hasattr(command, "commands") and arguments and arguments[0] in command.commands:
            command = command.commands[arguments.pop(0)]
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
        unknown += [
            argument for argument in arguments if re.match(r"--?[a-z]", argument) and argument.partition("=")[0] not in options
        ]
        if command is CLI:
            unknown += arguments
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_script_of_a_page_exists_with_its_options(page: Path) -> None:
    unknown = []
    for _, script, *arguments in commands(page, "python"):
        if not script.endswith(".py"):
            continue
        source = (ROOT / script).read_text(encoding="utf-8") if (ROOT / script).exists() else ""
        unknown += [
            f"{script} {argument}"
            for argument in ["", *arguments]
            if not source or (argument.startswith("--") and argument not in source)
        ]
    assert unknown == []


@pytest.mark.parametrize("recorded", ["ablation_mnist", "cifar10", "cpu", "mnist"])
def test_the_errors_of_the_recorded_runs_are_those_of_the_results_page(recorded: str) -> None:
    printed = CliRunner().invoke(app, ["table", str(ROOT / "results" / f"{recorded}.jsonl")]).stdout
    errors_per_method = printed.split("\n\n")[1]
    found = [re.search(r"\d+\.\d\d ± \d+\.\d\d", line) for line in errors_per_method.splitlines()[2:]]
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert len(found) >= 3
    assert [error for error in found if error is None or error[0] not in page] == []


def settings_table() -> list[list[str]]:
    text = (ROOT / "docs" / "defaults.md").read_text(encoding="utf-8")
    section = text.split("## Settings of `learned_graph`")[1].split("\n## ")[0]
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"
    ]
    return [rows[0], *rows[2:]]


@pytest.mark.parametrize("kind", ["vectors", "images", "photos"])
def test_the_settings_table_shows_the_defaults_of_learned_graph(kind: Any) -> None:
    header, *rows = settings_table()
    shown = {row[0]: ast.literal_eval(row[header.index(kind)]) for row in rows}
    chosen = method_defaults("learned_graph", kind)
    actual = {**config_defaults("learned_graph"), **chosen}
    assert {name: actual[name] for name in shown} == shown
    assert set(chosen) - set(config_defaults("mean_teacher")) <= set(shown)


def test_the_settings_table_shows_the_settings_of_the_paper() -> None:
    header, *rows = settings_table()
    paper = config_defaults("learned_graph")
    for row in rows:
        cell = row[header.index("paper")]
        if "/" in cell:
            assert paper[row[0]] == pytest.approx(float(Fraction(cell)))
        else:
            assert paper[row[0]] == (None if cell.startswith("from") else ast.literal_eval(cell)), row[0]
