"""Types of the label store: labels, batches of changes and their results, and the present labels of all items as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict

LABELLED, SKIPPED = "labelled", "skipped"
STATUSES = (None, LABELLED, SKIPPED)  # values of ItemStates.status are positions in this tuple
HOTKEYS = (*"1234567890", *(f"shift+{digit}" for digit in "1234567890"))  # keys that select classes on the page
AUDIT = "audit"  # source of labels that were given in an audit


class ItemFileStamp(NamedTuple):
    """Name, size and modification time of a file, and the SHA-256 of its content, which is None until the item is labelled."""

    name: str
    size: int
    mtime_ns: int
    sha256: str | None = None


class ItemLabel(NamedTuple):
    """Class, status and source of the label of one item; all None for an unlabelled item."""

    class_id: int | None = None
    status: str | None = None
    source: str | None = None


class RecordedPrediction(NamedTuple):
    """Prediction that the model made when a label was given."""

    class_id: int | None = None
    confidence: float | None = None


@dataclass(frozen=True)
class BatchRequest:
    """Request for a batch of label changes, {item: (class, status)}. A batch is one transaction, and one step of undo."""

    kind: str
    targets: Mapping[int, tuple[int | None, str | None]]
    source: str = "page"
    request_id: str | None = None
    # number of the last event that the client knows; items that changed after it are not changed, but reported
    seen: int | None = None
    batch: str | None = None  # id of a batch that is continued; it must be the last batch
    model_version: int | None = None
    # (class that becomes empty, class that gets its items or None), for a merge or a deletion
    merged: tuple[int, int | None] | None = None
    predicted: Mapping[int, RecordedPrediction] = field(default_factory=dict)
    content: str | None = None  # hash of an imported file, by which a repeated import is recognized


class ChangedItem(TypedDict):
    """New label of one item, as JSON."""

    id: int
    label: int | None
    status: str


class BatchOutcome(TypedDict):
    """Result of a batch, as JSON."""

    batch: str | None
    kind: str
    seq: int
    changed: int
    unchanged: int
    conflicts: list[int]
    items: list[ChangedItem]
    overwritten: int


@dataclass(frozen=True)
class BatchResult:
    """Result of a batch. Items in `conflicts` keep their label, because another client changed them meanwhile."""

    batch: str | None  # id of the batch; None if no label changed, and so nothing can be undone
    kind: str
    seq: int
    changed: int
    unchanged: int
    conflicts: tuple[int, ...] = ()
    items: tuple[ChangedItem, ...] = ()
    overwritten: int = 0  # number of items that had another label before

    def to_json(self) -> BatchOutcome:
        """Return the result as JSON."""
        return {
            "batch": self.batch,
            "kind": self.kind,
            "seq": self.seq,
            "changed": self.changed,
            "unchanged": self.unchanged,
            "conflicts": list(self.conflicts),
            "items": list(self.items),
            "overwritten": self.overwritten,
        }


class LabelEvent(TypedDict):
    """One change of the label of one item, as JSON."""

    seq: int
    batch: str
    id: int
    new_class: int | None
    new_status: str | None
    old_class: int | None
    old_status: str | None
    kind: str
    source: str
    ts: str


class ItemEvent(TypedDict):
    """One change of the label of a given item, with the model's prediction at that time, as JSON."""

    seq: int
    batch: str
    ts: str
    kind: str
    source: str
    old_class: int | None
    old_status: str | None
    new_class: int | None
    new_status: str | None
    pred_class: int | None
    pred_conf: float | None


class BatchSummary(TypedDict):
    """A batch that can be undone or redone, as JSON."""

    batch: str
    kind: str
    ts: str
    n: int


class ItemStates:
    """Present labels of all items, as arrays.

    `class_id` is -1 for items without a class, `status` is a position in STATUSES, and `audit` is True for labels from an
    audit.
    """

    def __init__(self, n: int) -> None:
        self.class_id = np.full(n, -1, dtype=np.int32)
        self.status = np.zeros(n, dtype=np.int8)
        self.audit = np.zeros(n, dtype=bool)

    def first(self, n: int) -> ItemStates:
        """Return the labels of the first n items, as views of these arrays."""
        some = ItemStates(0)
        some.class_id, some.status, some.audit = self.class_id[:n], self.status[:n], self.audit[:n]
        return some

    def put(self, item: int, label: ItemLabel) -> None:
        """Set the label of one item."""
        self.class_id[item] = -1 if label.class_id is None else label.class_id
        self.status[item] = STATUSES.index(label.status)
        self.audit[item] = label.source == AUDIT

    def counts(self, n_classes: int) -> npt.NDArray[np.int64]:
        """Return for each class id below `n_classes` the number of items with this label."""
        return np.asarray(np.bincount(self.class_id[self.status == 1], minlength=n_classes))
