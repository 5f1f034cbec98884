"""What the page asks of the model: what is alike, one item in full, refits and the models they made."""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.responses import JSONResponse, Response

from samekind.errors import RequestError
from samekind.manifest import read_predictions_manifest
from samekind.server import views
from samekind.server.answers import Answers
from samekind.server.desk import Desk
from samekind.server.endpoints import ID
from samekind.server.page import Page
from samekind.server.routes import Call, Route
from samekind.server.shapes import Fields, ListOf, Number, OneOf, Text, Whole

NEAREST = 6  # labelled items that say why


def most_alike(desk: Desk, call: Call) -> Any:
    """The items most alike to some, and not to others; `by` says what that means."""
    page, body, in_use = desk.page, call.body, desk.page.in_use()
    n = len(in_use.answers)
    ids, not_ids = body["ids"], body.get("not_ids", [])
    views.require_items(in_use.answers, [*ids, *not_ids])
    status = page.store.states.first(n).status
    only = body.get("only", "all")
    among = {"all": np.ones(n, dtype=bool), "unlabelled": status == 0, "labelled": status == 1}[only]
    alike = in_use.alike
    least = {"min_sim": body["min_sim"]} if "min_sim" in body else {}
    found, exact = alike.similar(ids, not_ids, among, body.get("k", 60), **least)
    results = [{"id": i, "sim": round(W, 5)} for i, W in found]
    return {"results": results, "model_version": in_use.answers.version, "exact": exact, "by": alike.by}


def item(desk: Desk, call: Call) -> Any:
    """All about one item: probabilities, the labelled items it is most alike to, and what was ever said of it."""
    from samekind.server.alike import nearest_of

    page, number, in_use = desk.page, call.path["id"], desk.page.in_use()
    answers, before = in_use.answers, in_use.before
    about = views.of_item(page, answers, number)
    labelled = page.store.states.first(len(answers)).status == 1
    found = nearest_of(in_use.model, answers, number, labelled, NEAREST) if answers.trained else []
    nearest = [{**_short(page, answers, i), "sim": round(W, 5)} for i, W in found]
    previous = None
    if before is not None and number < len(before):
        previous = {
            "version": before.version,
            "pred": int(before.pred[number]),
            "conf": round(float(before.confidence[number]), 5),
        }
    size = page.size(number)
    more = {"top5": answers.top(number, 5), "nearest": nearest, "events": page.store.history(number), "previous": previous}
    return {**about, **more, "w": size[0] if size else None, "h": size[1] if size else None}


def _short(page: Page, answers: Answers, number: int) -> dict[str, Any]:
    about = views.of_item(page, answers, number)
    return {name: about[name] for name in ("id", "label", "path", "v")}


# ---------------------------------------------------------------- refits


def fit(desk: Desk, call: Call) -> Response:
    return JSONResponse(desk.jobs.start(call.body.get("mode", "full")).to_json(), 202)


def job(desk: Desk, call: Call) -> Any:
    return {"state": "idle"} if desk.jobs.job is None else desk.jobs.job.to_json()


def cancel(desk: Desk, call: Call) -> Any:
    return desk.jobs.cancel(call.path["job"]).to_json()


def models(desk: Desk, call: Call) -> Any:
    page = desk.page
    listed = []
    for version in page.models():
        words = read_predictions_manifest(page.folder / f"model-{version}")
        known = {name: words.get(name) for name in ("created", "labels_seq", "mode", "metrics")}
        listed.append({"version": version, "active": version == page.answers.version, **known})
    return {"models": listed}


def activate(desk: Desk, call: Call) -> Any:
    from samekind.server.jobs import what_changed

    if desk.jobs.job is not None and desk.jobs.job.state == "running":
        raise RequestError(
            409, "A refit is running; it will be taken into use. Cancel it, or wait.", job=desk.jobs.job.to_json()
        )
    desk.page.activate(call.path["version"])
    return {"model": views.of_model(desk.page, desk.page.answers), "changed": what_changed(desk.page)}


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
        answers=(202, 409),
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
