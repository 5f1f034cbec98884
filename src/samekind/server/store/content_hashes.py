"""Detection of renamed files. A labelled file is recognized by its SHA-256, any other by its size and modification time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from samekind.data.readers.image_folder import find_images
from samekind.errors import DataError
from samekind.server.media.data_files import open_regular_file
from samekind.server.periodic_task import PeriodicTask
from samekind.server.store.batches import ItemFileStamp
from samekind.server.store.label_store import LabelStore

K = TypeVar("K")
SECONDS = 2.0  # seconds after which labelled files without a content hash are searched for again
CHUNK = 64  # number of hashes that are stored in one transaction


def find_renamed_files(root: str, known: Sequence[ItemFileStamp], names: Sequence[str]) -> dict[str, str]:
    """Return {new name: old name} for each missing file in `known` that matches exactly one new file in `names`.

    Suppose that B was renamed to C, and then A to B. The file B counts as new, although an item has this name, because its size
    or time differs from that of the item. When A is matched to the file B, the old file of the item B is searched for among the
    remaining new files, and found as C.
    """
    present, before = set(names), {stamp.name: stamp for stamp in known}
    gone = [stamp for stamp in known if stamp.name not in present]
    found: dict[str, str] = {}
    new: dict[str, tuple[int, int]] = {}
    for name in names if gone else ():
        at = file_stamp(root, name)
        if at is not None and (name not in before or at != (before[name].size, before[name].mtime_ns)):
            new[name] = at
    while gone:
        matched = _match_files(root, gone, new)
        found |= matched
        new = {name: at for name, at in new.items() if name not in matched}
        gone = [before[name] for name in matched if name in before]
    return found


def _match_files(root: str, gone: Sequence[ItemFileStamp], new: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Return {new name: old name} for each missing file that matches exactly one new file.

    `new` is {name: (size, modification time)} of the new files.
    """
    sizes = {stamp.size for stamp in gone}
    new = {name: at for name, at in new.items() if at[0] in sizes}
    hashed = [stamp for stamp in gone if stamp.sha256]
    candidates = [name for name, (size, _) in new.items() if size in {stamp.size for stamp in hashed}]
    found = _match(
        ((stamp.sha256, stamp.name) for stamp in hashed),
        ((file_sha256(os.path.join(root, name)), name) for name in candidates),
    )
    unmatched = ((at, name) for name, at in new.items() if name not in found)
    unhashed = (((stamp.size, stamp.mtime_ns), stamp.name) for stamp in gone if not stamp.sha256)
    return found | _match(unhashed, unmatched)


def file_sha256(path: str, is_stopped: Callable[[], bool] = lambda: False) -> str | None:
    """Return the SHA-256 of a regular file; None if it cannot be read, or if `is_stopped()` becomes True meanwhile."""
    hashed = hashlib.sha256()
    try:
        with open_regular_file(path) as file:
            while chunk := file.read(1 << 20):
                if is_stopped():
                    return None
                hashed.update(chunk)
    except OSError:
        return None
    return hashed.hexdigest()


def file_stamp(root: str, name: str) -> tuple[int, int] | None:
    """Return (size, modification time) of a file; None if it does not exist."""
    try:
        stat = os.stat(os.path.join(root, name))
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _match(old: Iterable[tuple[K, str]], new: Iterable[tuple[K, str]]) -> dict[str, str]:
    """Return {new name: old name} for each key that occurs exactly once on both sides.

    `old` and `new` are pairs (key, name), where the key is a hash, or a size and a time.
    """
    before, after = _unique(old), _unique(new)
    return {name: before[key] for key, name in after.items() if key is not None and key in before}


def _unique(pairs: Iterable[tuple[K, str]]) -> dict[K, str]:
    found: dict[K, list[str]] = {}
    for key, name in pairs:
        found.setdefault(key, []).append(name)
    return {key: names[0] for key, names in found.items() if len(names) == 1}


# ---------------------------------------------------------------- renamed files in the label store


def update_renamed_items(store: LabelStore, root: Path, cache: Path) -> int:
    """Rename the items whose files were renamed; return how many. The folder is only listed if a labelled file is missing."""
    if all(os.path.lexists(os.path.join(root, stamp.name)) for stamp in store.file_stamps(labelled=True)):
        return 0
    try:
        names = find_images(root, exclude=cache).names
    except DataError:
        return 0
    found = find_renamed_files(str(root), store.file_stamps(), names)
    ids = {name: i for i, name in enumerate(store.names)}
    store.rename_items({ids[old]: new for new, old in found.items()})
    return len(found)


class ContentHasher:
    """Stores content hashes of labelled files in the background, so that files that are renamed later are recognized."""

    def __init__(self, store: LabelStore, root: Path, *, seconds: float = SECONDS) -> None:
        self._store, self._root = store, root
        self._seen = -1  # number of the last event whose files are hashed
        self._task = PeriodicTask(seconds, self.hash_labelled)

    def close(self) -> None:
        """Stop the hashing, also in the middle of a large file."""
        self._task.close()

    def hash_labelled(self) -> None:
        """Hash all labelled files that have no hash yet; stop early when the hasher is closed."""
        seq = self._store.last_seq
        if seq == self._seen:
            return
        items = self._store.unhashed_items()
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            paths = {i: os.path.join(self._root, self._store.names[i]) for i in chunk}
            hashes = {i: file_sha256(path, lambda: self._task.closing) for i, path in paths.items()}
            self._store.set_content_hashes({i: text for i, text in hashes.items() if text is not None})
            if self._task.closing:
                return
        self._seen = seq
