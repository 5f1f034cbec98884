"""Size of an image before it is opened, and a gate that limits how many pixels are decoded at the same time."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

ICON_MAGIC = b"\0\0\1\0"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class PeekedSize:
    """Width and height of an image, as declared in the first bytes of its file."""

    width: int
    height: int
    is_icon: bool

    @property
    def size(self) -> tuple[int, int]:
        """Return (width, height)."""
        return self.width, self.height

    @property
    def n_pixels(self) -> int:
        """Return the number of pixels."""
        return self.width * self.height


def peek_size(file: IO[bytes]) -> PeekedSize | None:
    """Return the size of an icon or a WebP image from the first bytes of the file; None for any other file.

    Pillow takes memory for these two formats as soon as it opens them, so their size must be known before.
    """
    file.seek(0)
    first_bytes = file.read(30)
    if first_bytes[:4] == ICON_MAGIC:
        return _largest_icon(file)
    if first_bytes[:4] == b"RIFF" and first_bytes[8:12] == b"WEBP" and len(first_bytes) == 30:
        return _webp_size(first_bytes)
    return None


def _largest_icon(file: IO[bytes]) -> PeekedSize:
    """Return the size of the largest image in an icon file, from the headers of its images."""
    file.seek(4)
    (count,) = struct.unpack("<H", file.read(2).ljust(2, b"\0"))
    directory = file.read(16 * count)
    largest = PeekedSize(0, 0, is_icon=True)
    for (offset,) in struct.iter_unpack("<12xI", directory[: len(directory) // 16 * 16]):
        file.seek(offset)
        header = file.read(24)
        if len(header) < 24:
            continue
        if header[:8] == PNG_MAGIC:
            width, height = struct.unpack(">II", header[16:24])
        else:  # a bitmap, whose header declares twice the height, because a mask of the same size follows
            width, height = struct.unpack("<ii", header[4:12])
            height //= 2
        found = PeekedSize(abs(width), abs(height), is_icon=True)
        largest = max(largest, found, key=lambda one: one.n_pixels)
    return largest


def _webp_size(first_bytes: bytes) -> PeekedSize | None:
    chunk = first_bytes[12:16]
    if chunk == b"VP8X":
        width, height = (1 + int.from_bytes(first_bytes[at : at + 3], "little") for at in (24, 27))
    elif chunk == b"VP8L":
        bits = int.from_bytes(first_bytes[21:25], "little")
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif chunk == b"VP8 ":
        width, height = (int.from_bytes(first_bytes[at : at + 2], "little") & 0x3FFF for at in (26, 28))
    else:
        return None
    return PeekedSize(width, height, is_icon=False)


class PixelGate:
    """Limits the number of pixels of all images that are decoded at the same time. Images wait in the order in which they
    arrive.

    An image that is larger than the limit is decoded while no other is.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._inside = limit, 0
        self._next_in_line = threading.Lock()
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, n_pixels: int) -> Iterator[None]:
        """Wait until `n_pixels` more are below the limit, and count them as long as the block runs."""
        held = min(n_pixels, self._limit)
        with self._next_in_line, self._changed:
            self._changed.wait_for(lambda: self._inside + held <= self._limit)
            self._inside += held
        try:
            yield
        finally:
            with self._changed:
                self._inside -= held
                self._changed.notify()
