"""Run folder: the files of one run on a user's data, and how to open the run again.

RUN/
  run.json         the configuration of the fit, how the data was read, and the result
  labels.csv       a label and a confidence for every item of the data
  items.csv        only in an unlabelled project: the items, and labels that the data already had
  skipped.csv      files that were left out, with the reason
  model/           the trained model
  history.jsonl    the training log
  cache/           decoded images and encoder features; can be computed again
  checkpoints/     the state of the training, from which an interrupted fit resumes
  serve/           labels given on the page, and the models refitted there (docs/serve.md)
  lock             held by the fit that writes here; an empty file
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from samekind.data.readers.reader import Encoding, Skipped
from samekind.errors import DataError, ModelFileError, SamekindError, SettingError
from samekind.files.io import atomic_write, is_part, remove_parts
from samekind.files.manifest import RUN_FORMAT, read_active_model, read_finished_run_manifest, read_run_manifest

if TYPE_CHECKING:  # the server imports this module at its start, and must not wait for torch
    from samekind.estimator import SemiSupervisedClassifier
    from samekind.nets.encoders.efficientnet import EfficientNetLite

LogFunction = Callable[[str], None]

LOCK = "lock"
PLAIN_FILES = (LOCK, "history.jsonl")  # these files are opened in place, so they must not be links or pipes
# What a fit writes before it trains, in the order in which it is deleted. run.json is the last, because without it the folder
# is no run any more.
BEGUN = ("cache", "checkpoints", "history.jsonl", "skipped.csv", "columns.csv", "items.csv", "run.json")


def discard_log(message: str) -> None:
    """Ignore a message."""


@dataclass(frozen=True)
class FittedRun:
    """A finished run: its folder, its active model, and how its data is read."""

    folder: Path
    model: SemiSupervisedClassifier
    encoding: Encoding
    data: str  # path that the data had at the time of the fit

    def predictions(self) -> tuple[list[str], list[str], list[float]]:
        """Return the names, labels and confidences of all items, from the labels.csv of the active model."""
        refitted = active_model_dir(self.folder) / "labels.csv"  # a refit on the page writes its labels.csv beside its model
        path = refitted if refitted.exists() else self.folder / "labels.csv"
        try:
            with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
                table = csv.DictReader(file)
                name = (table.fieldnames or ["path"])[0]  # the first column contains the names; its header is that of the data
                rows = [(row[name], row["label"], float(row["confidence"])) for row in table]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{path} cannot be read ({error!r}). Restore the file, or fit again.") from error
        n_fitted = len(self.model.transduction_)
        if len(rows) != n_fitted:
            raise ModelFileError(
                f"{path} has {len(rows)} items, but the model was fitted on {n_fitted}. Restore the file, or fit again."
            )
        return [name for name, _, _ in rows], [label for _, label, _ in rows], [confidence for _, _, confidence in rows]


def open_run(folder: Path) -> FittedRun:
    """Return the run in `folder` with its active model; raise ModelFileError if the run is not finished or has no model."""
    manifest = read_finished_run_manifest(folder)
    model_dir = active_model_dir(folder)
    if manifest.get("unlabelled") and not (model_dir / "model.json").exists():
        raise ModelFileError(
            f"{folder} has no model yet. Label items on its page (`samekind serve {folder}`) and press r there to train one."
        )
    from samekind.estimator import SemiSupervisedClassifier

    model = SemiSupervisedClassifier.load(model_dir).set_params(cache=folder / "cache")
    return FittedRun(folder, model, Encoding.from_json(manifest["result"]["encoding"]), manifest["config"]["data"])


def finetuned_encoder(run: Path) -> EfficientNetLite | None:
    """Return the encoder of the active model if it was fine-tuned in the fit; None for every other encoder."""
    from samekind.nets.encoders.finetuned import PATTERN, is_finetuned

    if not any(active_model_dir(run).glob(PATTERN)):
        return None
    encoder = open_run(run).model.model_.preprocessor.encoder
    return encoder if is_finetuned(encoder) else None


def active_model_dir(run: Path) -> Path:
    """Return the folder of the active model.

    That is the refitted model that was activated on the page, or if there is none, the model of the fit.
    """
    folder = run / read_active_model(run).get("model", "model")
    return folder if (folder / "model.json").exists() else run / "model"


def find_existing_fit(out: Path, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the manifest of the fit in `out`, if its configuration is `config`; None if there is no fit and `out` can be used.

    A run of an earlier version lacks the options that are new; `defaults` has their values. SettingError is raised if `out`
    has other content.
    """
    # for a path that is too long this returns False, while Path.exists raises an error
    if not os.path.exists(out / "run.json"):
        if not is_free(out):
            raise SettingError(f"{out} exists and holds no run. Choose a folder that is empty or does not exist yet.")
        return None
    manifest = read_run_manifest(out)
    if manifest.get("unlabelled"):
        raise SettingError(
            f"{out} is an unlabelled project of `samekind serve`, which trains on its page. Choose another folder with --out; "
            f"to train on the labels of the page, give --labels {out / 'serve' / 'labels.csv'}."
        )
    before = {**defaults, **manifest["config"]}
    for name, value in config.items():
        if before.get(name) != value:
            raise SettingError(
                f"{out} holds a run with {name} = {before.get(name)!r}, but {value!r} was requested. Choose another "
                f"folder with --out, or remove {out}."
            )
    return manifest


def is_free(out: Path) -> bool:
    """Return whether a run can begin in this folder: it does not exist, is empty, or only has the lock of a killed fit."""
    if not os.path.lexists(out):
        return True
    try:
        return all(_is_of_a_begun_run(path) for path in out.iterdir())
    except OSError:
        return False


def _is_of_a_begun_run(path: Path) -> bool:
    if path.name == LOCK:
        return stat.S_ISREG(path.lstat().st_mode) and path.lstat().st_size == 0
    return path.name.startswith(".run.json.") and is_part(path)


@contextmanager
def locked_run_folder(out: Path) -> Iterator[bool]:
    """Create a run folder if it does not exist, and hold its lock; yield whether it existed before.

    Files that a killed process has not finished are removed.
    """
    existed = os.path.exists(out)
    lock = FileLock(out / LOCK, mode=0o644)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in PLAIN_FILES:
            _require_plain_file(out / name)
        lock.acquire(blocking=False)
    except Timeout as error:
        raise SettingError(f"another process is fitting in {out}. Wait for it, or choose another folder with --out.") from error
    except OSError as error:
        raise SettingError(
            f"{out} cannot be used for a run ({error.strerror or error}). Choose another folder with --out."
        ) from error
    try:
        for folder in (out, out / "model", out / "cache", *out.glob("cache/*.blocks")):
            remove_parts(folder)
        yield existed
    finally:
        lock.release()


def _require_plain_file(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise SettingError(
            f"{path} is not a regular file, but a fit writes to regular files only, never through a link, a pipe or a "
            "device. Remove it."
        )


def remove_begun_run(out: Path, *, keep_folder: bool) -> None:
    """Delete what a fit that could not start has written to its folder; without `keep_folder`, delete the folder too."""
    for name in BEGUN:
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    (out / LOCK).unlink(missing_ok=True)
    if not keep_folder:
        with suppress(OSError):  # fails if another program has put a file there
            out.rmdir()


def write_run_manifest(out: Path, manifest: Mapping[str, Any]) -> None:
    """Write run.json with the present version of its format."""
    blob = json.dumps({"format": RUN_FORMAT, **manifest}, indent=2) + "\n"
    atomic_write(out / "run.json", blob.encode(), ModelFileError)


def write_skipped(path: Path, skipped: Iterable[Skipped]) -> None:
    """Write the skipped files with the reasons, as CSV."""
    write_csv(path, ["path", "reason"], ([file.path, file.reason] for file in skipped))


def write_csv(
    path: Path,
    header: list[str],
    rows: Iterable[list[str]],
    *,
    write: Callable[[Path, bytes, type[SamekindError]], None] = atomic_write,
) -> None:
    """Write a CSV file. File names that are not UTF-8 keep their bytes. Pass write=write_output if the user chose `path`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write(path, text.getvalue().encode("utf-8", "surrogateescape"), DataError)
