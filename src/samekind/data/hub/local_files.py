"""Files of benchmark datasets on this machine: where they are, whether they exist, and their checksums.

`root` is the folder of all datasets: the argument, else $SAMEKIND_DATA, else "data".
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from samekind.data.hub.catalogue import DATASETS, DatasetSource, Digest, find_dataset
from samekind.errors import DataError, SettingError

CHUNK = 1 << 20  # bytes read at once


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder of all datasets."""
    return Path(root if root is not None else os.environ.get("SAMEKIND_DATA") or "data").expanduser()


def dataset_folder(source: DatasetSource, root: str | Path | None = None) -> Path:
    """Return the folder that holds the dataset, or the one it would be downloaded to."""
    folders = [data_root(root) / name for name in source.folders]
    files = (*source.needed, *source.optional)
    return next((folder for folder in folders if any(is_file(folder / file.name) for file in files)), folders[0])


def is_file(path: Path) -> bool:
    """Return whether `path` is a file; False in a folder that may not be opened."""
    return os.path.isfile(path)


def fetch_command(source: DatasetSource, root: str | Path | None = None, extra: bool = False) -> str:
    """Return the shell command that downloads the dataset."""
    where = f" --root {shlex.quote(str(root))}" if root is not None else ""
    return f"samekind data fetch {source.name}{where}{' --extra' if extra else ''}"


def require_extra(source: DatasetSource, extra: bool) -> None:
    """Raise SettingError if `extra` is set and the dataset has no extra images."""
    if extra and source.extra is None:
        having = ", ".join(other.name for other in DATASETS.values() if other.extra)
        raise SettingError(f"{source.name} has no extra images; only {having} has. Leave extra out.")


def require_downloaded(name: str, root: str | Path | None = None, *, extra: bool = False) -> None:
    """Raise DataError, with the command to run, if a file of the dataset is missing. Open no file."""
    source = find_dataset(name)
    require_extra(source, extra)
    splits = [source.train, source.test, *([source.extra] if extra and source.extra else [])]
    folder = dataset_folder(source, root)
    missing = [file.name for split in splits for file in split.files if not is_file(folder / file.name)]
    if missing:
        more = f" and {len(missing) - 1} more file(s) are" if len(missing) > 1 else " is"
        raise DataError(f"{name} is not in {folder}: {missing[0]}{more} missing. Run: {fetch_command(source, root, extra)}")


def digest(chunks: Iterable[bytes]) -> Digest:
    """Return the size and checksums of bytes."""
    md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
    for chunk in chunks:
        md5.update(chunk)
        sha256.update(chunk)
        size += len(chunk)
    return Digest(size, md5.hexdigest(), sha256.hexdigest())


def file_digest(path: Path) -> Digest:
    """Return the size and checksums of a file, read in chunks."""
    try:
        with path.open("rb") as file:
            return digest(iter(lambda: file.read(CHUNK), b""))
    except OSError as error:
        raise unreadable(path, error) from error


def describe_difference(found: Digest, expected: Digest) -> str:
    """Return in words how a file differs from the official one."""
    if found.size != expected.size:
        return f"{found.size} bytes instead of {expected.size}"
    return f"sha256 {found.sha256[:12]}… instead of {expected.sha256[:12]}…"


def unreadable(path: Path, error: OSError) -> DataError:
    """Return the error for a file that the operating system does not let us read."""
    return DataError(f"{path} cannot be read ({error.strerror or error}). Check its permissions and the disk.")
