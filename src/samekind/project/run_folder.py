"""Run folder: the files of one run on a user's data, and how to open them again.

RUN/
  run.json         the configuration of the fit, how the data was read, and the result
  labels.csv       a label and a confidence for every item of the data
  items.csv        in an unlabelled project: the items, and any labels that came with them
  skipped.csv      files that were left out, with the reason
  model/           the trained model
  history.jsonl    the training log
  cache/           decoded images and encoder features; can be computed again
  checkpoints/     the state of the training, from which an interrupted fit resumes
  serve/           labels given on the page, and the models refitted there (docs/serve.md)
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samekind.data.readers.reader import Encoding, Skipped
from samekind.errors import DataError, ModelFileError, SamekindError, SettingError
from samekind.estimator import SemiSupervisedClassifier
from samekind.io import atomic_write
from samekind.manifest import RUN_FORMAT, read_active_model, read_finished_run_manifest, read_run_manifest

LogFunction = Callable[[str], None]


def discard_log(message: str) -> None:
    """Ignore a log message."""


@dataclass(frozen=True)
class FittedRun:
    """A finished run: its folder, its active model, and how its data was read."""

    folder: Path
    model: SemiSupervisedClassifier
    encoding: Encoding
    data: str  # path of the data at the time of the fit

    def predictions(self) -> tuple[list[str], list[str], list[float]]:
        """Return name, label and confidence of every item, read from the labels.csv of the active model."""
        refitted = active_model_dir(self.folder) / "labels.csv"  # a refit on the page writes this file beside its model
        path = refitted if refitted.exists() else self.folder / "labels.csv"
        try:
            with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
                rows = [(row["path"], row["label"], float(row["confidence"])) for row in csv.DictReader(file)]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{path} cannot be read ({error!r}). Restore the file, or fit again.") from error
        n_fitted = len(self.model.transduction_)
        if len(rows) != n_fitted:
            raise ModelFileError(
                f"{path} has {len(rows)} items, but the model was fitted on {n_fitted}. Restore the file, or fit again."
            )
        return [name for name, _, _ in rows], [label for _, label, _ in rows], [confidence for _, _, confidence in rows]


def open_run(folder: Path) -> FittedRun:
    """Return the run in `folder` with its active model; raise ModelFileError if it is not finished."""
    manifest = read_finished_run_manifest(folder)
    model_dir = active_model_dir(folder)
    if manifest.get("unlabelled") and not (model_dir / "model.json").exists():
        raise ModelFileError(
            f"{folder} has no model yet. Label items on its page (`samekind serve {folder}`) and press r there to train one."
        )
    model = SemiSupervisedClassifier.load(model_dir).set_params(cache=folder / "cache")
    return FittedRun(folder, model, Encoding.from_json(manifest["result"]["encoding"]), manifest["config"]["data"])


def active_model_dir(run: Path) -> Path:
    """Return the folder of the active model: a refitted model if one was activated on the page, else the model of the fit."""
    folder = run / read_active_model(run).get("model", "model")
    return folder if (folder / "model.json").exists() else run / "model"


def find_existing_fit(out: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the manifest if `out` holds a fit with this configuration, None if `out` is free; refuse other content."""
    if not (out / "run.json").exists():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise SettingError(f"{out} exists and holds no run. Choose a folder that is empty or does not exist yet.")
        return None
    manifest = read_run_manifest(out)
    if manifest.get("unlabelled"):
        raise SettingError(
            f"{out} is an unlabelled project of `samekind serve`, which trains on its page. Choose another folder with --out; "
            f"to train on the labels of the page, give --labels {out / 'serve' / 'labels.csv'}."
        )
    before = manifest["config"]
    for name, value in config.items():
        if before.get(name) != value:
            raise SettingError(
                f"{out} holds a run with {name} = {before.get(name)!r}, but {value!r} was requested. "
                "Choose another folder with --out, or remove that one."
            )
    return manifest


def write_run_manifest(out: Path, manifest: Mapping[str, Any]) -> None:
    """Write run.json with the current format version."""
    blob = json.dumps({"format": RUN_FORMAT, **manifest}, indent=2) + "\n"
    atomic_write(out / "run.json", blob.encode(), ModelFileError)


def write_skipped(path: Path, skipped: Iterable[Skipped]) -> None:
    """Write the files that were left out, with the reason, as CSV."""
    write_csv(path, ["path", "reason"], ([file.path, file.reason] for file in skipped))


def write_csv(
    path: Path,
    header: list[str],
    rows: Iterable[list[str]],
    *,
    write: Callable[[Path, bytes, type[SamekindError]], None] = atomic_write,
) -> None:
    """Write a CSV file atomically; file names that are not UTF-8 keep their bytes. `write_output` is for the user's paths."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write(path, text.getvalue().encode("utf-8", "surrogateescape"), DataError)
