"""Copy of the labels as a CSV file, which is updated within seconds after a change."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from samekind.errors import StoreError
from samekind.files.io import atomic_write
from samekind.server.periodic_task import PeriodicTask
from samekind.server.store import label_classes
from samekind.server.store.label_store import LabelStore

SECONDS = 5.0  # seconds between two writes of the CSV file


class CsvSync:
    """Writes the labels to a CSV file when they have changed, at most once in `seconds`, and once more at the end."""

    def __init__(self, store: LabelStore, path: Path, *, seconds: float = SECONDS) -> None:
        self._store, self._path = store, path
        self._written: tuple[int, dict[int, str]] | None = None
        self._task = PeriodicTask(seconds or 0.05, self.write)

    def close(self) -> None:
        """Stop the updates, and write the last changes."""
        self._task.close()
        self.write()

    def write(self) -> None:
        """Write the CSV file, if labels or class names have changed since it was written."""
        if self._written == (self._store.last_seq, label_classes.names(self._store)):
            return
        self._written = write_csv(self._store, self._path)


def write_csv(store: LabelStore, path: Path) -> tuple[int, dict[int, str]]:
    """Write the labels to a CSV file; return the number of the last event in it, and the names of the classes."""
    seq, rows = store.snapshot()
    names = label_classes.names(store)  # read after the labels, so that the class of every label has a name
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", "label", "status", "source", "labelled_at"])
    for row in rows:
        label = "" if row["class_id"] is None else names[row["class_id"]]
        writer.writerow([store.names[row["id"]], label, row["status"], row["source"], row["ts"]])
    atomic_write(path, text.getvalue().encode("utf-8", "surrogateescape"), StoreError, mode=0o600)
    return seq, names
