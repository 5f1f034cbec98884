"""Backups: copies of the label store from earlier starts. They are ordered by their number of events, not by time."""

from __future__ import annotations

import filecmp
import os
import re
import sqlite3
from contextlib import closing, suppress
from datetime import datetime, timezone
from pathlib import Path

from samekind.errors import StoreError
from samekind.files.io import sync_file, sync_folder
from samekind.server.store.label_store import LabelStore
from samekind.server.store.own_paths import require_own_folder
from samekind.server.store.schema import connect

N_BACKUPS = 5
BACKUP = re.compile(r"labels-\d{8}T\d{12}\.sqlite")
UNFINISHED = re.compile(r"\.labels-\d{8}T\d{12}\.sqlite\.part(-journal)?")


def back_up(store: LabelStore, folder: Path, *, keep: int = N_BACKUPS) -> Path:
    """Copy the store to `folder`, unless a backup there is identical; return the path of the copy, or of that backup.

    If there are more than `keep` backups, those with the fewest events are deleted, but none that has more events than the
    store.
    """
    try:
        return _back_up(store, folder, keep)
    except (OSError, sqlite3.Error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise StoreError(
            f"no backup of the labels could be written to {folder} ({reason}). Free some space on that disk."
        ) from error
    finally:
        _remove_unfinished(folder)


def _back_up(store: LabelStore, folder: Path, keep: int) -> Path:
    require_own_folder(folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    _remove_unfinished(folder)
    before = count_events(folder)
    path = _new_path(folder)
    part = folder / f".{path.name}.part"
    with closing(connect(store.path, read_only=True)) as db:
        db.execute("VACUUM INTO ?", (str(part),))
        events = last_event(db)
    for backup in sorted(before, reverse=True):  # a copy without changes must not replace an older backup
        if before[backup] == events and filecmp.cmp(part, backup, shallow=False):
            return backup
    part.chmod(0o600)
    sync_file(part)
    part.rename(path)
    sync_folder(folder)
    surplus = len(before) + 1 - keep
    removable = [old for old in sorted(before, key=lambda old: (before[old], old)) if before[old] <= events]
    for old in removable[: max(0, surplus)]:
        old.unlink(missing_ok=True)
    return path


def count_events(folder: Path) -> dict[Path, int]:
    """Return {path of a backup: number of its last event}; -1 for a backup that cannot be read."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    return {folder / name: _last_event_of(folder / name) for name in names if BACKUP.fullmatch(name)}


def last_event(db: sqlite3.Connection) -> int:
    """Return the number of the last event in a store."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0])


def _last_event_of(path: Path) -> int:
    try:
        with closing(connect(path, read_only=True)) as db:
            return last_event(db)
    except (StoreError, sqlite3.Error):
        return -1


def _new_path(folder: Path) -> Path:
    """Return the path for a new backup. Even if the clock stands still or goes back, it never is the path of another backup."""
    while True:
        path = folder / f"labels-{datetime.now(timezone.utc).strftime('%Y%m%dT%H%M%S%f')}.sqlite"
        if not os.path.lexists(path):
            return path


def _remove_unfinished(folder: Path) -> None:
    with suppress(OSError):
        for name in os.listdir(folder):
            if UNFINISHED.fullmatch(name):
                (folder / name).unlink(missing_ok=True)
