"""What the files of a run say, read in one way by everybody. Needs no torch.

RUN/run.json                     what was asked for, and what came of it
RUN/model/model.json             what a model is
RUN/serve/active.json            which model is in use
RUN/serve/model-N/predictions.json   which model gave the answers beside it
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from samekind.errors import ModelFileError
from samekind.io import atomic_write, read_versioned_json

FORMAT = 1  # of run.json, active.json and predictions.json
MODEL_FORMAT = 3  # 1: before the compact net had GELU and a mean; 2: before it dropped the odd pixel of 7


def read_run_manifest(run: Path) -> dict[str, Any]:
    """run.json, whether the fit is finished or not."""
    return read_versioned_json(run / "run.json", FORMAT, made_by="`samekind fit`", instead="Fit again into another folder.")


def read_finished_run_manifest(run: Path) -> dict[str, Any]:
    """run.json of a fit that came to its end, or of a pile whose data was read."""
    words = read_run_manifest(run)
    if not words.get("finished") and not (words.get("pile") and "result" in words):
        raise ModelFileError(f"{run} holds a fit that is not finished. Give its `samekind fit` command again; it goes on.")
    return words


def read_model_manifest(folder: Path) -> dict[str, Any]:
    """model.json."""
    return read_versioned_json(folder / "model.json", MODEL_FORMAT, made_by="save()", instead="Save the model again.")


def read_predictions_manifest(folder: Path) -> dict[str, Any]:
    """predictions.json."""
    instead = "Remove that folder and serve again."
    return read_versioned_json(folder / "predictions.json", FORMAT, made_by="`samekind serve`", instead=instead)


def read_active_model(run: Path) -> dict[str, Any]:
    """active.json: `version`, `model` (its folder in the run) and `before`; empty if the page never took a model into use."""
    path = run / "serve" / "active.json"
    if not path.exists():
        return {}
    words = read_versioned_json(path, FORMAT, made_by="`samekind serve`", instead="Remove it to use the fit.")
    if not isinstance(words.get("version"), int) or not isinstance(words.get("model"), str):
        raise ModelFileError(f"{path} names no model ({words}). Remove it to use the fit.")
    return words


def write_active_model(run: Path, version: int, folder: Path, before: int | None) -> None:
    """Notes the model that is in use from now on."""
    words = {"format": FORMAT, "version": version, "model": folder.relative_to(run).as_posix(), "before": before}
    atomic_write(run / "serve" / "active.json", (json.dumps(words) + "\n").encode(), ModelFileError)
