"""Atomic file writes. After a crash the file holds the old content or the new content, never a part of it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from samekind.errors import ModelFileError, SamekindError


def atomic_write(path: Path, blob: bytes, error: type[SamekindError] = SamekindError, *, mode: int = 0o666) -> None:
    """Write bytes to a file in one step; the file never has more permissions than `mode` less the umask."""
    with _atomic_file(path, error, mode) as file:
        file.write(blob)


def atomic_write_array(path: Path, array: npt.NDArray[Any], error: type[SamekindError] = SamekindError) -> None:
    """Write an array as .npy in one step, without a copy of it in memory."""
    with _atomic_file(path, error) as file:
        np.save(file, array, allow_pickle=False)


@contextmanager
def _atomic_file(path: Path, error: type[SamekindError], mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a temporary file that replaces `path` on success; on failure keep `path` as it was and raise `error`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        temporary.unlink(missing_ok=True)  # a file left by a killed process may be open elsewhere or have other permissions
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as reason:
        raise error(
            f"{path} could not be written ({reason.strerror or reason}). The previous file is unchanged; free some space or "
            "check the permissions, then try again."
        ) from reason
    finally:
        temporary.unlink(missing_ok=True)


def read_versioned_json(path: Path, format_: int, *, made_by: str, next_step: str) -> dict[str, Any]:
    """Return the JSON object in a file, after a check of its format version.

    Errors name `made_by`, the command that writes such files, and `next_step`, what the user can do.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFileError(f"{path.parent} holds no {path.name}; expected a folder made by {made_by}.") from error
    except (ValueError, OSError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}). {next_step}") from error
    found = content.get("format") if isinstance(content, dict) else type(content).__name__
    if found != format_:
        raise ModelFileError(
            f"{path} has format {found!r}; this version reads {format_}. Use the version that wrote it, or: {next_step}"
        )
    return content
