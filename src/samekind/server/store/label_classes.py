"""Classes of a run: how they are added, renamed, merged and deleted.

A deleted class is archived, because the log refers to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from typing_extensions import TypedDict

from samekind.data.readers.label_file import UNLABELLED_CELLS, compose
from samekind.errors import RequestError
from samekind.server.store.batches import AUDIT, HOTKEYS, LABELLED, BatchOutcome, BatchRequest
from samekind.server.store.label_store import LabelStore

# Colors that color-blind people can distinguish (after Okabe and Ito), followed by lighter and darker variants.
COLORS = (
    "#0072b2 #e69f00 #009e73 #d55e00 #cc79a7 #56b4e9 #b8a800 #5c5c5c #6a3d9a #a65628 "
    "#004c78 #a87400 #006b4e #8f3f00 #8c4a70 #2f7fb0 #807500 #8a8a8a #9e77c7 #c98a66"
).split()
MAX_NAME = 200  # largest number of characters of a class name
AUDIT_KEY = "audit_in_training"  # key of the setting whether a refit may use audited labels


class LabelClass(TypedDict):
    """A class, as JSON."""

    id: int
    name: str
    key: str | None
    color: str
    archived: bool
    merged_into: int | None


def all_classes(store: LabelStore) -> list[LabelClass]:
    """Return all classes in the order of their ids, including archived ones."""
    rows = store.rows("SELECT id, name, hotkey AS key, colour AS color, archived, merged_into FROM class ORDER BY id")
    return cast(list[LabelClass], [{**row, "archived": bool(row["archived"])} for row in rows])


def names(store: LabelStore) -> dict[int, str]:
    """Return {class id: name}."""
    return {one["id"]: one["name"] for one in all_classes(store)}


def add(store: LabelStore, name: str, key: str | None = None, color: str | None = None) -> LabelClass:
    """Add a class and return it. If an archived class has this name, restore that class instead."""
    name = _require_valid_name(name)
    known = {compose(one["name"]): one for one in all_classes(store)}
    taken = {one["key"] for one in known.values()}
    chosen = key if key is not None else next((free for free in HOTKEYS if free not in taken), None)
    if name in known:
        if not known[name]["archived"]:
            raise RequestError(409, f"There is a class {name!r} already.")
        return change(store, known[name]["id"], {"archived": False, "key": chosen})
    with _require_unique(name, chosen):
        (class_id,) = _insert(store, list(known.values()), [name], key, color)
    return one_class(store, class_id)


def _insert(
    store: LabelStore, classes: list[LabelClass], names: list[str], key: str | None = None, color: str | None = None
) -> list[int]:
    """Add classes in one transaction and return their ids.

    Without `key`, each gets a free keyboard shortcut, while there is one.
    """
    taken = {one["key"] for one in classes}
    free = iter([key] if key is not None else [one for one in HOTKEYS if one not in taken])
    first = max((one["id"] for one in classes), default=-1) + 1
    ids = list(range(first, first + len(names)))
    rows = [(id_, name, next(free, None), color or COLORS[id_ % len(COLORS)]) for id_, name in zip(ids, names, strict=True)]
    with store.transaction() as db:
        db.executemany("INSERT INTO class(id, name, hotkey, colour) VALUES (?, ?, ?, ?)", rows)
    return ids


def one_class(store: LabelStore, class_id: int) -> LabelClass:
    """Return the class with this id; raise RequestError 404 if there is none."""
    found = next((one for one in all_classes(store) if one["id"] == class_id), None)
    if found is None:
        raise RequestError(404, f"There is no class {class_id}.")
    return found


def change(store: LabelStore, class_id: int, changes: Mapping[str, Any]) -> LabelClass:
    """Change the name, key, color or archived state of a class, as far as `changes` contains them; return the class."""
    old = one_class(store, class_id)
    name = _require_valid_name(changes["name"]) if "name" in changes else old["name"]
    if "name" in changes and any(compose(one["name"]) == name and one["id"] != class_id for one in all_classes(store)):
        raise RequestError(409, f"Another class has the name {name!r}.")
    if changes.get("archived") and store.states.counts(class_id + 1)[class_id]:
        raise RequestError(
            409, f"Items are labelled {old['name']!r}. First merge the class into another one, or clear these labels."
        )
    archived = changes.get("archived", old["archived"])
    key = None if archived else changes.get("key", old["key"])
    merged_into = old["merged_into"] if archived else None
    values = (name, key, changes.get("color", old["color"]), archived, merged_into, class_id)
    with store.transaction() as db, _require_unique(name, key):
        db.execute("UPDATE class SET name = ?, hotkey = ?, colour = ?, archived = ?, merged_into = ? WHERE id = ?", values)
    return one_class(store, class_id)


def merge(store: LabelStore, class_id: int, into: int, *, request_id: str | None = None) -> BatchOutcome:
    """Give all items of one class the label of another class, and archive the empty class. The batch can be undone."""
    merged, target = one_class(store, class_id), one_class(store, into)
    if class_id == into or target["archived"]:
        raise RequestError(
            409, f"{merged['name']!r} cannot be merged into {target['name']!r}. Choose another class that is not archived."
        )
    items = [row["id"] for row in store.labels() if row["class_id"] == class_id and row["status"] == LABELLED]
    request = BatchRequest("merge", dict.fromkeys(items, (into, LABELLED)), request_id=request_id, merged=(class_id, into))
    return store.apply(request).to_json()


def delete(store: LabelStore, class_id: int, *, clear_labels: bool, request_id: str | None = None) -> BatchOutcome:
    """Archive a class, in a batch that can be undone.

    With `clear_labels`, its labels are removed; without, it must have none.
    """
    deleted = one_class(store, class_id)
    if deleted["archived"]:
        raise RequestError(409, f"The class {deleted['name']!r} is deleted already.")
    items = [row["id"] for row in store.labels() if row["class_id"] == class_id and row["status"] == LABELLED]
    if items and not clear_labels:
        raise RequestError(
            409,
            f"{len(items)} items are labelled {deleted['name']!r}. Merge the class into another one, or clear its labels.",
        )
    request = BatchRequest("delete", dict.fromkeys(items, (None, None)), request_id=request_id, merged=(class_id, None))
    return store.apply(request).to_json()


def ids_of_names(store: LabelStore, names: list[str], *, restore: bool = True) -> list[int]:
    """Return the ids of the classes with these names. Classes that do not exist are added.

    With `restore`, archived classes with these names are restored.
    """
    classes = all_classes(store)
    known = {compose(one["name"]): one["id"] for one in classes}
    composed = [compose(name) for name in names]
    new = list(dict.fromkeys(_require_valid_name(name) for name in composed if name not in known))
    new = [name for name in new if name not in known]
    known |= dict(zip(new, _insert(store, classes, new), strict=True)) if new else {}
    archived = {compose(one["name"]) for one in classes if one["archived"]}
    for name in dict.fromkeys(composed) if restore else ():
        if name in archived:
            add(store, name)
    return [known[name] if name in known else known[name.strip()] for name in composed]


def training_labels(store: LabelStore, rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the labels that a refit uses, as {item name: class name}, from the result of `LabelStore.labels`."""
    use_audit, name_of = store.meta(AUDIT_KEY) == "yes", names(store)
    used = [row for row in rows if row["status"] == LABELLED and (use_audit or row["source"] != AUDIT)]
    return {store.names[row["id"]]: name_of[row["class_id"]] for row in used}


def merge_targets(classes: list[LabelClass]) -> dict[int, int | None]:
    """Return {class id: id of the class into which it was finally merged, or its own id, or None if that class is deleted}."""
    deleted = {one["id"] for one in classes if one["archived"] and one["merged_into"] is None}
    into = {one["id"]: one["merged_into"] for one in classes}

    def resolve(class_id: int) -> int:
        seen = {class_id}
        while (after := into.get(class_id)) is not None and after not in seen:
            class_id = after
            seen.add(class_id)
        return class_id

    resolved = {class_id: resolve(class_id) for class_id in into}
    return {class_id: None if target in deleted else target for class_id, target in resolved.items()}


def _require_valid_name(name: str) -> str:
    name = compose(name).strip()
    if (
        name in UNLABELLED_CELLS
        or len(name) > MAX_NAME
        or any(ord(letter) < 32 or 0xD800 <= ord(letter) <= 0xDFFF for letter in name)
    ):
        raise RequestError(
            422, f"A class name has 1 to {MAX_NAME} characters on one line, and is not -1, which means unlabelled."
        )
    return name


@contextmanager
def _require_unique(name: str, key: str | None) -> Iterator[None]:
    """Refuse a name or a keyboard shortcut that another class has."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        detail = f"Another class has the name {name!r}" + (f" or the key {key!r}." if key else ".")
        raise RequestError(409, detail) from error
