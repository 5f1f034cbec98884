"""One writer at a time: a lock file with the number of the process that holds it, let go by the system if that dies."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from samekind.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class ServerLock:
    """Held from the beginning on; a second one on the same file is refused."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not self._taken():
            holder = _holder(path)
            os.close(self._file)
            raise StoreError(
                f"{path.parent.parent} is being served already (process {holder}). Use that page, stop it, or open "
                "this one with --read-only."
            )
        os.ftruncate(self._file, 0)
        os.write(self._file, str(os.getpid()).encode())
        os.fsync(self._file)

    def _taken(self) -> bool:
        if fcntl is None:
            holder = _holder(self._path)
            return holder in (None, os.getpid()) or not psutil.pid_exists(holder)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def close(self) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)


def _holder(path: Path) -> int | None:
    text = path.read_text(encoding="ascii", errors="replace").strip()
    return int(text) if text.isdecimal() else None
