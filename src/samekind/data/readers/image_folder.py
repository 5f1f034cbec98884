"""A folder of images or texts: finds its files, and reads their labels from a label file or from names of subfolders."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from samekind.data.readers.image_decoder import SUFFIXES, is_image_file
from samekind.data.readers.label_file import LabelFile, Naming, compose, read_label_file
from samekind.data.readers.reader import Skipped
from samekind.errors import DataError, LabelError
from samekind.files.manifest import is_run

LABEL_FILES = ("labels.csv", "labels.tsv")
UNLABELLED_FOLDERS = ("unlabelled", "unlabeled", "unknown")
SYSTEM_FILES = ("__macosx", "thumbs.db", "desktop.ini")  # files and folders that operating systems add; they are ignored
# Possible headers of the column in a label file that contains the names of images.
PATH_HEADERS = "path file filename file_name filepath file_path image image_path img picture photo name id".split()


def _is_no_file(path: Path) -> bool:
    return False


@dataclass(frozen=True)
class FileKind:
    """Kind of files to find in a folder.

    `noun` names such a file in error messages, and `is_kind` tests a file that has no suffix.
    """

    noun: str
    suffixes: tuple[str, ...]
    is_kind: Callable[[Path], bool] = _is_no_file

    def has_suffix(self, name: str) -> bool:
        """Return whether a file name ends with one of the suffixes, in upper or lower case."""
        return os.path.splitext(name)[1].lower() in self.suffixes


IMAGES = FileKind("image", tuple(SUFFIXES), is_image_file)


@dataclass(frozen=True)
class FileFolder:
    """The files of one kind in a folder, sorted by name, and the files that were skipped.

    The name of a file is its path relative to the folder, with slashes.
    """

    root: Path
    names: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    kind: FileKind = IMAGES

    @property
    def files(self) -> list[Path]:
        """Return the path of each file."""
        return [self.root / name for name in self.names]


def find_images(root: Path, *, exclude: Path | None = None) -> FileFolder:
    """Return all images in `root` and its subfolders. Hidden files, other files, runs and the folder `exclude` are ignored."""
    return find_files(root, IMAGES, exclude=exclude)


def holds_files(root: Path, kind: FileKind, *, exclude: Path | None = None) -> bool:
    """Return whether `root` or a subfolder has a file of this kind."""
    return next(_FolderScan(root, exclude, kind).names(root, ""), None) is not None


def find_files(root: Path, kind: FileKind, *, exclude: Path | None = None) -> FileFolder:
    """Return all files of this kind in `root` and its subfolders.

    Hidden files, other files, runs and the folder `exclude` are ignored.
    """
    scan = _FolderScan(root, exclude, kind)
    names = sorted(scan.names(root, ""))
    for folder in scan.folders_with_suffix:
        if not any(name.startswith(folder + "/") for name in names):
            scan.skipped.append(Skipped(folder, f"a folder, not {'an' if kind is IMAGES else 'a'} {kind.noun}"))
    if not names:
        listed = f" The first of {len(scan.skipped)} skipped files: {scan.skipped[0]}." if scan.skipped else ""
        raise DataError(
            f"{root} holds no {kind.noun} that can be read ({scan.n_others} other files).{listed} "
            "Expected files such as .jpg, .png or .txt, in the folder or its subfolders."
        )
    return FileFolder(root, tuple(names), tuple(sorted(scan.skipped, key=lambda one: one.path)), kind)


def read_folder_labels(folder: FileFolder, labels: Path | None = None, label_column: str | None = None) -> LabelFile:
    """Return the labels as {index of file: class}.

    They come from `labels`, else from labels.csv in the folder, else from the names of subfolders.
    """
    given = labels or next((folder.root / name for name in LABEL_FILES if (folder.root / name).is_file()), None)
    if given is None:
        return LabelFile(_from_class_folders(folder.names), ())
    matcher = _NameMatcher(folder, given.parent)
    naming = Naming(PATH_HEADERS, matcher, folder.kind.noun, folder.names[0], folder.kind.has_suffix)
    return read_label_file(given, naming, label_column)


# ---------------------------------------------------------------- finding the image files


class _FolderScan:
    """Scan of a folder and its subfolders. It follows links, but reads no folder twice."""

    def __init__(self, root: Path, exclude: Path | None, kind: FileKind) -> None:
        self.kind = kind
        self.root = root.resolve()
        self.visited = {self.root}
        self.exclude = exclude.resolve() if exclude else None
        self.skipped: list[Skipped] = []
        self.folders_with_suffix: list[str] = []
        self.n_others = 0

    def names(self, folder: Path, prefix: str) -> Iterator[str]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            self._skip(prefix.rstrip("/") or str(folder), _reason(error))
            return
        for entry in entries:
            name = prefix + entry.name
            if entry.name.startswith(".") or entry.name.lower() in SYSTEM_FILES:
                continue
            try:
                mode = entry.stat().st_mode
            except OSError as error:
                self._cannot_stat(entry, name, error)
                continue
            if stat.S_ISDIR(mode):
                yield from self._scan_subfolder(entry, name)
            elif self.kind.has_suffix(name) or (
                not PurePosixPath(name).suffix and stat.S_ISREG(mode) and self.kind.is_kind(Path(entry))
            ):
                if stat.S_ISREG(mode):
                    yield name
                else:
                    self._skip(name, "not a regular file")
            else:
                self.n_others += 1

    def _scan_subfolder(self, entry: os.DirEntry[str], name: str) -> Iterator[str]:
        real = Path(entry).resolve()
        inside = real == self.root or self.root in real.parents
        if real == self.exclude or is_run(real):  # thumbnails and other images that a run has written are no data
            return
        if entry.is_symlink() and (inside or real in self.root.parents):
            self._skip(name, f"a link to {real}, " + ("which is read anyway" if inside else "a folder that contains this one"))
            return
        if real in self.visited:
            self._skip(name, f"a link to {real}, which is read already")
            return
        self.visited.add(real)
        if self.kind.has_suffix(name):
            self.folders_with_suffix.append(name)
        yield from self.names(Path(entry), name + "/")

    def _cannot_stat(self, entry: os.DirEntry[str], name: str, error: OSError) -> None:
        if entry.is_symlink():
            self._skip(name, f"a link that leads nowhere ({os.readlink(entry)!r})")
        elif self.kind.has_suffix(name):
            self._skip(name, _reason(error))

    def _skip(self, name: str, reason: str) -> None:
        self.skipped.append(Skipped(name, reason))


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


# ---------------------------------------------------------------- labels of the images


def _from_class_folders(names: Sequence[str]) -> dict[int, str | None]:
    """Return the class of each file: the name of its top folder.

    Files outside subfolders, or in a folder such as `unlabelled`, get no class.
    """
    folders = {i: compose(name.split("/")[0]) for i, name in enumerate(names) if "/" in name}
    return {i: folder for i, folder in folders.items() if folder.lower() not in UNLABELLED_FOLDERS}


def _unchanged(text: str) -> str:
    return text


def _casefold(text: str) -> str:
    return compose(text).casefold()


def _without_suffix(text: str) -> str:
    return os.path.splitext(_casefold(text))[0]


class _NameMatcher:
    """Finds the index of the file that a name in a label file means.

    Each name is tried in several ways:

    - as a path relative to the folder of the data, or relative to the folder of the label file;
    - as a path that begins with the name of the folder of the data;
    - as an absolute path; if it is from another machine, only its end has to match;
    - as a file name, which must be unique.

    In each way, names are compared first as written, then in Unicode form NFC, then ignoring case, then also without suffix.
    """

    NORMALIZATIONS: tuple[Callable[[str], str], ...] = (_unchanged, compose, _casefold, _without_suffix)

    def __init__(self, folder: FileFolder, label_folder: Path) -> None:
        self.names = folder.names
        self.root, self.label_folder = folder.root.resolve(), label_folder.resolve()
        self.root_as_given = folder.root.absolute()
        self._tables: dict[tuple[int, bool], dict[str, list[int]]] = {}

    def __call__(self, cell: str) -> int | None:
        candidates = self._candidates(cell)
        is_file_name = not set(cell) & set("/\\")
        for k, normalize in enumerate(self.NORMALIZATIONS):
            paths = self._table(k, by_file_name=False)
            matches = next((paths[key] for key in map(normalize, candidates) if key in paths), [])
            if not matches and is_file_name:
                matches = self._table(k, by_file_name=True).get(normalize(cell.strip()), [])
            if matches:
                return self._single_match(cell, matches)
        return None

    def _table(self, k: int, *, by_file_name: bool) -> dict[str, list[int]]:
        """Return {normalized path, or file name: indices of files}. `k` is the number of the normalization.

        The table is built when it is first needed.
        """
        if (k, by_file_name) not in self._tables:
            names = [name.rsplit("/", 1)[-1] for name in self.names] if by_file_name else self.names
            self._tables[k, by_file_name] = _by_key(names, self.NORMALIZATIONS[k])
        return self._tables[k, by_file_name]

    def _candidates(self, cell: str) -> list[str]:
        text = cell.strip()
        windows = PureWindowsPath(text)
        if text.startswith("/") or windows.drive:
            return [cell, *self._absolute_candidates(text, windows)]
        relative = posixpath.normpath(text.replace("\\", "/"))
        without_root = relative.removeprefix(self.root.name + "/")
        return [cell, text, relative, *self._below_root(self.label_folder / relative), without_root]

    def _absolute_candidates(self, text: str, windows: PureWindowsPath) -> list[str]:
        """Return the possible file names for an absolute path.

        If the path is in the image folder, that is its relative part. If it does not exist on this machine, those are all its
        ends.
        """
        here = Path(text)
        if below := self._below_root(here):
            return below
        if here.exists():
            return []
        parts = windows.parts[1:]
        return ["/".join(parts[k:]) for k in range(len(parts))]

    def _below_root(self, path: Path) -> list[str]:
        normal = Path(os.path.normpath(path))
        roots = [root for root in (self.root, self.root_as_given) if normal.is_relative_to(root)]
        return [normal.relative_to(root).as_posix() for root in roots]

    def _single_match(self, cell: str, matches: list[int]) -> int:
        if len(matches) > 1:
            both = " or ".join(repr(self.names[i]) for i in matches[:2])
            raise LabelError(f"{cell!r} in the label file could mean {both}. Write the path relative to {self.root}.")
        return matches[0]


def _by_key(names: Sequence[str], normalize: Callable[[str], str]) -> dict[str, list[int]]:
    table: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        table.setdefault(normalize(name), []).append(i)
    return table
