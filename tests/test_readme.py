"""The README: its code runs as written, its figures are right, its links resolve."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from samekind.project.fit import FitResult

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_python_code_of_the_readme_runs_and_gives_the_stated_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    accuracy, classes = capsys.readouterr().out.strip().splitlines()
    stated = re.search(r"accuracy over all images: (0\.\d+)", README)
    assert stated is not None
    assert float(accuracy) == pytest.approx(float(stated[1]), abs=0.03)
    assert classes == "['cat' 'dog']"


def test_every_file_the_readme_points_to_exists() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(targets) >= 6
    assert [t for t in targets if not t.startswith("http") and not (ROOT / t).exists()] == []


def test_the_readme_shows_the_lines_that_fit_prints() -> None:
    predicted = {"cat": 503, "automobile": 380, "ship": 349}
    speed = {"rows_per_second": 329.0, "flops": 15.8e12, "flops_per_second": 46.9e9}
    cost = {"steps": 1734.0, "seconds": 337.0, "peak_memory_mb": 366.0, **speed}
    result = FitResult(Path("runs/photos"), 3008, {}, predicted, (), cost, epochs=1.0, already_finished=False)
    assert f"{result}, ...\n{result.cost_summary()}\n" in README
