"""Finished runs, one JSON object a line: written when a run is over, flushed to the disk, and never written twice.

A process that is killed while it writes leaves a torn last line. It is passed over by those who read, and cut off by the next
one who writes. Needs no torch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from samekind.errors import DataError, SamekindError

Record = dict[str, Any]
NAME = "runs.jsonl"


class RecordFile:
    """The runs of one file, by key. Only one process may hold it; a run that failed counts as not done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._done: dict[str, Record] = {}
        self._file: Any = None

    def __enter__(self) -> RecordFile:
        self._file = _opened(self.path)
        _cut_torn_line(self._file)
        self._done = {record["key"]: record for record in read(self.path) if "failed" not in record}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def __contains__(self, key: str) -> bool:
        return key in self._done

    def __getitem__(self, key: str) -> Record:
        return self._done[key]

    def append(self, record: Record) -> None:
        """When this returns the line is on the disk."""
        _write(self._file, [record])
        if "failed" not in record:
            self._done[record["key"]] = record


def add(path: Path, *records: Record) -> None:
    """Adds lines to a file that several processes may write to: each waits for its turn."""
    with _opened(path, wait=True) as file:
        _cut_torn_line(file)
        _write(file, records)


def read(path: Path) -> list[Record]:
    """All whole lines of a file; none if there is no such file. A line in the middle that is no JSON object is refused."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [_parsed(line, path, number) for number, line in enumerate(lines[:-1], start=1) if line.strip()]


def read_runs(places: Iterable[Path]) -> list[Record]:
    """The runs of files and of folders (every .jsonl below them), each key once: the last line that has it counts."""
    found: dict[str, Record] = {}
    for path in _files(places):
        for number, record in enumerate(read(path), start=1):
            if "error" in record and {"key", "row", "data", "labels", "seed"} <= record.keys():
                found[record["key"]] = record
            elif "failed" not in record:
                raise DataError(f"line {number} of {path} is no run of `samekind bench`. Leave this file out.")
    return list(found.values())


def _files(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        files = sorted(place.rglob(NAME)) if place.is_dir() else [place]
        if not files or not files[0].exists():
            raise DataError(f"no recorded runs in {place}; expected a .jsonl file or a folder that `samekind bench` has made")
        yield from files


def _parsed(line: bytes, path: Path, number: int) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"line {number} of {path} is damaged ({error}). Take it out, and that run is done again.") from error
    if not isinstance(record, dict):
        raise DataError(f"line {number} of {path} is no JSON object. Expected one object a line, as `samekind bench` writes.")
    return record


def _opened(path: Path, *, wait: bool = False) -> Any:
    try:
        file = path.open("ab+")
    except OSError as error:
        raise SamekindError(f"{path} cannot be written ({error.strerror}). Choose another folder with --out.") from error
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            file.close()
            raise SamekindError(f"another process is writing {path}. Wait for it, or choose another folder.") from error
        except OSError:  # a file system that knows no locks
            return file
    return file


def _write(file: Any, records: Iterable[Record]) -> None:
    file.writelines((json.dumps(record, ensure_ascii=False) + "\n").encode() for record in records)
    file.flush()
    os.fsync(file.fileno())


def _cut_torn_line(file: Any) -> None:
    """The file up to its last newline; what follows was never acknowledged."""
    file.seek(0)
    blob: bytes = file.read()
    whole = blob.rfind(b"\n") + 1
    if whole < len(blob):
        file.truncate(whole)
        os.fsync(file.fileno())
