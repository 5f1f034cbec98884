"""Records of finished runs: a file of JSON lines with one object for each run, written to disk when the run ends.

A process that is killed while it writes leaves an incomplete last line. Readers ignore it, and the next writer removes it. This
module works without torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from samekind.errors import DataError, SamekindError

Record = dict[str, Any]
RECORDS_NAME = "runs.jsonl"


class RecordFile:
    """File with the records of finished runs, by key. Failed runs are written, but can be run again.

    Only one process at a time can open the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._done: dict[str, Record] = {}
        self._open = ExitStack()

    def __enter__(self) -> RecordFile:
        with ExitStack() as stack:  # releases the lock if a record in the file is damaged
            self._file = stack.enter_context(_open_locked(self.path, timeout=0.0))
            _drop_incomplete_line(self._file)
            self._done = {record["key"]: record for record in read_records(self.path) if "failed" not in record}
            self._open = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def __contains__(self, key: str) -> bool:
        return key in self._done

    def __getitem__(self, key: str) -> Record:
        return self._done[key]

    def append(self, record: Record) -> None:
        """Append a record to the file; when this returns, the record is on disk."""
        _write_lines(self._file, [record])
        if "failed" not in record:
            self._done[record["key"]] = record


def append_records(path: Path, *records: Record) -> None:
    """Append records to a file that several processes write to; wait while another process has it locked."""
    with _open_locked(path) as file:
        _drop_incomplete_line(file)
        _write_lines(file, records)


def read_records(path: Path) -> list[Record]:
    """Return the records in the complete lines of a file; raise DataError for a damaged line. Without a file, return []."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [_parse_record(line, path, number) for number, line in enumerate(lines[:-1], start=1) if line.strip()]


def read_runs(paths: Iterable[Path]) -> list[Record]:
    """Return the finished runs in these files and folders. Of several records with the same key, the last one is returned."""
    found: dict[str, Record] = {}
    for path in _find_files(paths):
        for number, record in enumerate(read_records(path), start=1):
            if "error" in record and {"key", "row", "data", "labels", "seed"} <= record.keys():
                found[record["key"]] = record
            elif "failed" not in record:
                raise DataError(f"line {number} of {path} does not describe a run of `samekind bench`. Do not pass this file.")
    return list(found.values())


def _find_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        files = sorted(path.rglob(RECORDS_NAME)) if path.is_dir() else [path]
        if not files or not files[0].exists():
            raise DataError(
                f"found no recorded runs in {path}; expected a .jsonl file, or a folder that `samekind bench` wrote"
            )
        yield from files


def _parse_record(line: bytes, path: Path, number: int) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"line {number} of {path} is damaged ({error}). Remove the line; the run is then repeated.") from error
    if not isinstance(record, dict):
        raise DataError(
            f"line {number} of {path} is not a JSON object; expected one object per line, as `samekind bench` writes"
        )
    return record


@contextmanager
def _open_locked(path: Path, timeout: float = -1.0) -> Iterator[BinaryIO]:
    """Open a file for reading and appending, and lock it; wait for other processes, up to `timeout` seconds if it is not
    negative.
    """
    try:
        with FileLock(f"{path}.lock", timeout=timeout), path.open("ab+") as file:
            yield file
    except Timeout as error:
        raise SamekindError(f"another process is writing {path}. Wait for it, or choose another folder.") from error
    except OSError as error:
        raise SamekindError(f"{path} cannot be written ({error.strerror}). Choose another folder with --out.") from error


def _write_lines(file: BinaryIO, records: Iterable[Record]) -> None:
    file.writelines((json.dumps(record, ensure_ascii=False) + "\n").encode() for record in records)
    file.flush()
    os.fsync(file.fileno())


def _drop_incomplete_line(file: BinaryIO) -> None:
    """Remove what follows the last line break of the file."""
    file.seek(0)
    blob: bytes = file.read()
    complete = blob.rfind(b"\n") + 1
    if complete < len(blob):
        file.truncate(complete)
        os.fsync(file.fileno())
