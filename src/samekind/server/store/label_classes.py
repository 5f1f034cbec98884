"""The classes of a page: added, renamed, merged and put away, never removed, because the log names them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from samekind.data.readers.label_file import UNLABELLED_CELLS
from samekind.errors import RequestError
from samekind.server.store.label_store import AUDIT, LABELLED, BatchRequest, LabelStore

KEYS = (*"1234567890", *(f"shift+{digit}" for digit in "1234567890"))
# told apart by people who see few colours (after Okabe and Ito), then lighter and darker ones of the same
COLOURS = (
    "#0072b2 #e69f00 #009e73 #d55e00 #cc79a7 #56b4e9 #b8a800 #5c5c5c #6a3d9a #a65628 "
    "#004c78 #a87400 #006b4e #8f3f00 #8c4a70 #2f7fb0 #807500 #8a8a8a #9e77c7 #c98a66"
).split()
LONGEST = 200  # letters of a name
AUDIT_KEY = "audit_in_training"  # whether audited items may be learned from


@dataclass(frozen=True)
class LabelClass:
    """A class as a person sees it."""

    id: int
    name: str
    key: str | None
    colour: str
    archived: bool
    merged_into: int | None


def all_classes(store: LabelStore) -> list[LabelClass]:
    """All classes, also those put away, by number."""
    rows = store.rows("SELECT id, name, hotkey AS key, colour, archived, merged_into FROM class ORDER BY id")
    return [LabelClass(**{**row, "archived": bool(row["archived"])}) for row in rows]


def names(store: LabelStore) -> dict[int, str]:
    """The name of every class, by its number."""
    return {kind.id: kind.name for kind in all_classes(store)}


def add(store: LabelStore, name: str, key: str | None = None, colour: str | None = None) -> LabelClass:
    """A new class; one that was put away comes back."""
    name = _checked(name)
    known = {kind.name: kind for kind in all_classes(store)}
    if name in known:
        if not known[name].archived:
            raise RequestError(409, f"There is a class {name!r} already.")
        return change(store, known[name].id, {"archived": False})
    taken = {kind.key for kind in known.values()}
    number = max((kind.id for kind in known.values()), default=-1) + 1
    chosen = key if key is not None else next((free for free in KEYS if free not in taken), None)
    with store.writing() as db, _one_of_each(name, chosen):
        row = (number, name, chosen, colour or COLOURS[number % len(COLOURS)])
        db.execute("INSERT INTO class(id, name, hotkey, colour) VALUES (?, ?, ?, ?)", row)
    return one(store, number)


def one(store: LabelStore, number: int) -> LabelClass:
    """The class of this number."""
    found = next((kind for kind in all_classes(store) if kind.id == number), None)
    if found is None:
        raise RequestError(404, f"There is no class {number}.")
    return found


def change(store: LabelStore, number: int, wanted: dict[str, Any]) -> LabelClass:
    """Renames a class, gives it another key or colour, or puts it away (only what is in `wanted`)."""
    kind = one(store, number)
    name = _checked(wanted["name"]) if "name" in wanted else kind.name
    if wanted.get("archived") and store.states.counts(number + 1)[number]:
        raise RequestError(409, f"Images are labelled {kind.name!r}. Merge it into another class, or clear their labels first.")
    archived = wanted.get("archived", kind.archived)
    key = None if archived else wanted.get("key", kind.key)
    values = (name, key, wanted.get("colour", kind.colour), archived, kind.merged_into if archived else None, number)
    with store.writing() as db, _one_of_each(name, key):
        db.execute("UPDATE class SET name = ?, hotkey = ?, colour = ?, archived = ?, merged_into = ? WHERE id = ?", values)
    return one(store, number)


def merge(store: LabelStore, number: int, into: int, *, request_id: str | None = None) -> dict[str, Any]:
    """All images of one class get the other, as one batch that can be undone; the emptied class is put away."""
    kind, target = one(store, number), one(store, into)
    if number == into or target.archived:
        raise RequestError(409, f"{kind.name!r} cannot be merged into {target.name!r}. Choose another class that is in use.")
    images = [row["id"] for row in store.labels() if row["class_id"] == number and row["status"] == LABELLED]
    request = BatchRequest("merge", dict.fromkeys(images, (into, LABELLED)), request_id=request_id, merged=(number, into))
    return store.apply(request).to_json()


def by_name(store: LabelStore, names: list[str]) -> list[int]:
    """The numbers of classes by their names, added where they are new."""
    known = {kind.name: kind.id for kind in all_classes(store)}
    return [known[name] if name in known else known.setdefault(name, add(store, name).id) for name in names]


def learned_from(store: LabelStore, rows: list[dict[str, Any]]) -> dict[str, str]:
    """The labels among all (`Store.labels`) that a fit learns from: a class by the name of the item."""
    use_audit, name_of = store.meta(AUDIT_KEY) == "yes", names(store)
    used = [row for row in rows if row["status"] == LABELLED and (use_audit or row["source"] != AUDIT)]
    return {store.names[row["id"]]: name_of[row["class_id"]] for row in used}


def final(all_kinds: list[LabelClass]) -> dict[int, int]:
    """For each class the one it was merged into in the end, or itself."""
    into = {kind.id: kind.merged_into for kind in all_kinds}

    def follow(number: int) -> int:
        seen = {number}
        while (after := into.get(number)) is not None and after not in seen:
            number = after
            seen.add(number)
        return number

    return {kind.id: follow(kind.id) for kind in all_kinds}


def _checked(name: str) -> str:
    name = name.strip()
    if (
        name in UNLABELLED_CELLS
        or len(name) > LONGEST
        or any(ord(letter) < 32 or 0xD800 <= ord(letter) <= 0xDFFF for letter in name)
    ):
        raise RequestError(
            422, f"A class needs a name of 1 to {LONGEST} letters on one line, and not -1, which means no label."
        )
    return name


class _one_of_each:
    """A name or key that another class has is the asker's mistake."""

    def __init__(self, name: str, key: str | None) -> None:
        self._words = f"Another class has the name {name!r}" + (f" or the key {key!r}." if key else ".")

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.IntegrityError):
            raise RequestError(409, self._words) from error
