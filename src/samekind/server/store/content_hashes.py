"""Files that have other names now: a labelled one is known by its content, any other by its size and time of change."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from samekind.data.readers.image_folder import find_images
from samekind.errors import DataError
from samekind.server.periodic_task import PeriodicTask
from samekind.server.store.label_store import FileStamp, LabelStore

K = TypeVar("K")
SECONDS = 2.0  # between two looks for labelled files whose content is not noted yet
AT_ONCE = 64  # of which so many are noted together


def renamed_files(root: str, known: Sequence[FileStamp], names: Sequence[str]) -> dict[str, str]:
    """New names with the old ones, where a file is gone and one of `names` must be it, and no other can be."""
    here, before = set(names), {stamp.name for stamp in known}
    gone = [stamp for stamp in known if stamp.name not in here]
    if not gone:
        return {}
    sizes = {stamp.size for stamp in gone}
    new = {name: at for name in names if name not in before and (at := stamp_of(root, name)) and at[0] in sizes}
    printed = [stamp for stamp in gone if stamp.sha256]
    info = [name for name, (size, _) in new.items() if size in {stamp.size for stamp in printed}]
    found = _pairs(((m.sha256, m.name) for m in printed), ((sha256_of(os.path.join(root, name)), name) for name in info))
    left = ((at, name) for name, at in new.items() if name not in found)
    return found | _pairs((((m.size, m.mtime_ns), m.name) for m in gone if not m.sha256), left)


def sha256_of(path: str) -> str | None:
    """None if the file cannot be read."""
    hashed = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                hashed.update(chunk)
    except OSError:
        return None
    return hashed.hexdigest()


def stamp_of(root: str, name: str) -> tuple[int, int] | None:
    """Size and time of change; None if there is no such file."""
    try:
        about = os.stat(os.path.join(root, name))
    except OSError:
        return None
    return about.st_size, about.st_mtime_ns


def _pairs(old: Iterable[tuple[K, str]], new: Iterable[tuple[K, str]]) -> dict[str, str]:
    """New names with the old ones that have the same key, without those keys that several have."""
    was, now = _only(old), _only(new)
    return {name: was[key] for key, name in now.items() if key is not None and key in was}


def _only(pairs: Iterable[tuple[K, str]]) -> dict[K, str]:
    found: dict[K, list[str]] = {}
    for key, name in pairs:
        found.setdefault(key, []).append(name)
    return {key: names[0] for key, names in found.items() if len(names) == 1}


# ---------------------------------------------------------------- of a page


def follow_renames(store: LabelStore, root: Path, cache: Path) -> int:
    """Items whose files have other names now get these names; how many. The folder is read only if a labelled file is gone."""
    if all(os.path.lexists(os.path.join(root, stamp.name)) for stamp in store.file_stamps(labelled=True)):
        return 0
    try:
        names = find_images(root, exclude=cache).names
    except DataError:
        return 0
    found = renamed_files(str(root), store.file_stamps(), names)
    number = {name: i for i, name in enumerate(store.names)}
    store.rename_images({number[old]: new for new, old in found.items()})
    return len(found)


class ContentHasher:
    """Notes the content of labelled files in the background, so that they are known again under another name."""

    def __init__(self, store: LabelStore, root: Path, *, seconds: float = SECONDS) -> None:
        self._store, self._root = store, root
        self._seen = -1  # the last event that was looked at
        self._noting = PeriodicTask(seconds, self.note)

    def close(self) -> None:
        self._noting.close()

    def note(self) -> None:
        """All that is labelled and not noted yet; stops in between when the page is closed."""
        seq = self._store.last_seq
        if seq == self._seen:
            return
        wanted = self._store.unhashed_items()
        for start in range(0, len(wanted), AT_ONCE):
            some = {i: sha256_of(os.path.join(self._root, self._store.names[i])) for i in wanted[start : start + AT_ONCE]}
            self._store.set_content_hashes({i: text for i, text in some.items() if text is not None})
            if self._noting.closing:
                return
        self._seen = seq
