"""The label store: every label a person gives is an event in an append-only log, on the disk before it is acknowledged.

One request is one transaction. What holds now (`state`) follows from the log, and `verify` replays it to prove that. Undo
appends events as well: an image then has the label of the last batch on it that is still in force.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from samekind.errors import RequestError, StoreError
from samekind.server.store.schema import connect
from samekind.server.store.undo_log import UndoLog

LABELLED, SKIPPED = "labelled", "skipped"
STATUSES = (None, LABELLED, SKIPPED)  # by the number that `States.status` holds
AUDIT = "audit"


class FileStamp(NamedTuple):
    """What is known of a file; the sha256 of its bytes only once it was labelled."""

    name: str
    size: int
    mtime_ns: int
    sha256: str | None = None


class ItemLabel(NamedTuple):
    """What an image holds: a class and a status, both None if nothing was said, and who said it."""

    class_id: int | None = None
    status: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class RecordedPrediction:
    """What the model said of an image when the label was given."""

    class_id: int | None = None
    confidence: float | None = None


@dataclass(frozen=True)
class BatchRequest:
    """One batch that is asked for: each image with what it shall hold. `seen` is the last event that the asker knows of."""

    kind: str
    targets: Mapping[int, tuple[int | None, str | None]]
    source: str = "page"
    request_id: str | None = None
    seen: int | None = None  # images changed after it are left alone and reported
    batch: str | None = None  # goes on with this batch, which must be the last
    model_version: int | None = None
    merged: tuple[int, int] | None = None  # the class that a merge empties, and the one that gets its images
    predicted: Mapping[int, RecordedPrediction] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchResult:
    """What came of a batch. Images in `conflicts` were changed by somebody else in between and keep what they hold."""

    batch: str | None  # None if there was nothing to change, so that there is nothing to undo
    kind: str
    seq: int
    changed: int
    unchanged: int
    conflicts: tuple[int, ...] = ()
    items: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "conflicts": list(self.conflicts), "items": list(self.items)}


class ItemStates:
    """What all images hold now, as arrays: class (-1 none), status (number in STATUSES), whether it is from the audit."""

    def __init__(self, n: int) -> None:
        self.class_id = np.full(n, -1, dtype=np.int32)
        self.status = np.zeros(n, dtype=np.int8)
        self.audit = np.zeros(n, dtype=bool)

    def first(self, n: int) -> ItemStates:
        """Those of the first n images."""
        some = ItemStates(0)
        some.class_id, some.status, some.audit = self.class_id[:n], self.status[:n], self.audit[:n]
        return some

    def put(self, image: int, held: ItemLabel) -> None:
        self.class_id[image] = -1 if held.class_id is None else held.class_id
        self.status[image] = STATUSES.index(held.status)
        self.audit[image] = held.source == AUDIT

    def counts(self, n_classes: int) -> npt.NDArray[np.int64]:
        """Labelled images by class id, for ids below `n_classes`."""
        return np.asarray(np.bincount(self.class_id[self.status == 1], minlength=n_classes))


class LabelStore:
    """The labels of a run. All methods may be called from any thread; there is one writer."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path, self.read_only = path, read_only
        self._db = connect(path, read_only=read_only)
        self._lock = threading.RLock()
        self._reload()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _reload(self) -> None:
        """Everything that is kept in memory, from the file."""
        with self._lock:
            self.undo_log = UndoLog(self._db.execute("SELECT id, kind, undoes FROM batch ORDER BY n"))
            self.names: list[str] = [_name(name) for (name,) in self._db.execute("SELECT relpath FROM image ORDER BY id")]
            self.folded = [name.casefold() for name in self.names]
            self.states = ItemStates(len(self.names))
            for image, *held in self._db.execute("SELECT image_id, class_id, status, source FROM state"):
                self.states.put(image, ItemLabel(*held))
            self.last_seq: int = self._db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0]

    def refresh(self) -> None:
        """With read_only: takes over what the writer has done meanwhile."""
        if self.read_only:
            with self._lock:
                if self._db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0] != self.last_seq:
                    self._reload()

    # ---------------------------------------------------------------- images and words

    def add_images(self, names: Sequence[str]) -> None:
        """Images by their names; the first gets the number after the last one there is."""
        with self.writing() as db:
            start = len(self.names)
            db.executemany("INSERT INTO image(id, relpath) VALUES (?, ?)", enumerate(map(_kept, names), start))
        self._reload()

    def stamp_images(self, stamps: Mapping[int, tuple[int, int]]) -> None:
        """Size and time of change of the files, by which a renamed one is known again."""
        with self.writing() as db:
            db.executemany("UPDATE image SET size = ?, mtime_ns = ? WHERE id = ?", [(*one, i) for i, one in stamps.items()])

    def rename_images(self, names: Mapping[int, str]) -> None:
        """Files that have other names now keep their numbers, and with them their labels."""
        with self.writing() as db:
            db.executemany("UPDATE image SET relpath = ? WHERE id = ?", [(_kept(name), i) for i, name in names.items()])
        self._reload()

    def file_stamps(self, *, labelled: bool = False) -> list[FileStamp]:
        """What is known of the files; with `labelled` only of those with a label or a skip."""
        which = " AND id IN (SELECT image_id FROM state WHERE status IS NOT NULL)" if labelled else ""
        rows = self.rows("SELECT id, size, mtime_ns, sha256 FROM image WHERE size IS NOT NULL" + which)
        return [FileStamp(self.names[row["id"]], row["size"], row["mtime_ns"], row["sha256"]) for row in rows]

    def unhashed_items(self) -> list[int]:
        """Images with a label or a skip whose content is not noted."""
        read = "SELECT id FROM state JOIN image ON id = image_id WHERE status IS NOT NULL AND sha256 IS NULL ORDER BY id"
        return [row["id"] for row in self.rows(read)]

    def set_content_hashes(self, content_hasher: Mapping[int, str]) -> None:
        """Notes the content of files, by which a renamed one is known again."""
        with self.writing() as db:
            db.executemany("UPDATE image SET sha256 = ? WHERE id = ?", [(text, i) for i, text in content_hasher.items()])

    def meta(self, key: str, default: str = "") -> str:
        with self._lock:
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return default if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        with self.writing() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    # ---------------------------------------------------------------- labels

    def apply(self, request: BatchRequest) -> BatchResult:
        """Writes a batch. The same request_id a second time gives the first answer and changes nothing."""
        with self._lock:
            return self._apply(request)

    def _apply(self, request: BatchRequest) -> BatchResult:
        with self.writing():
            if request.request_id is not None and (before := self._answered(request)) is not None:
                return before
            held = self._held(request.targets)
            late = {
                i: None for i in request.targets if request.seen is not None and held[i][1] > request.seen
            }  # in their order
            wanted = {
                i: ItemLabel(c, s, request.source if s else None) for i, (c, s) in request.targets.items() if i not in late
            }
            changes = {i: (held[i][0], now) for i, now in wanted.items() if held[i][0][:2] != now[:2]}
            batch = self._batch_for(request) if changes or request.merged else request.batch
            if batch is not None:
                self._log(batch, changes, request.predicted)
            if batch is not None and request.merged is not None:
                self._move_merged(batch, archived=True)
            result = self._result(batch, request.kind, changes, len(wanted) - len(changes), late)
            if request.request_id is not None:
                self._remember(request, result)
        self._take_over(changes, result.seq)
        if batch is not None and request.batch is None:
            self.undo_log.take(batch, request.kind, None)
        return result

    def undo(self, batch: str | None = None, *, request_id: str | None = None) -> BatchResult:
        """Takes the last batch out of force, or the one that is named. What a later batch said stays, and is reported."""
        with self._lock:
            return self._reverse("undo", batch or self.undo_log.last(), request_id)

    def redo(self, *, request_id: str | None = None) -> BatchResult:
        """Puts the batch that was undone last back in force."""
        with self._lock:
            return self._reverse("redo", self.undo_log.last_undone(), request_id)

    def _reverse(self, kind: str, target: str | None, request_id: str | None) -> BatchResult:
        with self.writing() as db:
            request = BatchRequest(kind, {}, request_id=request_id)
            if request_id is not None and (before := self._answered(request)) is not None:
                return before
            if target is None:
                raise RequestError(409, f"There is nothing to {kind}.")
            if kind == "undo" and not self.undo_log.can_undo(target):
                raise RequestError(409, f"The batch {target!r} is not in force: it is undone already, or was never there.")
            batch = self._new_batch(BatchRequest(kind, {}, source="page"), undoes=target)
            in_force = _InForce(
                self.undo_log, without=target if kind == "undo" else None, also=target if kind == "redo" else None
            )
            images = [i for (i,) in db.execute("SELECT DISTINCT image_id FROM event WHERE batch = ?", (target,))]
            held = self._held(images)
            changes, conflicts = {}, []
            for image in images:
                now, by = self._in_force(image, in_force)
                if by is not None and by != target and self._is_later(by, target):
                    conflicts.append(image)
                elif now != held[image][0]:
                    changes[image] = (held[image][0], now)
            self._log(batch, changes, {})
            self._move_merged(target, archived=kind == "redo")
            result = self._result(batch, kind, changes, len(images) - len(changes) - len(conflicts), conflicts)
            if request_id is not None:
                self._remember(request, result)
        self._take_over(changes, result.seq)
        self.undo_log.take(batch, kind, target)
        return result

    # ---------------------------------------------------------------- the log

    def events(self, since: int, limit: int = 10_000) -> list[dict[str, Any]]:
        """Events after number `since`, oldest first."""
        return self.rows(
            "SELECT e.seq, e.batch, e.image_id AS id, e.new_class, e.new_status, e.old_class, e.old_status, b.kind, b.source, "
            "b.ts FROM event e JOIN batch b ON b.id = e.batch WHERE e.seq > ? ORDER BY e.seq LIMIT ?",
            (since, limit),
        )

    def history(self, image: int) -> list[dict[str, Any]]:
        """All that was ever said of an image, newest first."""
        return self.rows(
            "SELECT e.seq, e.batch, b.ts, b.kind, b.source, e.old_class, e.old_status, e.new_class, e.new_status, "
            "e.pred_class, e.pred_conf FROM event e JOIN batch b ON b.id = e.batch WHERE e.image_id = ? ORDER BY e.seq DESC",
            (image,),
        )

    def batch(self, batch: str | None) -> dict[str, Any] | None:
        """A batch in a few words: its kind, and how many images it touched."""
        found = self.rows(
            "SELECT b.id AS batch, b.kind, b.ts, (SELECT count(*) FROM event WHERE batch = b.id) AS n "
            "FROM batch b WHERE b.id = ?",
            (batch,),
        )
        return found[0] if found else None

    def labels(self) -> list[dict[str, Any]]:
        """Every image with a label or a skip: id, class, status, source, when and by which event."""
        return self.rows(
            "SELECT s.image_id AS id, s.class_id, s.status, s.source, s.seq, b.ts FROM state s JOIN event e ON e.seq = s.seq "
            "JOIN batch b ON b.id = e.batch WHERE s.status IS NOT NULL ORDER BY s.image_id",
            (),
        )

    def snapshot(self) -> tuple[int, list[dict[str, Any]]]:
        """The last event, and the labels as they are with it."""
        with self._lock:
            return self.last_seq, self.labels()

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        """What a query finds, each row by the names of its columns."""
        with self._lock:
            cursor = self._db.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    # ---------------------------------------------------------------- inside a transaction

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction; on the disk when it is left, undone if anything is raised."""
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

    def _answered(self, request: BatchRequest) -> BatchResult | None:
        row = self._db.execute("SELECT asked, answer FROM request WHERE id = ?", (request.request_id,)).fetchone()
        if row is None:
            return None
        if row[0] != _info(request):
            raise RequestError(
                409, f"The request_id {request.request_id!r} was used before for something else. Choose a new one."
            )
        words = json.loads(row[1])
        read = "SELECT image_id, new_class, new_status FROM event WHERE batch = ? AND seq <= ? ORDER BY seq DESC LIMIT ?"
        events = self._db.execute(read, (words["batch"], words["seq"], words["changed"])).fetchall()
        items = tuple(_item(image, ItemLabel(kind, status)) for image, kind, status in reversed(events))
        return BatchResult(**{**words, "conflicts": tuple(words["conflicts"]), "items": items})

    def _remember(self, request: BatchRequest, result: BatchResult) -> None:
        """The answer to a request, in case it is sent again; its items are in the log."""
        words = {**result.to_json(), "items": []}
        self._db.execute("INSERT INTO request VALUES (?, ?, ?)", (request.request_id, _info(request), json.dumps(words)))

    def _batch_for(self, request: BatchRequest) -> str:
        if request.batch is None:
            return self._new_batch(request)
        kind = self._db.execute("SELECT kind FROM batch WHERE id = ?", (request.batch,)).fetchone()
        if request.batch != self.undo_log.last() or kind != (request.kind,):
            raise RequestError(
                409, f"The batch {request.batch!r} is not the last one of kind {request.kind!r}. Begin a new one."
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

    def _log(
        self, batch: str, changes: Mapping[int, tuple[ItemLabel, ItemLabel]], predicted: Mapping[int, RecordedPrediction]
    ) -> None:
        for image, (old, new) in changes.items():
            prediction = predicted.get(image, RecordedPrediction())
            cursor = self._db.execute(
                "INSERT INTO event(batch, image_id, old_class, old_status, old_source, new_class, new_status, new_source, "
                "pred_class, pred_conf) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (batch, image, *old, *new, prediction.class_id, prediction.confidence),
            )
            self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)", (image, *new, cursor.lastrowid))

    def _result(
        self,
        batch: str | None,
        kind: str,
        changes: Mapping[int, tuple[ItemLabel, ItemLabel]],
        unchanged: int,
        conflicts: Iterable[int],
    ) -> BatchResult:
        seq = self._db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0]
        items = tuple(_item(image, new) for image, (_, new) in changes.items())
        return BatchResult(batch, kind, seq, len(changes), unchanged, tuple(conflicts), items)

    def _take_over(self, changes: Mapping[int, tuple[ItemLabel, ItemLabel]], seq: int) -> None:
        for image, (_, new) in changes.items():
            self.states.put(image, new)
        self.last_seq = seq

    def _held(self, images: Iterable[int]) -> dict[int, tuple[ItemLabel, int]]:
        """What images hold, and since which event; 0 for none."""
        read = "SELECT class_id, status, source, seq FROM state WHERE image_id = ?"
        rows = ((i, self._db.execute(read, (i,)).fetchone() or (None, None, None, 0)) for i in images)
        return {i: (ItemLabel(*held), seq) for i, (*held, seq) in rows}

    def _in_force(self, image: int, in_force: _InForce) -> tuple[ItemLabel, str | None]:
        """What the last batch in force said of an image, and which one that was."""
        said = self._db.execute(
            "SELECT e.batch, e.new_class, e.new_status, e.new_source FROM event e JOIN batch b ON b.id = e.batch "
            "WHERE e.image_id = ? AND b.undoes IS NULL ORDER BY e.seq DESC",
            (image,),
        )
        for batch, *held in said:
            if batch in in_force:
                return ItemLabel(*held), batch
        return ItemLabel(), None

    def _is_later(self, batch: str, other: str) -> bool:
        place = "SELECT n FROM batch WHERE id = ?"
        return bool(self._db.execute(place, (batch,)).fetchone() > self._db.execute(place, (other,)).fetchone())

    def _move_merged(self, batch: str, *, archived: bool) -> None:
        """A merge that is undone brings its class back."""
        merged, into = self._db.execute("SELECT merged, merged_into FROM batch WHERE id = ?", (batch,)).fetchone()
        if merged is not None:
            change = "UPDATE class SET archived = ?, merged_into = ?, hotkey = NULL WHERE id = ?"
            self._db.execute(change, (archived, into if archived else None, merged))


class _InForce:
    """The batches in force if one more were taken out or put back."""

    def __init__(self, undo_log: UndoLog, *, without: str | None, also: str | None) -> None:
        self._undo_log, self._without, self._also = undo_log, without, also

    def __contains__(self, batch: str) -> bool:
        return batch == self._also or (batch != self._without and batch in self._undo_log)


def _kept(name: str) -> str | bytes:
    """A name as the database takes it: one that is no text goes in as bytes."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogateescape")
    return name


def _name(kept: str | bytes) -> str:
    return kept.decode("utf-8", "surrogateescape") if isinstance(kept, bytes) else kept


def _item(image: int, held: ItemLabel) -> dict[str, Any]:
    return {"id": image, "label": held.class_id, "status": held.status or "unlabelled"}


def _info(request: BatchRequest) -> str:
    """What a request was about, so that its id cannot be used for another."""
    targets = (
        sorted((i, c, s) for i, (c, s) in request.targets.items()) if request.kind != "accept" else sorted(request.targets)
    )
    return request.kind if not targets else json.dumps([request.kind, targets])


def now() -> str:
    """The time in UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
