"""Manifests: the JSON files that describe a run and its models. Needs no torch.

RUN/run.json                         configuration and result of the fit
RUN/model/model.json                 architecture, parameters and weights file of a model
RUN/serve/active.json                which model is in use
RUN/serve/model-N/predictions.json   which model made the predictions beside it
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from samekind.errors import ModelFileError
from samekind.io import atomic_write, read_versioned_json

RUN_FORMAT = 2  # version 2 renamed keys, such as "config", "unlabelled" and "predicted"
ACTIVE_FORMAT = 2  # version 2 renamed the key "before" to "previous"
PREDICTIONS_FORMAT = 2  # version 2 renamed the file to predictions.json
# version 2: the compact net has GELU and mean pooling; version 3: its pooling drops an odd pixel; version 4: keys renamed
MODEL_FORMAT = 4


def read_run_manifest(run: Path) -> dict[str, Any]:
    """Return run.json, whether the fit is finished or not."""
    return read_versioned_json(
        run / "run.json", RUN_FORMAT, made_by="`samekind fit`", next_step="Fit again into another folder."
    )


def read_finished_run_manifest(run: Path) -> dict[str, Any]:
    """Return run.json of a finished fit, or of an unlabelled project whose data was read."""
    manifest = read_run_manifest(run)
    is_ready = manifest.get("finished") or (manifest.get("unlabelled") and "result" in manifest)
    if not is_ready:
        raise ModelFileError(f"{run} holds a fit that is not finished. Run its `samekind fit` command again to resume it.")
    return manifest


def read_model_manifest(folder: Path) -> dict[str, Any]:
    """Return model.json."""
    return read_versioned_json(folder / "model.json", MODEL_FORMAT, made_by="save()", next_step="Save the model again.")


def read_predictions_manifest(folder: Path) -> dict[str, Any]:
    """Return predictions.json."""
    return read_versioned_json(
        folder / "predictions.json",
        PREDICTIONS_FORMAT,
        made_by="`samekind serve`",
        next_step="Remove that folder and serve again.",
    )


def read_active_model(run: Path) -> dict[str, Any]:
    """Return active.json: `version`, `model` (its folder in the run) and `previous`; empty if the page activated no model."""
    path = run / "serve" / "active.json"
    if not path.exists():
        return {}
    manifest = read_versioned_json(
        path, ACTIVE_FORMAT, made_by="`samekind serve`", next_step="Remove it to use the model of the fit."
    )
    if not isinstance(manifest.get("version"), int) or not isinstance(manifest.get("model"), str):
        raise ModelFileError(f"{path} names no model ({manifest}). Remove it to use the model of the fit.")
    return manifest


def write_active_model(run: Path, version: int, folder: Path, previous: int | None) -> None:
    """Write active.json: the model to use from now on, and the version that was used before."""
    model = folder.relative_to(run).as_posix()
    manifest = {"format": ACTIVE_FORMAT, "version": version, "model": model, "previous": previous}
    atomic_write(run / "serve" / "active.json", (json.dumps(manifest) + "\n").encode(), ModelFileError)
