"""LabelQueries: what can be read from a label store: events, labels, and the rows of any query."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping
from typing import Any, cast

from samekind.server.store.batches import AUDIT, BatchSummary, ItemEvent, LabelEvent


class LabelQueries:
    """The reading half of a label store. A lock guards its database connection, so any thread may call it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._lock = threading.RLock()

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()

    def rows(self, sql: str, values: tuple[Any, ...] | Mapping[str, Any] = ()) -> list[dict[str, Any]]:
        """Return the rows that a query finds, as [{column: value}, ...]."""
        with self._lock:
            cursor = self._db.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def events(self, since: int, limit: int = 10_000) -> list[LabelEvent]:
        """Return the events with a number above `since`, oldest first."""
        found = self.rows(
            "SELECT e.seq, e.batch, e.image_id AS id, e.new_class, e.new_status, e.old_class, e.old_status, b.kind, b.source, "
            "b.ts FROM event e JOIN batch b ON b.id = e.batch WHERE e.seq > ? ORDER BY e.seq LIMIT ?",
            (since, limit),
        )
        return cast(list[LabelEvent], found)

    def history(self, item: int) -> list[ItemEvent]:
        """Return all events of an item, newest first."""
        found = self.rows(
            "SELECT e.seq, e.batch, b.ts, b.kind, b.source, e.old_class, e.old_status, e.new_class, e.new_status, "
            "e.pred_class, e.pred_conf FROM event e JOIN batch b ON b.id = e.batch WHERE e.image_id = ? ORDER BY e.seq DESC",
            (item,),
        )
        return cast(list[ItemEvent], found)

    def last_events(self) -> dict[int, int]:
        """Return {item: number of its last event} for all items that have events."""
        return {row["image_id"]: row["seq"] for row in self.rows("SELECT image_id, seq FROM state")}

    def last_event_of_fit(self) -> int:
        """Return the number of the last event that stored a training label of the fit; 0 if there is none."""
        (row,) = self.rows("SELECT max(e.seq) AS seq FROM event e JOIN batch b ON b.id = e.batch WHERE b.source = 'fit'")
        return int(row["seq"] or 0)

    def changed_since(self, seq: int, *, with_audit: bool = True) -> set[int]:
        """Return the items whose label changed after the event `seq`.

        Without `with_audit`, audited labels count as no label.
        """
        find = "SELECT DISTINCT image_id FROM event WHERE seq > :seq"
        if not with_audit:
            find += " AND (coalesce(old_source, :audit) != :audit OR coalesce(new_source, :audit) != :audit)"
        return {row["image_id"] for row in self.rows(find, {"seq": seq, "audit": AUDIT})}

    def batch(self, batch: str | None) -> BatchSummary | None:
        """Return the kind, the time and the number of items of a batch; None if the batch does not exist."""
        found = self.rows(
            "SELECT b.id AS batch, b.kind, b.ts, (SELECT count(*) FROM event WHERE batch = b.id) AS n "
            "FROM batch b WHERE b.id = ?",
            (batch,),
        )
        return cast(BatchSummary, found[0]) if found else None

    def labels(self) -> list[dict[str, Any]]:
        """Return all labelled and skipped items, each with id, class_id, status, source, and seq and ts of its last event."""
        return self.rows(
            "SELECT s.image_id AS id, s.class_id, s.status, s.source, s.seq, b.ts FROM state s JOIN event e ON e.seq = s.seq "
            "JOIN batch b ON b.id = e.batch WHERE s.status IS NOT NULL ORDER BY s.image_id",
            (),
        )

    def meta(self, key: str, default: str = "") -> str:
        """Return the value of a setting of the store, or the default."""
        with self._lock:
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return default if row is None else str(row[0])

    def find_damage(self) -> str:
        """Return the first fault in the structure of the database, in words; an empty string if there is none."""
        with self._lock:
            try:
                found = str(self._db.execute("PRAGMA quick_check(1)").fetchone()[0])
            except sqlite3.DatabaseError as error:
                return str(error)
        return "" if found == "ok" else found.splitlines()[-1]

    def is_later(self, batch: str, other: str) -> bool:
        """Return whether the first of two batches of labels was saved later than the other."""
        place = "SELECT n FROM batch WHERE id = ?"
        return bool(self._db.execute(place, (batch,)).fetchone() > self._db.execute(place, (other,)).fetchone())
