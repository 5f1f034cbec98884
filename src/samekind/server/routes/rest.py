"""API for other programs: predictions, similarities and neighbours of items, and of uploaded images, vectors and texts."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field
from typing_extensions import TypedDict

from samekind.data.readers.image_decoder import decode_image, read_image_header
from samekind.data.texts import text_array
from samekind.errors import DataError, RequestError
from samekind.server.inference.active_model import ActiveModel
from samekind.server.routing import Router
from samekind.server.schemas import ItemId, RequestModel, Text
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.summaries import readable, require_items

MAX_BYTES = 32 << 20  # largest size of a request
MAX_SAMPLES = 64
MAX_PIXELS = 50_000_000  # largest number of pixels of an uploaded image
MAX_FEATURES = 100_000  # largest length of a vector
MAX_CHARACTERS = 1_000_000  # largest number of characters of a text
Number = Annotated[float, Field(ge=-1e30, le=1e30)]
Base64 = Annotated[Text, Field(min_length=1, max_length=MAX_BYTES, description="an image file in base64")]
Vector = Annotated[
    list[Number],
    Field(min_length=1, max_length=MAX_FEATURES, description="numbers, as many as the model was fitted on"),
]

UploadedText = Annotated[Text, Field(max_length=MAX_CHARACTERS)]

router = Router()


class Sample(RequestModel):
    """A sample: exactly one of the id of an item, an image, a vector, and a text."""

    id: ItemId | None = None
    image: Base64 | None = None
    vector: Vector | None = None
    text: UploadedText | None = None


Samples = Annotated[list[Sample], Field(min_length=1, max_length=MAX_SAMPLES)]


class PredictRequest(RequestModel):
    """Request to predict samples."""

    samples: Samples


class NeighborsRequest(RequestModel):
    """Request for the k nearest neighbours of samples."""

    samples: Samples
    k: Annotated[int, Field(ge=1, le=500)] = 9


class SimilarityRequest(RequestModel):
    """Request for the similarities of samples: each of `a` with each of `b`; without `b`, each of `a` with each of `a`."""

    a: Samples
    b: Samples | None = None


class ModelInfo(TypedDict):
    """Input and classes of the active model. `model_version` is null if there is no model yet."""

    run: str
    model_version: int | None
    input: Literal["image", "vector", "text"]
    shape: list[int]
    classes: list[str]
    n_items: int


class Prediction(TypedDict):
    """Prediction for one sample."""

    label: str
    confidence: float
    probabilities: dict[str, float]


class PredictResponse(TypedDict):
    """Predictions, in the order of the samples in the request."""

    results: list[Prediction]
    model_version: int


class SimilarSample(TypedDict):
    """An item of the run that is similar to a sample."""

    id: int
    path: str
    label: str | None
    pred: str
    similarity: float


class NeighborsResponse(TypedDict):
    """Neighbours of each sample of the request, most similar first."""

    results: list[list[SimilarSample]]
    model_version: int


class SimilarityResponse(TypedDict):
    """Similarities in [0, 1], with a row for each sample of `a` and a column for each sample of `b`."""

    similarity: list[list[float]]
    model_version: int


@router.get("/api/v1/model", "Input and classes of the active model")
def show_model(session: Session) -> ModelInfo:
    predictions, encoding = session.predictions, session.encoding
    names = label_classes.names(session.store)
    is_image = encoding.kind == "images" and encoding.dtype == "uint8"
    return {
        "run": session.name,
        "model_version": predictions.version or None,
        "input": "text" if encoding.kind == "texts" else "image" if is_image else "vector",
        "shape": list(encoding.shape),
        "classes": [names[c] for c in predictions.class_ids],
        "n_items": len(predictions),
    }


@router.post("/api/v1/predict", "Classes and probabilities of samples", max_bytes=MAX_BYTES)
def predict(session: Session, body: PredictRequest) -> PredictResponse:
    model = session.active_model
    outputs = run_model(session, model, body.samples)
    names = label_classes.names(session.store)
    classes = [names[c] for c in model.predictions.class_ids]
    results: list[Prediction] = []
    for f in outputs.f:
        label = classes[int(f.argmax())]
        probabilities = {name: round(float(p), 6) for name, p in zip(classes, f, strict=True)}
        results.append({"label": label, "confidence": probabilities[label], "probabilities": probabilities})
    return {"results": results, "model_version": model.predictions.version}


@router.post("/api/v1/neighbors", "The items of the run most similar to each sample", max_bytes=MAX_BYTES)
def find_neighbors(session: Session, body: NeighborsRequest) -> NeighborsResponse:
    model, store = session.active_model, session.store
    outputs = run_model(session, model, body.samples)
    names, pred = label_classes.names(store), model.predictions.pred
    results: list[list[SimilarSample]] = []
    for sample, z in zip(body.samples, outputs.z, strict=True):
        found = model.nearest_to(z, body.k, without=sample.id)
        results.append(
            [
                {
                    "id": item,
                    "path": readable(store.names[item]),
                    "label": names.get(int(store.states.class_id[item])),
                    "pred": names[int(pred[item])],
                    "similarity": round(W, 6),
                }
                for item, W, _ in found
            ]
        )
    return {"results": results, "model_version": model.predictions.version}


@router.post(
    "/api/v1/similarity",
    "Learned similarity, the probability that two samples have the same class: a matrix of `a` against `b`",
    max_bytes=MAX_BYTES,
)
def compare(session: Session, body: SimilarityRequest) -> SimilarityResponse:
    model = session.active_model
    a = run_model(session, model, body.a)
    b = a if body.b is None else run_model(session, model, body.b)
    W = model.similarity(a.z, b.z)
    return {"similarity": np.round(W.astype(np.float64), 6).tolist(), "model_version": model.predictions.version}


# ---------------------------------------------------------------- running the model on samples


@dataclass(frozen=True)
class ModelOutputs:
    """Class probabilities f (n, C) and features z (n, d) of n samples."""

    f: npt.NDArray[np.float32]
    z: npt.NDArray[np.float32]


def run_model(session: Session, model: ActiveModel, samples: Sequence[Sample]) -> ModelOutputs:
    """Return the model's outputs for samples. For items of the run they are stored; uploaded samples need a forward pass."""
    model.require_trained()
    predictions = model.predictions
    f = np.empty((len(samples), len(predictions.class_ids)), dtype=np.float32)
    z = np.empty((len(samples), predictions.z.shape[1]), dtype=np.float32)
    uploads: list[tuple[int, Any]] = []
    for place, sample in enumerate(samples):
        n_given = sum(value is not None for value in (sample.id, sample.image, sample.vector, sample.text))
        if n_given != 1:
            raise RequestError(
                422, f"samples[{place}] has {n_given} of the fields id, image, vector and text; expected exactly one."
            )
        if sample.id is not None:
            require_items(predictions, [sample.id])
            f[place], z[place] = predictions.f[sample.id], predictions.z[sample.id]
        elif sample.image is not None:
            uploads.append((place, decode_upload(session, sample.image)))
        elif sample.vector is not None:
            uploads.append((place, _require_vector(session, sample.vector)))
        elif sample.text is not None:
            uploads.append((place, _require_text(session, sample.text)))
    if uploads:
        places = [place for place, _ in uploads]
        try:
            features = model.fitted.features(_as_one([x for _, x in uploads]))
            z[places] = features.numpy()
            f[places] = predictions.merge_columns(model.fitted.probabilities(features).numpy())
        except DataError as error:
            raise RequestError(422, str(error)) from error
    return ModelOutputs(f, z)


def _as_one(uploads: list[Any]) -> npt.NDArray[Any]:
    return text_array(uploads) if isinstance(uploads[0], str) else np.stack(uploads)


def _require_text(session: Session, text: str) -> str:
    if session.texts is None:
        raise RequestError(422, f"This model was fitted on {session.encoding.kind}, not on texts.")
    return text


def _require_vector(session: Session, values: list[float]) -> npt.NDArray[Any]:
    if session.encoding.kind != "vectors":
        expected = "'text'" if session.texts is not None else "'image', an image file in base64"
        raise RequestError(422, f"This model was fitted on {session.encoding.kind}. Send {expected}.")
    if len(values) != session.encoding.shape[0]:
        raise RequestError(422, f"The vector has {len(values)} numbers; the model was fitted on {session.encoding.shape[0]}.")
    return np.asarray(values, dtype=np.float64)


def decode_upload(session: Session, text: str) -> npt.NDArray[Any]:
    """Return the pixels of an uploaded image.

    It is written to a temporary file and decoded exactly like the training images.
    """
    shape = session.encoding.shape
    if session.encoding.kind != "images" or session.encoding.dtype != "uint8" or len(shape) != 3 or shape[2] not in (1, 3):
        raise RequestError(422, "This model was not fitted on image files. Send 'vector', a list of numbers.")
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(422, "'image' is not base64.") from error
    with tempfile.TemporaryDirectory(prefix="samekind-") as folder:
        path = Path(folder) / "upload"
        path.write_bytes(blob)
        header = read_image_header(path)
        if isinstance(header, str):
            raise RequestError(422, f"The image cannot be read: {header}.")
        if header.width * header.height > MAX_PIXELS:
            raise RequestError(422, f"The image has {header.width} x {header.height} pixels; the limit is {MAX_PIXELS}.")
        pixels = decode_image(path, (shape[0], shape[1], shape[2]))
    if isinstance(pixels, str):
        raise RequestError(422, f"The image cannot be read: {pixels}.")
    return pixels
