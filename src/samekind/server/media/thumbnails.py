"""Pictures for the page: a thumbnail and a full view of each item, encoded anew, so that nothing but pixels leaves the disk."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from samekind.data.readers.image_decoder import decode_for_display
from samekind.errors import RequestError
from samekind.io import atomic_write

SIZES = (128, 256)
FULL = 2560  # pixels of the longer side of a full view
VERSION = 1  # raise it when the same file would give another thumbnail
CAP = 2 << 30  # bytes of all thumbnails
LOSSLESS = 192  # pictures up to this side are PNG: JPEG would smear them
PAPER, INK, FAINT = "#f4f4f2", "#30343b", "#c9ccd1"


@dataclass(frozen=True)
class ImageSource:
    """What an item is made of: `key` changes with its content, and `picture(side)` gives it, or the reason why not."""

    key: str
    picture: Callable[[int], Any]


def file_in(root: Path, name: str) -> Path:
    """A file of the run: below its folder also when all links are followed, and a regular one."""
    path = root / name
    try:
        real = path.resolve(strict=True)
        inside = real.is_relative_to(root.resolve(strict=True))
        if inside and stat.S_ISREG(real.stat().st_mode):
            return real
    except (OSError, ValueError, RuntimeError):
        pass
    raise RequestError(404, "The file of this item is not there any more.")


def of_file(root: Path, name: str) -> ImageSource:
    """A picture file."""
    path = file_in(root, name)
    about = path.stat()
    key = hashlib.sha1(f"{name}\0{about.st_size}\0{about.st_mtime_ns}".encode("utf-8", "surrogateescape")).hexdigest()
    return ImageSource(key, lambda side: decode_for_display(path, side))


class Thumbnails:
    """Thumbnails on disk, each made once; the newest wish comes first, and the longest unused go when there are too many."""

    def __init__(self, folder: Path, *, cap: int = CAP, workers: int | None = None) -> None:
        self.folder, self.cap = folder, cap
        self.made = 0  # pictures decoded since the start
        self._gate = NewestFirstGate(workers or os.cpu_count() or 1)
        self._making: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._bytes: int | None = None

    def get(self, original: ImageSource, side: int) -> bytes:
        """The thumbnail of an item, from the disk or made now."""
        name = hashlib.sha1(f"{original.key}\0{side}\0{VERSION}".encode()).hexdigest()
        path = self.folder / name[:2] / name
        if (found := _read(path)) is not None:
            return found
        with self._only_one(name):
            if (found := _read(path)) is not None:
                return found
            with self._gate:
                blob = encoded(original.picture(side), side)
                self.made += 1
            self._keep(path, blob)
            return blob

    def full(self, original: ImageSource) -> bytes:
        """The whole picture, not kept."""
        with self._gate:
            return encoded(original.picture(FULL), FULL)

    @contextmanager
    def _only_one(self, name: str) -> Iterator[None]:
        with self._lock:
            lock = self._making.setdefault(name, threading.Lock())
        with lock:
            yield
        with self._lock:
            self._making.pop(name, None)

    def _keep(self, path: Path, blob: bytes) -> None:
        """A full disk costs the next one a second decoding, nothing more."""
        with suppress(OSError, RequestError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            atomic_write(path, blob, RequestErrorOnDisk)
            with self._lock:
                if self._bytes is None:
                    self._bytes = sum(size for _, size, _ in _files(self.folder))
                else:
                    self._bytes += len(blob)
                if self._bytes > self.cap:
                    self._bytes = evict(self.folder, int(0.9 * self.cap))


class RequestErrorOnDisk(RequestError):
    """A thumbnail could not be written."""

    def __init__(self, detail: str) -> None:
        super().__init__(507, detail)


def evict(folder: Path, keep: int) -> int:
    """Removes the longest unused files until at most `keep` bytes are left; how many are left."""
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
    """Removes all thumbnails; how many bytes they took."""
    size = sum(one for _, one, _ in _files(folder))
    evict(folder, 0)
    return size


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    for path in folder.rglob("*"):
        with suppress(OSError):
            about = path.stat()
            if stat.S_ISREG(about.st_mode):
                yield about.st_atime, about.st_size, path


def _read(path: Path) -> bytes | None:
    try:
        blob = path.read_bytes()
        os.utime(path, (_now(), path.stat().st_mtime))  # also where the disk does not note when a file is read
        return blob
    except OSError:
        return None


def _now() -> float:
    import time

    return time.time()


class NewestFirstGate:
    """A gate for a few at a time, where the one that came last is let in first: what is on the screen now matters most."""

    def __init__(self, places: int) -> None:
        self._lock = threading.Lock()
        self._free = places
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


# ---------------------------------------------------------------- pixels


def encoded(picture: Any, side: int) -> bytes:
    """A picture inside a square of `side`, as PNG or JPEG without metadata; a reason (text) becomes a tile that shows it."""
    if isinstance(picture, str):
        picture = tile(picture, side)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    bare = Image.new(picture.mode, picture.size)
    bare.paste(picture)
    blob = io.BytesIO()
    if max(bare.size) <= LOSSLESS:
        bare.save(blob, "PNG")
    else:
        bare.save(blob, "JPEG", quality=88)
    return blob.getvalue()


def media_type(blob: bytes) -> str:
    """That of what `encoded` gave."""
    return "image/png" if blob.startswith(b"\x89PNG") else "image/jpeg"


def tile(reason: str, side: int) -> Any:
    """A plain tile with a few words, for what cannot be shown."""
    square = Image.new("RGB", (side, side), PAPER)
    pen = ImageDraw.Draw(square)
    pen.rectangle((0, 0, side - 1, side - 1), outline=FAINT)
    words, line, at = reason.split(), "", side // 4
    for word in [*words, ""]:
        if not word or len(line) + len(word) > max(8, side // 8):
            pen.text((8, at), line, fill=INK)
            line, at = "", at + 12
        line = f"{line} {word}".strip()
    return square


def curve(values: Any, side: int, low: float, high: float) -> Any:
    """A row of numbers as a line, on the scale of all rows."""
    picture = Image.new("RGB", (side, side), PAPER)
    pen = ImageDraw.Draw(picture)
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
    return picture
