"""Routes for the run: login, summary, audit and map."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from starlette.datastructures import Headers
from starlette.responses import Response
from typing_extensions import TypedDict

from samekind.files.manifest import read_model_manifest
from samekind.project.run_folder import active_model_dir
from samekind.server.inference.audit import AuditResult, audit_accuracy
from samekind.server.inference.ranking import BASELINE_SORTS, SORTS, STATUS_FILTERS
from samekind.server.jobs.instant_refits import InstantRefits, InstantState
from samekind.server.jobs.refit_jobs import JobState, RefitJobs
from samekind.server.routing import BINARY, Router, binary_response
from samekind.server.schemas import RequestModel, Text
from samekind.server.security import Credentials
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.store.batches import BatchSummary
from samekind.server.summaries import ClassSummary, ModelSummary, summarize_classes, summarize_model
from samekind.server.unlabelled_project import describe_missing_labels

MAX_LOGIN_BYTES = 4096

router = Router()


class LoginRequest(RequestModel):
    """Request to log in, with the token in the link that the terminal shows."""

    token: Annotated[Text, Field(min_length=1, max_length=200)]


class RunSummary(TypedDict):
    """Summary of the run: its classes, the active model, the audit and the refit."""

    name: str
    kind: Literal["images", "rows", "texts"]
    n_total: int
    n_labelled: int
    n_skipped: int
    classes: list[ClassSummary]
    model: ModelSummary
    last_seq: int
    read_only: bool
    can_undo: BatchSummary | None
    can_redo: BatchSummary | None
    sorts: list[str]
    statuses: list[str]
    missing: str | None
    audit: AuditResult | None
    job: JobState | None
    map: str
    instant: InstantState


class ColumnNote(TypedDict):
    """One column of a table: its name, whether it is used, and a sentence on what became of it."""

    name: str
    used: bool
    note: str


class ColumnNotes(TypedDict):
    """Columns of the table that the active model was fitted on; empty if it was fitted on other data."""

    columns: list[ColumnNote]


class AuditRequest(RequestModel):
    """Request to set whether refits may use audited labels."""

    use_for_training: bool


class InstantRequest(RequestModel):
    """Request to set whether the predictions are updated after every label, without a refit."""

    on: bool


class AuditSetting(TypedDict):
    """The audit, and whether refits may use its labels."""

    audit: AuditResult | None
    in_training: bool


@router.post(
    "/api/login",
    "Exchange the token of the link for a login cookie, which is valid under the path in the header Location",
    public=True,
    status=204,
    max_bytes=MAX_LOGIN_BYTES,
)
def log_in(credentials: Credentials, session: Session, body: LoginRequest) -> Response:
    value = credentials.log_in(body.token)
    session.warm_up()
    response = Response(status_code=204, headers={"location": credentials.page_path})
    response.set_cookie(credentials.cookie, value, httponly=True, samesite="strict", path=credentials.page_path)
    return response


@router.get("/api/run", "The run, its classes, the active model, the audit and the refit")
def show_run(session: Session, refits: RefitJobs, instant: InstantRefits) -> RunSummary:
    store, predictions, job = session.store, session.predictions, refits.job
    store.refresh()
    states = store.states.first(len(predictions))
    labels = {} if predictions.trained else label_classes.training_labels(store, store.labels())
    return {
        "name": session.name,
        "kind": "rows" if session.encoding.kind == "vectors" else session.encoding.kind,
        "n_total": len(predictions),
        "n_labelled": int((states.status == 1).sum()),
        "n_skipped": int((states.status == 2).sum()),
        "classes": summarize_classes(session, predictions),
        "model": summarize_model(session, predictions),
        "last_seq": store.last_seq,
        "read_only": session.read_only,
        "can_undo": store.batch(store.undo_log.last()),
        "can_redo": store.batch(store.undo_log.last_undone()),
        "sorts": list(SORTS if predictions.trained else BASELINE_SORTS),
        "statuses": list(STATUS_FILTERS),
        "missing": None if predictions.trained else describe_missing_labels(store, labels),
        "audit": audit_accuracy(session),
        "job": None if job is None else job.to_json(),
        "map": session.map_layout(),
        "instant": instant.to_json(),
    }


@router.get("/api/columns", "What the active model made of each column of its table")
def show_columns(session: Session) -> ColumnNotes:
    folder = active_model_dir(session.run)
    table = read_model_manifest(folder)["input"].get("table") if (folder / "model.json").exists() else None
    plans = [] if table is None else table["columns"]
    return {"columns": [{"name": one["name"], "used": one["role"] != "dropped", "note": one["note"]} for one in plans]}


@router.post("/api/instant", "Set whether the predictions follow every label", writes=True)
def set_instant(instant: InstantRefits, body: InstantRequest) -> InstantState:
    instant.switch(on=body.on)
    return instant.to_json()


@router.post("/api/audit", "Set whether a fit may use audited labels", writes=True)
def set_audit(session: Session, body: AuditRequest) -> AuditSetting:
    session.store.set_meta(label_classes.AUDIT_KEY, "yes" if body.use_for_training else "no")
    return {"audit": audit_accuracy(session), "in_training": body.use_for_training}


@router.get("/api/map", "Position of every item on the map: pairs of float32 in [0, 1], little-endian", media_type=BINARY)
def show_map(session: Session, headers: Headers) -> Response:
    session.warm_up()
    predictions = session.predictions
    points, layout = session.map(predictions)
    return binary_response(points.tobytes(), headers, {"x-model-version": str(predictions.version), "x-layout": layout})
