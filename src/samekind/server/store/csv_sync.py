"""Copies of the labels: a CSV file that follows the store within seconds, and backups of the store from earlier starts."""

from __future__ import annotations

import csv
import filecmp
import io
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from samekind.errors import StoreError
from samekind.io import atomic_write
from samekind.server.periodic_task import PeriodicTask
from samekind.server.store import label_classes
from samekind.server.store.label_store import LabelStore
from samekind.server.store.schema import connect

SECONDS = 5.0  # between two writes of the CSV file
N_BACKUPS = 5


class CsvSync:
    """Writes the labels to a CSV file when they have changed, at most every `seconds`, and once more when it is closed."""

    def __init__(self, store: LabelStore, path: Path, *, seconds: float = SECONDS) -> None:
        self._store, self._path = store, path
        self._written: tuple[int, dict[int, str]] | None = None
        self._task = PeriodicTask(seconds or 0.05, self.write)

    def close(self) -> None:
        """Stop, and write the last changes."""
        self._task.close()
        self.write()

    def write(self) -> None:
        """Write the CSV file if labels or class names have changed since the last time."""
        if self._written == (self._store.last_seq, label_classes.names(self._store)):
            return
        seq, rows = self._store.snapshot()
        names = label_classes.names(self._store)  # read after the labels, so that every class of a label has a name
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["path", "label", "status", "source", "labelled_at"])
        for row in rows:
            label = "" if row["class_id"] is None else names[row["class_id"]]
            writer.writerow([self._store.names[row["id"]], label, row["status"], row["source"], row["ts"]])
        atomic_write(self._path, text.getvalue().encode("utf-8", "surrogateescape"), StoreError, mode=0o600)
        self._written = (seq, names)


def back_up(store: LabelStore, folder: Path, *, keep: int = N_BACKUPS) -> Path:
    """Copy the store into `folder` unless the newest backup is identical; keep only the newest few. Return the newest."""
    folder.mkdir(mode=0o700, exist_ok=True)
    before = sorted(folder.glob("labels-*.sqlite"))
    moment = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")
    path = folder / f"labels-{moment}.sqlite"
    part = folder / f".{path.name}.part"
    with closing(connect(store.path, read_only=True)) as db:
        db.execute("VACUUM INTO ?", (str(part),))
    if before and filecmp.cmp(part, before[-1], shallow=False):  # a copy without changes must not displace an older backup
        part.unlink()
        return before[-1]
    part.chmod(0o600)
    part.rename(path)
    for old in sorted(folder.glob("labels-*.sqlite"))[:-keep]:
        old.unlink(missing_ok=True)
    return path
