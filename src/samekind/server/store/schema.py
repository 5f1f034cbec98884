"""Tables of the label store, and how its file is opened. Triggers refuse all changes and deletions in the log."""

from __future__ import annotations

import os
import shlex
import sqlite3
from pathlib import Path
from urllib.parse import quote

import psutil

from samekind.errors import StoreError
from samekind.files.io import sync_folder
from samekind.server.store.own_paths import require_own_database

VERSION = 1
NETWORK = frozenset("nfs nfs3 nfs4 cifs smb smb2 smb3 smbfs afs ncpfs fuse.sshfs fuse.rclone webdav davfs 9p".split())

TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE image(
  id INTEGER PRIMARY KEY, relpath TEXT UNIQUE NOT NULL, size INT, mtime_ns INT, sha256 TEXT, error TEXT,
  missing INT NOT NULL DEFAULT 0);
CREATE TABLE class(
  id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, hotkey TEXT UNIQUE, colour TEXT NOT NULL,
  archived INT NOT NULL DEFAULT 0, merged_into INT REFERENCES class(id));
CREATE TABLE batch(
  n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, ts TEXT NOT NULL, kind TEXT NOT NULL,
  undoes TEXT REFERENCES batch(id), source TEXT NOT NULL, actor TEXT, model_version INT, merged INT REFERENCES class(id),
  merged_into INT REFERENCES class(id));
CREATE TABLE request(id TEXT PRIMARY KEY, asked TEXT NOT NULL, answer TEXT NOT NULL);
CREATE TABLE event(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, batch TEXT NOT NULL REFERENCES batch(id),
  image_id INT NOT NULL REFERENCES image(id), old_class INT REFERENCES class(id), old_status TEXT, old_source TEXT,
  new_class INT REFERENCES class(id), new_status TEXT, new_source TEXT, pred_class INT, pred_conf REAL);
CREATE INDEX event_of_image ON event(image_id, seq);
CREATE INDEX event_of_batch ON event(batch);
CREATE TABLE state(
  image_id INTEGER PRIMARY KEY REFERENCES image(id), class_id INT, status TEXT, source TEXT, seq INT NOT NULL);
CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER batch_no_update BEFORE UPDATE ON batch BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER batch_no_delete BEFORE DELETE ON batch BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Return a connection to the store at `path`. If it does not exist, it is created, unless `read_only` is set."""
    require_own_database(path)
    if read_only:
        if not path.exists():
            raise StoreError(f"{path} does not exist yet. Start `samekind serve` once without --read-only.")
        db = _open(path, "ro")
        try:
            db.execute("PRAGMA busy_timeout=5000")
            _require_version(db, path)
        except sqlite3.DatabaseError as error:
            db.close()
            raise StoreError(
                f"{path} cannot be read as a label store ({error}). Copy its folder to a place where you have write "
                "permission, and open it there."
            ) from error
        return db
    new = not path.exists()
    if new:
        path.touch(mode=0o600, exist_ok=False)
        sync_folder(path.parent)  # SQLite writes the name of its log to the folder on disk, but not the name of the database
        sync_folder(path.parent.parent)
    db = _open(path, "rw")
    try:
        db.execute("PRAGMA busy_timeout=5000")
        db.execute(f"PRAGMA journal_mode={'DELETE' if on_network(path) else 'WAL'}")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA foreign_keys=ON")
        if db.execute("PRAGMA user_version").fetchone()[0] == 0:
            db.executescript(f"BEGIN IMMEDIATE; {TABLES} PRAGMA user_version={VERSION}; COMMIT;")
        _require_version(db, path)
        columns = {row[1] for row in db.execute("PRAGMA table_info(image)")}
        if "sha256" not in columns:  # this store was created before samekind stored content hashes
            db.execute("ALTER TABLE image ADD COLUMN sha256 TEXT")
    except sqlite3.DatabaseError as error:
        db.close()
        raise StoreError(
            f"{path} cannot be opened as a label store ({error}). Restore it from a backup with `{restore_command(path)}`."
        ) from error
    return db


def _open(path: Path, mode: str) -> sqlite3.Connection:
    """Open an existing database. If SQLite reached it through a link, raise StoreError before anything is read or written.

    SQLite resolves the links in the path, and then opens the resolved path without following a further link. So a file or a
    folder that was replaced by a link after the check of `connect` shows in the path that SQLite reports. No descriptor of our
    own is opened here, because closing it would release the locks that SQLite holds on the file in this process.
    """
    expected = path.parent.parent.resolve() / path.parent.name / path.name
    before = _identity(expected)
    try:
        db = sqlite3.connect(
            f"file:{quote(str(expected))}?mode={mode}", uri=True, check_same_thread=False, isolation_level=None
        )
    except sqlite3.Error as error:
        raise StoreError(
            f"{path} cannot be opened ({error}). Restore it from a backup with `{restore_command(path)}`."
        ) from error
    opened = str(db.execute("PRAGMA database_list").fetchone()[2])
    if os.path.normcase(opened) != os.path.normcase(expected) or _identity(expected) != before:
        db.close()
        raise StoreError(
            f"{path} was replaced while it was opened: {opened or 'no file'} was opened; expected the file that was there. "
            "Nothing was changed. Find out which program replaces the file, then try again."
        )
    return db


def _identity(path: Path) -> tuple[int, int, int, int]:
    """Return the device and inode of a file and of its folder, without following links; zeros if one does not exist."""
    try:
        found = path.lstat(), path.parent.lstat()
    except OSError:
        return 0, 0, 0, 0
    return found[0].st_dev, found[0].st_ino, found[1].st_dev, found[1].st_ino


def restore_command(path: Path) -> str:
    """Return the command that restores the store at `path`, which has the form RUN/serve/labels.sqlite."""
    return f"samekind labels restore {shlex.quote(str(path.parent.parent))}"


def on_network(path: Path) -> bool:
    """Return whether a file is on a network file system, where SQLite's write-ahead log does not work."""
    here = path.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if here.is_relative_to(part.mountpoint)]
    return bool(mounts) and max(mounts, key=lambda part: len(part.mountpoint)).fstype.lower() in NETWORK


def _require_version(db: sqlite3.Connection, path: Path) -> None:
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found == 0:
        raise StoreError(f"{path} is empty. Restore it from a backup with `{restore_command(path)}`.")
    if found != VERSION:
        raise StoreError(
            f"{path} has version {found} of the label store, but this samekind reads version {VERSION}. Update samekind."
        )
