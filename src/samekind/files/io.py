"""Files: atomic writes, and reads that never wait. After a crash, a file has its old or its new content, never a part of it.

atomic_write a file of ours, such as run.json: if a link is at its path, the link is replaced and its target stays unchanged
write_output a file that the user named, such as --out: links are followed, devices and pipes get the bytes open_regular a file
to read: a pipe or a device is refused, because reading it could wait for ever
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from samekind.errors import ModelFileError, SamekindError

# number of bytes of a file's name that are kept in the name of its temporary file, which may have 255 bytes
MAX_NAME_BYTES = 180
MAX_JSON_BYTES = 2**28
PART = re.compile(r"\..+\.\d+(-\d+)?\.part", re.DOTALL)


# ---------------------------------------------------------------- writing files


def atomic_write(path: Path, blob: bytes, error: type[SamekindError] = SamekindError, *, mode: int = 0o666) -> None:
    """Write bytes to a file in one step. The file gets the permissions in `mode` that the umask allows, and never more."""
    with _atomic_file(path, error, mode) as file:
        file.write(blob)


def atomic_write_array(path: Path, array: npt.NDArray[Any], error: type[SamekindError] = SamekindError) -> None:
    """Write an array as a .npy file in one step, without copying the array in memory."""
    with _atomic_file(path, error) as file:
        np.save(file, array, allow_pickle=False)


def write_output(path: Path, blob: bytes, error: type[SamekindError] = SamekindError, *, mode: int = 0o666) -> None:
    """Write bytes to a path that the user chose.

    If the path is a link, the link is kept, and the file to which it leads is replaced atomically. A device or a pipe is
    opened, and the bytes are written to it.
    """
    try:
        is_special = not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        is_special = False
    except (OSError, ValueError) as reason:
        raise error(_write_failed(path, reason)) from reason
    if not is_special:
        atomic_write(Path(os.path.realpath(path)), blob, error, mode=mode)
        return
    try:
        with open(path, "wb") as file:
            file.write(blob)
    except OSError as reason:
        raise error(_write_failed(path, reason)) from reason


def remove_parts(folder: Path) -> None:
    """Delete the temporary files that a killed process has left in a folder.

    No other process may write there at the same time.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_part(path):
            path.unlink(missing_ok=True)


def is_part(path: Path) -> bool:
    """Return whether the path is a temporary file of `atomic_write`."""
    return PART.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink()


def sync_file(path: Path) -> None:
    """Write the content of a file to the disk, so that it survives a power cut."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Write the names of the files in a folder to the disk, so that a renamed file survives a power cut."""
    if sys.platform == "win32":
        return  # Windows cannot open a folder, and writes the names together with the files
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as reason:
        if reason.errno not in (errno.EINVAL, errno.ENOTSUP):  # raised by network file systems that cannot do this
            raise
    finally:
        os.close(descriptor)


@contextmanager
def _atomic_file(path: Path, error: type[SamekindError], mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a temporary file that replaces `path` at the end of the block.

    If writing fails, `path` is kept and `error` is raised.
    """
    kept = os.fsdecode(os.fsencode(path.name)[:MAX_NAME_BYTES])
    temporary = path.with_name(f".{kept}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        _require_replaceable(path)
        temporary.unlink(missing_ok=True)  # a file that a killed process left may be open elsewhere, or have other permissions
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except (OSError, ValueError) as reason:
        raise error(_write_failed(path, reason)) from reason
    finally:
        _discard(temporary)


def _require_replaceable(path: Path) -> None:
    """Raise OSError if the path is a device, a pipe or a socket, because renaming a file to it would destroy it."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):  # renaming a file to a directory fails anyway
        raise OSError(errno.EINVAL, "it is not a regular file")


def _discard(temporary: Path) -> None:
    try:
        temporary.unlink(missing_ok=True)
    except (OSError, ValueError):
        return  # the caller reports the error of the write, which has the same cause


def _write_failed(path: Path, reason: Exception) -> str:
    cause = (reason.strerror if isinstance(reason, OSError) else None) or str(reason)
    return (
        f"{path} could not be written ({cause}). The previous file is unchanged; free some space or "
        "check the permissions, then try again."
    )


# ---------------------------------------------------------------- reading files


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. For a pipe, a device or a folder, raise OSError without waiting."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except ValueError as reason:  # raised for a path with a NUL character
        raise OSError(errno.EINVAL, str(reason)) from reason
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, max_bytes: int | None = None) -> bytes:
    """Return the content of a file; raise OSError if it is not a regular file, or has more than `max_bytes`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if max_bytes is not None and size > max_bytes:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, and at most {max_bytes:,} are expected")
        return file.read()


def parse_json(text: bytes | str) -> Any:
    """Return the value of a JSON text; raise ValueError if the text is not JSON or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON text is nested too deeply") from error


def read_versioned_json(path: Path, format_: int, *, made_by: str, next_step: str) -> dict[str, Any]:
    """Return the JSON object in a file, after checking the version of its format.

    Error messages name `made_by`, the command that writes such files, and `next_step`, what the user can do.
    """
    try:
        content: dict[str, Any] = parse_json(read_regular(path, MAX_JSON_BYTES))
    except FileNotFoundError as error:
        raise ModelFileError(f"{path.parent} holds no {path.name}; expected a folder made by {made_by}.") from error
    except (ValueError, OSError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}). {next_step}") from error
    found = content.get("format") if isinstance(content, dict) else type(content).__name__
    if found != format_ or isinstance(found, bool | float):
        raise ModelFileError(
            f"{path} has format {shorten(found)}, but this version of samekind reads format {format_}. Use the "
            f"version that wrote the file, or: {next_step}"
        )
    return content


def shorten(value: object, width: int = 60) -> str:
    """Return the repr of a value, cut to `width` characters for an error message."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."
