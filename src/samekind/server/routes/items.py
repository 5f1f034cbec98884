"""Routes for items: sorted ids, summaries for the grid, details of one item, and colors for the map."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from starlette.datastructures import Headers
from starlette.responses import Response
from typing_extensions import TypedDict

from samekind.server.inference.predictions import Predictions
from samekind.server.inference.ranking import ItemFilter, ItemTable, Sort, StatusFilter, rank_items
from samekind.server.media.array_images import MAX_FIELDS
from samekind.server.media.item_texts import MAX_SHOWN
from samekind.server.media.table_rows import FieldValue
from samekind.server.routing import BINARY, Router, binary_response
from samekind.server.schemas import Fraction, ItemId, PathId, QueryId, RequestModel, Text
from samekind.server.session import Session
from samekind.server.store.batches import ItemEvent
from samekind.server.summaries import ItemSummary, TopClasses, round_log_odds, summarize_item

N_NEAREST = 6  # number of labelled items that are shown in favour of a prediction, and also of those against it
MIN_EVIDENCE = 0.5  # similarity from which a labelled item counts as evidence, because it then more probably has the same class

router = Router()


class OrderQuery(RequestModel):
    """Query of sorted ids: filters, and the sort order."""

    sort: Sort | None = None
    dir: Annotated[Literal["asc", "desc"], Field(description="asc: the most uncertain first")] = "asc"
    status: StatusFilter = "all"
    pred: QueryId | None = None
    label: QueryId | None = None
    conf_min: Fraction = 0.0
    conf_max: Fraction = 1.0
    q: Annotated[Text, Field(max_length=200, description="words that the path must contain, or for texts the text")] = ""
    seed: Annotated[QueryId, Field(description="for the sorts random, audit and diverse")] = 0


class ItemsRequest(RequestModel):
    """Request for the summaries of some items."""

    ids: Annotated[list[ItemId], Field(max_length=500)]


class Items(TypedDict):
    """Summaries of items."""

    items: list[ItemSummary]
    model_version: int


class Neighbor(TypedDict):
    """A labelled item that is similar to another item."""

    id: int
    label: int | None
    path: str
    image_key: str
    similarity: float
    log_odds: float | None


class PreviousPrediction(TypedDict):
    """Prediction of the model that was active before the present one."""

    version: int
    pred: int
    conf: float


class ItemDetails(ItemSummary):
    """All that the page shows about one opened item.

    `nearest` are the most similar labelled items. `supporting` and `contrary` are labelled items that probably have the same
    class as this item: `supporting` have the predicted class as label, `contrary` another class. `full_text` is the text of the
    item, up to a limit, and `n_characters` the length of the whole text; for other items they are null and 0.
    """

    top5: TopClasses
    nearest: list[Neighbor]
    supporting: list[Neighbor]
    contrary: list[Neighbor]
    events: list[ItemEvent]
    previous: PreviousPrediction | None
    width: int | None
    height: int | None
    all_fields: list[FieldValue]
    full_text: str | None
    n_characters: int


@router.get("/api/order", "Ids of the items as uint32, little-endian, filtered and sorted", media_type=BINARY)
def order_items(session: Session, query: OrderQuery, headers: Headers) -> Response:
    session.store.refresh()
    if query.sort == "disagreement":
        session.warm_up()
    model, store = session.active_model, session.store
    predictions, n = model.predictions, len(model.predictions)
    table = ItemTable(
        predictions,
        model.previous,
        store.states.first(n),
        folded_names=lambda: session.folded_items(n),
        disagreement=lambda: session.background_array("disagreement", predictions),
        last_events=lambda: session.last_events(n),
    )
    where = ItemFilter(query.status, query.pred, query.label, query.conf_min, query.conf_max, query.q)
    ids = rank_items(table, where, query.sort, descending=query.dir == "desc", seed=query.seed)
    model_headers = {"x-model-version": str(predictions.version), "x-model-revision": str(predictions.revision)}
    return binary_response(ids.tobytes(), headers, {"x-total": str(n), **model_headers})


@router.post("/api/items", "Summaries of items, as the tiles show them")
def show_items(session: Session, body: ItemsRequest) -> Items:
    predictions = session.predictions
    return {"items": [summarize_item(session, predictions, i) for i in body.ids], "model_version": predictions.version}


@router.get("/api/items/{id}", "Everything about one item: probabilities, the most similar labelled items, its history")
def show_item(session: Session, id: PathId) -> ItemDetails:
    model = session.active_model
    predictions = model.predictions
    summary = summarize_item(session, predictions, id)
    states = session.store.states.first(len(predictions))
    labelled = states.status == 1
    predicted = labelled & (states.class_id == summary["pred"])
    supporting, contrary = (
        [_neighbor(session, predictions, *match) for match in model.nearest_among(id, among, N_NEAREST)]
        if predictions.trained
        else []
        for among in (predicted, labelled & ~predicted)
    )
    nearest = sorted(supporting + contrary, key=lambda one: one["log_odds"] or 0.0, reverse=True)[:N_NEAREST]
    size = session.image_size(id)
    full_text = session.texts.full(id) if session.texts is not None and not summary["error"] else None
    return {
        **summary,
        "top5": predictions.top(id, 5),
        "nearest": nearest,
        "supporting": [one for one in supporting if one["similarity"] >= MIN_EVIDENCE],
        "contrary": [one for one in contrary if one["similarity"] >= MIN_EVIDENCE],
        "events": session.store.history(id),
        "previous": _previous_prediction(model.previous, id),
        "width": size[0] if size else None,
        "height": size[1] if size else None,
        "all_fields": [] if summary["error"] else session.array_images.fields(id, MAX_FIELDS),
        "full_text": None if full_text is None else full_text[:MAX_SHOWN],
        "n_characters": len(full_text or ""),
    }


def _neighbor(session: Session, predictions: Predictions, item: int, W: float, log_odds: float | None) -> Neighbor:
    one = summarize_item(session, predictions, item)
    return {
        "id": one["id"],
        "label": one["label"],
        "path": one["path"],
        "image_key": one["image_key"],
        "similarity": round(W, 5),
        "log_odds": round_log_odds(log_odds),
    }


def _previous_prediction(previous: Predictions | None, item: int) -> PreviousPrediction | None:
    if previous is None or item >= len(previous):
        return None
    return {
        "version": previous.version,
        "pred": int(previous.pred[item]),
        "conf": round(float(previous.confidence[item]), 5),
    }


@router.get(
    "/api/colors",
    "Predicted class, label and confidence (in 1/10,000) of every item, as triples of int16; -1: none, label -2: skipped",
    media_type=BINARY,
)
def show_colors(session: Session) -> Response:
    predictions = session.predictions
    states = session.store.states.first(len(predictions))
    label = np.where(states.status == 2, -2, np.where(states.status == 1, states.class_id, -1))
    confidence = np.round(10_000 * predictions.confidence) if predictions.trained else np.full(len(predictions), -1)
    table = np.stack([predictions.pred, label, confidence], axis=1).astype("<i2")
    headers = {"x-model-version": str(predictions.version), "x-last-seq": str(session.store.last_seq)}
    return Response(table.tobytes(), media_type=BINARY, headers=headers)
