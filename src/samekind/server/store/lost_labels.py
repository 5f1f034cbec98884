"""Detection of lost labels: the backups, labels.csv and the models show which events the label store must have.

A store can be emptied or replaced. A killed server leaves labels in labels.sqlite-wal, and that file can be deleted. SQLite
opens what is left without an error.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import NamedTuple

from samekind.errors import ModelFileError, StoreError
from samekind.files.io import open_regular
from samekind.files.manifest import read_predictions_manifest
from samekind.server.store.backups import count_events
from samekind.server.store.label_store import LabelStore
from samekind.server.store.schema import restore_command

RESTORED = "restored_seq"  # key of a setting: events up to this number were restored as far as possible
MODEL = re.compile(r"model-\d+")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")  # time in the form that `label_store.now` returns


class CsvLabel(NamedTuple):
    """One row of labels.csv."""

    name: str
    label: str
    status: str
    source: str
    time: str


def require_complete(store: LabelStore) -> None:
    """Refuse a store that is damaged, or that lacks events which a backup, labels.csv or a model shows."""
    if fault := store.find_damage():
        raise StoreError(f"{store.path} is damaged ({fault}). Restore it from a backup with `{restore_command(store.path)}`.")
    folder = store.path.parent
    backups, models, rows = count_events(folder / "backups"), model_events(folder), read_csv(folder / "labels.csv")
    store.refresh()  # the writing process may have added events since a read-only store was opened
    known = max(store.last_seq, int(store.meta(RESTORED, "0")))
    found = [f"its backup {path.name} has {n} events" for path, n in backups.items() if n > known]
    if newer := rows_missing_in(store, rows):
        found.append(f"labels.csv has {len(newer)} labels that are not in it")
    found += [f"{path.name} was fitted after event {n}" for path, n in models.items() if n > known]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise StoreError(
            f"{store.path} has lost labels: it holds {len(store.labels())} labels and {store.last_seq} events, but {found[0]}"
            f"{more}. Run `{restore_command(store.path)}`, which keeps a copy of what is there now."
        )


def model_events(folder: Path) -> dict[Path, int]:
    """Return {folder of a model: number of the last event before its training}. Unreadable models are left out."""
    found = {}
    for path in sorted(folder.iterdir()):
        if MODEL.fullmatch(path.name):
            try:
                seq = read_predictions_manifest(path).get("labels_seq")
            except ModelFileError:
                continue
            if isinstance(seq, int):
                found[path] = seq
    return found


def read_csv(path: Path) -> list[CsvLabel]:
    """Return the labels in labels.csv whose time has the server's form; [] if the file does not exist or is damaged."""
    try:
        with open_regular(path) as file:
            text = file.read().decode("utf-8", "surrogateescape")
        table = csv.DictReader(text.splitlines())
        rows = [CsvLabel(*(row[key] or "" for key in ("path", "label", "status", "source", "labelled_at"))) for row in table]
    except (OSError, KeyError, csv.Error):
        return []
    return [row for row in rows if TIME.fullmatch(row.time)]


def rows_missing_in(store: LabelStore, rows: list[CsvLabel]) -> list[CsvLabel]:
    """Return the rows of labels.csv that belong to batches which the store does not have."""
    if not rows:
        return []
    times = {row["ts"] for row in store.rows("SELECT ts FROM batch")}
    return [row for row in rows if row.time not in times]
