"""What is told about a run and its items, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from samekind.errors import RequestError
from samekind.server import kinds
from samekind.server.answers import Answers
from samekind.server.orders import SORTS, STATUS
from samekind.server.page import Page
from samekind.server.piles import SORTS as UNTRAINED_SORTS
from samekind.server.piles import missing
from samekind.server.store import STATUSES

WORDS = {None: "unlabelled"} | {status: status for status in STATUSES if status}


def of_run(page: Page) -> dict[str, Any]:
    """The run in a few numbers, its classes, and the model in use."""
    store, answers = page.store, page.answers
    states = store.states.first(len(answers))
    return {
        "name": page.name,
        "kind": "images" if page.encoding.kind == "images" else "rows",
        "n_images": len(answers),
        "n_labelled": int((states.status == 1).sum()),
        "n_skipped": int((states.status == 2).sum()),
        "classes": of_classes(page, answers),
        "model": of_model(page, answers),
        "last_seq": store.last_seq,
        "read_only": page.read_only,
        "can_undo": store.batch(store.stack.last()),
        "can_redo": store.batch(store.stack.last_undone()),
        "sorts": SORTS if answers.trained else UNTRAINED_SORTS,
        "statuses": STATUS,
        "missing": None if answers.trained else missing(store, kinds.learned_from(store, store.labels())),
    }


def of_classes(page: Page, answers: Answers) -> list[dict[str, Any]]:
    """Every class with how many images have it as label and how many as prediction."""
    all_kinds = kinds.kinds(page.store)
    n = max((kind.id for kind in all_kinds), default=-1) + 1
    labelled = page.states.counts(n)
    predicted = np.bincount(answers.pred[answers.pred >= 0], minlength=n)
    return [{**vars(kind), "n_labelled": int(labelled[kind.id]), "n_predicted": int(predicted[kind.id])} for kind in all_kinds]


def of_model(page: Page, answers: Answers) -> dict[str, Any]:
    """A model, and how many labels are newer than it. Version 0: there is none yet."""
    words = answers.words
    newer = "SELECT count(DISTINCT image_id) AS n FROM event WHERE seq > ?"
    return {
        "version": answers.version,
        "labels_seq": words["labels_seq"],
        "stale_by": page.store.rows(newer, (words["labels_seq"],))[0]["n"],
        "created": words.get("created"),
        "mode": words.get("mode"),
        "metrics": words.get("metrics", {}),
    }


def of_item(page: Page, answers: Answers, item: int) -> dict[str, Any]:
    """One item as a tile needs it."""
    if not 0 <= item < len(answers):
        raise RequestError(404, f"There is no item {item}.")
    states = page.store.states
    label = int(states.class_id[item])
    try:
        key, error = page.original(item).key[:16], None
    except RequestError as reason:
        key, error = "gone", reason.detail
    trained = answers.trained
    return {
        "id": item,
        "path": readable(page.store.names[item]),
        "label": None if label < 0 else label,
        "status": WORDS[STATUSES[states.status[item]]],
        "source": "audit" if states.audit[item] else None,
        "pred": int(answers.pred[item]) if trained else None,
        "conf": _rounded(answers.confidence[item]) if trained else None,
        "margin": _rounded(answers.margin[item]) if trained else None,
        "entropy": _rounded(answers.entropy[item]) if trained else None,
        "top3": answers.top(item, 3),
        "v": key,
        "error": error,
    }


def require_items(answers: Answers, items: Iterable[int]) -> None:
    """Refuses a request about an item that is not there."""
    for item in items:
        if item >= len(answers):
            raise RequestError(422, f"There is no item {item}; the last is {len(answers) - 1}.")


def readable(name: str) -> str:
    """A file name as text; bytes that are none are shown as such."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _rounded(value: Any) -> float:
    return round(float(value), 5)
