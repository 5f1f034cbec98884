"""The command answers at once, and bad input gets one sentence and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import samekind
from samekind.cli import app
from samekind.methods import METHODS

HEAVY = "{'torch', 'sklearn', 'matplotlib', 'scipy', 'numpy'}"


def loaded_by(code: str) -> str:
    """The heavy packages in memory after `code`, in a fresh interpreter."""
    ending = f"import sys; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{ending}"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        "import samekind",
        "import samekind.cli",
        "from samekind.cli import app; app(['--help'], standalone_mode=False)",
        "from samekind.cli import app; app(['demo', '--help'], standalone_mode=False)",
        "from samekind.cli import app; app(['--version'], standalone_mode=False)",
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code: str) -> None:
    assert loaded_by(code) == "[]"


def test_help_names_every_verb() -> None:
    answer = CliRunner().invoke(app, ["--help"])
    assert answer.exit_code == 0
    assert all(verb in answer.stdout for verb in ("demo", "methods", "--version"))


def test_python_m_samekind_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "samekind", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"samekind {samekind.__version__}\n"


def test_methods_lists_each_with_its_idea_and_kind() -> None:
    answer = CliRunner().invoke(app, ["methods"])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in answer.stdout.splitlines()]
    assert rows[0] == ["name", "idea", "kind"]
    assert [row[0] for row in rows[2:]] == list(METHODS)
    assert ["learned_graph", METHODS["learned_graph"].idea, "addition, alone on mean_teacher"] in rows
    assert ["supervised", METHODS["supervised"].idea, "trained in steps"] in rows
    assert ["lgc", METHODS["lgc"].idea, "on a fixed graph"] in rows


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--radii", "2", "2"], "radii are 2 2; expected two different numbers above 0"),
        (["--radii", "-1", "2"], "radii are -1 2; expected two different numbers above 0"),
        (["--radii", "nan", "2"], "radii are nan 2; expected two different numbers above 0"),
        (["--seed", "-3"], "seed is -3; expected a whole number from 0"),
        (["--out", "taken"], "taken is a file, or lies below one; expected a folder or a free name"),
    ],
)
def test_bad_input_gets_one_sentence_and_code_2(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    answer = CliRunner().invoke(app, ["demo", "--quick", *options])
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith(f"samekind: {words}")
    assert len(answer.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("options", [["--radii", "one", "two"], ["--seed", "x"], ["--nonsense"]])
def test_an_option_that_cannot_be_read_ends_with_code_2_and_no_traceback(options: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "samekind", "demo", *options], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr
