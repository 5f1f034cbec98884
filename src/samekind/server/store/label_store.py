"""The label store: every label that a person gives is an event in an append-only log, and on disk before it is confirmed.

A request is one transaction. The present labels (the table `state`) follow from the log, and `verify` replays the log to prove
that. Undo appends events too: the undone batch is then no longer in force, and each of its items gets the label from its last
batch that is still in force.
"""

from __future__ import annotations

import itertools
import json
import secrets
import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from samekind.errors import RequestError, StoreError
from samekind.server.store.batches import (
    HOTKEYS,
    LABELLED,
    BatchRequest,
    BatchResult,
    ChangedItem,
    ItemFileStamp,
    ItemLabel,
    ItemStates,
    RecordedPrediction,
)
from samekind.server.store.label_queries import LabelQueries
from samekind.server.store.schema import connect
from samekind.server.store.undo_log import UndoLog

Changes = Mapping[int, tuple[ItemLabel, ItemLabel]]  # {item: (old label, new label)}


class LabelStore(LabelQueries):
    """Labels of a run. Any thread may call the methods, but only one process may write."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        super().__init__(connect(path, read_only=read_only))
        self.path, self.read_only = path, read_only
        self._checkpointed = 0  # number of changes by this connection at the last checkpoint
        self._reload()

    def _reload(self) -> None:
        """Read again from the database all that is kept in memory."""
        with self._lock:
            self.undo_log = UndoLog(self._db.execute("SELECT id, kind, undoes FROM batch ORDER BY n"))
            stored = self._db.execute("SELECT relpath FROM image ORDER BY id")
            self.names: list[str] = [name if isinstance(name, str) else _decode_name(name) for (name,) in stored]
            self._folded_names: list[str] | None = None
            self.states = ItemStates(len(self.names))
            for item, *label in self._db.execute("SELECT image_id, class_id, status, source FROM state"):
                self.states.put(item, ItemLabel(*label))
            self.last_seq: int = self._db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0]

    def folded_names(self) -> list[str]:
        """Return the names of all items in case-folded form, for searches that ignore case."""
        if self._folded_names is None:
            self._folded_names = [name.casefold() for name in self.names]
        return self._folded_names

    def refresh(self) -> None:
        """Read again what the writing process has changed. Only a store that is opened for reading needs this."""
        if self.read_only:
            with self._lock:
                if self._db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0] != self.last_seq:
                    self._reload()

    # ---------------------------------------------------------------- items and settings

    def add_items(self, names: Sequence[str]) -> None:
        """Add items with these names. Their ids follow the last existing id."""
        with self.transaction() as db:
            start = len(self.names)
            db.executemany("INSERT INTO image(id, relpath) VALUES (?, ?)", enumerate(map(_encode_name, names), start))
        self._reload()

    def set_file_stamps(self, stamps: Mapping[int, tuple[int, int]]) -> None:
        """Store the size and modification time of the files of items, by which renamed files are recognized."""
        with self.transaction() as db:
            db.executemany("UPDATE image SET size = ?, mtime_ns = ? WHERE id = ?", [(*one, i) for i, one in stamps.items()])

    def rename_items(self, names: Mapping[int, str]) -> None:
        """Give items new names. They keep their ids, and so their labels.

        If another item has one of these names, its own file is gone, and it is renamed to `NAME (deleted)`.
        """
        ids = {name: i for i, name in enumerate(self.names)}
        displaced = {ids[name] for name in names.values() if name in ids} - names.keys()
        taken = ids.keys() | set(names.values())
        given = {**names, **{i: _deleted_name(self.names[i], taken) for i in displaced}}
        with self.transaction() as db:  # renamed to unused names first, because two items may exchange their names
            db.executemany("UPDATE image SET relpath = ? WHERE id = ?", [(f"\0{i}", i) for i in given])
            db.executemany("UPDATE image SET relpath = ? WHERE id = ?", [(_encode_name(name), i) for i, name in given.items()])
        self._reload()

    def file_stamps(self, *, labelled: bool = False) -> list[ItemFileStamp]:
        """Return the sizes, times and hashes of the files of all items; with `labelled`, only of labelled and skipped items."""
        which = " AND id IN (SELECT image_id FROM state WHERE status IS NOT NULL)" if labelled else ""
        rows = self.rows("SELECT id, size, mtime_ns, sha256 FROM image WHERE size IS NOT NULL" + which)
        return [ItemFileStamp(self.names[row["id"]], row["size"], row["mtime_ns"], row["sha256"]) for row in rows]

    def unhashed_items(self) -> list[int]:
        """Return the labelled and skipped items whose content hash is not stored yet."""
        read = "SELECT id FROM state JOIN image ON id = image_id WHERE status IS NOT NULL AND sha256 IS NULL ORDER BY id"
        return [row["id"] for row in self.rows(read)]

    def set_content_hashes(self, hashes: Mapping[int, str]) -> None:
        """Store the SHA-256 of the files of items, by which renamed files are recognized."""
        with self.transaction() as db:
            db.executemany("UPDATE image SET sha256 = ? WHERE id = ?", [(text, i) for i, text in hashes.items()])

    def set_meta(self, key: str, value: str) -> None:
        """Store the value of a setting."""
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def continue_events_after(self, seq: int) -> None:
        """Number the next events from `seq` + 1, so that the numbers of lost events, which models may refer to, are not
        used again.
        """
        with self.transaction() as db:
            if self.last_seq < seq:
                db.execute("DELETE FROM sqlite_sequence WHERE name = 'event'")
                db.execute("INSERT INTO sqlite_sequence(name, seq) VALUES ('event', ?)", (seq,))

    def checkpoint(self) -> None:
        """Copy the write-ahead log to the database file, so that older labels are not lost with the log."""
        with self._lock:
            changes = self._db.total_changes
            if changes != self._checkpointed:
                try:
                    self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                except sqlite3.Error as error:
                    raise StoreError(
                        f"the write-ahead log of {self.path} could not be copied into the store ({error}). The labels stay in "
                        "the log; check the disk."
                    ) from error
                self._checkpointed = changes

    # ---------------------------------------------------------------- changes of labels

    def apply(self, request: BatchRequest) -> BatchResult:
        """Apply and store a batch of changes. If its request_id is known, return the first result and change nothing."""
        with self._lock:
            return self._apply(request)

    def _apply(self, request: BatchRequest) -> BatchResult:
        with self.transaction():
            if request.request_id is not None and (known := self._known_result(request)) is not None:
                return known
            current = self._labels_of(request.targets)
            conflicts = {
                i: None for i in request.targets if request.seen is not None and current[i][1] > request.seen
            }  # a dict and not a set, because a set would lose the order
            targets = {
                i: ItemLabel(c, s, request.source if s else None) for i, (c, s) in request.targets.items() if i not in conflicts
            }
            changes = {i: (current[i][0], new) for i, new in targets.items() if current[i][0][:2] != new[:2]}
            batch = self._batch_for(request) if changes or request.merged else request.batch
            if batch is not None:
                self._append_events(batch, changes, request.predicted)
            if batch is not None and request.merged is not None:
                self._archive_merged(batch, archived=True)
            result = self._result(batch, request.kind, changes, len(targets) - len(changes), conflicts)
            if request.request_id is not None:
                self._store_result(request, result)
        self._update_states(changes, result.seq)
        if batch is not None and request.batch is None:
            self.undo_log.append(batch, request.kind, None)
        return result

    def undo(self, batch: str | None = None, *, request_id: str | None = None) -> BatchResult:
        """Undo a batch, by default the last. Items that a later batch changed keep their label, and are reported."""
        with self._lock:
            return self._reverse("undo", batch or self.undo_log.last(), request_id)

    def redo(self, *, request_id: str | None = None) -> BatchResult:
        """Redo the batch that was undone last."""
        with self._lock:
            return self._reverse("redo", self.undo_log.last_undone(), request_id)

    def _reverse(self, kind: str, target: str | None, request_id: str | None) -> BatchResult:
        with self.transaction() as db:
            request = BatchRequest(kind, {}, request_id=request_id)
            if request_id is not None and (known := self._known_result(request)) is not None:
                return known
            if target is None:
                raise RequestError(409, f"There is nothing to {kind}.")
            if kind == "undo" and not self.undo_log.can_undo(target):
                raise RequestError(409, f"The batch {target!r} cannot be undone: it is undone already, or does not exist.")
            batch = self._new_batch(BatchRequest(kind, {}, source="page"), undoes=target)
            in_force = _InForce(
                self.undo_log, without=target if kind == "undo" else None, also=target if kind == "redo" else None
            )
            items = [i for (i,) in db.execute("SELECT DISTINCT image_id FROM event WHERE batch = ?", (target,))]
            current = self._labels_of(items)
            changes, conflicts = {}, []
            for item in items:
                label, by = self._label_in_force(item, in_force)
                if by is not None and by != target and self.is_later(by, target):
                    conflicts.append(item)
                elif label != current[item][0]:
                    changes[item] = (current[item][0], label)
            self._append_events(batch, changes, {})
            self._restore_classes(changes)
            self._archive_merged(target, archived=kind == "redo")
            result = self._result(batch, kind, changes, len(items) - len(changes) - len(conflicts), conflicts)
            if request_id is not None:
                self._store_result(request, result)
        self._update_states(changes, result.seq)
        self.undo_log.append(batch, kind, target)
        return result

    def snapshot(self) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of the last event, and all labels as they are after it."""
        with self._lock:
            return self.last_seq, self.labels()

    # ---------------------------------------------------------------- parts of a transaction

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction. When the block ends it is committed to disk; if the block raises an error, it is rolled back."""
        if self.read_only:
            raise RequestError(403, "This run is open for reading only.")
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                    self._db.execute("COMMIT")
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
            except sqlite3.OperationalError as error:
                raise StoreError(f"the label store could not be written ({error}). Nothing was changed; try again.") from error

    def _known_result(self, request: BatchRequest) -> BatchResult | None:
        """Return the result of an earlier request with the same id; None if there was none."""
        row = self._db.execute("SELECT asked, answer FROM request WHERE id = ?", (request.request_id,)).fetchone()
        if row is None:
            return None
        if row[0] != _fingerprint(request):
            raise RequestError(
                409, f"The request_id {request.request_id!r} was used before for another request. Choose a new one."
            )
        stored = json.loads(row[1])
        read = "SELECT image_id, new_class, new_status FROM event WHERE batch = ? AND seq <= ? ORDER BY seq DESC LIMIT ?"
        events = self._db.execute(read, (stored["batch"], stored["seq"], stored["changed"])).fetchall()
        items = tuple(_changed_item(item, ItemLabel(class_id, status)) for item, class_id, status in reversed(events))
        return BatchResult(**{**stored, "conflicts": tuple(stored["conflicts"]), "items": items})

    def _store_result(self, request: BatchRequest, result: BatchResult) -> None:
        """Store the result of a request, so that the same request gets the same response and is not applied again.

        The list of items is not stored with the result, because the log of events contains it.
        """
        stored = {**result.to_json(), "items": []}
        self._db.execute(
            "INSERT INTO request VALUES (?, ?, ?)", (request.request_id, _fingerprint(request), json.dumps(stored))
        )

    def _batch_for(self, request: BatchRequest) -> str:
        if request.batch is None:
            return self._new_batch(request)
        kind = self._db.execute("SELECT kind FROM batch WHERE id = ?", (request.batch,)).fetchone()
        if request.batch != self.undo_log.last() or kind != (request.kind,):
            raise RequestError(
                409, f"The batch {request.batch!r} is not the last one of kind {request.kind!r}. Begin a new batch."
            )
        return request.batch

    def _new_batch(self, request: BatchRequest, undoes: str | None = None) -> str:
        batch = secrets.token_hex(8)
        self._db.execute(
            "INSERT INTO batch(id, ts, kind, undoes, source, model_version, merged, merged_into) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (batch, now(), request.kind, undoes, request.source, request.model_version, *(request.merged or (None, None))),
        )
        return batch

    def _append_events(self, batch: str, changes: Changes, predicted: Mapping[int, RecordedPrediction]) -> None:
        for item, (old, new) in changes.items():
            prediction = predicted.get(item, RecordedPrediction())
            cursor = self._db.execute(
                "INSERT INTO event(batch, image_id, old_class, old_status, old_source, new_class, new_status, new_source, "
                "pred_class, pred_conf) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (batch, item, *old, *new, *prediction),
            )
            self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)", (item, *new, cursor.lastrowid))

    def _result(self, batch: str | None, kind: str, changes: Changes, unchanged: int, conflicts: Iterable[int]) -> BatchResult:
        seq = self._db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0]
        items = tuple(_changed_item(item, new) for item, (_, new) in changes.items())
        overwritten = sum(old.status == LABELLED and new.status is not None for old, new in changes.values())
        return BatchResult(batch, kind, seq, len(changes), unchanged, tuple(conflicts), items, overwritten)

    def _update_states(self, changes: Changes, seq: int) -> None:
        for item, (_, new) in changes.items():
            self.states.put(item, new)
        self.last_seq = seq

    def _labels_of(self, items: Iterable[int]) -> dict[int, tuple[ItemLabel, int]]:
        """Return {item: (label, number of its last event)}; the number is 0 for an item without events."""
        read = "SELECT class_id, status, source, seq FROM state WHERE image_id = ?"
        rows = ((i, self._db.execute(read, (i,)).fetchone() or (None, None, None, 0)) for i in items)
        return {i: (ItemLabel(*label), seq) for i, (*label, seq) in rows}

    def _label_in_force(self, item: int, in_force: _InForce) -> tuple[ItemLabel, str | None]:
        """Return the label from the item's last batch that is in force, and the id of that batch."""
        events = self._db.execute(
            "SELECT e.batch, e.new_class, e.new_status, e.new_source FROM event e JOIN batch b ON b.id = e.batch "
            "WHERE e.image_id = ? AND b.undoes IS NULL ORDER BY e.seq DESC",
            (item,),
        )
        for batch, *label in events:
            if batch in in_force:
                return ItemLabel(*label), batch
        return ItemLabel(), None

    def _archive_merged(self, batch: str, *, archived: bool) -> None:
        """Archive the class that a merge or a deletion has emptied; when that is undone, restore the class with a free
        shortcut.
        """
        merged, into = self._db.execute("SELECT merged, merged_into FROM batch WHERE id = ?", (batch,)).fetchone()
        if merged is None:
            return
        if archived:
            change = "UPDATE class SET archived = 1, merged_into = ?, hotkey = NULL WHERE id = ?"
            self._db.execute(change, (into, merged))
        else:
            self._restore_class(merged)

    def _restore_classes(self, changes: Changes) -> None:
        """Restore archived classes that are labels of items again, because an older batch was undone."""
        for class_id in {new.class_id for _, new in changes.values()} - {None}:
            self._restore_class(cast(int, class_id))

    def _restore_class(self, class_id: int) -> None:
        taken = {key for (key,) in self._db.execute("SELECT hotkey FROM class")}
        free = next((key for key in HOTKEYS if key not in taken), None)
        restore = "UPDATE class SET archived = 0, merged_into = NULL, hotkey = ? WHERE id = ? AND archived"
        self._db.execute(restore, (free, class_id))


class _InForce:
    """Set of the batches that are in force after one batch is undone (`without`) or redone (`also`)."""

    def __init__(self, undo_log: UndoLog, *, without: str | None, also: str | None) -> None:
        self._undo_log, self._without, self._also = undo_log, without, also

    def __contains__(self, batch: str) -> bool:
        return batch == self._also or (batch != self._without and batch in self._undo_log)


def _encode_name(name: str) -> str | bytes:
    """Return a file name in the form that the database stores: as bytes if it is not valid UTF-8."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogateescape")
    return name


def _deleted_name(name: str, taken: Container[str]) -> str:
    """Return a free name for an item whose file is gone, and whose name another file now has."""
    suffixes = itertools.chain([""], (f" {k}" for k in itertools.count(2)))
    return next(free for suffix in suffixes if (free := f"{name} (deleted{suffix})") not in taken)


def _decode_name(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogateescape")


def _changed_item(item: int, label: ItemLabel) -> ChangedItem:
    return {"id": item, "label": label.class_id, "status": label.status or "unlabelled"}


def _fingerprint(request: BatchRequest) -> str:
    """Return a text that identifies the changes of a request, by which the use of one request_id for two requests is
    detected.
    """
    if request.content is not None:
        return json.dumps([request.kind, request.content])
    targets = (
        sorted((i, c, s) for i, (c, s) in request.targets.items()) if request.kind != "accept" else sorted(request.targets)
    )
    return request.kind if not targets else json.dumps([request.kind, targets])


def now() -> str:
    """Return the present time in UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
