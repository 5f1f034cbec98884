"""Files in the folder of the data. A file is opened first and checked then, so that a file replaced by a link is never read.

In the folder, the operating system follows no links. A link to a file inside the folder is resolved here, and the file is then
opened in the same way.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePath
from typing import BinaryIO, TypeVar

from samekind.errors import RequestError

Found = TypeVar("Found")
IS_LINK = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)  # errors of the operating systems for a link that may not be followed
# With O_NONBLOCK, opening a FIFO does not wait for a writer. Flags that Windows does not have are 0 there.
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | NO_LINK
HAS_DIR_FD = os.open in os.supports_dir_fd


def open_data_file(root: Path, name: str) -> BinaryIO:
    """Open a regular file inside `root`; raise RequestError 404 if there is no such file."""
    return os.fdopen(_visit(root, name, _open_file), "rb")


def stat_data_file(root: Path, name: str) -> os.stat_result:
    """Return the size and times of a regular file inside `root`; raise RequestError 404 if there is no such file."""
    return _visit(root, name, _stat_file)


def open_regular_file(path: str | Path) -> BinaryIO:
    """Open a file, following links. For a FIFO, a device or a folder, raise OSError without waiting."""
    return os.fdopen(_require_regular(os.open(path, os.O_RDONLY | NO_WAIT)), "rb")


def _visit(root: Path, name: str, act: Callable[[str, int | None], Found]) -> Found:
    """Return act(file name, descriptor of its folder) for a file in `root` or its subfolders."""
    try:
        parts = PurePath(name).parts
        if not parts or ".." in parts or PurePath(name).is_absolute():
            raise ValueError(name)
        if HAS_DIR_FD:
            try:
                return _act_below(root, parts, act)
            except OSError as error:
                if error.errno not in IS_LINK:
                    raise
        real_root = root.resolve(strict=True)
        # raises ValueError for a link that leads out of the folder
        inside = (root / name).resolve(strict=True).relative_to(real_root)
        return _act_below(real_root, inside.parts, act) if HAS_DIR_FD else _act_and_compare(real_root / inside, act)
    except (OSError, ValueError, RuntimeError) as error:
        raise RequestError(404, "The file of this item does not exist any more.") from error


def _act_below(root: Path, parts: tuple[str, ...], act: Callable[[str, int | None], Found]) -> Found:
    """Call `act` on a file. Each folder on the way is opened from the folder above it, so that none can be replaced by a
    link.
    """
    folder = os.open(root, FOLDER & ~NO_LINK)
    try:
        for part in parts[:-1]:
            below = os.open(part, FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        return act(parts[-1], folder)
    finally:
        os.close(folder)


def _act_and_compare(real: Path, act: Callable[[str, int | None], Found]) -> Found:
    """Return the result of `act`, if the path leads to the same file afterwards.

    This is for Windows, without folder descriptors.
    """
    found = act(str(real), None)
    if real.resolve(strict=True) == real:
        return found
    if isinstance(found, int):
        os.close(found)
    raise ValueError(real)


def _open_file(name: str, folder: int | None) -> int:
    return _require_regular(os.open(name, os.O_RDONLY | NO_WAIT | NO_LINK, dir_fd=folder))


def _stat_file(name: str, folder: int | None) -> os.stat_result:
    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(about.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    if not stat.S_ISREG(about.st_mode):
        raise ValueError(name)
    return about


def _require_regular(descriptor: int) -> int:
    """Return the descriptor if it belongs to a regular file; otherwise close it and raise OSError."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    with suppress(OSError):
        os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file")
