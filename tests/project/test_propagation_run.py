"""The option --propagate: recorded in the run, kept by refits, and absent in runs of earlier versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from samekind.cli import app
from samekind.errors import SettingError
from samekind.project.fit import FitConfig, fit, refit

CLASSES = ["ab"[k % 2] for k in range(60)]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write a table of two separated classes, of which ten rows are labelled, and return its path."""
    rows = [f"{k % 2 * 9 + k / 100},{k / 60},{CLASSES[k] if k < 10 else ''}" for k in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y,label", *rows]) + "\n")
    return tmp_path / "t.csv"


def predictor_of(model: Path) -> str:
    return str(json.loads((model / "model.json").read_text())["predictor"]["kind"])


def test_the_flag_propagates_at_the_end_of_a_fit_and_of_its_refits(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["fit", str(table), "--out", str(run), "--method", "mean_teacher", "--epochs", "2", "--propagate"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert predictor_of(run / "model") == "propagated"
    assert json.loads((run / "run.json").read_text())["config"]["propagate"] is True
    (tmp_path / "refitted").mkdir()
    refit(run, lambda data: list(CLASSES), tmp_path / "refitted")
    assert predictor_of(tmp_path / "refitted") == "propagated"


def test_a_run_without_the_entry_counts_as_one_without_propagation(table: Path, tmp_path: Path) -> None:
    run, config = tmp_path / "run", FitConfig(str(table), method="label_propagation")
    fit(config, run)
    manifest = json.loads((run / "run.json").read_text())
    del manifest["config"]["propagate"]
    (run / "run.json").write_text(json.dumps(manifest))
    assert fit(config, run).already_finished
    with pytest.raises(SettingError, match="propagate = False, but True was requested"):
        fit(FitConfig(str(table), method="label_propagation", propagate=True), run)
