"""One writer per run: a file lock, which the operating system releases if its process dies."""

from __future__ import annotations

import os
from pathlib import Path

from filelock import FileLock, Timeout

from samekind.errors import StoreError
from samekind.io import atomic_write


class ServerLock:
    """Lock on a run, held from creation until `close`. A file beside it has the process id of the holder."""

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path, mode=0o600)
        self._pid_file = path.with_name(f"{path.name}.pid")
        try:
            self._lock.acquire(blocking=False)
        except Timeout as error:
            raise StoreError(
                f"{path.parent.parent} is being served already (process {_read_pid(self._pid_file)}). Use that page, stop it, "
                "or open this one with --read-only."
            ) from error
        atomic_write(self._pid_file, str(os.getpid()).encode(), StoreError, mode=0o600)

    def close(self) -> None:
        """Release the lock."""
        self._pid_file.unlink(missing_ok=True)
        self._lock.release()


def _read_pid(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"
