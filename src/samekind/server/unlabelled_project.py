"""Unlabelled projects: runs on data without labels. Until a first model is trained, items are compared by baseline features.

RUN/items.csv        the items
RUN/serve/model-0/   their baseline features; no classes, no probabilities
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.columns.typed_table import TypedTable
from samekind.data.readers.reader import Encoding, readers_by_suffix
from samekind.data.texts import TextArray
from samekind.errors import DataError, ModelFileError, SettingError
from samekind.files.io import atomic_write
from samekind.files.manifest import read_run_manifest
from samekind.progress import Progress
from samekind.server.inference.predictions import write_predictions
from samekind.server.media.array_images import unique_names
from samekind.server.store import label_classes
from samekind.server.store.label_store import LabelStore
from samekind.server.store.server_lock import ServerLock

LogFunction = Callable[[str], None]

BASELINE_VERSION = 0  # version of the predictions before the first model; their folder is model-0
TEXT_BATCH = 256  # number of texts that are encoded at a time
MIN_CLASSES, MIN_PER_CLASS = 2, 2  # numbers of classes, and of labels of each class, that the first model needs at least


def resolve_run(
    path: Path,
    out: Path | None,
    *,
    encoder: str | None = "auto",
    text: str | None = None,
    read_only: bool = False,
    log: LogFunction = lambda _: None,
    progress: Progress | None = None,
) -> Path:
    """Return the run to serve: `path` if it is a run, else the run on the data at `path`, which is created if it does not
    exist.
    """
    if _is_there(path / "run.json"):
        if out is not None:
            raise SettingError(f"{path} is a run already. Leave out --out, or give data instead of a run.")
        return _complete_run(path, encoder, read_only, log, progress)
    runs = sorted(one.parent.name for one in path.glob("*/run.json")) if path.is_dir() else []
    if runs:
        raise SettingError(f"{path} holds runs ({', '.join(runs[:3])}) and is not a run. Serve one of them: {path / runs[0]}.")
    if not _is_there(path):
        raise DataError(
            f"{path} does not exist. Expected a run, a folder of images or .txt files, or a file of type "
            f"{', '.join(readers_by_suffix())}."
        )
    chosen = out if out is not None else default_folder(path)
    data = path.resolve()
    if chosen.resolve().is_relative_to(data):
        raise SettingError(
            f"{chosen} lies inside {path}, and nothing is written into the data. Choose another folder with --out."
        )
    if _is_there(chosen / "run.json"):
        _require_same_data(chosen, data)
        return _complete_run(chosen, encoder, read_only, log, progress)
    from samekind.project.run_folder import is_free

    if not is_free(chosen):
        raise SettingError(f"{chosen} exists and holds no run. Choose a folder that is empty or does not exist, with --out.")
    if read_only:
        raise SettingError(f"the run {chosen} does not exist yet. Start samekind serve once without --read-only.")
    _create(str(path), chosen, encoder, text, log, progress)
    return chosen


def default_folder(path: Path) -> Path:
    """Return the folder runs/NAME in the working directory; if that is inside the data, runs/NAME beside the data."""
    data, here = path.resolve(), Path.cwd()
    name = data.name if data.is_dir() else data.stem
    return (data.parent if here.is_relative_to(data) else Path()) / "runs" / (name or "unlabelled")


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise DataError(
            f"{path.parent} cannot be read ({error.strerror}). Ask its owner for access, or choose other data."
        ) from error


def _require_same_data(run: Path, data: Path) -> None:
    before = read_run_manifest(run).get("config", {}).get("data")
    if before != str(data):
        raise SettingError(f"{run} is a run of {before}, not of {data}. Choose another folder with --out.")


def _complete_run(run: Path, encoder: str | None, read_only: bool, log: LogFunction, progress: Progress | None) -> Path:
    """Return an existing run; raise SettingError if it has another encoder. If it is incomplete, create it again."""
    manifest = read_run_manifest(run)
    before = manifest["config"].get("encoder", "auto")
    if encoder not in ("auto", before):
        raise SettingError(
            f"{run} was made with the encoder {before or 'none'!r}, but {encoder or 'none'!r} was requested. Leave --encoder "
            "out, or choose another folder with --out."
        )
    if manifest.get("unlabelled") and "result" not in manifest:
        if read_only:
            raise SettingError(f"the run {run} is incomplete. Start samekind serve once without --read-only.")
        config = manifest["config"]
        _create(config["data"], run, config.get("encoder"), config.get("text"), log, progress)
    return run


def _create(data: str, run: Path, encoder: str | None, text: str | None, log: LogFunction, progress: Progress | None) -> None:
    from samekind.project.fit import CANNOT_START, create_unlabelled_project
    from samekind.project.run_folder import remove_begun_run

    existed, begun = run.exists(), _is_there(run / "run.json")
    try:
        opened, manifest = create_unlabelled_project(data, run, encoder=encoder, text=text, log=log, progress=progress)
    except DataError as error:
        raise DataError(f"{data} is not a run (it has no run.json) and cannot be read as data either: {error}") from error
    folder = run / "serve"
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        with closing(ServerLock(folder / "lock")):
            _write_features(run, _first_features(run, opened.x, encoder, progress))
            atomic_write(run / "run.json", (json.dumps(manifest, indent=2) + "\n").encode(), ModelFileError)
    except CANNOT_START:  # for example, the encoder fails on these images
        if not begun:
            shutil.rmtree(folder)
            remove_begun_run(run, keep_folder=existed)
        raise
    log(f"labels of {data} are stored in {run}")


# ---------------------------------------------------------------- features before the first model


def ensure_features(manifest: Mapping[str, Any], run: Path, names: list[str]) -> None:
    """Compute model-0 again if it was removed. Items whose files are gone get features of zeros."""
    folder = run / "serve"
    if (folder / f"model-{BASELINE_VERSION}" / "predictions.json").exists():
        return
    encoding = Encoding.from_json(manifest["result"]["encoding"])
    from samekind.data.user_data import open_like

    data = open_like(manifest["config"]["data"], encoding, cache=run / "cache")
    place = {name: row for row, name in enumerate(unique_names(data.names))}
    features = _first_features(run, data.x, manifest["config"].get("encoder"), None)
    _write_features(run, features, [place.get(name) for name in names])


def _first_features(run: Path, x: Any, encoder: str | None, progress: Progress | None) -> npt.NDArray[np.float32]:
    """Return the features before the first model: those of an encoder, or baseline features."""
    from samekind.nets.encoders.frozen_features import FeatureCache
    from samekind.preprocessing.baseline_features import compute_baseline_features, compute_encoder_features
    from samekind.preprocessing.encoder_choice import encoder_without_labels
    from samekind.preprocessing.preprocessor import build_encoder
    from samekind.tabular.table_encoder import TableEncoder

    if isinstance(x, TextArray):
        return _text_features(run, x, encoder, progress)
    if isinstance(x, TypedTable):
        return compute_baseline_features(TableEncoder.fit(x).transform(x), progress)
    name = encoder_without_labels(x) if encoder == "auto" else encoder
    if name is None or x.ndim != 4:
        return compute_baseline_features(x, progress)
    # stored in the cache, where the first fit finds them
    return compute_encoder_features(x, build_encoder(name), FeatureCache(run / "cache"), progress)


def _text_features(run: Path, texts: TextArray, encoder: str | None, progress: Progress | None) -> npt.NDArray[np.float32]:
    """Return the features of texts before the first model. With a pretrained encoder, the first fit finds them in the cache."""
    from samekind.nets.encoders.frozen_features import FeatureCache, extract_features
    from samekind.nets.text.text_encoder_names import PREFERRED, resolve_text_encoder

    built = resolve_text_encoder(PREFERRED if encoder in (None, "auto") else encoder).fitted(list(texts))
    on_samples = None if progress is None else partial(progress, "encoding texts")
    cache = None if built.state() else FeatureCache(run / "cache")
    return extract_features(built, list(texts), cache=cache, batch=TEXT_BATCH, on_samples=on_samples)


def _write_features(run: Path, z: npt.NDArray[np.float32], rows: list[int | None] | None = None) -> None:
    if rows is not None:
        missing = np.zeros((1, z.shape[1]), dtype=np.float32)
        z = np.concatenate([z, missing])[[len(z) if row is None else row for row in rows]]
    metadata = {"class_ids": [], "labels_seq": 0, "mode": "baseline", "audit_used": False}
    folder = run / "serve" / f"model-{BASELINE_VERSION}"
    write_predictions(folder, np.empty((len(z), 0), dtype=np.float32), z, metadata)


def describe_missing_labels(store: LabelStore, labels: Mapping[str, str]) -> str | None:
    """Return a sentence that says which labels the first fit still needs; None if `labels` has enough."""
    counts = Counter(labels.values())
    names = [one["name"] for one in label_classes.all_classes(store) if not one["archived"]]
    if len(names) < MIN_CLASSES:
        return f"Name at least {MIN_CLASSES} classes, then label at least {MIN_PER_CLASS} items of each."
    largest = sorted(names, key=lambda name: -counts[name])[:MIN_CLASSES]
    needed = [f"{MIN_PER_CLASS - counts[name]} more of {name!r}" for name in largest if counts[name] < MIN_PER_CLASS]
    if not needed:
        return None
    return f"Label at least {MIN_PER_CLASS} items of each of {MIN_CLASSES} classes: {' and '.join(needed)}."
