"""What can be undone and redone, derived from the log alone, so that it survives a restart."""

from __future__ import annotations

from collections.abc import Iterable


class UndoLog:
    """Batches of labels in force, last one on top, and the undone ones that can be redone.

    Undoing takes a batch out of force wherever it lies; redoing puts it back to its place. A new batch ends all redoing.
    """

    def __init__(self, batches: Iterable[tuple[str, str, str | None]] = ()) -> None:
        self._in_force: dict[str, int] = {}  # with the place in the log, in its order
        self._fixed: set[str] = set()  # the labels of the fit, which nobody takes back with a key
        self._undone: list[tuple[str, int]] = []
        self._n = 0
        for batch, kind, undoes in batches:
            self.take(batch, kind, undoes)

    def take(self, batch: str, kind: str, undoes: str | None) -> None:
        """The next line of the log: (id, kind, and for undo and redo the batch that is taken out or put back)."""
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
        return batch in self._in_force

    def last(self) -> str | None:
        """What undo takes out of force."""
        return next(reversed(self._in_force), None)

    def last_undone(self) -> str | None:
        """What redo puts back."""
        return self._undone[-1][0] if self._undone else None
