"""What the page asks of the model: what is alike, one item in full, refits and the models they made."""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.responses import JSONResponse, Response

from samekind.errors import RequestError
from samekind.manifest import read_predictions_manifest
from samekind.server import summaries
from samekind.server.app_state import AppState
from samekind.server.inference.predictions import Predictions
from samekind.server.routes.items import ID
from samekind.server.routing import ParsedRequest, Route
from samekind.server.session import Session
from samekind.server.shapes import Fields, ListOf, Number, OneOf, Text, Whole

NEAREST = 6  # labelled items that say why


def most_alike(state: AppState, request: ParsedRequest) -> Any:
    """The items most alike to some, and not to others; `by` says what that means."""
    session, body, active_model = state.session, request.body, state.session.active_model()
    n = len(active_model.predictions)
    ids, not_ids = body["ids"], body.get("not_ids", [])
    summaries.require_items(active_model.predictions, [*ids, *not_ids])
    status = session.store.states.first(n).status
    only = body.get("only", "all")
    among = {"all": np.ones(n, dtype=bool), "unlabelled": status == 0, "labelled": status == 1}[only]
    alike = active_model.alike
    least = {"min_sim": body["min_sim"]} if "min_sim" in body else {}
    found, exact = alike.similar(ids, not_ids, among, body.get("k", 60), **least)
    results = [{"id": i, "sim": round(W, 5)} for i, W in found]
    return {"results": results, "model_version": active_model.predictions.version, "exact": exact, "by": alike.by}


def item(state: AppState, request: ParsedRequest) -> Any:
    """All about one item: probabilities, the labelled items it is most alike to, and what was ever said of it."""
    from samekind.server.inference.item_search import nearest_of

    session, number, active_model = state.session, request.path["id"], state.session.active_model()
    predictions, before = active_model.predictions, active_model.before
    about = summaries.of_item(session, predictions, number)
    labelled = session.store.states.first(len(predictions)).status == 1
    found = nearest_of(active_model.model, predictions, number, labelled, NEAREST) if predictions.trained else []
    nearest = [{**_short(session, predictions, i), "sim": round(W, 5)} for i, W in found]
    previous = None
    if before is not None and number < len(before):
        previous = {
            "version": before.version,
            "pred": int(before.pred[number]),
            "conf": round(float(before.confidence[number]), 5),
        }
    size = session.size(number)
    more = {
        "top5": predictions.top(number, 5),
        "nearest": nearest,
        "events": session.store.history(number),
        "previous": previous,
    }
    return {**about, **more, "w": size[0] if size else None, "h": size[1] if size else None}


def _short(session: Session, predictions: Predictions, number: int) -> dict[str, Any]:
    about = summaries.of_item(session, predictions, number)
    return {name: about[name] for name in ("id", "label", "path", "v")}


# ---------------------------------------------------------------- refits


def fit(state: AppState, request: ParsedRequest) -> Response:
    return JSONResponse(state.jobs.start(request.body.get("mode", "full")).to_json(), 202)


def job(state: AppState, request: ParsedRequest) -> Any:
    return {"state": "idle"} if state.jobs.job is None else state.jobs.job.to_json()


def cancel(state: AppState, request: ParsedRequest) -> Any:
    return state.jobs.cancel(request.path["job"]).to_json()


def models(state: AppState, request: ParsedRequest) -> Any:
    session = state.session
    listed = []
    for version in session.models():
        words = read_predictions_manifest(session.folder / f"model-{version}")
        known = {name: words.get(name) for name in ("created", "labels_seq", "mode", "metrics")}
        listed.append({"version": version, "active": version == session.predictions.version, **known})
    return {"models": listed}


def activate(state: AppState, request: ParsedRequest) -> Any:
    from samekind.server.jobs.refit_jobs import what_changed

    if state.jobs.job is not None and state.jobs.job.state == "running":
        raise RequestError(
            409, "A refit is running; it will be taken into use. Cancel it, or wait.", job=state.jobs.job.to_json()
        )
    state.session.activate(request.path["version"])
    return {"model": summaries.of_model(state.session, state.session.predictions), "changed": what_changed(state.session)}


ROUTES = [
    Route("GET", "/api/items/{id}", item, "All about one item"),
    Route(
        "POST",
        "/api/similar",
        most_alike,
        "The items most alike: by the learned similarity, or before the first model by the cosine of plain features",
        body=Fields(
            {
                "ids": ListOf(ID, 500, 1),
                "not_ids": ListOf(ID, 500),
                "k": Whole(1, 500),
                "only": OneOf(("all", "unlabelled", "labelled")),
                "min_sim": Number(),
            },
            ("ids",),
        ),
    ),
    Route(
        "POST",
        "/api/fit",
        fit,
        "Learn from the labels as they are now, for the first time or again",
        body=Fields({"mode": OneOf(("quick", "full"), "quick: a quarter of the steps")}),
        writes=True,
        statuses=(202, 409),
    ),
    Route("GET", "/api/job", job, "How far the refit is"),
    Route("POST", "/api/job/{job}/cancel", cancel, "Stop the refit", body=Fields(), writes=True, parts={"job": Text(64, 1)}),
    Route("GET", "/api/models", models, "The models there are"),
    Route(
        "POST",
        "/api/models/{version}/activate",
        activate,
        "Take another model into use",
        body=Fields(),
        writes=True,
        parts={"version": Whole(1)},
    ),
]
