"""What the page asks: the run, orders, items, pictures, labels, undo, classes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from starlette.responses import JSONResponse, Response

from samekind.errors import RequestError
from samekind.server import kinds, views
from samekind.server.desk import Desk
from samekind.server.images import SIZES, media_type
from samekind.server.orders import SORTS, STATUS, order
from samekind.server.routes import Call, Route
from samekind.server.shapes import Fields, Flag, ListOf, Number, OneOf, OrNone, Text, Whole
from samekind.server.store import LABELLED, SKIPPED, Guess, Wish

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


def session(desk: Desk, call: Call) -> Response:
    """A cookie for whoever has the token."""
    answer = Response(status_code=204)
    value = desk.keys.session_for(call.body["token"])
    desk.wake()
    answer.set_cookie(desk.keys.cookie, value, httponly=True, samesite="strict", path="/")
    return answer


def ordered(desk: Desk, call: Call) -> Response:
    page = desk.page
    page.store.refresh()
    if call.query.get("sort") == "disagreement":
        desk.wake()
    in_use = page.in_use()
    answers, more = in_use.answers, page.more(call.query.get("sort"), in_use.answers)
    blob = order(call.query, answers, page.store.states, page.store.folded, before=in_use.before, **more).tobytes()
    return unless_known(blob, call, {"x-total": str(len(answers)), "x-model-version": str(answers.version)})


def unless_known(blob: bytes, call: Call, more: dict[str, str]) -> Response:
    """Numbers with a tag of their content; who has them already is only told so."""
    tag = f'"{hashlib.blake2b(blob, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, **more}
    if call.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(blob, media_type=NUMBERS, headers=headers)


def items(desk: Desk, call: Call) -> Any:
    answers = desk.page.answers
    return {"items": [views.of_item(desk.page, answers, i) for i in call.body["ids"]], "model_version": answers.version}


def thumb(desk: Desk, call: Call) -> Response:
    side = call.query.get("s", SIZES[0])
    if side not in SIZES:
        raise RequestError(422, f"s is {side}; expected {' or '.join(map(str, SIZES))}.")
    original = desk.page.original(call.path["id"])
    return _picture(desk.page.thumbs.get(original, side), call, original.key)


def full(desk: Desk, call: Call) -> Response:
    original = desk.page.original(call.path["id"])
    return _picture(desk.page.thumbs.full(original), call, original.key)


def _picture(blob: bytes, call: Call, key: str) -> Response:
    """Kept by the browser for ever, if it was asked for by its content."""
    lasting = call.query.get("v") == key[:16]
    kept = "private, max-age=31536000, immutable" if lasting else "private, no-cache"
    return Response(blob, media_type=media_type(blob), headers={"cache-control": kept})


# ---------------------------------------------------------------- labelling


def labels(desk: Desk, call: Call) -> Any:
    """Sets, clears, skips, or accepts what the model says, for many items as one batch."""
    page, body = desk.page, call.body
    answers, ids = page.answers, list(dict.fromkeys(body["ids"]))
    views.require_items(answers, ids)
    match body["op"]:
        case "set":
            if "class_id" not in body:
                raise RequestError(422, "'class_id' is missing: which class shall it be?")
            if kinds.one(page.store, body["class_id"]).archived:
                raise RequestError(409, "That class was put away. Bring it back first, or choose another.")
            targets: dict[int, tuple[int | None, str | None]] = dict.fromkeys(ids, (body["class_id"], LABELLED))
        case "accept":
            page.require_model()
            targets = {i: (int(answers.pred[i]), LABELLED) for i in ids}
        case "skip":
            targets = dict.fromkeys(ids, (None, SKIPPED))
        case _:
            targets = dict.fromkeys(ids, (None, None))
    wish = Wish(
        body["op"],
        targets,
        source=body.get("source", "page"),
        request_id=body.get("request_id"),
        seen=body.get("seen"),
        batch=body.get("batch"),
        model_version=answers.version if answers.trained else None,
        guesses={i: Guess(int(answers.pred[i]), float(answers.confidence[i])) for i in ids if answers.trained},
    )
    return desk.page.store.apply(wish).to_json()


def undo(desk: Desk, call: Call) -> Any:
    return _after_reversing(
        desk, desk.page.store.undo(call.body.get("batch"), request_id=call.body.get("request_id")).to_json()
    )


def redo(desk: Desk, call: Call) -> Any:
    return _after_reversing(desk, desk.page.store.redo(request_id=call.body.get("request_id")).to_json())


def _after_reversing(desk: Desk, outcome: dict[str, Any]) -> dict[str, Any]:
    desk.page.reread()  # an undone merge brings a class back
    return outcome


def events(desk: Desk, call: Call) -> Any:
    page, answers, limit = desk.page, desk.page.answers, 10_000
    page.store.refresh()
    found = page.store.events(call.query.get("since", 0), limit)
    last = found[-1]["seq"] if len(found) == limit else page.store.last_seq
    answer = {"events": found, "last_seq": last, "more": len(found) == limit}
    return {**answer, "model_version": answers.version, "classes": views.of_classes(page, answers)}


# ---------------------------------------------------------------- classes


def add_class(desk: Desk, call: Call) -> Response:
    kind = kinds.add(desk.page.store, call.body["name"], call.body.get("key"), _colour(call.body))
    return JSONResponse(vars(kind), 201)


def change_class(desk: Desk, call: Call) -> Any:
    page, number, wanted = desk.page, call.path["id"], dict(call.body)
    _colour(wanted)
    into, request_id = wanted.pop("merge_into", None), wanted.pop("request_id", None)
    merged = kinds.merge(page.store, number, into, request_id=request_id) if into is not None else None
    if wanted:
        kinds.change(page.store, number, wanted)
    page.reread()
    return {**vars(kinds.one(page.store, number)), "merged": merged}


def _colour(body: dict[str, Any]) -> str | None:
    colour = body.get("colour")
    if colour is not None and not (colour[0] == "#" and all(letter in "0123456789abcdefABCDEF" for letter in colour[1:])):
        raise RequestError(422, f"colour is {colour!r}; expected #rrggbb.")
    return colour


def colours(desk: Desk, call: Call) -> Response:
    """Prediction and label of every item, two numbers each; -1 is none, and -2 as a label is skipped."""
    page, answers = desk.page, desk.page.answers
    states = page.store.states.first(len(answers))
    label = np.where(states.status == 2, -2, np.where(states.status == 1, states.class_id, -1))
    both = np.stack([answers.pred, label], axis=1).astype("<i2")
    headers = {"x-model-version": str(answers.version), "x-last-seq": str(page.store.last_seq)}
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
        answers=(204,),
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
        answers=(201,),
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
