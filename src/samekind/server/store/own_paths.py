"""Paths that the server writes to. Links are refused, so that nothing outside the run folder is changed or deleted."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from samekind.errors import StoreError

OWN_FOLDER = re.compile(r"backups|thumbs|instant|model-\d+(\.part)?")
DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal")  # endings of the files of one SQLite database


def require_own_folders(folder: Path) -> None:
    """Refuse RUN/serve if it, or a folder in it that the server creates, is a link or not a folder."""
    require_own_folder(folder)
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        if OWN_FOLDER.fullmatch(path.name):
            require_own_folder(path)


def require_own_folder(path: Path) -> None:
    """Refuse a path that exists and is not a folder. A link to a folder is refused too."""
    if os.path.lexists(path) and not stat.S_ISDIR(path.lstat().st_mode):
        raise StoreError(f"{path} is {_describe(path)}; expected a folder made by `samekind serve`. {_NEXT_STEP}")


def require_own_file(path: Path) -> None:
    """Refuse a path that exists and is not a regular file. A link to a file is refused too."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise StoreError(f"{path} is {_describe(path)}; expected a file made by `samekind serve`. {_NEXT_STEP}")


def require_own_database(path: Path) -> None:
    """Refuse a database if one of its files is a link or not a regular file."""
    for suffix in DATABASE_SUFFIXES:
        require_own_file(path.with_name(path.name + suffix))


_NEXT_STEP = "Nothing was changed there. Remove or rename it, then try again."


def _describe(path: Path) -> str:
    if path.is_symlink():
        return f"a link to {os.readlink(path)}"
    return "a folder" if path.is_dir() else "a file" if path.is_file() else "a pipe or a device"
