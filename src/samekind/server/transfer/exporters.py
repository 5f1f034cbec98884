"""Labels and predictions for other programs. An item is known by its path relative to the data, everywhere."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from samekind.errors import DataError, RequestError, SettingError, did_you_mean
from samekind.io import atomic_write
from samekind.server.inference.predictions import Predictions
from samekind.server.media.thumbnails import file_in
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.store.label_store import ItemStates
from samekind.server.unlabelled_project import NO_MODEL

WHAT = ("labels", "predictions", "both")
SCOPES = ("all", "labelled", "unlabelled", "skipped")
COLUMNS = ("path", "label", "status", "source", "labelled_at", "pred", "confidence", "margin", "model")
PREDICTED = COLUMNS[5:]
FORMULA = ("=", "+", "-", "@", "\t", "\r")
ROWS = 500  # lines that are sent at a time

Row = dict[str, Any]


def rows(session: Session, predictions: Predictions, what: str, scope: str) -> Iterator[Row]:
    """One row for each item of the scope, with the columns of `what`; `id` is there too."""
    names = label_classes.names(session.store)
    held = {row["id"]: row for row in session.store.labels()}
    for item in _in_scope(session.store.states.first(len(predictions)), scope):
        label = held.get(item, {})
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


# ---------------------------------------------------------------- formats


def as_csv(session: Session, what: str, scope: str, **_: Any) -> Iterator[bytes]:
    """Values as they are, so that the file can come back."""
    return _csv(session, what, scope, lambda cell: cell)


def as_spreadsheet(session: Session, what: str, scope: str, **_: Any) -> Iterator[bytes]:
    """With a mark before what a spreadsheet would take for a formula; begins with a sign that it is UTF-8."""
    yield b"\xef\xbb\xbf"
    yield from _csv(session, what, scope, harmless)


def harmless(cell: Any) -> Any:
    """A cell that no spreadsheet runs."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def _csv(session: Session, what: str, scope: str, cell: Callable[[Any], Any], first: str = "path") -> Iterator[bytes]:
    wanted = [name for name in COLUMNS if what == "both" or name == "path" or (name in PREDICTED) == (what == "predictions")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([first, *wanted[1:]])
    for number, row in enumerate(rows(session, session.predictions, what, scope)):
        writer.writerow([cell(row[name]) for name in wanted])
        if number % ROWS == ROWS - 1:
            yield _taken(text)
    yield _taken(text)


def _taken(text: io.StringIO) -> bytes:
    blob = text.getvalue().encode("utf-8", "surrogateescape")
    text.seek(0)
    text.truncate()
    return blob


def as_imagefolder(session: Session, what: str, scope: str, **_: Any) -> Iterator[bytes]:
    """metadata.csv of a Hugging Face image folder, to be put beside the pictures."""
    return _csv(session, what, scope, lambda cell: cell, first="file_name")


def as_jsonl(session: Session, what: str, scope: str, **_: Any) -> Iterator[bytes]:
    """All that is known of an item in a line: probabilities of the best classes, and its events."""
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
    """Tasks with annotations (labels) and predictions, for an interface with <Choices name="choice" toName="image">."""
    yield b"["
    for number, row in enumerate(rows(session, session.predictions, what, scope)):
        task: Row = {"data": {"image": url_prefix + row["path"], "path": row["path"]}}
        if row.get("status") == "labelled":
            task["annotations"] = [{"result": [_choice(row["label"])]}]
        if row.get("status") == "skipped":
            task["annotations"] = [{"was_cancelled": True, "result": []}]
        if row.get("pred"):
            model = f"samekind-{row['model']}"
            task["predictions"] = [
                {"model_version": model, "score": float(row["confidence"]), "result": [_choice(row["pred"])]}
            ]
        yield (b"," if number else b"") + b"\n" + json.dumps(task).encode()
    yield b"\n]\n"


def _choice(label: str) -> Row:
    return {"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": [label]}}


def as_fiftyone(session: Session, what: str, scope: str, **_: Any) -> Iterator[bytes]:
    """labels.json of a FiftyOneImageClassificationDataset: by path without its ending, null where there is no label."""
    labels: dict[str, Any] = {}
    paths: dict[str, str] = {}
    for row in rows(session, session.predictions, what, scope):
        key = str(Path(row["path"]).with_suffix(""))
        if key in labels:
            raise RequestError(
                409,
                f"{paths[key]!r} and {row['path']!r} differ in their endings only; FiftyOne cannot tell them apart. Use CSV.",
            )
        paths[key] = row["path"]
        labels[key] = _classification(row)
    classes = sorted({one["label"] for one in labels.values() if one is not None})
    yield (json.dumps({"classes": classes, "labels": labels}, indent=1) + "\n").encode()


def _classification(row: Row) -> Row | None:
    if row.get("label"):
        return {"label": row["label"]}
    return {"label": row["pred"], "confidence": float(row["confidence"])} if row.get("pred") else None


Export = Callable[..., Iterator[bytes]]
FORMATS: dict[str, tuple[Export, str, str]] = {  # what makes it, its type, and how the file is called
    "csv": (as_csv, "text/csv; charset=utf-8", "labels.csv"),
    "csv-spreadsheet": (as_spreadsheet, "text/csv; charset=utf-8", "labels-spreadsheet.csv"),
    "jsonl": (as_jsonl, "application/x-ndjson", "labels.jsonl"),
    "imagefolder": (as_imagefolder, "text/csv; charset=utf-8", "metadata.csv"),
    "labelstudio": (as_label_studio, "application/json", "labelstudio.json"),
    "fiftyone": (as_fiftyone, "application/json", "labels.json"),
}


# ---------------------------------------------------------------- from the command line


def exported(session: Session, kind: str, what: str, scope: str, url_prefix: str = "") -> Iterator[bytes]:
    """One of FORMATS, piece by piece; predictions alone are refused at once if there is no model."""
    if what == "predictions":
        session.require_model()
    return FORMATS[kind][0](session, what, scope, url_prefix=url_prefix)


def write_file(run: Path, out: Path, kind: str, what: str, scope: str, url_prefix: str) -> None:
    """An export as a file; a page that is open meanwhile is not disturbed."""
    for name, value, known in (("format", kind, FORMATS), ("what", what, WHAT), ("scope", scope, SCOPES)):
        if value not in known:
            raise SettingError(f"--{name} {value} is unknown; {did_you_mean(value, known)}")
    with closing(Session(run, read_only=True)) as session:
        try:
            blob = b"".join(exported(session, kind, what, scope, url_prefix))
        except RequestError as error:
            raise DataError(error.detail) from error
    atomic_write(out, blob, DataError)


def copy_images(run: Path, out: Path, what: str, *, link: bool = False) -> int:
    """Class folders of a run's pictures in `out`; how many pictures."""
    if what not in WHAT:
        raise SettingError(f"--what {what} is unknown; {did_you_mean(what, WHAT)}")
    with closing(Session(run, read_only=True)) as session:
        if what == "predictions" and not session.predictions.trained:
            raise DataError(NO_MODEL)
        return copy_tree(session, out, what, link=link)


def copy_tree(session: Session, out: Path, what: str = "labels", *, link: bool = False) -> int:
    """A folder for each class with the pictures that have it, under their own paths; how many were copied or linked."""
    root = session.root
    if root is None:
        raise DataError(f"{session.run} is not on a folder of pictures. Use an export as CSV instead.")
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} is not empty. Choose a folder that is empty or not there yet.")
    n = 0
    folders = _folders(session)
    for row in rows(session, session.predictions, what, "all"):
        label = row.get("label") or (row.get("pred") if row.get("status") != "skipped" else None)
        if not label:
            continue
        target = out / folders[label] / row["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        source = file_in(root, row["path"])
        if link:
            target.symlink_to(source)
        else:
            shutil.copy2(source, target)
        n += 1
    return n


def _folders(session: Session) -> dict[str, str]:
    """A name of a folder for each class; what a disk does not take is replaced, and no two are the same."""
    taken: dict[str, str] = {}
    for kind in label_classes.all_classes(session.store):
        plain = (
            "".join("_" if letter in '/\\:*?"<>|' or ord(letter) < 32 else letter for letter in kind.name).strip(" .") or "_"
        )
        while plain.casefold() in {name.casefold() for name in taken.values()}:
            plain += "_"
        taken[kind.name] = plain
    return taken
