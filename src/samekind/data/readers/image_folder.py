"""A folder of images: which files are in it, and which labels they have, from a file of labels or from class folders."""

from __future__ import annotations

import os
import posixpath
import stat
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from samekind.data.readers.image_decoder import SUFFIXES, is_image_file
from samekind.data.readers.label_file import LabelFile, Naming, read_label_file
from samekind.data.readers.reader import Skipped
from samekind.errors import DataError, LabelError

LABEL_FILES = ("labels.csv", "labels.tsv")
UNLABELLED_FOLDERS = ("unlabelled", "unlabeled", "unknown")
NOT_OURS = ("__macosx", "thumbs.db", "desktop.ini")  # left behind by operating systems
PATH_HEADERS = (
    "path file filename file_name filepath file_path image image_path img picture photo name id".split()
)  # of the column of names in a file of labels


@dataclass(frozen=True)
class ImageFolder:
    """The images of a folder, in the order of their names (relative, with slashes), and what was passed over."""

    root: Path
    names: tuple[str, ...]
    skipped: tuple[Skipped, ...]

    @property
    def files(self) -> list[Path]:
        return [self.root / name for name in self.names]


def find_images(root: Path, *, exclude: Path | None = None) -> ImageFolder:
    """Every image below `root`. Hidden files, other files and the folder `exclude` are passed over in silence."""
    walk = _Walk(root, exclude)
    names = sorted(walk.names(root, ""))
    for folder in walk.named_as_images:
        if not any(name.startswith(folder + "/") for name in names):
            walk.skipped.append(Skipped(folder, "a folder, not an image"))
    if not names:
        listed = f" The first of {len(walk.skipped)} left out: {walk.skipped[0]}." if walk.skipped else ""
        raise DataError(
            f"{root} holds no image that can be read ({walk.n_others} other files).{listed} "
            "Expected files such as .jpg or .png, in it or in folders in it."
        )
    return ImageFolder(root, tuple(names), tuple(sorted(walk.skipped, key=lambda one: one.path)))


def read_folder_labels(found: ImageFolder, labels: Path | None = None, label_column: str | None = None) -> LabelFile:
    """Labels by number of image: from `labels`, else from labels.csv in the folder, else from the class folders."""
    given = labels or next((found.root / name for name in LABEL_FILES if (found.root / name).is_file()), None)
    if given is None:
        return LabelFile(_from_class_folders(found.names), ())
    finder = _Finder(found, given.parent)
    naming = Naming(PATH_HEADERS, finder, "image", found.names[0], _has_image_suffix)
    return read_label_file(given, naming, label_column)


# ---------------------------------------------------------------- files


class _Walk:
    """One way through a tree. Links are followed, but no folder is read twice."""

    def __init__(self, root: Path, exclude: Path | None) -> None:
        self.root = root.resolve()
        self.been = {self.root}
        self.exclude = exclude.resolve() if exclude else None
        self.skipped: list[Skipped] = []
        self.named_as_images: list[str] = []
        self.n_others = 0

    def names(self, folder: Path, prefix: str) -> Iterator[str]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            self._skip(prefix.rstrip("/") or str(folder), _words(error))
            return
        for entry in entries:
            name = prefix + entry.name
            if entry.name.startswith(".") or entry.name.lower() in NOT_OURS:
                continue
            try:
                mode = entry.stat().st_mode
            except OSError as error:
                self._cannot_stat(entry, name, error)
                continue
            if stat.S_ISDIR(mode):
                yield from self._below(entry, name)
            elif _has_image_suffix(name) or (
                not PurePosixPath(name).suffix and stat.S_ISREG(mode) and is_image_file(Path(entry))
            ):
                if stat.S_ISREG(mode):
                    yield name
                else:
                    self._skip(name, "not a regular file")
            else:
                self.n_others += 1

    def _below(self, entry: os.DirEntry[str], name: str) -> Iterator[str]:
        real = Path(entry).resolve()
        inside = real == self.root or self.root in real.parents
        if real == self.exclude:
            return
        if entry.is_symlink() and (inside or real in self.root.parents):
            self._skip(name, f"a link to {real}, " + ("which is read anyway" if inside else "the folder around this one"))
            return
        if real in self.been:
            self._skip(name, f"a link to {real}, which is read already")
            return
        self.been.add(real)
        if _has_image_suffix(name):
            self.named_as_images.append(name)
        yield from self.names(Path(entry), name + "/")

    def _cannot_stat(self, entry: os.DirEntry[str], name: str, error: OSError) -> None:
        if entry.is_symlink():
            self._skip(name, f"a link that leads nowhere ({os.readlink(entry)!r})")
        elif _has_image_suffix(name):
            self._skip(name, _words(error))

    def _skip(self, name: str, reason: str) -> None:
        self.skipped.append(Skipped(name, reason))


def _has_image_suffix(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


# ---------------------------------------------------------------- labels


def _from_class_folders(names: Sequence[str]) -> dict[int, str | None]:
    """The first folder of a name is its class; files beside the folders, and those in `unlabelled`, have none."""
    folders = {i: name.split("/")[0] for i, name in enumerate(names) if "/" in name}
    return {i: folder for i, folder in folders.items() if folder.lower() not in UNLABELLED_FOLDERS}


def _same(text: str) -> str:
    return text


def _composed(text: str) -> str:
    # one system writes ä as one letter, another as a and two dots
    return unicodedata.normalize("NFC", text)


def _lower(text: str) -> str:
    return _composed(text).casefold()


def _without_suffix(text: str) -> str:
    return os.path.splitext(_lower(text))[0]


class _Finder:
    """The number of the image that a cell of a file of labels means, under the spellings that people use.

    Tried in this order, each as written, then without regard to case, then without the ending: the path from the folder, the
    path from the file of labels, the path with the folder's own name before it, the end of a path from another machine, and
    the bare name of a file if only one has it.
    """

    SPELLINGS: tuple[Callable[[str], str], ...] = (_same, _composed, _lower, _without_suffix)

    def __init__(self, found: ImageFolder, beside: Path) -> None:
        self.names = found.names
        self.root, self.beside = found.root.resolve(), beside.resolve()
        self.root_as_given = found.root.absolute()
        self._tables: dict[tuple[int, bool], dict[str, list[int]]] = {}

    def __call__(self, cell: str) -> int | None:
        candidates = self._candidates(cell)
        is_bare = not set(cell) & set("/\\")
        for k, spell in enumerate(self.SPELLINGS):
            paths = self._table(k, bare=False)
            hits = next((paths[key] for key in map(spell, candidates) if key in paths), [])
            if not hits and is_bare:
                hits = self._table(k, bare=True).get(spell(cell.strip()), [])
            if hits:
                return self._only(cell, hits)
        return None

    def _table(self, k: int, *, bare: bool) -> dict[str, list[int]]:
        """Images by their path or bare name in spelling k; made when first needed, as eight tables of 100,000 take 160 MB."""
        if (k, bare) not in self._tables:
            names = [name.rsplit("/", 1)[-1] for name in self.names] if bare else self.names
            self._tables[k, bare] = _by_key(names, self.SPELLINGS[k])
        return self._tables[k, bare]

    def _candidates(self, cell: str) -> list[str]:
        text = cell.strip()
        windows = PureWindowsPath(text)
        if text.startswith("/") or windows.drive:
            return [cell, *self._of_absolute(text, windows)]
        plain = posixpath.normpath(text.replace("\\", "/"))
        return [cell, text, plain, *self._below_root(self.beside / plain), plain.removeprefix(self.root.name + "/")]

    def _of_absolute(self, text: str, windows: PureWindowsPath) -> list[str]:
        """A path on this machine is in the folder or not; one from elsewhere is known by its end."""
        here = Path(text)
        if below := self._below_root(here):
            return below
        if here.exists():
            return []
        parts = windows.parts[1:]
        return ["/".join(parts[k:]) for k in range(len(parts))]

    def _below_root(self, path: Path) -> list[str]:
        plain = Path(os.path.normpath(path))
        roots = [root for root in (self.root, self.root_as_given) if plain.is_relative_to(root)]
        return [plain.relative_to(root).as_posix() for root in roots]

    def _only(self, cell: str, hits: list[int]) -> int:
        if len(hits) > 1:
            both = " or ".join(repr(self.names[i]) for i in hits[:2])
            raise LabelError(f"{cell!r} in the file of labels could mean {both}. Write the path from {self.root}.")
        return hits[0]


def _by_key(names: Sequence[str], spell: Callable[[str], str]) -> dict[str, list[int]]:
    table: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        table.setdefault(spell(name), []).append(i)
    return table
