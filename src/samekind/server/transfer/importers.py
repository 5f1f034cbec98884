"""Labels from elsewhere: read, matched to items by their paths, and reported before anything is written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from samekind.data.readers.image_folder import PATH_HEADERS
from samekind.data.readers.label_file import LABEL_HEADERS, UNLABELLED_CELLS
from samekind.errors import RequestError
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.store.label_store import LABELLED, SKIPPED, BatchRequest
from samekind.server.summaries import readable

LISTED = 20  # examples of each kind in a report


@dataclass(frozen=True)
class ImportedLabel:
    """What a file says of an item: a label, or that it was skipped."""

    path: str
    label: str | None
    skipped: bool = False


@dataclass
class ImportReport:
    """What an import would do, or did."""

    matched: int = 0
    unchanged: int = 0
    unmatched: list[str] = field(default_factory=list)
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    new_classes: list[str] = field(default_factory=list)
    targets: dict[int, tuple[str | None, str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "matched": self.matched,
            "unchanged": self.unchanged,
            "to_change": len(self.targets),
            "n_unmatched": len(self.unmatched),
            "unmatched": [readable(path) for path in self.unmatched[:LISTED]],
            "n_conflicts": len(self.conflicts),
            "conflicts": self.conflicts[:LISTED],
            "new_classes": self.new_classes,
        }


def report(session: Session, lines: Iterable[ImportedLabel], *, overwrite: bool) -> ImportReport:
    """Compares the lines with what the page holds. A label that is there stays, unless `overwrite`."""
    find = PathMatcher(session.store.names)
    names = label_classes.names(session.store)
    said: dict[int, ImportedLabel] = {}
    result = ImportReport()
    for line in lines:
        item = find(line.path)
        if item is None:
            result.unmatched.append(line.path)
        elif item in said and (said[item].label, said[item].skipped) != (line.label, line.skipped):
            raise RequestError(
                422, f"The file contradicts itself about {line.path!r}: {said[item].label!r} and {line.label!r}."
            )
        else:
            said[item] = line
    states = session.states
    for item, line in said.items():
        result.matched += 1
        held = (names.get(int(states.class_id[item])), int(states.status[item]))
        wanted = (line.label, 2 if line.skipped else 1)
        if held == wanted:
            result.unchanged += 1
        elif held[1] and not overwrite:
            about = {"id": item, "path": readable(session.store.names[item]), "here": held[0], "there": line.label}
            result.conflicts.append(about)
        else:
            result.targets[item] = (line.label, SKIPPED if line.skipped else LABELLED)
    known = set(names.values())
    result.new_classes = sorted({label for label, _ in result.targets.values() if label is not None} - known)
    return result


def write(session: Session, result: ImportReport, request_id: str | None) -> dict[str, Any]:
    """Does what the report says, as one batch that can be undone."""
    labels = sorted({label for label, _ in result.targets.values() if label is not None})
    numbers = dict(zip(labels, label_classes.by_name(session.store, labels), strict=True))
    targets = {item: (None if label is None else numbers[label], status) for item, (label, status) in result.targets.items()}
    request = BatchRequest(
        "import", targets, source="import", request_id=request_id, model_version=session.predictions.version or None
    )
    return session.store.apply(request).to_json()


class PathMatcher:
    """The item that a path means: as it is, with its slashes turned, or by its end if only one fits."""

    def __init__(self, names: list[str]) -> None:
        self._names = {name: number for number, name in enumerate(names)}
        self._ends: dict[str, int | None] | None = None

    def __call__(self, path: str) -> int | None:
        if path in self._names:
            return self._names[path]
        plain = path.strip().replace("\\", "/").removeprefix("./")
        if plain in self._names:
            return self._names[plain]
        parts = plain.split("/")
        longer = next((self._names[end] for k in range(1, len(parts)) if (end := "/".join(parts[k:])) in self._names), None)
        return longer if longer is not None else self._by_end(plain)

    def _by_end(self, plain: str) -> int | None:
        """An item whose path ends with this one, if there is only one."""
        if self._ends is None:
            self._ends = {}
            for name, number in self._names.items():
                bare = name.rsplit("/", 1)[-1]
                self._ends[bare] = None if bare in self._ends else number
        return self._ends.get(plain)


# ---------------------------------------------------------------- formats


def lines_of(kind: str, blob: bytes) -> list[ImportedLabel]:
    """The lines of a file that was sent."""
    try:
        text = blob.decode("utf-8-sig", "surrogateescape")
        reader = {"csv": _csv, "jsonl": _jsonl, "labelstudio": _label_studio}[kind]
        return list(reader(text))
    except (csv.Error, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise RequestError(422, f"This cannot be read as {kind} ({type(error).__name__}). Nothing was changed.") from error


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
        cells = [*row, *[""] * (len(header) - len(row))]
        if not row or (given is not None and cells[given] != "yes"):  # what `samekind fit` guessed is no label
            continue
        yield from _line(cells[path], cells[label], None if status is None else cells[status])


def _jsonl(text: str) -> Iterator[ImportedLabel]:
    for line in text.splitlines():
        if line.strip():
            words = json.loads(line)
            yield from _line(str(words["path"]), str(words.get("label") or ""), words.get("status"))


def _label_studio(text: str) -> Iterator[ImportedLabel]:
    for task in json.loads(text):
        data = task["data"]
        path = data.get("path") or next(value for value in data.values() if isinstance(value, str))
        done = [one for one in task.get("annotations", []) if isinstance(one, dict)]
        for annotation in done[-1:]:
            choices = [part["value"]["choices"][0] for part in annotation.get("result", []) if part.get("type") == "choices"]
            if choices:
                yield from _line(_without_prefix(path), str(choices[0]), None)
            elif annotation.get("was_cancelled"):
                yield ImportedLabel(_without_prefix(path), None, skipped=True)


def _without_prefix(path: str) -> str:
    """The path in an address such as /data/local-files/?d=photos/1.png."""
    from urllib.parse import unquote

    return unquote(path.partition("?d=")[2]) if "?d=" in path else path


def _line(path: str, label: str, status: str | None) -> Iterator[ImportedLabel]:
    if status == SKIPPED:
        yield ImportedLabel(path, None, skipped=True)
    elif label.strip() not in UNLABELLED_CELLS and status in (None, "", LABELLED):
        if len(label.strip()) > label_classes.LONGEST or readable(label) != label:
            raise RequestError(
                422, f"The label of {path[:80]!r} is not text of at most {label_classes.LONGEST} letters in UTF-8."
            )
        yield ImportedLabel(path, label.strip())
