"""Restoring of a label store that has lost labels, from its backups, labels.csv and the labels of the fit."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from samekind.errors import StoreError
from samekind.files.io import sync_file, sync_folder
from samekind.server.store import label_classes
from samekind.server.store.backups import count_events, last_event
from samekind.server.store.batches import AUDIT, LABELLED, SKIPPED, BatchRequest
from samekind.server.store.csv_sync import write_csv
from samekind.server.store.label_store import LabelStore
from samekind.server.store.lost_labels import RESTORED, CsvLabel, model_events, read_csv, rows_missing_in
from samekind.server.store.own_paths import DATABASE_SUFFIXES, require_own_database, require_own_folders
from samekind.server.store.schema import connect
from samekind.server.store.verify import verify

RESTORING = "labels.restoring.sqlite"  # name of the new store until it is complete


def restore(folder: Path, add_items: Callable[[LabelStore], None]) -> str:
    """Restore the store in RUN/serve; return a sentence that says where the labels come from. The caller must hold the lock.

    Of the store and its backups, the one with the most events is copied. If none of them is valid, `add_items` fills a new
    store. Then labels that only labels.csv has are added. The replaced files are kept in RUN/serve/replaced-TIME.
    """
    require_own_folders(folder)
    require_own_database(folder / "labels.sqlite")
    new, rows = folder / RESTORING, read_csv(folder / "labels.csv")
    _remove_database(new)
    best, events = _most_complete(folder)
    if best is not None:
        with closing(connect(best, read_only=True)) as db:
            db.execute("VACUUM INTO ?", (str(new),))
    with closing(LabelStore(new)) as store:
        if not store.meta("begun"):
            add_items(store)
        known = max([events, *model_events(folder).values()])
        store.continue_events_after(known)
        n_added, n_unknown = _add_rows(store, rows_missing_in(store, rows))
        store.set_meta(RESTORED, str(known))
        n_labels = len(store.labels())
    sync_file(new)
    kept = _replace(folder, new)
    with closing(LabelStore(folder / "labels.sqlite")) as store:
        write_csv(store, folder / "labels.csv")
    origin = "the labels of the fit" if best is None else f"{best.relative_to(folder)} ({events} events)"
    unknown = f" {n_unknown} rows of labels.csv name no item of the run." if n_unknown else ""
    return f"{n_labels} labels restored: from {origin}, and {n_added} newer from labels.csv.{unknown} Replaced files: {kept}"


def _most_complete(folder: Path) -> tuple[Path | None, int]:
    """Return the path of the store with the most events, among the present store and its valid backups, and this number."""
    candidates = [*sorted(count_events(folder / "backups")), folder / "labels.sqlite"]
    found = [(events, path) for path in candidates if (events := _count_valid_events(path)) is not None]
    events, best = max(found, key=lambda one: one[0], default=(0, None))
    return best, events


def _count_valid_events(path: Path) -> int | None:
    """Return the number of the last event in a store; None if the store is missing, empty or damaged."""
    try:
        if verify(path):
            return None
        with closing(connect(path, read_only=True)) as db:
            return last_event(db)
    except (StoreError, sqlite3.Error):
        return None


def _add_rows(store: LabelStore, rows: list[CsvLabel]) -> tuple[int, int]:
    """Label items as in these rows of labels.csv; return how many rows were used, and how many could not be used."""
    items = {name: item for item, name in enumerate(store.names)}
    usable = [row for row in rows if row.name in items and (row.status == SKIPPED or row.label)]
    names = sorted({row.label for row in usable if row.status != SKIPPED})
    class_ids = dict(zip(names, label_classes.ids_of_names(store, names), strict=True))
    for is_audit in (False, True):
        chosen = [row for row in usable if (row.source == AUDIT) == is_audit]
        targets = {
            items[row.name]: (None, SKIPPED) if row.status == SKIPPED else (class_ids[row.label], LABELLED) for row in chosen
        }
        if targets:
            store.apply(BatchRequest("import", targets, source=AUDIT if is_audit else "import"))
    return len(usable), len(rows) - len(usable)


def _replace(folder: Path, new: Path) -> Path:
    """Give the restored store its final name; return the folder in which the replaced files are kept."""
    kept = folder / f"replaced-{datetime.now(timezone.utc).strftime('%Y%m%dT%H%M%S%f')}"
    kept.mkdir(mode=0o700)
    if (folder / "labels.csv").is_file():
        shutil.copy2(folder / "labels.csv", kept / "labels.csv")
    for suffix in DATABASE_SUFFIXES:
        path = folder / f"labels.sqlite{suffix}"
        if os.path.lexists(path):
            path.rename(kept / path.name)
    sync_folder(kept)
    new.rename(folder / "labels.sqlite")
    sync_folder(folder)
    return kept


def _remove_database(path: Path) -> None:
    for suffix in DATABASE_SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
