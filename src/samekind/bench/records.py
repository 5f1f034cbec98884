"""Records of finished runs: a JSON-lines file with one object per run, flushed to disk when the run ends.

A process that is killed while it writes leaves an incomplete last line. Readers ignore it, and the next writer removes it.
Needs no torch.
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
RECORDS_NAME = "runs.jsonl"


class RecordFile:
    """The finished runs of one file, by key; a failed run is not among them. Only one process may open the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._done: dict[str, Record] = {}
        self._file: Any = None

    def __enter__(self) -> RecordFile:
        self._file = _open_locked(self.path)
        _drop_incomplete_line(self._file)
        self._done = {record["key"]: record for record in read_records(self.path) if "failed" not in record}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def __contains__(self, key: str) -> bool:
        return key in self._done

    def __getitem__(self, key: str) -> Record:
        return self._done[key]

    def append(self, record: Record) -> None:
        """Append a record; when this returns, the record is on disk."""
        _write_lines(self._file, [record])
        if "failed" not in record:
            self._done[record["key"]] = record


def append_records(path: Path, *records: Record) -> None:
    """Append records to a file that several processes write to: each waits for the lock of the others."""
    with _open_locked(path, wait=True) as file:
        _drop_incomplete_line(file)
        _write_lines(file, records)


def read_records(path: Path) -> list[Record]:
    """Return the complete lines of a file, or an empty list if there is no file; raise DataError for a damaged line."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [_parse_record(line, path, number) for number, line in enumerate(lines[:-1], start=1) if line.strip()]


def read_runs(paths: Iterable[Path]) -> list[Record]:
    """Return the finished runs of files and folders; if a key occurs more than once, the last record counts."""
    found: dict[str, Record] = {}
    for path in _find_files(paths):
        for number, record in enumerate(read_records(path), start=1):
            if "error" in record and {"key", "row", "data", "labels", "seed"} <= record.keys():
                found[record["key"]] = record
            elif "failed" not in record:
                raise DataError(f"line {number} of {path} is not a run of `samekind bench`. Leave this file out.")
    return list(found.values())


def _find_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        files = sorted(path.rglob(RECORDS_NAME)) if path.is_dir() else [path]
        if not files or not files[0].exists():
            raise DataError(f"no recorded runs in {path}; expected a .jsonl file or a folder of `samekind bench`")
        yield from files


def _parse_record(line: bytes, path: Path, number: int) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"line {number} of {path} is damaged ({error}). Remove the line, and the run is repeated.") from error
    if not isinstance(record, dict):
        raise DataError(
            f"line {number} of {path} is not a JSON object; expected one object per line, as `samekind bench` writes"
        )
    return record


def _open_locked(path: Path, *, wait: bool = False) -> Any:
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
        except OSError:  # a file system without locks
            return file
    return file


def _write_lines(file: Any, records: Iterable[Record]) -> None:
    file.writelines((json.dumps(record, ensure_ascii=False) + "\n").encode() for record in records)
    file.flush()
    os.fsync(file.fileno())


def _drop_incomplete_line(file: Any) -> None:
    """Truncate the file after its last newline."""
    file.seek(0)
    blob: bytes = file.read()
    complete = blob.rfind(b"\n") + 1
    if complete < len(blob):
        file.truncate(complete)
        os.fsync(file.fileno())
