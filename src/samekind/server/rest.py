"""For other programs: predictions, similarities and neighbours of items, uploaded pictures or rows of numbers."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.pictures import look_at, read_picture
from samekind.errors import DataError, RequestError
from samekind.server import kinds, views
from samekind.server.answers import Answers
from samekind.server.desk import Desk
from samekind.server.endpoints import ID
from samekind.server.in_use import InUse
from samekind.server.page import Page
from samekind.server.routes import Call, Route
from samekind.server.shapes import Fields, ListOf, Number, Text, Whole

LIMIT = 32 << 20  # bytes of a request
MOST_THINGS = 64
MOST_PIXELS = 50_000_000  # of an uploaded picture
WIDEST = 100_000  # numbers of a row

ANY_NUMBER = Number(-1e30, 1e30)
THING = Fields(
    {
        "id": ID,
        "image": Text(LIMIT, 1, "a picture file, in base64"),
        "row": ListOf(ANY_NUMBER, WIDEST, 1, "numbers, as many as the model was fitted on"),
    },
    says="one of: an item of the run, a picture, a row of numbers",
)
THINGS = ListOf(THING, MOST_THINGS, 1)


@dataclass(frozen=True)
class Seen:
    """Probabilities f (n, C) and features z (n, d) of some things."""

    f: npt.NDArray[np.float32]
    z: npt.NDArray[np.float32]


def about(desk: Desk, call: Call) -> Any:
    """What the model takes and what it tells apart; before the first one, nothing yet."""
    page, answers = desk.page, desk.page.answers
    names = kinds.names(page.store)
    return {
        "run": page.name,
        "model_version": answers.version or None,
        "takes": "image" if page.encoding.kind == "images" and page.encoding.dtype == "uint8" else "row",
        "shape": list(page.encoding.shape),
        "classes": [names[c] for c in answers.class_ids],
        "n_items": len(answers),
    }


def predict(desk: Desk, call: Call) -> Any:
    """Class and probabilities of each thing."""
    page, in_use = desk.page, desk.page.in_use()
    seen = look(page, in_use, call.body["things"])
    names = kinds.names(page.store)
    classes = [names[c] for c in in_use.answers.class_ids]
    found = []
    for f in seen.f:
        best = int(f.argmax())
        shares = {name: round(float(p), 6) for name, p in zip(classes, f, strict=True)}
        found.append({"label": classes[best], "confidence": shares[classes[best]], "probabilities": shares})
    return {"results": found, "model_version": in_use.answers.version}


def neighbours(desk: Desk, call: Call) -> Any:
    """The items of the run most alike to each thing."""
    page, in_use = desk.page, desk.page.in_use()
    things = call.body["things"]
    seen = look(page, in_use, things)
    alike = in_use.loaded.alike(in_use.answers)
    names = kinds.names(page.store)
    answers = []
    for thing, z in zip(things, seen.z, strict=True):
        found = alike.nearest(z, call.body.get("k", 9), without=thing.get("id"))
        answers.append([_told(page, in_use.answers, i, names) | {"sim": round(W, 6)} for i, W in found])
    return {"results": answers, "model_version": in_use.answers.version}


def _told(page: Page, answers: Answers, item: int, names: dict[int, str]) -> dict[str, Any]:
    label, pred = int(page.store.states.class_id[item]), int(answers.pred[item])
    return {"id": item, "path": views.readable(page.store.names[item]), "label": names.get(label), "pred": names[pred]}


def similarity(desk: Desk, call: Call) -> Any:
    """How surely each thing of `a` and each of `b` are of the same kind, in [0, 1]."""
    from samekind.server.alike import similarity_of

    page, in_use = desk.page, desk.page.in_use()
    a = look(page, in_use, call.body["a"])
    b = a if "b" not in call.body else look(page, in_use, call.body["b"])
    W = similarity_of(in_use.model, a.z, b.z)
    return {"similarity": np.round(W.astype(np.float64), 6).tolist(), "model_version": in_use.answers.version}


# ---------------------------------------------------------------- things


def look(page: Page, in_use: InUse, things: Sequence[dict[str, Any]]) -> Seen:
    """What the model says of things; items of the run are not looked at again."""
    in_use.require_model()
    answers = in_use.answers
    f = np.empty((len(things), len(answers.class_ids)), dtype=np.float32)
    z = np.empty((len(things), answers.z.shape[1]), dtype=np.float32)
    new: list[tuple[int, npt.NDArray[Any]]] = []
    for place, thing in enumerate(things):
        if len(thing) != 1:
            raise RequestError(422, f"things[{place}] has {len(thing)} of id, image and row; expected one.")
        if "id" in thing:
            views.require_items(answers, [thing["id"]])
            f[place], z[place] = answers.f[thing["id"]], answers.z[thing["id"]]
        else:
            new.append((place, _picture(page, thing["image"]) if "image" in thing else _row(page, thing["row"])))
    if new:
        places = [place for place, _ in new]
        try:
            z[places] = features = in_use.model.transform(np.stack([x for _, x in new]))
            shares = in_use.model.features_proba(features)
            f[places] = answers.in_classes(shares)
        except DataError as error:
            raise RequestError(422, str(error)) from error
    return Seen(f, z)


def _row(page: Page, values: list[float]) -> npt.NDArray[Any]:
    if page.encoding.kind != "vectors":
        raise RequestError(422, "This model was fitted on pictures. Send 'image', a picture file in base64.")
    if len(values) != page.encoding.shape[0]:
        raise RequestError(422, f"A row of {len(values)} numbers was sent; the model was fitted on {page.encoding.shape[0]}.")
    return np.asarray(values, dtype=np.float64)


def _picture(page: Page, text: str) -> npt.NDArray[Any]:
    """Decoded as for training. It passes through a file, as all pictures do."""
    shape = page.encoding.shape
    if page.encoding.kind != "images" or page.encoding.dtype != "uint8" or len(shape) != 3 or shape[2] not in (1, 3):
        raise RequestError(422, "This model was not fitted on picture files. Send 'row', a list of numbers.")
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(422, "'image' is not base64.") from error
    with tempfile.TemporaryDirectory(prefix="samekind-") as folder:
        path = Path(folder) / "sent"
        path.write_bytes(blob)
        head = look_at(path)
        if isinstance(head, str):
            raise RequestError(422, f"The picture cannot be read: {head}.")
        if head.width * head.height > MOST_PIXELS:
            raise RequestError(422, f"The picture has {head.width} x {head.height} pixels; at most {MOST_PIXELS} are taken.")
        pixels = read_picture(path, (shape[0], shape[1], shape[2]))
    if isinstance(pixels, str):
        raise RequestError(422, f"The picture cannot be read: {pixels}.")
    return pixels


ROUTES = [
    Route("GET", "/api/v1/model", about, "What the model takes and what it tells apart"),
    Route(
        "POST",
        "/api/v1/predict",
        predict,
        "Class and probabilities of items, pictures or rows",
        body=Fields({"things": THINGS}, ("things",)),
        limit=LIMIT,
    ),
    Route(
        "POST",
        "/api/v1/neighbours",
        neighbours,
        "The items of the run most alike to each thing",
        body=Fields({"things": THINGS, "k": Whole(1, 500)}, ("things",)),
        limit=LIMIT,
    ),
    Route(
        "POST",
        "/api/v1/similarity",
        similarity,
        "How surely two things are of the same kind: a matrix of `a` against `b`, or of `a` against itself",
        body=Fields({"a": THINGS, "b": THINGS}, ("a",)),
        limit=LIMIT,
    ),
]
