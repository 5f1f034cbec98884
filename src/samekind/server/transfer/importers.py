"""Import of labels: a file is parsed, its labels are matched to items by path, and the changes are reported or written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import TypedDict

from samekind.data.readers.image_folder import PATH_HEADERS
from samekind.data.readers.label_file import LABEL_HEADERS, UNLABELLED_CELLS, compose
from samekind.errors import RequestError
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.store.batches import LABELLED, SKIPPED, BatchOutcome, BatchRequest
from samekind.server.summaries import readable

MAX_CELL = 1 << 17  # a cell with more characters is neither a path nor a label
MAX_EXAMPLES = 20  # largest number of unmatched paths, and of conflicts, that a report lists


@dataclass(frozen=True)
class ImportedLabel:
    """One label in an imported file, or an item that is skipped there."""

    path: str
    label: str | None
    skipped: bool = False


class ImportConflict(TypedDict):
    """An item whose label differs from the imported label, as JSON."""

    id: int
    path: str
    current: str | None
    imported: str | None


class ImportSummary(TypedDict):
    """Changes that an import would make, as JSON. Lists contain only the first examples."""

    matched: int
    unchanged: int
    to_change: int
    n_unmatched: int
    unmatched: list[str]
    n_conflicts: int
    conflicts: list[ImportConflict]
    new_classes: list[str]


@dataclass
class ImportReport:
    """Changes that an import would make."""

    matched: int = 0
    unchanged: int = 0
    unmatched: list[str] = field(default_factory=list)
    conflicts: list[ImportConflict] = field(default_factory=list)
    new_classes: list[str] = field(default_factory=list)
    targets: dict[int, tuple[str | None, str]] = field(default_factory=dict)

    def to_json(self) -> ImportSummary:
        """Return the report as JSON."""
        return {
            "matched": self.matched,
            "unchanged": self.unchanged,
            "to_change": len(self.targets),
            "n_unmatched": len(self.unmatched),
            "unmatched": [readable(path) for path in self.unmatched[:MAX_EXAMPLES]],
            "n_conflicts": len(self.conflicts),
            "conflicts": self.conflicts[:MAX_EXAMPLES],
            "new_classes": self.new_classes,
        }


def compare(session: Session, labels: Iterable[ImportedLabel], *, overwrite: bool) -> ImportReport:
    """Compare imported labels with the present ones. Without `overwrite`, an item that has a label keeps it."""
    match_path = PathMatcher(session.store.names)
    names = {number: compose(name) for number, name in label_classes.names(session.store).items()}
    imported: dict[int, ImportedLabel] = {}
    result = ImportReport()
    for new in labels:
        item = match_path(new.path)
        if item is None:
            result.unmatched.append(new.path)
        elif item in imported and (imported[item].label, imported[item].skipped) != (new.label, new.skipped):
            raise RequestError(
                422, f"The file has two labels for {new.path!r}: {imported[item].label!r} and {new.label!r}. Remove one."
            )
        else:
            imported[item] = new
    states = session.states
    for item, new in imported.items():
        result.matched += 1
        current = (names.get(int(states.class_id[item])), int(states.status[item]))
        if current == (new.label, 2 if new.skipped else 1):
            result.unchanged += 1
        elif current[1] and not overwrite:
            path = readable(session.store.names[item])
            result.conflicts.append({"id": item, "path": path, "current": current[0], "imported": new.label})
        else:
            result.targets[item] = (new.label, SKIPPED if new.skipped else LABELLED)
    known = set(names.values())
    result.new_classes = sorted({label for label, _ in result.targets.values() if label is not None} - known)
    return result


def write(session: Session, result: ImportReport, request_id: str | None, content: str) -> BatchOutcome:
    """Write the imported labels of a report as one batch, which can be undone.

    A repeated request is recognized by the hash `content` of the file, because after the first import there is nothing left to
    change.
    """
    labels = sorted({label for label, _ in result.targets.values() if label is not None})
    ids = dict(zip(labels, label_classes.ids_of_names(session.store, labels), strict=True))
    targets = {item: (None if label is None else ids[label], status) for item, (label, status) in result.targets.items()}
    request = BatchRequest(
        "import",
        targets,
        source="import",
        request_id=request_id,
        model_version=session.predictions.version or None,
        content=content,
    )
    outcome = session.store.apply(request).to_json()
    session.update_merged_classes()  # a deleted class that the import has restored may be one of the model's classes
    return outcome


class PathMatcher:
    """Finds the item for a path: by the same path, with other slashes, by the end of the path, or by a unique file name."""

    def __init__(self, names: list[str]) -> None:
        self._names = {name: number for number, name in enumerate(names)}
        self._by_file_name: dict[str, int | None] | None = None

    def __call__(self, path: str) -> int | None:
        if path in self._names:
            return self._names[path]
        plain = path.strip().replace("\\", "/").removeprefix("./")
        if plain in self._names:
            return self._names[plain]
        parts = plain.split("/")
        longer = next((self._names[end] for k in range(1, len(parts)) if (end := "/".join(parts[k:])) in self._names), None)
        return longer if longer is not None else self._match_file_name(plain)

    def _match_file_name(self, plain: str) -> int | None:
        """Return the only item with this file name; None if there is none, or more than one."""
        if self._by_file_name is None:
            self._by_file_name = {}
            for name, item in self._names.items():
                bare = name.rsplit("/", 1)[-1]
                self._by_file_name[bare] = None if bare in self._by_file_name else item
        return self._by_file_name.get(plain)


# ---------------------------------------------------------------- formats of an import


def parse(format: str, blob: bytes) -> list[ImportedLabel]:
    """Return the labels in an uploaded file; raise RequestError if it does not have this format."""
    try:
        text = blob.decode("utf-8-sig", "surrogateescape")
        reader = {"csv": _csv, "jsonl": _jsonl, "labelstudio": _label_studio}[format]
        return list(reader(text))
    except (csv.Error, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise RequestError(
            422, f"The file cannot be read as {format} ({type(error).__name__}). Nothing was changed."
        ) from error


def _csv(text: str) -> Iterator[ImportedLabel]:
    rows = csv.reader(io.StringIO(text, newline=""))
    header = [cell.strip().lower() for cell in next(rows, [])]
    path = next((header.index(name) for name in PATH_HEADERS if name in header), None)
    label = next((header.index(name) for name in LABEL_HEADERS if name in header), None)
    if path is None or label is None:
        raise RequestError(422, f"The first line is {', '.join(header)[:80]!r}; expected columns such as path,label.")
    status = header.index("status") if "status" in header else None
    given = header.index("given") if "given" in header else None
    for row in rows:
        if max(map(len, row), default=0) > MAX_CELL:
            raise ValueError("a cell is too long for a name")
        cells = [*row, *[""] * (len(header) - len(row))]
        # rows that `samekind fit` wrote for predictions are not imported
        if not row or (given is not None and cells[given] != "yes"):
            continue
        yield from _line(cells[path], cells[label], None if status is None else cells[status])


def _jsonl(text: str) -> Iterator[ImportedLabel]:
    for line in text.splitlines():
        if line.strip():
            record = json.loads(line)
            yield from _line(_text(record["path"]), _text(record.get("label") or ""), record.get("status"))


def _label_studio(text: str) -> Iterator[ImportedLabel]:
    for task in json.loads(text):
        path = _task_path(task["data"])
        done = [one for one in task.get("annotations", []) if isinstance(one, dict)]
        for annotation in done[-1:]:
            choices = [part["value"]["choices"][0] for part in annotation.get("result", []) if part.get("type") == "choices"]
            if choices:
                yield from _line(_without_prefix(path), _text(choices[0]), None)
            elif annotation.get("was_cancelled"):
                yield from _line(_without_prefix(path), "", SKIPPED)


def _task_path(data: dict[str, Any]) -> str:
    """Return the file of a task: its path if it has one, else the first text in its data."""
    return _text(data.get("path") or next((value for value in data.values() if isinstance(value, str)), None))


def _text(value: object) -> str:
    """Return a text, or a number as text; raise TypeError for any other JSON value."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError("not a text")
    return str(value)


def _without_prefix(path: str) -> str:
    """Return the path in a URL of Label Studio, such as /data/local-files/?d=photos/1.png."""
    from urllib.parse import unquote

    return unquote(path.partition("?d=")[2]) if "?d=" in path else path


def _line(path: str, label: str, status: str | None) -> Iterator[ImportedLabel]:
    readable(path)  # raises UnicodeError for half of a surrogate pair, which JSON can contain, but no file name
    label = compose(label)
    if status == SKIPPED:
        yield ImportedLabel(path, None, skipped=True)
    elif label.strip() not in UNLABELLED_CELLS and status in (None, "", LABELLED):
        if len(label.strip()) > label_classes.MAX_NAME or readable(label) != label:
            raise RequestError(
                422, f"The label of {path[:80]!r} is not UTF-8 text of at most {label_classes.MAX_NAME} characters."
            )
        yield ImportedLabel(path, label.strip())
