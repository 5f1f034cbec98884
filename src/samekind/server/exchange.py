"""What the page gives away and takes in: exports, imports, the audit and the map."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response, StreamingResponse

from samekind.server import audit, exports, imports, views
from samekind.server.desk import Desk
from samekind.server.endpoints import NUMBERS, REQUEST_ID, unless_known
from samekind.server.kinds import AUDIT_KEY
from samekind.server.routes import Call, Route
from samekind.server.shapes import Fields, Flag, OneOf, Text

IMPORT_LIMIT = 50 << 20


def export(desk: Desk, call: Call) -> Response:
    """A file with labels, predictions or both."""
    wanted = call.query.get("format", "csv")
    _, kind, name = exports.FORMATS[wanted]
    what, scope = call.query.get("what", "labels"), call.query.get("scope", "all")
    blobs = exports.exported(desk.page, wanted, what, scope, call.query.get("url_prefix", ""))
    first = next(blobs, b"")  # an export that is refused is refused before it begins

    def all_of_it() -> Any:
        yield first
        yield from blobs

    return StreamingResponse(all_of_it(), media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})


def take_in(desk: Desk, call: Call) -> Any:
    """Reads labels from a file; with dry_run only says what would come of it."""
    lines = imports.lines_of(call.query.get("format", "csv"), call.body)
    result = imports.report(desk.page, lines, overwrite=call.query.get("overwrite", False))
    answer = {**result.to_json(), "dry_run": call.query.get("dry_run", False), "outcome": None}
    if not answer["dry_run"]:
        outcome = imports.write(desk.page, result, call.query.get("request_id"))
        answer["outcome"] = {**outcome, "items": outcome["items"][:500]}
    return answer


def set_audit(desk: Desk, call: Call) -> Any:
    """Whether audited items may be learned from."""
    desk.page.store.set_meta(AUDIT_KEY, "yes" if call.body["use_for_training"] else "no")
    return {"audit": audit.of_page(desk.page), "in_training": call.body["use_for_training"]}


def show_map(desk: Desk, call: Call) -> Response:
    """x and y of every item, in [0, 1]."""
    desk.wake()
    answers = desk.page.answers
    points, kind = desk.page.map(answers)
    return unless_known(points.tobytes(), call, {"x-model-version": str(answers.version), "x-layout": kind})


def run(desk: Desk, call: Call) -> Any:
    """The run with its audit, its job, and which map there is."""
    job = desk.jobs.job
    desk.page.store.refresh()
    more = {"audit": audit.of_page(desk.page), "job": None if job is None else job.to_json(), "map": desk.page.map_kind()}
    return {**views.of_run(desk.page), **more}


ROUTES = [
    Route("GET", "/api/run", run, "The run, its classes, the model in use, the audit and the refit"),
    Route(
        "GET",
        "/api/export",
        export,
        "Labels, predictions or both as a file",
        Fields(
            {
                "format": OneOf(tuple(exports.FORMATS)),
                "what": OneOf(exports.WHAT),
                "scope": OneOf(exports.SCOPES),
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
