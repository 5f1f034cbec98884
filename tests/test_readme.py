"""The README: its code runs as written, its figures are right, its links resolve."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.svm import SVC
from tests.preprocessing.test_text_input import sentences
from typer.testing import CliRunner

from samekind import SemiSupervisedClassifier
from samekind.cli import app
from samekind.fitting.label_quality import LabelQuality, wilson_interval
from samekind.project.fit import FitResult

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_python_code_of_the_readme_runs_and_gives_the_stated_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    accuracy, texts, rows, city, classes, held_out = capsys.readouterr().out.strip().splitlines()
    stated = re.search(r"accuracy over all images: (0\.\d+)", README)
    assert stated is not None
    assert float(accuracy) == pytest.approx(float(stated[1]), abs=0.03)
    assert f"print(model.transduction_.tolist())  # {texts}" in README
    assert f"print(model.transduction_.tolist())  # {rows}" in README and f"print(model.columns_[1])  # {city}" in README
    assert classes == "['cat' 'dog']"
    assert float(held_out) == 1.0


def test_the_commands_on_texts_run_and_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts, y, _ = sentences(30)
    pd.DataFrame({"body": texts, "topic": y}).to_csv("reviews.csv", index=False)
    pd.DataFrame({"body": texts}).to_csv("new_reviews.csv", index=False)
    section = README.split("## Your own texts")[1].split("## ")[0]
    (block,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    for command, printed in re.findall(r"\$ samekind (.*)\n((?:[^$].*\n)*)", block):
        result = CliRunner().invoke(app, shlex.split(command))
        assert (result.exit_code, result.stdout) == (0, printed), command


def test_the_commands_on_tables_run_and_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng, ill = np.random.default_rng(0), np.arange(40) % 2
    frame = pd.DataFrame({"age": rng.normal(40 + 20 * ill, 5), "city": ["Bern" if one else None for one in ill]})
    frame.iloc[::9, 0] = np.nan
    given = [("ill" if one else "well") if i < 12 else None for i, one in enumerate(ill)]
    frame.assign(diagnosis=given).to_csv("patients.csv", index=False)
    frame.to_csv("new_patients.csv", index=False)
    section = README.split("## Your own tables")[1].split("## ")[0]
    (block,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    for command, printed in re.findall(r"\$ samekind (.*)\n((?:[^$].*\n)*)", block):
        result = CliRunner().invoke(app, shlex.split(command))
        assert (result.exit_code, result.stdout) == (0, printed), command
    assert len(pd.read_csv("new.csv")) == len(frame)


def test_the_readme_gives_the_relative_costs_of_the_toy_benchmark() -> None:
    records = [json.loads(line) for line in (ROOT / "results" / "toy.jsonl").read_text().splitlines()]
    costs = {record["row"]: record["cost"] for record in records if record["data"] == "moons"}
    assert len({costs[row]["steps"] for row in ("supervised", "mean_teacher", "learned_graph")}) == 1
    own = costs["learned_graph"]["flops"]
    stated = re.search(r"(\d+) times the operations of Mean\s+Teacher and (\d+) times those of supervised", README)
    assert stated is not None
    assert [int(stated[1]), int(stated[2])] == [round(own / costs[row]["flops"]) for row in ("mean_teacher", "supervised")]


def test_every_file_the_readme_points_to_exists() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(targets) >= 6
    assert [t for t in targets if not t.startswith("http") and not (ROOT / t).exists()] == []


def test_the_readme_shows_the_lines_that_fit_prints() -> None:
    predicted = {"Leopards": 65, "crayfish": 63, "bonsai": 62}
    quality = LabelQuality(40, 39 / 40, *wilson_interval(39 / 40, 40))
    result = FitResult(Path("runs/photos"), 422, {}, predicted, (), {}, 0.0, already_finished=False, quality=quality)
    assert "\n".join([f"{result}, ...", *result.quality_summary(), "runs/photos/labels.csv"]) in README


def test_the_expressions_of_the_task_table_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # model.save("model/") writes here
    table = README.split("## What you can do")[1].split("\n\n")[1]
    expressions = [
        code for code in re.findall(r"`([^`]+)`", table) if re.match(r"(model\.|SVC|SemiSup)", code) and "..." not in code
    ]
    assert len(expressions) >= 12
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (100, 5)), rng.normal(4, 1, (100, 5))])
    y = np.repeat([0, 1], 100)
    labels = np.where(np.arange(200) % 20 == 0, y, -1)
    model = SemiSupervisedClassifier(epochs=5, random_state=0).fit(X, labels)
    names = {"model": model, "X": X, "y": y, "X_new": X[:10], "A": X[:3], "B": X[3:7], "SVC": SVC}
    for code in expressions:
        eval(code, {**names, "SemiSupervisedClassifier": SemiSupervisedClassifier})
