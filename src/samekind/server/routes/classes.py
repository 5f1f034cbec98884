"""Routes for classes: add, rename, archive, merge and delete."""

from __future__ import annotations

from samekind.server.routing import Router
from samekind.server.schemas import ClassId, ClassName, Color, Hotkey, PathId, RequestId, RequestModel
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.store.batches import BatchOutcome
from samekind.server.store.label_classes import LabelClass

router = Router()


class NewClass(RequestModel):
    """Request to add a class."""

    name: ClassName
    key: Hotkey | None = None
    color: Color | None = None


class ClassChanges(RequestModel):
    """Request to change a class. A field that is not sent stays as it is; a `key` of null removes the keyboard shortcut."""

    name: ClassName | None = None
    key: Hotkey | None = None
    color: Color | None = None
    archived: bool | None = None
    merge_into: ClassId | None = None
    request_id: RequestId | None = None


class ClassDeletion(RequestModel):
    """Request to delete a class. Without `clear_labels`, a class is not deleted as long as items have it as label."""

    clear_labels: bool = False
    request_id: RequestId | None = None


class ChangedClass(LabelClass):
    """A class after a change. After a merge, `merged` is the result of relabelling its items."""

    merged: BatchOutcome | None


@router.post("/api/classes", "Add a class", writes=True, status=201)
def add_class(session: Session, body: NewClass) -> LabelClass:
    added = label_classes.add(session.store, body.name, body.key, body.color)
    session.update_merged_classes()  # a deleted class that is now restored may be one of the model's classes
    return added


@router.post("/api/classes/{id}/delete", "Delete a class; undo brings it back with its labels", writes=True)
def delete_class(session: Session, id: PathId, body: ClassDeletion) -> BatchOutcome:
    result = label_classes.delete(session.store, id, clear_labels=body.clear_labels, request_id=body.request_id)
    session.update_merged_classes()
    return result


@router.patch("/api/classes/{id}", "Rename a class, change its key or color, archive it or merge it into another", writes=True)
def change_class(session: Session, id: PathId, body: ClassChanges) -> ChangedClass:
    merged = None
    if body.merge_into is not None:
        merged = label_classes.merge(session.store, id, body.merge_into, request_id=body.request_id)
    sent = body.model_dump(exclude={"merge_into", "request_id"}, exclude_unset=True)
    changes = {name: value for name, value in sent.items() if value is not None or name == "key"}
    if changes:
        label_classes.change(session.store, id, changes)
    session.update_merged_classes()
    return {**label_classes.one_class(session.store, id), "merged": merged}
