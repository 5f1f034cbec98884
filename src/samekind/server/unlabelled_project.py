"""A pile: data that nobody has labelled. Its run is begun here, and served with features that need no training.

RUN/items.csv        the items
RUN/serve/model-0/   their features; no class, no probability
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.readers.reader import Encoding
from samekind.data.user_data import open_like
from samekind.errors import DataError, ModelFileError, SettingError
from samekind.io import atomic_write
from samekind.manifest import read_run_manifest
from samekind.progress import Progress
from samekind.server.inference.predictions import Predictions, write_predictions
from samekind.server.media.array_images import unique_names
from samekind.server.store import label_classes
from samekind.server.store.label_store import LabelStore
from samekind.server.store.server_lock import ServerLock

Say = Callable[[str], None]
Floats = npt.NDArray[np.float32]
Marks = npt.NDArray[np.bool_]

BASELINE_VERSION = 0  # the version of the answers before the first model
CLASSES, EACH = 2, 2  # classes that are needed for the first model, and images of each
NO_MODEL = "There is no model yet. Label a few images of two classes or more, then fit."
SORTS = "diverse path random newest".split()  # those that need no model


def resolve_run(
    path: Path, out: Path | None, *, read_only: bool = False, say: Say = lambda _: None, progress: Progress | None = None
) -> Path:
    """The run that is meant: `path` itself, or the one of the data at `path`, which is begun if it is not there yet."""
    if _is_there(path / "run.json"):
        if out is not None:
            raise SettingError(f"{path} is a run already. Leave --out away, or name a folder of pictures before it.")
        return _gone_on(path, read_only, say, progress)
    runs = sorted(one.parent.name for one in path.glob("*/run.json")) if path.is_dir() else []
    if runs:
        raise SettingError(f"{path} holds runs ({', '.join(runs[:3])}) and is none. Serve one of them: {path / runs[0]}.")
    if not _is_there(path):
        raise DataError(f"{path} does not exist. Expected a run, a folder of pictures, a .npy or .npz, or a .csv or .parquet.")
    chosen = out if out is not None else default_folder(path)
    data = path.resolve()
    if chosen.resolve().is_relative_to(data):
        raise SettingError(f"{chosen} lies inside {path}, where nothing is written. Choose another folder with --out.")
    if _is_there(chosen / "run.json"):
        _require_same_data(chosen, data)
        return _gone_on(chosen, read_only, say, progress)
    if chosen.exists() and (not chosen.is_dir() or any(chosen.iterdir())):
        raise SettingError(f"{chosen} exists and holds no run. Choose a folder that is empty or not there yet, with --out.")
    if read_only:
        raise SettingError(f"{chosen} is not there yet. Start once without --read-only.")
    _begin(str(path), chosen, say, progress)
    return chosen


def default_folder(path: Path) -> Path:
    """runs/NAME here; if here is inside the data, beside the data."""
    data, here = path.resolve(), Path.cwd()
    name = data.name if data.is_dir() else data.stem
    return (data.parent if here.is_relative_to(data) else Path()) / "runs" / (name or "pile")


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise DataError(f"{path.parent} cannot be read ({error.strerror}). Ask its owner, or name another.") from error


def _require_same_data(run: Path, data: Path) -> None:
    before = read_run_manifest(run).get("config", {}).get("data")
    if before != str(data):
        raise SettingError(f"{run} is a run of {before}, and {data} is asked for. Choose another folder with --out.")


def _gone_on(run: Path, read_only: bool, say: Say, progress: Progress | None) -> Path:
    """A run that is there; a pile whose beginning was interrupted is begun again."""
    words = read_run_manifest(run)
    if words.get("unlabelled") and "result" not in words:
        if read_only:
            raise SettingError(f"{run} is only half begun. Start once without --read-only.")
        _begin(words["config"]["data"], run, say, progress)
    return run


def _begin(data: str, run: Path, say: Say, progress: Progress | None) -> None:
    from samekind.project.fit import create_unlabelled_project

    try:
        opened, words = create_unlabelled_project(data, run, log=say, progress=progress)
    except DataError as error:
        raise DataError(f"{data} is no run (it has no run.json), and as data to label: {error}") from error
    folder = run / "serve"
    folder.mkdir(mode=0o700, exist_ok=True)
    with closing(ServerLock(folder / "lock")):
        _write(folder, opened.x, progress)
        atomic_write(run / "run.json", (json.dumps(words, indent=2) + "\n").encode(), ModelFileError)
    say(f"the labels of {data} are kept in {run}")


# ---------------------------------------------------------------- what is known before the first model


def ensure_features(words: Mapping[str, Any], run: Path, names: list[str]) -> None:
    """Makes model-0 anew if it was removed; items whose files are gone have no features."""
    folder = run / "serve"
    if (folder / f"model-{BASELINE_VERSION}" / "predictions.json").exists():
        return
    encoding = Encoding.from_json(words["result"]["encoding"])
    data = open_like(words["config"]["data"], encoding, cache=run / "cache")
    place = {name: row for row, name in enumerate(unique_names(data.names))}
    _write(folder, data.x, None, [place.get(name) for name in names])


def _write(folder: Path, x: npt.NDArray[Any], progress: Progress | None, rows: list[int | None] | None = None) -> None:
    from samekind.baseline_features import compute_baseline_features

    z = compute_baseline_features(x, progress)
    if rows is not None:
        none = np.zeros((1, z.shape[1]), dtype=np.float32)
        z = np.concatenate([z, none])[[len(z) if row is None else row for row in rows]]
    words = {"class_ids": [], "labels_seq": 0, "mode": "untrained", "audit_used": False}
    write_predictions(folder / f"model-{BASELINE_VERSION}", np.empty((len(z), 0), dtype=np.float32), z, words)


def missing(store: LabelStore, learned: Mapping[str, str]) -> str | None:
    """What a person must do before the first fit, from the labels `learned`, can begin; None if nothing."""
    counts = Counter(learned.values())
    names = [kind.name for kind in label_classes.all_classes(store) if not kind.archived]
    if len(names) < CLASSES:
        return f"Name at least {CLASSES} classes, then label at least {EACH} images of each."
    best = sorted(names, key=lambda name: -counts[name])[:CLASSES]
    wanted = [f"{EACH - counts[name]} more of {name!r}" for name in best if counts[name] < EACH]
    if not wanted:
        return None
    return f"Label at least {EACH} images of each of {CLASSES} classes: {' and '.join(wanted)}."


class CosineSearch:
    """What is like what by features that nobody trained: the cosine, of all items."""

    by = "cosine of untrained features"

    def __init__(self, predictions: Predictions) -> None:
        self._z = np.asarray(predictions.z)

    def __len__(self) -> int:
        return len(self._z)

    def similar(
        self, ids: list[int], not_ids: list[int], among: Marks, k: int, min_sim: float = -1.0
    ) -> tuple[list[tuple[int, float]], bool]:
        """The k items among `among` with the largest mean cosine to `ids`, less that to `not_ids`."""
        request = self._z[ids].mean(axis=0)
        if not_ids:
            request = request - self._z[not_ids].mean(axis=0)
        cosine = self._z @ request
        allowed = among & (cosine >= min_sim)
        allowed[[*ids, *not_ids]] = False
        found = np.flatnonzero(allowed)
        if len(found) > k:
            found = found[np.argpartition(-cosine[found], k - 1)[:k]]
        found = found[np.argsort(-cosine[found], kind="stable")]
        return [(int(item), float(cosine[item])) for item in found], True
