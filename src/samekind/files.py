"""Files written whole or not at all: whoever looks, or whatever is killed, finds the old file or the new one."""

from __future__ import annotations

import os
from pathlib import Path

from samekind.errors import SamekindError


def write_whole(path: Path, blob: bytes, error: type[SamekindError] = SamekindError) -> None:
    """Written beside, flushed to the disk, then renamed; a failure raises `error` and leaves what was there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as reason:
        raise error(
            f"{path} could not be written ({reason.strerror or reason}). What was there before is untouched."
        ) from reason
    finally:
        beside.unlink(missing_ok=True)
