"""What the page asks: the run, orders, items, pictures, labels, undo, classes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from starlette.responses import JSONResponse, Response

from samekind.errors import RequestError
from samekind.server import summaries
from samekind.server.app_state import AppState
from samekind.server.inference.ranking import SORTS, STATUS, order
from samekind.server.media.thumbnails import SIZES, media_type
from samekind.server.routing import ParsedRequest, Route
from samekind.server.shapes import Fields, Flag, ListOf, Number, OneOf, OrNone, Text, Whole
from samekind.server.store import label_classes
from samekind.server.store.label_store import LABELLED, SKIPPED, BatchRequest, RecordedPrediction

ID = Whole(0, 2**31 - 1, "number of an item")
CLASS = Whole(0, 2**31 - 1, "number of a class")
REQUEST_ID = Text(64, 1, "any name of this request: sent twice, it is done once")
MOST_IDS = 10_000
COLOUR = Text(7, 7, "#rrggbb")
NUMBERS = "application/octet-stream"
ORDER = Fields(
    {
        "sort": OneOf(tuple(SORTS)),
        "dir": OneOf(("asc", "desc"), "asc: the most doubtful first"),
        "status": OneOf(tuple(STATUS)),
        "pred": CLASS,
        "label": CLASS,
        "conf_min": Number(),
        "conf_max": Number(),
        "q": Text(200, 0, "words that the path must hold"),
        "seed": Whole(0, 2**31 - 1, "of the sorts random, audit and diverse"),
    }
)


# ---------------------------------------------------------------- looking


def session(state: AppState, request: ParsedRequest) -> Response:
    """A cookie for whoever has the token."""
    answer = Response(status_code=204)
    value = state.credentials.session_for(request.body["token"])
    state.wake()
    answer.set_cookie(state.credentials.cookie, value, httponly=True, samesite="strict", path="/")
    return answer


def ordered(state: AppState, request: ParsedRequest) -> Response:
    session = state.session
    session.store.refresh()
    if request.query.get("sort") == "disagreement":
        state.wake()
    active_model = session.active_model()
    predictions, more = active_model.predictions, session.more(request.query.get("sort"), active_model.predictions)
    blob = order(
        request.query, predictions, session.store.states, session.store.folded, before=active_model.before, **more
    ).tobytes()
    return unless_known(blob, request, {"x-total": str(len(predictions)), "x-model-version": str(predictions.version)})


def unless_known(blob: bytes, request: ParsedRequest, more: dict[str, str]) -> Response:
    """Numbers with a tag of their content; who has them already is only told so."""
    tag = f'"{hashlib.blake2b(blob, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, **more}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(blob, media_type=NUMBERS, headers=headers)


def items(state: AppState, request: ParsedRequest) -> Any:
    predictions = state.session.predictions
    return {
        "items": [summaries.of_item(state.session, predictions, i) for i in request.body["ids"]],
        "model_version": predictions.version,
    }


def thumb(state: AppState, request: ParsedRequest) -> Response:
    side = request.query.get("s", SIZES[0])
    if side not in SIZES:
        raise RequestError(422, f"s is {side}; expected {' or '.join(map(str, SIZES))}.")
    original = state.session.original(request.path["id"])
    return _picture(state.session.thumbs.get(original, side), request, original.key)


def full(state: AppState, request: ParsedRequest) -> Response:
    original = state.session.original(request.path["id"])
    return _picture(state.session.thumbs.full(original), request, original.key)


def _picture(blob: bytes, request: ParsedRequest, key: str) -> Response:
    """Kept by the browser for ever, if it was asked for by its content."""
    lasting = request.query.get("v") == key[:16]
    kept = "private, max-age=31536000, immutable" if lasting else "private, no-cache"
    return Response(blob, media_type=media_type(blob), headers={"cache-control": kept})


# ---------------------------------------------------------------- labelling


def labels(state: AppState, request: ParsedRequest) -> Any:
    """Sets, clears, skips, or accepts what the model says, for many items as one batch."""
    session, body = state.session, request.body
    predictions, ids = session.predictions, list(dict.fromkeys(body["ids"]))
    summaries.require_items(predictions, ids)
    match body["op"]:
        case "set":
            if "class_id" not in body:
                raise RequestError(422, "'class_id' is missing: which class shall it be?")
            if label_classes.one(session.store, body["class_id"]).archived:
                raise RequestError(409, "That class was put away. Bring it back first, or choose another.")
            targets: dict[int, tuple[int | None, str | None]] = dict.fromkeys(ids, (body["class_id"], LABELLED))
        case "accept":
            session.require_model()
            targets = {i: (int(predictions.pred[i]), LABELLED) for i in ids}
        case "skip":
            targets = dict.fromkeys(ids, (None, SKIPPED))
        case _:
            targets = dict.fromkeys(ids, (None, None))
    batch = BatchRequest(
        body["op"],
        targets,
        source=body.get("source", "page"),
        request_id=body.get("request_id"),
        seen=body.get("seen"),
        batch=body.get("batch"),
        model_version=predictions.version if predictions.trained else None,
        predicted={
            i: RecordedPrediction(int(predictions.pred[i]), float(predictions.confidence[i]))
            for i in ids
            if predictions.trained
        },
    )
    return state.session.store.apply(batch).to_json()


def undo(state: AppState, request: ParsedRequest) -> Any:
    return _after_reversing(
        state, state.session.store.undo(request.body.get("batch"), request_id=request.body.get("request_id")).to_json()
    )


def redo(state: AppState, request: ParsedRequest) -> Any:
    return _after_reversing(state, state.session.store.redo(request_id=request.body.get("request_id")).to_json())


def _after_reversing(state: AppState, result: dict[str, Any]) -> dict[str, Any]:
    state.session.reread()  # an undone merge brings a class back
    return result


def events(state: AppState, request: ParsedRequest) -> Any:
    session, predictions, limit = state.session, state.session.predictions, 10_000
    session.store.refresh()
    found = session.store.events(request.query.get("since", 0), limit)
    last = found[-1]["seq"] if len(found) == limit else session.store.last_seq
    answer = {"events": found, "last_seq": last, "more": len(found) == limit}
    return {**answer, "model_version": predictions.version, "classes": summaries.of_classes(session, predictions)}


# ---------------------------------------------------------------- classes


def add_class(state: AppState, request: ParsedRequest) -> Response:
    kind = label_classes.add(state.session.store, request.body["name"], request.body.get("key"), _colour(request.body))
    return JSONResponse(vars(kind), 201)


def change_class(state: AppState, request: ParsedRequest) -> Any:
    session, number, wanted = state.session, request.path["id"], dict(request.body)
    _colour(wanted)
    into, request_id = wanted.pop("merge_into", None), wanted.pop("request_id", None)
    merged = label_classes.merge(session.store, number, into, request_id=request_id) if into is not None else None
    if wanted:
        label_classes.change(session.store, number, wanted)
    session.reread()
    return {**vars(label_classes.one(session.store, number)), "merged": merged}


def _colour(body: dict[str, Any]) -> str | None:
    colour = body.get("colour")
    if colour is not None and not (colour[0] == "#" and all(letter in "0123456789abcdefABCDEF" for letter in colour[1:])):
        raise RequestError(422, f"colour is {colour!r}; expected #rrggbb.")
    return colour


def colours(state: AppState, request: ParsedRequest) -> Response:
    """Prediction and label of every item, two numbers each; -1 is none, and -2 as a label is skipped."""
    session, predictions = state.session, state.session.predictions
    states = session.store.states.first(len(predictions))
    label = np.where(states.status == 2, -2, np.where(states.status == 1, states.class_id, -1))
    both = np.stack([predictions.pred, label], axis=1).astype("<i2")
    headers = {"x-model-version": str(predictions.version), "x-last-seq": str(session.store.last_seq)}
    return Response(both.tobytes(), media_type=NUMBERS, headers=headers)


PICTURE_QUERY = {"v": Text(64, 0, "content key; a picture asked for by it may be kept for ever")}
ROUTES = [
    Route(
        "POST",
        "/api/session",
        session,
        "A session for whoever has the token of the link",
        body=Fields({"token": Text(200, 1)}, ("token",)),
        open=True,
        statuses=(204,),
    ),
    Route("GET", "/api/order", ordered, "Ids of items as uint32, little-endian, filtered and sorted", ORDER, gives=NUMBERS),
    Route("POST", "/api/items", items, "What tiles show", body=Fields({"ids": ListOf(ID, 500)}, ("ids",))),
    Route("GET", "/api/colours", colours, "Prediction and label of every item, as pairs of int16", gives=NUMBERS),
    Route(
        "GET",
        "/img/{id}/thumb",
        thumb,
        "A thumbnail",
        Fields({"s": Whole(128, 256, "128 or 256 pixels"), **PICTURE_QUERY}),
        gives="image/*",
    ),
    Route("GET", "/img/{id}/full", full, "The whole picture, encoded anew", Fields(PICTURE_QUERY), gives="image/*"),
    Route(
        "POST",
        "/api/labels",
        labels,
        "Set, clear, skip, or accept the prediction: one batch, one undo",
        body=Fields(
            {
                "op": OneOf(("set", "clear", "skip", "accept")),
                "ids": ListOf(ID, MOST_IDS, 1),
                "class_id": CLASS,
                "source": OneOf(("page", "audit", "similar", "map", "api")),
                "request_id": REQUEST_ID,
                "seen": Whole(0, 2**53, "last event known: what changed after it is left alone and reported"),
                "batch": Text(64, 1, "go on with this batch, for more items than one request takes"),
            },
            ("op", "ids"),
        ),
        writes=True,
    ),
    Route(
        "POST",
        "/api/undo",
        undo,
        "Undo the last batch, or the one that is named",
        body=Fields({"batch": Text(64, 1), "request_id": REQUEST_ID}),
        writes=True,
    ),
    Route("POST", "/api/redo", redo, "Redo what was undone last", body=Fields({"request_id": REQUEST_ID}), writes=True),
    Route("GET", "/api/events", events, "What happened after event `since`, oldest first", Fields({"since": Whole(0, 2**53)})),
    Route(
        "POST",
        "/api/classes",
        add_class,
        "A new class",
        body=Fields({"name": Text(200, 1), "key": Text(10, 1), "colour": COLOUR}, ("name",)),
        writes=True,
        statuses=(201,),
    ),
    Route(
        "PATCH",
        "/api/classes/{id}",
        change_class,
        "Rename a class, change its key or colour, put it away or merge it into another",
        body=Fields(
            {
                "name": Text(200, 1),
                "key": OrNone(Text(10, 1)),
                "colour": COLOUR,
                "archived": Flag(),
                "merge_into": CLASS,
                "request_id": REQUEST_ID,
            }
        ),
        writes=True,
    ),
]
