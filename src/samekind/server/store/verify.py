"""Verification of a label store: replays the log of events, and compares the result with the stored labels."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from samekind.errors import StoreError
from samekind.server.store.batches import ItemLabel
from samekind.server.store.schema import connect, restore_command
from samekind.server.store.undo_log import UndoLog


def require_valid(path: Path) -> str:
    """Return a sentence that says what was verified; raise StoreError if the store is not valid."""
    faults = verify(path)
    if faults:
        more = f" ({len(faults)} faults in all)" if len(faults) > 1 else ""
        raise StoreError(f"{path} is damaged: {faults[0]}{more}. Restore it from a backup with `{restore_command(path)}`.")
    with closing(connect(path, read_only=True)) as db:
        events, items = (db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("event", "state"))
    return f"{path}: {events} events were replayed and give the stored labels of all {items} items."


def verify(path: Path) -> list[str]:
    """Return the faults of a label store as sentences; an empty list if it is valid.

    The log is replayed in two ways. Event by event: the old label in each event must be the new label in the event before it on
    the same item. And by batches: each item must have the label from its last batch in force, that is, not undone.
    """
    with closing(connect(path, read_only=True)) as db:
        faults = [f"the file is damaged: {word}" for (word,) in db.execute("PRAGMA integrity_check") if word != "ok"]
        names = dict(db.execute("SELECT id, relpath FROM image"))
        undo_log = UndoLog(db.execute("SELECT id, kind, undoes FROM batch ORDER BY n"))
        reversing = {batch for (batch,) in db.execute("SELECT id FROM batch WHERE undoes IS NOT NULL")}
        replayed: dict[int, tuple[int, ItemLabel]] = {}
        in_force: dict[int, ItemLabel] = {}
        log = (
            "SELECT seq, batch, image_id, old_class, old_status, old_source, new_class, new_status, new_source "
            "FROM event ORDER BY seq"
        )
        for seq, batch, item, *both in db.execute(log):
            old, new = ItemLabel(*both[:3]), ItemLabel(*both[3:])
            if replayed.get(item, (0, ItemLabel()))[1] != old:
                faults.append(f"event {seq} on {names.get(item)!r} does not start from the label that the event before it left")
            replayed[item] = (seq, new)
            if batch not in reversing and batch in undo_log:
                in_force[item] = new
        stored = {
            item: (seq, ItemLabel(*label))
            for item, *label, seq in db.execute("SELECT image_id, class_id, status, source, seq FROM state")
        }
    for item in sorted(replayed.keys() | stored.keys()):
        seq, label = stored.get(item, (0, ItemLabel()))
        expected = replayed.get(item, (0, ItemLabel()))
        if (seq, label) != expected:
            faults.append(f"{names.get(item)!r} has {tuple(label)} from event {seq}; the log gives {tuple(expected[1])}")
        elif in_force.get(item, ItemLabel()) != label:
            last = tuple(in_force.get(item, ItemLabel()))
            faults.append(f"{names.get(item)!r} has {tuple(label)}; the last batch in force gives {last}")
    return faults
