"""Thumbnails and large views for the page. Images are encoded anew, so that the browser gets no metadata of the files."""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from samekind.data.readers.image_decoder import decode_for_display
from samekind.errors import RequestError
from samekind.files.io import atomic_write
from samekind.server.media.data_files import open_data_file, stat_data_file
from samekind.server.store.own_paths import require_own_folder

SIZES = (128, 256)
FULL_SIDE = 2560  # longer side of a large view in pixels
VERSION = 1  # part of the cache key; increase it when thumbnails are made differently
MAX_BYTES = 2 << 30  # largest total size of all thumbnails on disk
LOSSLESS_SIDE = 192  # images up to this side become PNG, because JPEG would blur them
THUMBNAIL_FOLDER = re.compile(r"[0-9a-f]{2}")
# names of thumbnails, and of unfinished ones that a killed process left behind
THUMBNAIL = re.compile(r"[0-9a-f]{40}|\.[0-9a-f]{40}\.\d+-\d+\.part")
BACKGROUND, INK, FAINT = "#f4f4f2", "#30343b", "#c9ccd1"


@dataclass(frozen=True)
class ImageSource:
    """Source of the image of an item.

    `key` changes when the content changes. `load(side)` returns the image, or a text that says why it cannot be shown.
    """

    key: str
    load: Callable[[int], Any]


def file_source(root: Path, name: str) -> ImageSource:
    """Return the source of the image in a file inside `root`."""
    key = image_file_key(name, stat_data_file(root, name))

    def load(side: int) -> Any:
        with open_data_file(root, name) as file:
            # a new image must not be stored under the key of the old one
            if image_file_key(name, os.fstat(file.fileno())) != key:
                raise RequestError(409, "The file of this item was replaced while it was read. Try again.")
            return decode_for_display(file, side)

    return ImageSource(key, load)


def image_file_key(name: str, about: os.stat_result) -> str:
    """Return a key that changes when the file of this name changes."""
    return hashlib.sha1(f"{name}\0{about.st_size}\0{about.st_mtime_ns}".encode("utf-8", "surrogateescape")).hexdigest()


class Thumbnails:
    """Cache of thumbnails on disk. The newest request is served first, and files that were not used for longest are removed.

    With `read_only`, existing thumbnails are used, but none is written.
    """

    def __init__(
        self, folder: Path, *, max_bytes: int = MAX_BYTES, workers: int | None = None, read_only: bool = False
    ) -> None:
        self.folder, self.max_bytes, self.read_only = folder, max_bytes, read_only
        self.n_decoded = 0  # number of images decoded since the start
        self._gate = NewestFirstGate(workers or os.cpu_count() or 1)
        self._making: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._bytes: int | None = None

    def get(self, source: ImageSource, side: int) -> bytes:
        """Return the thumbnail of an item, from disk, or made now."""
        name = hashlib.sha1(f"{source.key}\0{side}\0{VERSION}".encode()).hexdigest()
        path = self.folder / name[:2] / name
        if (found := _read(path, read_only=self.read_only)) is not None:
            return found
        with self._lock_name(name):
            if (found := _read(path, read_only=self.read_only)) is not None:
                return found
            with self._gate:
                blob = encode_image(source.load(side), side)
                self.n_decoded += 1
            if not self.read_only:
                self._store(path, blob)
            return blob

    def full(self, source: ImageSource) -> bytes:
        """Return the large view of an item. It is not cached."""
        with self._gate:
            return encode_image(source.load(FULL_SIDE), FULL_SIDE)

    @contextmanager
    def _lock_name(self, name: str) -> Iterator[None]:
        """Let only one thread at a time make this thumbnail."""
        with self._lock:
            lock = self._making.setdefault(name, threading.Lock())
        with lock:
            yield
        with self._lock:
            self._making.pop(name, None)

    def _store(self, path: Path, blob: bytes) -> None:
        """Write a thumbnail to disk. If that fails, for example on a full disk, the next request makes the thumbnail again."""
        with suppress(OSError, RequestError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if path.parent.is_symlink():
                return
            atomic_write(path, blob, ThumbnailWriteError)
            with self._lock:
                if self._bytes is None:
                    self._bytes = sum(size for _, size, _ in _files(self.folder))
                else:
                    self._bytes += len(blob)
                if self._bytes > self.max_bytes:
                    self._bytes = evict(self.folder, int(0.9 * self.max_bytes))


class ThumbnailWriteError(RequestError):
    """Error of a thumbnail that could not be written."""

    def __init__(self, detail: str) -> None:
        super().__init__(507, detail)


def evict(folder: Path, keep: int) -> int:
    """Remove files, those not used for longest first, until at most `keep` bytes are left; return the number of bytes left."""
    files = sorted(_files(folder))
    total = sum(size for _, size, _ in files)
    for _, size, path in files:
        if total <= keep:
            break
        with suppress(OSError):
            path.unlink()
            total -= size
    return total


def clear(folder: Path) -> int:
    """Remove all thumbnails and return how many bytes they took. Other files in the folder are kept."""
    require_own_folder(folder.parent)
    require_own_folder(folder)
    size = sum(one for _, one, _ in _files(folder))
    evict(folder, 0)
    return size


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield (time of access, size, path) of all files that `Thumbnails` made. Links are not followed."""
    for parent in _entries(folder, THUMBNAIL_FOLDER):
        if parent.is_dir(follow_symlinks=False):
            for file in _entries(Path(parent.path), THUMBNAIL):
                with suppress(OSError):
                    about = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        yield about.st_atime, about.st_size, Path(file.path)


def _entries(folder: Path, name: re.Pattern[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if name.fullmatch(entry.name)]
    except OSError:
        return []


def _read(path: Path, *, read_only: bool) -> bytes | None:
    try:
        blob = path.read_bytes()
        if not read_only:
            # sets the access time for `evict`, because file systems often do not update it
            os.utime(path, (time.time(), path.stat().st_mtime))
        return blob
    except OSError:
        return None


class NewestFirstGate:
    """Semaphore that admits the newest waiting thread first, because the newest request is for what the screen shows now."""

    def __init__(self, slots: int) -> None:
        self._lock = threading.Lock()
        self._free = slots
        self._waiting: list[threading.Event] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = threading.Event()
            self._waiting.append(turn)
        turn.wait()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.pop().set()
            else:
                self._free += 1


# ---------------------------------------------------------------- encoding and drawing


def encode_image(image: Any, side: int) -> bytes:
    """Return an image as PNG or JPEG without metadata, reduced to fit into a square of `side` pixels; a str is drawn as
    text.
    """
    if isinstance(image, str):
        image = draw_text_tile(image, side)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    bare = Image.new(image.mode, image.size)
    bare.paste(image)
    blob = io.BytesIO()
    if max(bare.size) <= LOSSLESS_SIDE:
        bare.save(blob, "PNG")
    else:
        bare.save(blob, "JPEG", quality=88)
    return blob.getvalue()


def media_type(blob: bytes) -> str:
    """Return the media type of an image that `encode_image` returned."""
    return "image/png" if blob.startswith(b"\x89PNG") else "image/jpeg"


def draw_text_tile(text: str, side: int) -> Any:
    """Return a plain image with a text, for an item that cannot be shown."""
    square = Image.new("RGB", (side, side), BACKGROUND)
    pen = ImageDraw.Draw(square)
    pen.rectangle((0, 0, side - 1, side - 1), outline=FAINT)
    line, at = "", side // 4
    for word in [*text.split(), ""]:
        if not word or len(line) + len(word) > max(8, side // 8):
            pen.text((8, at), line, fill=INK)
            line, at = "", at + 12
        line = f"{line} {word}".strip()
    return square


def draw_line_plot(values: Any, side: int, low: float, high: float) -> Any:
    """Return a line plot of a vector. The vertical axis goes from `low` to `high`."""
    image = Image.new("RGB", (side, side), BACKGROUND)
    pen = ImageDraw.Draw(image)
    span = (high - low) or 1.0
    edge = side // 12
    inner = side - 2 * edge
    step = inner / max(1, len(values) - 1)
    points = [(edge + k * step, edge + inner * (1.0 - (float(v) - low) / span)) for k, v in enumerate(values)]
    if len(points) <= 32:
        floor = edge + inner * (1.0 - (min(max(0.0, low), high) - low) / span)
        for x, y in points:
            pen.line((x, floor, x, y), fill=FAINT, width=max(1, side // 128))
    if len(points) > 1:
        pen.line(points, fill=INK, width=max(1, side // 96))
    return image
