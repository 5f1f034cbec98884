"""Export of labels and predictions. In all formats, an item is named by its path relative to the data."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from samekind.errors import DataError, RequestError, SettingError, did_you_mean
from samekind.files.io import write_output
from samekind.server.inference.active_model import NO_MODEL
from samekind.server.inference.predictions import Predictions
from samekind.server.media.data_files import open_data_file, stat_data_file
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.store.batches import ItemStates
from samekind.server.summaries import readable

ExportFormat = Literal["csv", "csv-spreadsheet", "jsonl", "imagefolder", "labelstudio", "fiftyone"]
Content = Literal["labels", "predictions", "both"]
Scope = Literal["all", "labelled", "unlabelled", "skipped"]
COLUMNS = ("path", "label", "status", "source", "labelled_at", "pred", "confidence", "margin", "model")
PREDICTED = COLUMNS[5:]
# Characters with which a formula begins: a spreadsheet evaluates a cell that starts with one of = + - @. Also their wide and
# small forms, which the Unicode form NFKC makes equal to them.
FORMULA_STARTS = r"=+\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u207c\u208c\u207a\u208a\u2212\ufb29"
# characters that some programs skip at the beginning of a cell
INVISIBLE = r"\s\x00-\x1f\x7f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
FORMULA = re.compile(  # all places where a formula can begin: at the start, or where a program may split the cell
    rf"""^(?=[\t\r\n]|[{INVISIBLE}"]*[{FORMULA_STARTS}])|(?<=[;,|\t\r\n"])(?=[{INVISIBLE}]*[{FORMULA_STARTS}])"""
)
CHUNK = 500  # number of rows that are sent at a time
MAX_LISTED = 20  # largest number of missing files that an error names

Row = dict[str, Any]


def rows(session: Session, predictions: Predictions, what: str, scope: str) -> Iterator[Row]:
    """Yield one row for each item in the scope: its `id`, its path, and the columns that `what` selects."""
    names = label_classes.names(session.store)
    labels = {row["id"]: row for row in session.store.labels()}
    for item in _in_scope(session.store.states.first(len(predictions)), scope):
        label = labels.get(item, {})
        row: Row = {"id": item, "path": session.store.names[item]}
        if what != "predictions":
            row["label"] = names.get(label.get("class_id", -1), "")
            row["status"] = label.get("status") or "unlabelled"
            row["source"], row["labelled_at"] = label.get("source") or "", label.get("ts") or ""
        if what != "labels" and not predictions.trained:
            row.update(dict.fromkeys(PREDICTED, ""))
        elif what != "labels":
            row["pred"] = names[int(predictions.pred[item])]
            row["confidence"], row["margin"] = (
                f"{float(value[item]):.5f}" for value in (predictions.confidence, predictions.margin)
            )
            row["model"] = predictions.version
        yield row


def _in_scope(states: ItemStates, scope: str) -> list[int]:
    status = states.status
    chosen = {"all": status >= 0, "labelled": status == 1, "unlabelled": status == 0, "skipped": status == 2}[scope]
    return [int(i) for i in np.flatnonzero(chosen)]


# ---------------------------------------------------------------- formats of an export


def as_csv(session: Session, what: str, scope: str, **_: Any) -> Iterator[bytes]:
    """Yield a CSV file in which all values are unchanged, so that it can be imported again."""
    return _csv(session, what, scope, lambda cell: cell)


def as_spreadsheet(session: Session, what: str, scope: str, **_: Any) -> Iterator[bytes]:
    """Yield a CSV file of which a spreadsheet evaluates no cell as a formula. It begins with the byte order mark of UTF-8."""
    yield b"\xef\xbb\xbf"
    yield from _csv(session, what, scope, escape_formula)


def escape_formula(cell: Any) -> Any:
    """Return a cell in a form that spreadsheets read as text, not as a formula, even if they split it at a semicolon or
    line break.
    """
    return FORMULA.sub("'", cell) if isinstance(cell, str) else cell


def _csv(session: Session, what: str, scope: str, cell: Callable[[Any], Any], first: str = "path") -> Iterator[bytes]:
    columns = [name for name in COLUMNS if what == "both" or name == "path" or (name in PREDICTED) == (what == "predictions")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([first, *columns[1:]])
    for number, row in enumerate(rows(session, session.predictions, what, scope)):
        writer.writerow([cell(row[name]) for name in columns])
        if number % CHUNK == CHUNK - 1:
            yield _drain(text)
    yield _drain(text)


def _drain(text: io.StringIO) -> bytes:
    blob = text.getvalue().encode("utf-8", "surrogateescape")
    text.seek(0)
    text.truncate()
    return blob


def as_imagefolder(session: Session, what: str, scope: str, **_: Any) -> Iterator[bytes]:
    """Yield the file metadata.csv of a Hugging Face image folder, which belongs beside the images."""
    return _csv(session, what, scope, lambda cell: cell, first="file_name")


def as_jsonl(session: Session, what: str, scope: str, **_: Any) -> Iterator[bytes]:
    """Yield a line of JSON for each item, with its five most probable classes and all its events."""
    names, predictions = label_classes.names(session.store), session.predictions
    for row in rows(session, predictions, what, scope):
        if what != "labels" and predictions.trained:
            row["top"] = [[names[c], p] for c, p in predictions.top(row["id"], 5)]
            row["confidence"], row["margin"] = float(row["confidence"]), float(row["margin"])
        elif what != "labels":
            row.update(dict.fromkeys(PREDICTED), top=[])
        if what != "predictions":
            row["events"] = [_named(event, names) for event in reversed(session.store.history(row["id"]))]
        del row["id"]
        yield (json.dumps(row) + "\n").encode()


def _named(event: Mapping[str, Any], names: Mapping[int, str]) -> Row:
    known = ("seq", "ts", "kind", "source", "batch")
    return {name: event[name] for name in known} | {
        "from": names.get(event["old_class"]) or event["old_status"],
        "to": names.get(event["new_class"]) or event["new_status"],
    }


def as_label_studio(session: Session, what: str, scope: str, *, url_prefix: str = "") -> Iterator[bytes]:
    """Yield Label Studio tasks with labels and predictions.

    Their labelling config must have <Choices name="choice" toName="image">, and for texts toName="text".
    """
    kind = "image" if session.texts is None else "text"
    yield b"["
    for number, row in enumerate(rows(session, session.predictions, what, scope)):
        shown = url_prefix + row["path"] if session.texts is None else session.texts.full(row["id"])
        task: Row = {"data": {kind: shown, "path": row["path"]}}
        if row.get("status") == "labelled":
            task["annotations"] = [{"result": [_choice(row["label"], kind)]}]
        if row.get("status") == "skipped":
            task["annotations"] = [{"was_cancelled": True, "result": []}]
        if row.get("pred"):
            model = f"samekind-{row['model']}"
            task["predictions"] = [
                {"model_version": model, "score": float(row["confidence"]), "result": [_choice(row["pred"], kind)]}
            ]
        yield (b"," if number else b"") + b"\n" + json.dumps(task).encode()
    yield b"\n]\n"


def _choice(label: str, kind: str) -> Row:
    return {"from_name": "choice", "to_name": kind, "type": "choices", "value": {"choices": [label]}}


def as_fiftyone(session: Session, what: str, scope: str, **_: Any) -> Iterator[bytes]:
    """Yield the file labels.json of a FiftyOneImageClassificationDataset: {path without suffix: label or null}."""
    labels: dict[str, Any] = {}
    paths: dict[str, str] = {}
    for row in rows(session, session.predictions, what, scope):
        key = str(Path(row["path"]).with_suffix(""))
        if key in labels:
            raise RequestError(
                409,
                f"{paths[key]!r} and {row['path']!r} differ in their suffix only, which FiftyOne ignores. Use CSV.",
            )
        paths[key] = row["path"]
        labels[key] = _classification(row)
    classes = sorted({one["label"] for one in labels.values() if one is not None})
    yield (json.dumps({"classes": classes, "labels": labels}, indent=1) + "\n").encode()


def _classification(row: Row) -> Row | None:
    if row.get("label"):
        return {"label": row["label"]}
    return {"label": row["pred"], "confidence": float(row["confidence"])} if row.get("pred") else None


# {format: (function that yields the file, media type, file name)}
FORMATS: dict[ExportFormat, tuple[Callable[..., Iterator[bytes]], str, str]] = {
    "csv": (as_csv, "text/csv; charset=utf-8", "labels.csv"),
    "csv-spreadsheet": (as_spreadsheet, "text/csv; charset=utf-8", "labels-spreadsheet.csv"),
    "jsonl": (as_jsonl, "application/x-ndjson", "labels.jsonl"),
    "imagefolder": (as_imagefolder, "text/csv; charset=utf-8", "metadata.csv"),
    "labelstudio": (as_label_studio, "application/json", "labelstudio.json"),
    "fiftyone": (as_fiftyone, "application/json", "labels.json"),
}


# ---------------------------------------------------------------- exports for the server and the command line


def export(session: Session, format: ExportFormat, what: Content, scope: Scope, url_prefix: str = "") -> Iterator[bytes]:
    """Return an export in chunks; raise RequestError if only predictions are requested and there is no model."""
    if what == "predictions":
        session.active_model.require_trained()
    return FORMATS[format][0](session, what, scope, url_prefix=url_prefix)


def write_file(run: Path, out: Path, format: str, what: str, scope: str, url_prefix: str) -> None:
    """Write an export to a file. This also works while a server on the same run is running."""
    _require_choice("format", format, ExportFormat)
    _require_choice("what", what, Content)
    _require_choice("scope", scope, Scope)
    with closing(Session(run, read_only=True)) as session:
        try:
            chunks = export(session, cast(ExportFormat, format), cast(Content, what), cast(Scope, scope), url_prefix)
            blob = b"".join(chunks)
        except RequestError as error:
            raise DataError(error.detail) from error
    write_output(out, blob, DataError)


def copy_images(run: Path, out: Path, what: str, *, link: bool = False) -> int:
    """Copy the images of a run to `out`, into one folder for each class; return the number of copied images."""
    _require_choice("what", what, Content)
    with closing(Session(run, read_only=True)) as session:
        if what == "predictions" and not session.predictions.trained:
            raise DataError(NO_MODEL)
        return copy_tree(session, out, what, link=link)


def copy_tree(session: Session, out: Path, what: str = "labels", *, link: bool = False) -> int:
    """Copy images to `out`, or link them, into one folder for each class and with their own relative paths; return how many.

    If files are missing, all others are copied, and then DataError is raised with the names of the missing files.
    """
    root = session.root
    if root is None:
        raise DataError(
            f"the data of {session.run} is not a folder of images, so there are no files to copy. Export a CSV file instead."
        )
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} is not empty. Choose a folder that is empty or does not exist.")
    n, missing = 0, []
    folders = _folder_names(session)
    for row in rows(session, session.predictions, what, "all"):
        label = row.get("label") or (row.get("pred") if row.get("status") != "skipped" else None)
        if not label:
            continue
        try:
            _copy_file(root, row["path"], out / folders[label] / row["path"], link=link)
            n += 1
        except RequestError:
            missing.append(readable(row["path"]))
    if missing:
        listed = ", ".join(missing[:MAX_LISTED]) + (", ..." if len(missing) > MAX_LISTED else "")
        raise DataError(
            f"{len(missing)} of {n + len(missing)} files do not exist any more below {root}: {listed}. The other {n} "
            f"are in {out}. To get all files, put the missing ones back and copy into an empty folder."
        )
    return n


def _copy_file(root: Path, name: str, target: Path, *, link: bool) -> None:
    """Copy a file from the folder of the data with its time and permissions; with `link`, create a link to it instead."""
    if link:
        stat_data_file(root, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to((root / name).resolve())
        return
    with open_data_file(root, name) as source:
        about = os.fstat(source.fileno())
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as copy:
            shutil.copyfileobj(source, copy)
    target.chmod(stat.S_IMODE(about.st_mode))
    os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))


def _folder_names(session: Session) -> dict[str, str]:
    """Return {class name: folder name}. Characters that are not allowed are replaced, and folder names are unique."""
    folders: dict[str, str] = {}
    for name in label_classes.names(session.store).values():
        folder = "".join("_" if letter in '/\\:*?"<>|' or ord(letter) < 32 else letter for letter in name).strip(" .") or "_"
        while folder.casefold() in {other.casefold() for other in folders.values()}:
            folder += "_"
        folders[name] = folder
    return folders


def _require_choice(option: str, value: str, choices: Any) -> None:
    if value not in get_args(choices):
        raise SettingError(f"--{option} {value} is unknown; {did_you_mean(value, get_args(choices))}")
