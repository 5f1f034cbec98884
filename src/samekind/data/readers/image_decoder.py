"""One image file, of any kind that people have, as a uint8 array of a given size, or the reason why it cannot be read.

Grey, palette, CMYK, 1-bit and 16-bit images, alpha (laid on white), turned cameras (EXIF) and animations (first frame)
all come out as 8-bit grey or RGB.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

Pixels = npt.NDArray[np.uint8]
Opener = tuple[Callable[..., Any], Callable[[bytes], bool | str] | None]

DECODER = 1  # raise it when the same file would give other pixels
SUFFIXES = frozenset(
    ".png .apng .jpg .jpeg .jpe .jfif .gif .bmp .webp .tif .tiff .ppm .pgm .pbm .pnm .ico .jp2 .j2k .avif .heic .heif".split()
)
# each knows its files by their first bytes, and none starts another program (EPS would)
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "ICO", "JPEG2000", "AVIF", "HEIF")
MAX_PIXELS = 300_000_000  # a 200-megapixel phone passes; a bomb of 65500 x 65500 does not
LARGE = 30_000_000  # from here on one image at a time is decoded, as each takes 4 bytes a pixel
GREY_MODES = frozenset(("1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"))
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIXTEEN_TO_EIGHT = np.round(np.arange(65536) / 257).astype(np.uint8)

_large_ones = threading.Lock()


@dataclass(frozen=True)
class ImageHeader:
    """What the head of a file tells: height and width as shown, and whether it was saved as grey."""

    height: int
    width: int
    grey: bool


def read_image_header(path: Path) -> ImageHeader | str:
    """The head of an image, without decoding it; or the reason why it cannot be read."""
    try:
        with path.open("rb") as file:
            image = _opened(file)
            turn = _orientation_in_head(image)
            width, height = image.size
            if turn in (5, 6, 7, 8):
                width, height = height, width
            return ImageHeader(height, width, image.mode in GREY_MODES)
    except Exception as error:  # a broken file makes a decoder raise nearly anything
        return _reason(path, error)


def decode_image(path: Path, shape: tuple[int, int, int]) -> Pixels | str:
    """The image as uint8 (H, W, C), C 1 or 3; or the reason why it cannot be read.

    Scaled by its shorter side, antialiased, then cropped in the middle.
    """
    height, width, channels = shape
    try:
        with path.open("rb") as file:
            image = _opened(file)
            with _large_ones if image.width * image.height > LARGE else nullcontext():
                upright = _upright(image, 2 * max(height, width))
            plain = _in_mode(_on_white(upright), "L" if channels == 1 else "RGB")
            return np.array(_fitted(plain, height, width)).reshape(shape)
    except Exception as error:  # a broken file makes a decoder raise nearly anything
        return _reason(path, error)


def decode_for_display(path: Path, side: int) -> Any:
    """The image as a person sees it, in grey or RGB, decoded as for training but whole; or the reason why it cannot be read.

    It is not much larger than a longer side of `side` pixels.
    """
    try:
        with path.open("rb") as file:
            image = _opened(file)
            with _large_ones if image.width * image.height > LARGE else nullcontext():
                shorter = max(1, side * min(image.size) // max(image.size))
                upright = _upright(image, shorter)
            plain = _on_white(upright)
            return _in_mode(plain, "L" if plain.mode in GREY_MODES else "RGB")
    except Exception as error:  # a broken file makes a decoder raise nearly anything
        return _reason(path, error)


def is_image_file(path: Path) -> bool:
    """Whether the first bytes are those of an image; for files whose name does not tell."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return False
    return any(accept is not None and accept(head) is True for _, accept in _openers())


# ---------------------------------------------------------------- from the file to 8 bits


@cache
def _openers() -> tuple[Opener, ...]:
    Image.init()
    return tuple(Image.OPEN[name] for name in FORMATS if name in Image.OPEN)


def _opened(file: IO[bytes]) -> Any:
    """As Image.open, without its limit of 179 megapixels and its warning from 89 on: both are global settings."""
    head = file.read(16)
    for factory, accept in _openers():
        if accept is not None and accept(head) is True:
            file.seek(0)
            try:
                image = factory(file, "")
            except (SyntaxError, IndexError, TypeError, struct.error):
                continue
            if image.width * image.height > MAX_PIXELS:
                size = f"{image.width} x {image.height} pixels"
                raise _Unusable(f"{size}, which is more than {MAX_PIXELS // 10**6} million; save it smaller")
            return image
    raise UnidentifiedImageError


def _upright(image: Any, side: int) -> Any:
    """Decoded in 8 bits, turned as it was held, and not much larger than a shorter side of `side` pixels needs."""
    image.draft(image.mode, (side, side))  # a JPEG can be decoded at 1/2, 1/4 or 1/8
    image.load()
    turn = TURNS.get(_orientation(image))
    image = _eight_bits(image)
    factor = min(image.size) // (2 * side)
    smaller = image.reduce(factor) if factor > 1 else image
    return smaller if turn is None else smaller.transpose(turn)


def _eight_bits(image: Any) -> Any:
    """The same in mode L, LA, RGB or RGBA."""
    mode = image.mode
    see_through = "transparency" in image.info
    if mode in ("I;16", "I;16L", "I;16B", "I;16N", "I"):
        return Image.fromarray(_from_integers(np.asarray(image)))
    if mode == "F":
        return Image.fromarray(_from_floats(np.asarray(image)))
    if mode in ("1", "L", "LA", "La"):
        return _in_mode(image, "LA" if see_through or mode in ("LA", "La") else "L")
    if mode in ("RGBA", "RGBa", "PA") or see_through or (mode == "P" and image.palette.mode == "RGBA"):
        return _in_mode(image, "RGBA")
    return _in_mode(image, "RGB")


def _in_mode(image: Any, mode: str) -> Any:
    # convert copies even where there is nothing to do, and an image may have a gigabyte
    return image if image.mode == mode else image.convert(mode)


def _from_integers(values: npt.NDArray[Any]) -> Pixels:
    """0 to 65535 as 0 to 255."""
    if values.dtype != np.uint16:
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > 65535:
            raise _Unusable(f"holds whole numbers from {low} to {high}, and white is 65535; save it as 8 or 16 bit")
    return np.asarray(SIXTEEN_TO_EIGHT[values])


def _from_floats(values: npt.NDArray[Any]) -> Pixels:
    """0 to 1 as 0 to 255."""
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):
        raise _Unusable(f"holds fractions from {low:g} to {high:g}, and white is 1; save it as 8 or 16 bit")
    return np.asarray(np.round(values * 255).astype(np.uint8))


# ---------------------------------------------------------------- turned, on white, of one size


def _orientation(image: Any) -> int:
    """1 to 8 from EXIF; a photo with damaged EXIF is still a photo."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:
        return 1


def _orientation_in_head(image: Any) -> int:
    # a PNG without EXIF before its pixels would be decoded whole in search of it, and a TIFF gives its size as shown
    if image.format == "TIFF" or (image.format == "PNG" and "exif" not in image.info):
        return 1
    return _orientation(image)


def _on_white(image: Any) -> Any:
    if image.mode not in ("LA", "RGBA"):
        return image
    mode = image.mode[:-1]
    white = Image.new(mode, image.size, "white")
    white.paste(image.convert(mode), mask=image.getchannel("A"))
    return white


def _fitted(image: Any, height: int, width: int) -> Any:
    if image.size == (width, height):
        return image
    scale = min(image.width / width, image.height / height)
    half_w, half_h = width * scale / 2, height * scale / 2
    x, y = image.width / 2, image.height / 2
    box = (max(x - half_w, 0), max(y - half_h, 0), min(x + half_w, image.width), min(y + half_h, image.height))
    return image.resize((width, height), Image.Resampling.LANCZOS, box)


# ---------------------------------------------------------------- reasons


class _Unusable(Exception):
    """An image that can be opened, and must not be or cannot be used; its text is the reason."""


def _reason(path: Path, error: Exception) -> str:
    """What went wrong, in words for the owner of the file."""
    if isinstance(error, _Unusable):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return _what_it_is_instead(path)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    if isinstance(error, MemoryError):
        return "there is not enough memory to decode it"
    text = str(error).strip() or type(error).__name__
    return "truncated: the file ends too early" if "truncated" in text.lower() else f"damaged ({text})"


def _what_it_is_instead(path: Path) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError:
        return "the file is gone"
    if not head:
        return "empty file"
    if head[4:8] == b"ftyp":
        return "an image in a format that cannot be read here, such as HEIC; save it as JPEG or PNG"
    if not any(byte < 9 or 13 < byte < 32 for byte in head):
        return "text, not an image"
    return "not an image, or damaged at its beginning"
