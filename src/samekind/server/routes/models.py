"""Routes for models: refits, their progress, and the activation of a model."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from samekind.errors import RequestError
from samekind.files.manifest import read_predictions_manifest
from samekind.server.jobs.refit_jobs import JobState, Mode, PredictionChanges, RefitJobs, count_changes
from samekind.server.routing import Router
from samekind.server.schemas import DIGITS, MAX_INT32, RequestModel, Text
from samekind.server.session import Session
from samekind.server.summaries import ModelSummary, summarize_model

router = Router()


class FitRequest(RequestModel):
    """Request for a refit: how long to train."""

    mode: Annotated[Mode, Field(description="quick: a quarter of the steps")] = "full"


class EmptyRequest(RequestModel):
    """Request without fields."""


class ListedModel(TypedDict):
    """A model of the run, as listed on the page."""

    version: int
    active: bool
    created: str | None
    labels_seq: int | None
    mode: str | None
    metrics: dict[str, Any] | None


class Models(TypedDict):
    """All models of the run, oldest first."""

    models: list[ListedModel]


class Activation(TypedDict):
    """The model that is active now, and how its predictions differ from those of the model that was active before."""

    model: ModelSummary
    changed: PredictionChanges


@router.post(
    "/api/fit", "Start a fit on the current labels; 409 with its progress while one is running", writes=True, status=202
)
def start_fit(refits: RefitJobs, body: FitRequest) -> JobState:
    return refits.start(body.mode).to_json()


@router.get("/api/job", "Progress of the fit")
def show_job(refits: RefitJobs) -> JobState:
    return {"state": "idle"} if refits.job is None else refits.job.to_json()


@router.post("/api/job/{job}/cancel", "Stop the fit", writes=True)
def cancel_job(refits: RefitJobs, job: Annotated[Text, Field(min_length=1, max_length=64)], body: EmptyRequest) -> JobState:
    return refits.cancel(job).to_json()


@router.get("/api/models", "The models of the run")
def list_models(session: Session) -> Models:
    listed: list[ListedModel] = []
    for version in session.models():
        metadata = read_predictions_manifest(session.predictions_dir(version))
        listed.append(
            {
                "version": version,
                "active": version == session.predictions.version,
                "created": metadata.get("created"),
                "labels_seq": metadata.get("labels_seq"),
                "mode": metadata.get("mode"),
                "metrics": metadata.get("metrics"),
            }
        )
    return {"models": listed}


@router.post("/api/models/{version}/activate", "Activate a model", writes=True)
def activate_model(
    session: Session, refits: RefitJobs, version: Annotated[int, Field(ge=1, le=MAX_INT32), DIGITS], body: EmptyRequest
) -> Activation:
    if refits.job is not None and refits.job.state == "running":
        raise RequestError(
            409, "A refit is running, and its model will become active. Cancel it, or wait.", job=refits.job.to_json()
        )
    session.activate(version)
    model = session.active_model
    return {"model": summarize_model(session, model.predictions), "changed": count_changes(model)}
