"""First start of a server on a run: write its items and labels to the label store, and the predictions of its model to
model-1.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from samekind.data.readers.reader import Encoding
from samekind.errors import ModelFileError, StoreError
from samekind.files.manifest import read_finished_run_manifest, read_model_manifest, read_predictions_manifest
from samekind.server.inference.predictions import write_predictions
from samekind.server.media.array_images import unique_names
from samekind.server.store import label_classes
from samekind.server.store.batches import LABELLED, BatchRequest
from samekind.server.store.content_hashes import file_stamp
from samekind.server.store.label_store import LabelStore
from samekind.server.store.restore import restore
from samekind.server.store.server_lock import ServerLock

LogFunction = Callable[[str], None]


def restore_labels(run: Path) -> str:
    """Restore the label store of a run; return a sentence that says where the restored labels come from."""
    manifest = read_finished_run_manifest(run)
    encoding = Encoding.from_json(manifest["result"]["encoding"])
    root = Path(manifest["config"]["data"]) if encoding.source == "images" else None
    folder = run / "serve"
    if not folder.is_dir():
        raise StoreError(f"{run} was never served, so it has no labels to restore. Run `samekind serve {run}`.")
    with closing(ServerLock(folder / "lock")):
        return restore(folder, lambda store: add_fitted_items(run, manifest, store, root, lambda _: None))


def add_fitted_items(run: Path, manifest: Mapping[str, Any], store: LabelStore, root: Path | None, log: LogFunction) -> None:
    """Add the items of a run to its new store, and the labels with which it was fitted as the first events."""
    unlabelled = bool(manifest.get("unlabelled"))
    names, labels = _read_items(run / ("items.csv" if unlabelled else "labels.csv"), manifest["result"]["n_items"])
    log(f"adding {len(names)} items to the label store")
    if not store.names:
        store.add_items(unique_names(names))
        store.set_file_stamps(file_stamps(root, store.names))
    given = sorted({label for label in labels if label is not None})
    fitted = [] if unlabelled else [str(name) for name in read_model_manifest(run / "model")["classes"]]
    ids = dict(zip([*fitted, *given], label_classes.ids_of_names(store, [*fitted, *given]), strict=True))
    targets = {i: (ids[label], LABELLED) for i, label in enumerate(labels) if label is not None}
    if targets:
        store.apply(BatchRequest("fit", targets, source="fit", request_id="labels of the fit"))
    store.set_meta("begun", "yes")


def ensure_fitted_predictions(run: Path, store: LabelStore, *, read_only: bool, log: LogFunction) -> None:
    """Write the predictions of the fitted model for all items, unless they exist already."""
    weights = read_model_manifest(run / "model")["weights"]
    folder = run / "serve" / "model-1"
    if (folder / "predictions.json").exists() and read_predictions_manifest(folder).get("weights") == weights:
        return
    if read_only:
        raise ModelFileError(f"{folder} holds no predictions yet. Start `samekind serve` once without --read-only.")
    log("predicting all items")
    from samekind.estimator import SemiSupervisedClassifier

    model = SemiSupervisedClassifier.load(run / "model")
    metadata = {
        "weights": weights,
        "class_ids": label_classes.ids_of_names(store, [str(label) for label in model.classes_], restore=False),
        "labels_seq": store.last_event_of_fit(),
        "created": _modified_at(run / "run.json"),
        "mode": "fit",
        "audit_used": False,
        "cost": model.cost_,
        "updatable": model.model_.updatable,
        "quality": None if model.quality_ is None else model.quality_.to_json(),
    }
    write_predictions(folder, model.fitted_proba(), model.fitted_features(), metadata)


def file_stamps(root: Path | None, names: list[str]) -> dict[int, tuple[int, int]]:
    """Return {index of the item: (size, modification time)} for the items whose files exist."""
    if root is None:
        return {}
    found = ((index, file_stamp(str(root), name)) for index, name in enumerate(names))
    return {index: stamp for index, stamp in found if stamp is not None}


def _read_items(path: Path, n: int) -> tuple[list[str], list[str | None]]:
    """Return the names of all items and their training labels, from the CSV file that the fit has written."""
    try:
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            table = csv.DictReader(file)
            rows = list(table)
        # the first column contains the names; its header is that of the data
        names = [row[(table.fieldnames or ["path"])[0]] for row in rows]
        labels = [row["label"] if row["given"] == "yes" else None for row in rows]
    except (OSError, KeyError, csv.Error) as error:
        raise ModelFileError(f"{path} cannot be read ({error}). It should list the items of the run; fit again.") from error
    if len(names) != n:
        raise ModelFileError(f"{path} lists {len(names)} items, and the run has {n}. It was changed; fit again.")
    return names, labels


def _modified_at(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).isoformat(timespec="seconds")
