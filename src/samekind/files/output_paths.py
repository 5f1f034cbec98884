"""Checks of a path that the user chose for results. They run before anything is decoded or trained."""

from __future__ import annotations

import os
from pathlib import Path

from samekind.errors import SettingError

MAX_PATH_BYTES = 3500  # for the path of a folder; systems allow 4096, and the paths of the files in it are longer than its own
MAX_NAME_BYTES = 250  # largest length of a name; systems allow 255, but .csv or .png may be appended


def require_output_path(path: Path, option: str = "--out") -> None:
    """Raise SettingError if no file or folder can be created at this path.

    That is the case if the path is empty or too long, if it leads through a file, or if its folder is read-only.
    """
    text = os.fsencode(path)
    if b"\0" in text or not path.name:
        raise SettingError(f"{option} is {str(path)!r}; expected the name of a file or folder.")
    longest = max(len(os.fsencode(part)) for part in path.parts)
    if longest > MAX_NAME_BYTES or len(os.fsencode(path.absolute())) > MAX_PATH_BYTES:
        raise SettingError(
            f"{option} is too long: {longest} bytes in a name and {len(text)} in all; expected at most "
            f"{MAX_NAME_BYTES} in a name and {MAX_PATH_BYTES} in all. Choose a shorter path."
        )
    try:
        _require_writable(path, option)
    except OSError as error:
        raise SettingError(f"{option} {path} cannot be used ({error.strerror}). Choose another path.") from error


def _require_writable(path: Path, option: str) -> None:
    if path.exists() and not path.is_dir():  # a path that exists, such as a file, link, pipe or device, is written to directly
        if not os.access(path, os.W_OK):
            raise SettingError(f"{option} {path} may not be written. Choose another path, or change its permissions.")
        return
    above = next(one for one in (path, *path.absolute().parents) if os.path.lexists(one))
    if not above.is_dir() and above != path:
        raise SettingError(f"{option} {path} is below {above}, which is no folder. Choose another path.")
    if above.is_dir() and not os.access(above, os.W_OK | os.X_OK):
        raise SettingError(f"{option} {path} cannot be made: {above} is read-only. Choose another path.")
