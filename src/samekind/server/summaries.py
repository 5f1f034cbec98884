"""Summaries of a run, its classes, models and items, as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from typing_extensions import TypedDict

from samekind.errors import RequestError
from samekind.server.inference.predictions import Predictions
from samekind.server.media.array_images import MAX_CARD
from samekind.server.media.table_rows import FieldValue
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.store.batches import STATUSES
from samekind.server.store.label_classes import LabelClass

MAX_LOG_ODDS = 1000.0
TopClasses = list[tuple[int, float]]  # (class id, probability) of the most probable classes, best first


class ClassSummary(LabelClass):
    """A class, with the number of items that have it as label, and the number that have it as prediction."""

    n_labelled: int
    n_predicted: int


class ModelSummary(TypedDict):
    """A model, and the number of items that were labelled after its training. Version 0 means that there is no model yet.

    `revision` counts the updates of its predictions in this session; `quality` is null if no labels were held out.
    """

    version: int
    revision: int
    labels_seq: int
    stale_by: int
    created: str | None
    mode: str | None
    metrics: dict[str, Any]
    quality: dict[str, Any] | None


class ItemSummary(TypedDict):
    """The data of an item that a tile of the grid shows. The prediction is null as long as there is no model.

    `fields` has those columns of a row that the tile shows as text; for items that are shown as images it is empty. `n_fields`
    is the number of all columns. `text` is the beginning of a text, and null for other items.
    """

    id: int
    path: str
    label: int | None
    status: str
    source: str | None
    pred: int | None
    conf: float | None
    margin: float | None
    entropy: float | None
    top3: TopClasses
    image_key: str
    error: str | None
    fields: list[FieldValue]
    n_fields: int
    text: str | None


def summarize_classes(session: Session, predictions: Predictions) -> list[ClassSummary]:
    """Return all classes, with the numbers of items that have them as label and as prediction."""
    classes = label_classes.all_classes(session.store)
    n = max((one["id"] for one in classes), default=-1) + 1
    labelled = session.states.counts(n)
    predicted = np.bincount(predictions.pred[predictions.pred >= 0], minlength=n)
    return [{**one, "n_labelled": int(labelled[one["id"]]), "n_predicted": int(predicted[one["id"]])} for one in classes]


def summarize_model(session: Session, predictions: Predictions) -> ModelSummary:
    """Return the summary of the model that made these predictions."""
    metadata = predictions.metadata
    return {
        "version": predictions.version,
        "revision": predictions.revision,
        "labels_seq": metadata["labels_seq"],
        "stale_by": count_newer_labels(session, metadata),
        "created": metadata.get("created"),
        "mode": metadata.get("mode"),
        "metrics": metadata.get("metrics", {}),
        "quality": metadata.get("quality"),
    }


def count_newer_labels(session: Session, metadata: Mapping[str, Any]) -> int:
    """Return the number of items whose label is newer than the model. Audited labels count only if a refit may use them."""
    use_audit = session.store.meta(label_classes.AUDIT_KEY) == "yes"
    newer = session.store.changed_since(metadata["labels_seq"], with_audit=use_audit)
    if use_audit and not metadata.get("audit_used"):
        states = session.store.states
        newer.update(np.flatnonzero(states.audit & (states.status == 1)).tolist())
    return len(newer)


def summarize_item(session: Session, predictions: Predictions, item: int) -> ItemSummary:
    """Return the summary of one item."""
    if not 0 <= item < len(predictions):
        raise RequestError(404, f"There is no item {item}.")
    states = session.store.states
    label = int(states.class_id[item])
    fields: list[FieldValue] = []
    text: str | None = None
    try:
        key, error = session.image_source(item).key[:16], None
        if session.array_images.fits_on_a_card:
            fields = session.array_images.fields(item, MAX_CARD)
        if session.texts is not None:
            text = session.texts.excerpt(item)
    except RequestError as reason:
        key, error = "gone", reason.detail
    trained = predictions.trained
    return {
        "id": item,
        "path": readable(session.store.names[item]),
        "label": None if label < 0 else label,
        "status": STATUSES[states.status[item]] or "unlabelled",
        "source": "audit" if states.audit[item] else None,
        "pred": int(predictions.pred[item]) if trained else None,
        "conf": _round(predictions.confidence[item]) if trained else None,
        "margin": _round(predictions.margin[item]) if trained else None,
        "entropy": _round(predictions.entropy[item]) if trained else None,
        "top3": predictions.top(item, 3),
        "image_key": key,
        "error": error,
        "fields": fields,
        "n_fields": session.array_images.n_columns,
        "text": text,
    }


def require_items(predictions: Predictions, items: Iterable[int]) -> None:
    """Raise RequestError if no item has one of these ids."""
    for item in items:
        if item >= len(predictions):
            raise RequestError(422, f"There is no item {item}; the last is {len(predictions) - 1}.")


def round_log_odds(value: float | None) -> float | None:
    """Return log-odds limited to ±1000, because JSON has no infinity."""
    return None if value is None else round(min(max(value, -MAX_LOG_ODDS), MAX_LOG_ODDS), 2)


def readable(name: str) -> str:
    """Return a file name as text, with escapes for bytes that are not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _round(value: Any) -> float:
    return round(float(value), 5)
