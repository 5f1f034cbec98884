"""Routes for labels: batches of changes, undo, redo, and the log of events."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from samekind.errors import RequestError
from samekind.server.routing import Router
from samekind.server.schemas import DIGITS, MAX_EVENT, BatchId, ClassId, ItemId, RequestId, RequestModel
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.store.batches import (
    LABELLED,
    SKIPPED,
    BatchOutcome,
    BatchRequest,
    LabelEvent,
    RecordedPrediction,
)
from samekind.server.summaries import ClassSummary, require_items, summarize_classes

MAX_IDS = 10_000  # largest number of items that a request changes; a further request can continue the batch by its id
MAX_EVENTS = 10_000  # largest number of events in a response

SeenEvent = Annotated[
    int, Field(ge=0, le=MAX_EVENT, description="last event known to the client; items that changed after it are skipped")
]
ContinuedBatch = Annotated[BatchId, Field(description="continue this batch, for more items than one request may hold")]

router = Router()


class LabelsRequest(RequestModel):
    """Request to change the labels of some items: set a class, clear the label, skip, or accept the prediction."""

    op: Literal["set", "clear", "skip", "accept"]
    ids: Annotated[list[ItemId], Field(min_length=1, max_length=MAX_IDS)]
    class_id: ClassId | None = None
    source: Literal["page", "audit", "similar", "map", "api"] = "page"
    request_id: RequestId | None = None
    seen: SeenEvent | None = None
    batch: ContinuedBatch | None = None


class UndoRequest(RequestModel):
    """Request to undo a batch; without an id, the last batch."""

    batch: BatchId | None = None
    request_id: RequestId | None = None


class RedoRequest(RequestModel):
    """Request to redo the batch that was undone last."""

    request_id: RequestId | None = None


class EventsQuery(RequestModel):
    """Query of the log: the number of the event after which it begins."""

    since: Annotated[int, Field(ge=0, le=MAX_EVENT), DIGITS] = 0


class Events(TypedDict):
    """A part of the log of events. `more` says whether the log continues after the event with the number `last_seq`."""

    events: list[LabelEvent]
    last_seq: int
    more: bool
    model_version: int
    model_revision: int
    classes: list[ClassSummary]


@router.post("/api/labels", "Set, clear or skip labels, or accept predictions: one batch, one undo", writes=True)
def change_labels(session: Session, body: LabelsRequest) -> BatchOutcome:
    predictions, ids = session.predictions, list(dict.fromkeys(body.ids))
    require_items(predictions, ids)
    match body.op:
        case "set":
            if body.class_id is None:
                raise RequestError(422, "'class_id' is missing. Send the id of the class to set.")
            if label_classes.one_class(session.store, body.class_id)["archived"]:
                raise RequestError(409, "That class is archived. Restore it first, or choose another.")
            targets: dict[int, tuple[int | None, str | None]] = dict.fromkeys(ids, (body.class_id, LABELLED))
        case "accept":
            session.active_model.require_trained()
            targets = {i: (int(predictions.pred[i]), LABELLED) for i in ids}
        case "skip":
            targets = dict.fromkeys(ids, (None, SKIPPED))
        case "clear":
            targets = dict.fromkeys(ids, (None, None))
    trained = predictions.trained
    recorded = {i: RecordedPrediction(int(predictions.pred[i]), float(predictions.confidence[i])) for i in ids if trained}
    request = BatchRequest(
        body.op,
        targets,
        source=body.source,
        request_id=body.request_id,
        seen=body.seen,
        batch=body.batch,
        model_version=predictions.version if trained else None,
        predicted=recorded,
    )
    return session.store.apply(request).to_json()


@router.post("/api/undo", "Undo the last batch, or the given one", writes=True)
def undo(session: Session, body: UndoRequest) -> BatchOutcome:
    result = session.store.undo(body.batch, request_id=body.request_id)
    session.update_merged_classes()  # after a merge is undone, the predictions have one more class
    return result.to_json()


@router.post("/api/redo", "Redo the batch that was undone last", writes=True)
def redo(session: Session, body: RedoRequest) -> BatchOutcome:
    result = session.store.redo(request_id=body.request_id)
    session.update_merged_classes()
    return result.to_json()


@router.get("/api/events", "Events after number `since`, oldest first")
def show_events(session: Session, query: EventsQuery) -> Events:
    store, predictions = session.store, session.predictions
    store.refresh()
    found = store.events(query.since, MAX_EVENTS)
    more = len(found) == MAX_EVENTS
    return {
        "events": found,
        "last_seq": found[-1]["seq"] if more else store.last_seq,
        "more": more,
        "model_version": predictions.version,
        "model_revision": predictions.revision,
        "classes": summarize_classes(session, predictions),
    }
