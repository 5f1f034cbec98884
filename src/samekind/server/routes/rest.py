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

from samekind.data.readers.image_decoder import decode_image, read_image_header
from samekind.errors import DataError, RequestError
from samekind.server import summaries
from samekind.server.app_state import AppState
from samekind.server.inference.active_model import ActiveModel
from samekind.server.inference.predictions import Predictions
from samekind.server.routes.items import ID
from samekind.server.routing import ParsedRequest, Route
from samekind.server.session import Session
from samekind.server.shapes import Fields, ListOf, Number, Text, Whole
from samekind.server.store import label_classes

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
class ModelOutputs:
    """Probabilities f (n, C) and features z (n, d) of some things."""

    f: npt.NDArray[np.float32]
    z: npt.NDArray[np.float32]


def about(state: AppState, request: ParsedRequest) -> Any:
    """What the model takes and what it tells apart; before the first one, nothing yet."""
    session, predictions = state.session, state.session.predictions
    names = label_classes.names(session.store)
    return {
        "run": session.name,
        "model_version": predictions.version or None,
        "takes": "image" if session.encoding.kind == "images" and session.encoding.dtype == "uint8" else "row",
        "shape": list(session.encoding.shape),
        "classes": [names[c] for c in predictions.class_ids],
        "n_items": len(predictions),
    }


def predict(state: AppState, request: ParsedRequest) -> Any:
    """Class and probabilities of each thing."""
    session, active_model = state.session, state.session.active_model()
    seen = look(session, active_model, request.body["things"])
    names = label_classes.names(session.store)
    classes = [names[c] for c in active_model.predictions.class_ids]
    found = []
    for f in seen.f:
        best = int(f.argmax())
        shares = {name: round(float(p), 6) for name, p in zip(classes, f, strict=True)}
        found.append({"label": classes[best], "confidence": shares[classes[best]], "probabilities": shares})
    return {"results": found, "model_version": active_model.predictions.version}


def neighbours(state: AppState, request: ParsedRequest) -> Any:
    """The items of the run most alike to each thing."""
    session, active_model = state.session, state.session.active_model()
    things = request.body["things"]
    seen = look(session, active_model, things)
    alike = active_model.loaded.alike(active_model.predictions)
    names = label_classes.names(session.store)
    predictions = []
    for thing, z in zip(things, seen.z, strict=True):
        found = alike.nearest(z, request.body.get("k", 9), without=thing.get("id"))
        predictions.append([_told(session, active_model.predictions, i, names) | {"sim": round(W, 6)} for i, W in found])
    return {"results": predictions, "model_version": active_model.predictions.version}


def _told(session: Session, predictions: Predictions, item: int, names: dict[int, str]) -> dict[str, Any]:
    label, pred = int(session.store.states.class_id[item]), int(predictions.pred[item])
    return {"id": item, "path": summaries.readable(session.store.names[item]), "label": names.get(label), "pred": names[pred]}


def similarity(state: AppState, request: ParsedRequest) -> Any:
    """How surely each thing of `a` and each of `b` are of the same kind, in [0, 1]."""
    from samekind.server.inference.item_search import similarity_of

    session, active_model = state.session, state.session.active_model()
    a = look(session, active_model, request.body["a"])
    b = a if "b" not in request.body else look(session, active_model, request.body["b"])
    W = similarity_of(active_model.model, a.z, b.z)
    return {"similarity": np.round(W.astype(np.float64), 6).tolist(), "model_version": active_model.predictions.version}


# ---------------------------------------------------------------- things


def look(session: Session, active_model: ActiveModel, things: Sequence[dict[str, Any]]) -> ModelOutputs:
    """What the model says of things; items of the run are not looked at again."""
    active_model.require_model()
    predictions = active_model.predictions
    f = np.empty((len(things), len(predictions.class_ids)), dtype=np.float32)
    z = np.empty((len(things), predictions.z.shape[1]), dtype=np.float32)
    new: list[tuple[int, npt.NDArray[Any]]] = []
    for place, thing in enumerate(things):
        if len(thing) != 1:
            raise RequestError(422, f"things[{place}] has {len(thing)} of id, image and row; expected one.")
        if "id" in thing:
            summaries.require_items(predictions, [thing["id"]])
            f[place], z[place] = predictions.f[thing["id"]], predictions.z[thing["id"]]
        else:
            new.append((place, _picture(session, thing["image"]) if "image" in thing else _row(session, thing["row"])))
    if new:
        places = [place for place, _ in new]
        try:
            z[places] = features = active_model.model.transform(np.stack([x for _, x in new]))
            shares = active_model.model.predict_proba_from_features(features)
            f[places] = predictions.in_classes(shares)
        except DataError as error:
            raise RequestError(422, str(error)) from error
    return ModelOutputs(f, z)


def _row(session: Session, values: list[float]) -> npt.NDArray[Any]:
    if session.encoding.kind != "vectors":
        raise RequestError(422, "This model was fitted on pictures. Send 'image', a picture file in base64.")
    if len(values) != session.encoding.shape[0]:
        raise RequestError(
            422, f"A row of {len(values)} numbers was sent; the model was fitted on {session.encoding.shape[0]}."
        )
    return np.asarray(values, dtype=np.float64)


def _picture(session: Session, text: str) -> npt.NDArray[Any]:
    """Decoded as for training. It passes through a file, as all pictures do."""
    shape = session.encoding.shape
    if session.encoding.kind != "images" or session.encoding.dtype != "uint8" or len(shape) != 3 or shape[2] not in (1, 3):
        raise RequestError(422, "This model was not fitted on picture files. Send 'row', a list of numbers.")
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(422, "'image' is not base64.") from error
    with tempfile.TemporaryDirectory(prefix="samekind-") as folder:
        path = Path(folder) / "sent"
        path.write_bytes(blob)
        head = read_image_header(path)
        if isinstance(head, str):
            raise RequestError(422, f"The picture cannot be read: {head}.")
        if head.width * head.height > MOST_PIXELS:
            raise RequestError(422, f"The picture has {head.width} x {head.height} pixels; at most {MOST_PIXELS} are taken.")
        pixels = decode_image(path, (shape[0], shape[1], shape[2]))
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
