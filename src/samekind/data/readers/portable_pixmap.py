"""Decoder of PPM, PGM and PBM files whose values are written as text, or whose maximum is not 255.

Pillow decodes these files value by value in Python, 15 MB in 24 s. This decoder gives the same pixels, but uses numpy on blocks
of values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile

Values = npt.NDArray[np.uint16]
DECODER_NAME = "samekind_pixmap"  # name with which this decoder is registered in Pillow
BLOCK_BYTES = 1 << 20
MAX_DIGITS = 10  # largest number of digits of a value that is written as text, as in Pillow
WHITE_SPACE = b" \t\n\v\f\r"
DIGITS_AND_SPACE = b"0123456789" + WHITE_SPACE
COMMENT = re.compile(rb"#[^\r\n]*")


class PixmapDecoder(ImageFile.PyDecoder):
    """Decoder for Pillow. Its arguments are whether the values are written as text, and the largest value."""

    _pulls_fd = True

    def decode(self, buffer: Any) -> tuple[int, int]:
        """Decode the whole image; raise ValueError if a value is invalid or values are missing."""
        is_text, largest = self.args
        file: Any = self.fd
        n_values = self.state.xsize * self.state.ysize * Image.getmodebands(self.mode)
        if self.mode == "1":
            values = _collect(_bits(file), n_values, 1)
        elif is_text:
            values = _collect(_numbers(file), n_values, largest)
        else:
            values = _read_binary(file, n_values, largest)
        pixels, raw_mode = _scale(values, self.mode, largest)
        self.set_as_raw(pixels.tobytes(), raw_mode)
        return -1, 0


def use_fast_decoder(image: Any) -> None:
    """Let numpy decode an opened image that Pillow would decode value by value."""
    if not image.tile or image.tile[0][0] not in ("ppm", "ppm_plain"):
        return
    first = image.tile[0]
    name, box, offset, args = first
    largest = args[1] if isinstance(args, tuple) else 1
    values = (DECODER_NAME, box, offset, (name == "ppm_plain", largest))
    image.tile = [type(first)(*values) if hasattr(first, "_fields") else values]


def _scale(values: Values, mode: str, largest: int) -> tuple[npt.NDArray[Any], str]:
    """Return the pixels, and the name of the raw mode in which Pillow reads them."""
    if mode == "1":
        return np.where(values == 1, 0, 255).astype(np.uint8), "1;8"
    high, dtype, raw_mode = (65535, "<i4", "I;32") if mode == "I" else (255, "u1", mode)
    table = np.minimum(np.rint(np.arange(65536) / largest * high), high).astype(dtype)
    return table[values], raw_mode


def _read_binary(file: IO[bytes], n_values: int, largest: int) -> Values:
    dtype = np.dtype(np.uint8 if largest < 256 else ">u2")
    blob = file.read(n_values * dtype.itemsize)
    _require_enough(len(blob) // dtype.itemsize, n_values)
    return np.frombuffer(blob, dtype).astype(np.uint16, copy=False)


def _collect(blocks: Iterator[npt.NDArray[Any]], n_values: int, largest: int) -> Values:
    """Return the first `n_values` values of the blocks; raise ValueError if a value is above `largest`, or if values are
    missing.
    """
    parts: list[Values] = []
    found = 0
    while found < n_values and (block := next(blocks, None)) is not None:
        part = block[: n_values - found]
        if part.size and int(part.max()) > largest:
            raise ValueError(f"a pixel value is {int(part.max())}, above the maximum of {largest} in the header")
        parts.append(part.astype(np.uint16))
        found += len(part)
    _require_enough(found, n_values)
    return np.concatenate(parts) if parts else np.empty(0, np.uint16)


def _require_enough(found: int, n_values: int) -> None:
    if found < n_values:
        raise ValueError(f"the image is truncated: it has {found} values instead of {n_values}")


def _numbers(file: IO[bytes]) -> Iterator[npt.NDArray[Any]]:
    """Yield the whole numbers in a text, block by block."""
    rest = b""
    for text in _without_comments(file):
        whole = rest + text
        cut = 1 + max(whole.rfind(one) for one in WHITE_SPACE)
        rest = whole[cut:]  # the last number of a block may continue in the next block
        yield _parse(whole[:cut])
        if len(rest) > MAX_DIGITS:
            raise ValueError(f"a pixel value has more than {MAX_DIGITS} digits")
    yield _parse(rest)


def _parse(text: bytes) -> npt.NDArray[Any]:
    if text.translate(None, DIGITS_AND_SPACE):
        raise ValueError("a pixel value is not a whole number")
    return np.fromstring(text.decode("ascii"), dtype=np.int64, sep=" ") if text.strip() else np.empty(0, np.int64)


def _bits(file: IO[bytes]) -> Iterator[npt.NDArray[Any]]:
    """Yield the digits 0 and 1 in a text, block by block. There may be white space between them."""
    for text in _without_comments(file):
        # any other character becomes a number above 1, which `_collect` refuses
        yield np.frombuffer(text.translate(None, WHITE_SPACE), np.uint8) - np.uint8(ord("0"))


def _without_comments(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the text of a file in blocks, without comments. A comment begins with # and ends with its line."""
    in_comment = False
    while block := file.read(BLOCK_BYTES):
        if in_comment:
            ends = [at for at in (block.find(b"\n"), block.find(b"\r")) if at >= 0]
            if not ends:
                continue
            block = block[min(ends) :]
        in_comment = b"#" in block[1 + max(block.rfind(b"\n"), block.rfind(b"\r")) :]
        yield COMMENT.sub(b"", block)


Image.register_decoder(DECODER_NAME, PixmapDecoder)
