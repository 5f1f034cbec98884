"""Undo and redo. Their state is derived from the log of batches alone, so it is the same after a restart."""

from __future__ import annotations

from collections.abc import Iterable


class UndoLog:
    """Batches of label changes that are in force (not undone), in the order of the log, and undone batches that can be redone.

    Any batch can be undone, not only the last one; redo puts it back to its place. After a new batch, no batch can be redone.
    """

    def __init__(self, batches: Iterable[tuple[str, str, str | None]] = ()) -> None:
        self._in_force: dict[str, int] = {}  # {batch: position in the log}, in the order of positions
        self._fixed: set[str] = set()  # batches with the training labels of the fit, which cannot be undone
        self._undone: list[tuple[str, int]] = []
        self._n = 0
        for batch, kind, undoes in batches:
            self.append(batch, kind, undoes)

    def append(self, batch: str, kind: str, undoes: str | None) -> None:
        """Add the next batch of the log. If it is an undo or redo, `undoes` is the batch that it undoes or redoes."""
        if kind == "undo" and undoes is not None:
            self._undone.append((undoes, self._in_force.pop(undoes)))
        elif kind == "redo" and undoes is not None:
            self._put_back(undoes)
        elif kind == "fit":
            self._fixed.add(batch)
        else:
            self._in_force[batch] = self._n
            self._n += 1
            self._undone.clear()

    def _put_back(self, batch: str) -> None:
        (place,) = (place for undone, place in self._undone if undone == batch)
        self._undone.remove((batch, place))
        is_last = not self._in_force or next(reversed(self._in_force.values())) < place
        self._in_force[batch] = place
        if not is_last:
            self._in_force = dict(sorted(self._in_force.items(), key=lambda one: one[1]))

    def __contains__(self, batch: object) -> bool:
        return batch in self._in_force or batch in self._fixed

    def can_undo(self, batch: str) -> bool:
        """Return whether this batch can be undone."""
        return batch in self._in_force

    def last(self) -> str | None:
        """Return the batch that the next undo will undo; None if there is none."""
        return next(reversed(self._in_force), None)

    def last_undone(self) -> str | None:
        """Return the batch that the next redo will redo; None if there is none."""
        return self._undone[-1][0] if self._undone else None
