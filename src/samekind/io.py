"""Files written whole or not at all: whoever looks, or whatever is killed, finds the old file or the new one. And read back."""

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
    """These bytes as a file that nobody ever sees in part, or with more rights than `mode` (less the umask) gives."""
    with _whole(path, error, mode) as file:
        file.write(blob)


def atomic_write_array(path: Path, array: npt.NDArray[Any], error: type[SamekindError] = SamekindError) -> None:
    """An array as .npy, without a copy of it in memory."""
    with _whole(path, error) as file:
        np.save(file, array, allow_pickle=False)


@contextmanager
def _whole(path: Path, error: type[SamekindError], mode: int = 0o666) -> Iterator[BinaryIO]:
    """Written beside, flushed to the disk, then renamed; a failure raises `error` and leaves what was there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        beside.unlink(missing_ok=True)  # nobody else has it open, or has given it other rights
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as reason:
        raise error(
            f"{path} could not be written ({reason.strerror or reason}). What was there before is untouched."
        ) from reason
    finally:
        beside.unlink(missing_ok=True)


def read_versioned_json(path: Path, format_: int, *, made_by: str, instead: str) -> dict[str, Any]:
    """The JSON object in a file that says of which format it is; `made_by` and `instead` tell the user what to do next."""
    try:
        words: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFileError(f"{path.parent} holds no {path.name}; expected a folder made by {made_by}.") from error
    except (ValueError, OSError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}). {instead}") from error
    found = words.get("format") if isinstance(words, dict) else type(words).__name__
    if found != format_:
        raise ModelFileError(f"{path} has format {found!r}; this version reads {format_}. Update samekind, or: {instead}")
    return words
