"""What is told about a run and its items, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from samekind.errors import RequestError
from samekind.server.inference.predictions import Predictions
from samekind.server.inference.ranking import SORTS, STATUS
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.store.label_store import STATUSES
from samekind.server.unlabelled_project import SORTS as BASELINE_SORTS
from samekind.server.unlabelled_project import missing

WORDS = {None: "unlabelled"} | {status: status for status in STATUSES if status}


def of_run(session: Session) -> dict[str, Any]:
    """The run in a few numbers, its classes, and the model in use."""
    store, predictions = session.store, session.predictions
    states = store.states.first(len(predictions))
    return {
        "name": session.name,
        "kind": "images" if session.encoding.kind == "images" else "rows",
        "n_images": len(predictions),
        "n_labelled": int((states.status == 1).sum()),
        "n_skipped": int((states.status == 2).sum()),
        "classes": of_classes(session, predictions),
        "model": of_model(session, predictions),
        "last_seq": store.last_seq,
        "read_only": session.read_only,
        "can_undo": store.batch(store.undo_log.last()),
        "can_redo": store.batch(store.undo_log.last_undone()),
        "sorts": SORTS if predictions.trained else BASELINE_SORTS,
        "statuses": STATUS,
        "missing": None if predictions.trained else missing(store, label_classes.learned_from(store, store.labels())),
    }


def of_classes(session: Session, predictions: Predictions) -> list[dict[str, Any]]:
    """Every class with how many images have it as label and how many as prediction."""
    all_kinds = label_classes.all_classes(session.store)
    n = max((kind.id for kind in all_kinds), default=-1) + 1
    labelled = session.states.counts(n)
    predicted = np.bincount(predictions.pred[predictions.pred >= 0], minlength=n)
    return [{**vars(kind), "n_labelled": int(labelled[kind.id]), "n_predicted": int(predicted[kind.id])} for kind in all_kinds]


def of_model(session: Session, predictions: Predictions) -> dict[str, Any]:
    """A model, and how many labels are newer than it. Version 0: there is none yet."""
    words = predictions.words
    newer = "SELECT count(DISTINCT image_id) AS n FROM event WHERE seq > ?"
    return {
        "version": predictions.version,
        "labels_seq": words["labels_seq"],
        "stale_by": session.store.rows(newer, (words["labels_seq"],))[0]["n"],
        "created": words.get("created"),
        "mode": words.get("mode"),
        "metrics": words.get("metrics", {}),
    }


def of_item(session: Session, predictions: Predictions, item: int) -> dict[str, Any]:
    """One item as a tile needs it."""
    if not 0 <= item < len(predictions):
        raise RequestError(404, f"There is no item {item}.")
    states = session.store.states
    label = int(states.class_id[item])
    try:
        key, error = session.original(item).key[:16], None
    except RequestError as reason:
        key, error = "gone", reason.detail
    trained = predictions.trained
    return {
        "id": item,
        "path": readable(session.store.names[item]),
        "label": None if label < 0 else label,
        "status": WORDS[STATUSES[states.status[item]]],
        "source": "audit" if states.audit[item] else None,
        "pred": int(predictions.pred[item]) if trained else None,
        "conf": _rounded(predictions.confidence[item]) if trained else None,
        "margin": _rounded(predictions.margin[item]) if trained else None,
        "entropy": _rounded(predictions.entropy[item]) if trained else None,
        "top3": predictions.top(item, 3),
        "v": key,
        "error": error,
    }


def require_items(predictions: Predictions, items: Iterable[int]) -> None:
    """Refuses a request about an item that is not there."""
    for item in items:
        if item >= len(predictions):
            raise RequestError(422, f"There is no item {item}; the last is {len(predictions) - 1}.")


def readable(name: str) -> str:
    """A file name as text; bytes that are none are shown as such."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _rounded(value: Any) -> float:
    return round(float(value), 5)
