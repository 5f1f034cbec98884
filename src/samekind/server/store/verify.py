"""The proof that no label was lost or changed: the log is replayed and compared with what the store says."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from samekind.errors import StoreError
from samekind.server.store.schema import connect
from samekind.server.store.undo_log import UndoLog

Said = tuple[int | None, str | None, str | None]  # class, status, source
NOTHING: Said = (None, None, None)


def require_valid(path: Path) -> str:
    """What was checked, in a sentence; an error if anything is wrong."""
    wrong = verify(path)
    if wrong:
        more = f" ({len(wrong)} faults in all)" if len(wrong) > 1 else ""
        raise StoreError(f"{path} is not sound: {wrong[0]}{more}. Put back one of the backups beside it.")
    with closing(connect(path, read_only=True)) as db:
        events, held = (db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("event", "state"))
    return f"{path}: {events} events lead to the {held} items that hold something; all is well."


def verify(path: Path) -> list[str]:
    """What is wrong with a label store, in sentences; an empty list if all is well.

    Replayed twice: event by event, where each must begin with what the one before left, and by batches in force.
    """
    with closing(connect(path, read_only=True)) as db:
        wrong = [f"the file is damaged: {word}" for (word,) in db.execute("PRAGMA integrity_check") if word != "ok"]
        names = dict(db.execute("SELECT id, relpath FROM image"))
        undo_log = UndoLog(db.execute("SELECT id, kind, undoes FROM batch ORDER BY n"))
        reversing = {batch for (batch,) in db.execute("SELECT id FROM batch WHERE undoes IS NOT NULL")}
        last: dict[int, tuple[int, Said]] = {}
        in_force: dict[int, Said] = {}
        log = (
            "SELECT seq, batch, image_id, old_class, old_status, old_source, new_class, new_status, new_source "
            "FROM event ORDER BY seq"
        )
        for seq, batch, image, *both in db.execute(log):
            old, new = tuple(both[:3]), tuple(both[3:])
            if last.get(image, (0, NOTHING))[1] != old:
                wrong.append(f"event {seq} on {names.get(image)!r} does not begin with what the event before it left")
            last[image] = (seq, new)
            if batch not in reversing and batch in undo_log:
                in_force[image] = new
        held = {
            image: (seq, said) for image, *said, seq in db.execute("SELECT image_id, class_id, status, source, seq FROM state")
        }
    for image in sorted(last.keys() | held.keys()):
        seq, said = held.get(image, (0, list(NOTHING)))
        if (seq, tuple(said)) != last.get(image, (0, NOTHING)):
            wrong.append(f"{names.get(image)!r} holds {said} by event {seq}, and the log says {last.get(image)}")
        elif in_force.get(image, NOTHING) != tuple(said):
            wrong.append(f"{names.get(image)!r} holds {said}, and the last batch in force says {in_force.get(image)}")
    return wrong
