"""Lock on a run, so that only one process writes. The operating system releases it if the process dies."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from samekind.errors import StoreError
from samekind.files.io import atomic_write, read_regular
from samekind.server.store.own_paths import require_own_file, require_own_folder

MAX_PID_BYTES = 100


class ServerLock:
    """Lock on a run, held from creation until `close`. A file beside it contains the process id of the holder."""

    def __init__(self, path: Path) -> None:
        _require_empty(path)
        self._lock = FileLock(path, mode=0o600)
        self._pid_file = path.with_name(f"{path.name}.pid")
        try:
            self._lock.acquire(blocking=False)
        except Timeout as error:
            raise StoreError(
                f"{path.parent.parent} is being served already (process {_read_pid(self._pid_file)}). Use the page of "
                "that process, stop the process, or start this server with --read-only."
            ) from error
        self._pid_file.unlink(missing_ok=True)
        with suppress(StoreError):  # on a full disk, the file with the process id is missing, but the lock is held
            atomic_write(self._pid_file, str(os.getpid()).encode(), StoreError, mode=0o600)

    def close(self) -> None:
        """Release the lock."""
        self._pid_file.unlink(missing_ok=True)
        self._lock.release()


def _require_empty(path: Path) -> None:
    """Refuse a lock file that is a link or has content. It is not ours, and locking would empty it."""
    require_own_folder(path.parent)
    require_own_file(path)
    if path.exists() and path.stat().st_size > 0:
        raise StoreError(f"{path} has content; expected an empty lock file. Move it elsewhere, then try again.")


def _read_pid(path: Path) -> str:
    try:
        return read_regular(path, MAX_PID_BYTES).decode("ascii", errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"
