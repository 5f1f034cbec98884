"""What the page gives away and takes in: exports, imports, the audit and the map."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response, StreamingResponse

from samekind.server import summaries
from samekind.server.app_state import AppState
from samekind.server.inference import audit
from samekind.server.routes.items import NUMBERS, REQUEST_ID, unless_known
from samekind.server.routing import ParsedRequest, Route
from samekind.server.shapes import Fields, Flag, OneOf, Text
from samekind.server.store.label_classes import AUDIT_KEY
from samekind.server.transfer import exporters, importers

IMPORT_LIMIT = 50 << 20


def export(state: AppState, request: ParsedRequest) -> Response:
    """A file with labels, predictions or both."""
    wanted = request.query.get("format", "csv")
    _, kind, name = exporters.FORMATS[wanted]
    what, scope = request.query.get("what", "labels"), request.query.get("scope", "all")
    blobs = exporters.exported(state.session, wanted, what, scope, request.query.get("url_prefix", ""))
    first = next(blobs, b"")  # an export that is refused is refused before it begins

    def all_of_it() -> Any:
        yield first
        yield from blobs

    return StreamingResponse(all_of_it(), media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})


def take_in(state: AppState, request: ParsedRequest) -> Any:
    """Reads labels from a file; with dry_run only says what would come of it."""
    lines = importers.lines_of(request.query.get("format", "csv"), request.body)
    report = importers.report(state.session, lines, overwrite=request.query.get("overwrite", False))
    answer = {**report.to_json(), "dry_run": request.query.get("dry_run", False), "outcome": None}
    if not answer["dry_run"]:
        result = importers.write(state.session, report, request.query.get("request_id"))
        answer["outcome"] = {**result, "items": result["items"][:500]}
    return answer


def set_audit(state: AppState, request: ParsedRequest) -> Any:
    """Whether audited items may be learned from."""
    state.session.store.set_meta(AUDIT_KEY, "yes" if request.body["use_for_training"] else "no")
    return {"audit": audit.of_page(state.session), "in_training": request.body["use_for_training"]}


def show_map(state: AppState, request: ParsedRequest) -> Response:
    """x and y of every item, in [0, 1]."""
    state.wake()
    predictions = state.session.predictions
    points, kind = state.session.map(predictions)
    return unless_known(points.tobytes(), request, {"x-model-version": str(predictions.version), "x-layout": kind})


def run(state: AppState, request: ParsedRequest) -> Any:
    """The run with its audit, its job, and which map there is."""
    job = state.jobs.job
    state.session.store.refresh()
    more = {
        "audit": audit.of_page(state.session),
        "job": None if job is None else job.to_json(),
        "map": state.session.map_kind(),
    }
    return {**summaries.of_run(state.session), **more}


ROUTES = [
    Route("GET", "/api/run", run, "The run, its classes, the model in use, the audit and the refit"),
    Route(
        "GET",
        "/api/export",
        export,
        "Labels, predictions or both as a file",
        Fields(
            {
                "format": OneOf(tuple(exporters.FORMATS)),
                "what": OneOf(exporters.WHAT),
                "scope": OneOf(exporters.SCOPES),
                "url_prefix": Text(200, 0, "put before paths in Label Studio tasks, such as /data/local-files/?d="),
            }
        ),
        gives="*/*",
    ),
    Route(
        "POST",
        "/api/import",
        take_in,
        "Labels from a file, matched by path; with dry_run only a report",
        Fields(
            {
                "format": OneOf(("csv", "jsonl", "labelstudio")),
                "dry_run": Flag(),
                "overwrite": Flag("also change labels that are there and differ"),
                "request_id": REQUEST_ID,
            }
        ),
        sends_bytes=True,
        limit=IMPORT_LIMIT,
        writes=True,
    ),
    Route(
        "POST",
        "/api/audit",
        set_audit,
        "Whether audited items may be learned from",
        body=Fields({"use_for_training": Flag()}, ("use_for_training",)),
        writes=True,
    ),
    Route("GET", "/api/map", show_map, "Where every item lies on the map: pairs of float32, little-endian", gives=NUMBERS),
]
