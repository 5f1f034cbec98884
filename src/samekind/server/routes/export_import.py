"""Routes for the export and the import of labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response, StreamingResponse

from samekind.server.routing import Router
from samekind.server.schemas import QueryFlag, RequestId, RequestModel, Text
from samekind.server.session import Session
from samekind.server.store.batches import BatchOutcome
from samekind.server.transfer import importers
from samekind.server.transfer.exporters import FORMATS, Content, ExportFormat, Scope, export
from samekind.server.transfer.importers import ImportSummary

MAX_IMPORT_BYTES = 50 << 20
MAX_LISTED = 500  # largest number of changed items in the response to an import

router = Router()


class ExportQuery(RequestModel):
    """Query of an export: its format, and what it contains."""

    format: ExportFormat = "csv"
    what: Content = "labels"
    scope: Scope = "all"
    url_prefix: Annotated[
        Text, Field(max_length=200, description="put before paths in Label Studio tasks, such as /data/local-files/?d=")
    ] = ""


class ImportQuery(RequestModel):
    """Query of an import: its format, and what it may change."""

    format: Literal["csv", "jsonl", "labelstudio"] = "csv"
    dry_run: Annotated[QueryFlag, Field(description="only report what would change")] = False
    overwrite: Annotated[QueryFlag, Field(description="also change labels that exist and differ")] = False
    request_id: RequestId | None = None


class ImportResult(ImportSummary):
    """Result of an import. `outcome` is null after a dry run, which changes nothing."""

    dry_run: bool
    outcome: BatchOutcome | None


@router.get("/api/export", "Labels, predictions or both as a file", media_type="*/*")
def export_labels(session: Session, query: ExportQuery) -> Response:
    chunks = export(session, query.format, query.what, query.scope, query.url_prefix)
    first = next(chunks, b"")  # an error must be raised here, before the response begins

    def stream() -> Iterator[bytes]:
        yield first
        yield from chunks

    _, media_type, name = FORMATS[query.format]
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(stream(), media_type=media_type, headers=headers)


@router.post(
    "/api/import",
    "Import labels from a file, matched by path; with dry_run only report",
    max_bytes=MAX_IMPORT_BYTES,
    writes=True,
)
def import_labels(session: Session, query: ImportQuery, body: bytes) -> ImportResult:
    content = hashlib.sha256(f"{query.format} {query.overwrite} ".encode() + body).hexdigest()
    report = importers.compare(session, importers.parse(query.format, body), overwrite=query.overwrite)
    outcome: BatchOutcome | None = None
    if not query.dry_run:
        outcome = importers.write(session, report, query.request_id, content)
        outcome["items"] = outcome["items"][:MAX_LISTED]
    return {**report.to_json(), "dry_run": query.dry_run, "outcome": outcome}
