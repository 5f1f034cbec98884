"""Image decoder: converts a file to a uint8 array of a given shape, or says why that is not possible.

Grey, palette, CMYK, 1-bit and 16-bit images become 8-bit grey or RGB. Transparent pixels become white, images are rotated by
their EXIF orientation, and of an animation the first frame is used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from samekind.data.readers.image_size import PixelGate, peek_size
from samekind.data.readers.portable_pixmap import use_fast_decoder

Pixels = npt.NDArray[np.uint8]
Opener = tuple[Callable[..., Any], Callable[[bytes], bool | str] | None]

DECODER = 1  # version of this decoder, a part of the cache key; increase it when some file would be decoded to other pixels
SUFFIXES = frozenset(
    ".png .apng .jpg .jpeg .jpe .jfif .gif .bmp .webp .tif .tiff .ppm .pgm .pbm .pnm .ico .jp2 .j2k .avif .heic .heif".split()
)
# Only formats that are recognized by their first bytes and decoded in this process. EPS, for example, would start Ghostscript.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "ICO", "JPEG2000", "AVIF", "HEIF")
MAX_PIXELS = 300_000_000  # larger images are refused; 200 megapixels of a phone are accepted, but a decompression bomb is not
# Pillow decodes an icon as soon as it is opened, so even reading the header takes as much memory as the image
MAX_ICON_PIXELS = 4096 * 4096
# largest number of pixels that are decoded at the same time; decoding takes 4 to 20 bytes per pixel
PIXELS_AT_ONCE = 60_000_000
GREY_MODES = frozenset(("1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"))
ORIENTATION = 0x0112
TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIXTEEN_TO_EIGHT = np.round(np.arange(65536) / 257).astype(np.uint8)

_gate = PixelGate(PIXELS_AT_ONCE)


@dataclass(frozen=True)
class ImageHeader:
    """Header of an image file: the height and width as displayed, and whether it is stored as a grey image."""

    height: int
    width: int
    grey: bool


def read_image_header(path: Path | IO[bytes]) -> ImageHeader | str:
    """Return the header of an image without decoding the image, or the reason why the header cannot be read."""
    try:
        with _opened(path) as file, _opened_image(file) as image:
            orientation = _header_orientation(image)
            width, height = image.size
            if orientation in (5, 6, 7, 8):
                width, height = height, width
            return ImageHeader(height, width, image.mode in GREY_MODES)
    except Exception as error:  # on a damaged file, a decoder can raise almost any exception
        return _reason(path, error)


def decode_image(path: Path, shape: tuple[int, int, int]) -> Pixels | str:
    """Return an image as uint8 (H, W, C) with 1 or 3 channels, or the reason why it cannot be decoded.

    The image is scaled, with antialiasing, until it covers H x W pixels. What exceeds this size is cropped on both sides.
    """
    height, width, channels = shape
    try:
        with _opened(path) as file, _opened_image(file, decodes=True) as image:
            upright = _upright(image, 2 * max(height, width))
            opaque = _convert_mode(_composite_on_white(upright), "L" if channels == 1 else "RGB")
            return np.array(_resize_and_crop(opaque, height, width)).reshape(shape)
    except Exception as error:  # on a damaged file, a decoder can raise almost any exception
        return _reason(path, error)


def decode_for_display(path: Path | IO[bytes], side: int) -> Any:
    """Return a whole image in grey or RGB for display, or the reason why it cannot be decoded. `path` may be an open file.

    A large image is reduced until its longer side has less than about four times `side` pixels.
    """
    try:
        with _opened(path) as file, _opened_image(file, decodes=True) as image:
            shorter = max(1, side * min(image.size) // max(image.size))
            upright = _upright(image, shorter)
            opaque = _composite_on_white(upright)
            return _convert_mode(opaque, "L" if opaque.mode in GREY_MODES else "RGB")
    except Exception as error:  # on a damaged file, a decoder can raise almost any exception
        return _reason(path, error)


def is_image_file(path: Path) -> bool:
    """Return whether the first bytes of a file are those of an image. This is for files without a suffix."""
    try:
        with path.open("rb") as file:
            first_bytes = file.read(16)
    except OSError:
        return False
    return any(accept is not None and accept(first_bytes) is True for _, accept in _openers())


def _opened(source: Path | IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    """Return a context in which the file is open. A file that the caller has opened stays open afterwards."""
    return source.open("rb") if isinstance(source, Path) else nullcontext(source)


# ---------------------------------------------------------------- decoding to 8 bits per channel


@cache
def _openers() -> tuple[Opener, ...]:
    Image.init()
    return tuple(
        (_uncapped_tiff(), Image.OPEN[name][1]) if name == "TIFF" else Image.OPEN[name]
        for name in FORMATS
        if name in Image.OPEN
    )


def _uncapped_tiff() -> type[Any]:
    """Return a class for TIFF images without Pillow's limit of 179 megapixels. `_open_image` checks the size instead."""
    from PIL.TiffImagePlugin import TiffImageFile

    core: Any = vars(Image)["core"]

    class UncappedTiff(TiffImageFile):
        def load_prepare(self) -> None:
            # allocate the pixels here, because Pillow checks the size only when it allocates them itself
            if getattr(self, "_im", self) is None:
                self.im = core.new(self.mode, getattr(self, "_tile_size", self.size))
            super().load_prepare()

    return UncappedTiff


@contextmanager
def _opened_image(file: IO[bytes], *, decodes: bool = False) -> Iterator[Any]:
    """Yield an image that is opened, and whose pixels fit below the limit for decoding at the same time.

    If the caller will decode the image (`decodes`), or if opening it already takes memory, wait until its pixels fit below the
    limit.
    """
    peeked = peek_size(file)
    if peeked is not None:
        _require_pixels(*peeked.size, MAX_ICON_PIXELS if peeked.is_icon else MAX_PIXELS)
        with _gate.hold(peeked.n_pixels):
            yield _open_image(file)
        return
    image = _open_image(file)
    with _gate.hold(image.width * image.height if decodes else 0):
        yield image


def _open_image(file: IO[bytes]) -> Any:
    """Open an image like Pillow's Image.open, but without its error above 179 megapixels and its warning above 89."""
    file.seek(0)
    first_bytes = file.read(16)
    for factory, accept in _openers():
        if accept is not None and accept(first_bytes) is True:
            file.seek(0)
            try:
                image = factory(file, "")
            except (SyntaxError, IndexError, TypeError, struct.error):
                continue
            _require_pixels(image.width, image.height, MAX_PIXELS)
            use_fast_decoder(image)
            return image
    raise UnidentifiedImageError


def _require_pixels(width: int, height: int, limit: int) -> None:
    if width * height > limit:
        raise _Unusable(
            f"the image has {width} x {height} pixels, more than the limit of {limit // 10**6} million; save it smaller"
        )


def _upright(image: Any, side: int) -> Any:
    """Return the image rotated by its EXIF orientation, with 8 bits per channel.

    A large image is reduced until its shorter side has less than four times `side` pixels.
    """
    # a JPEG image can be decoded directly at 1/2, 1/4 or 1/8 of its size, which is faster
    image.draft(image.mode, (side, side))
    image.load()
    orientation = TRANSPOSES.get(_orientation(image))
    image = _to_8_bits(image)
    factor = min(image.size) // (2 * side)
    reduced = image.reduce(factor) if factor > 1 else image
    return reduced if orientation is None else reduced.transpose(orientation)


def _to_8_bits(image: Any) -> Any:
    """Return the image with 8 bits per channel, in Pillow's mode L, LA, RGB or RGBA."""
    mode = image.mode
    has_transparency = "transparency" in image.info
    if mode in ("I;16", "I;16L", "I;16B", "I;16N", "I"):
        return Image.fromarray(_from_integers(np.asarray(image)))
    if mode == "F":
        return Image.fromarray(_from_floats(np.asarray(image)))
    if mode in ("1", "L", "LA", "La"):
        return _convert_mode(image, "LA" if has_transparency or mode in ("LA", "La") else "L")
    if mode in ("RGBA", "RGBa", "PA") or has_transparency or (mode == "P" and image.palette.mode == "RGBA"):
        return _convert_mode(image, "RGBA")
    return _convert_mode(image, "RGB")


def _convert_mode(image: Any, mode: str) -> Any:
    # convert() copies the image even if it has this mode already, and an image can take a gigabyte
    return image if image.mode == mode else image.convert(mode)


def _from_integers(values: npt.NDArray[Any]) -> Pixels:
    """Scale integer pixels from 0..65535 to 0..255; refuse an image with values outside this range."""
    if values.dtype != np.uint16:
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > 65535:
            raise _Unusable(f"the image holds integers from {low} to {high}, outside 0 to 65535; save it with 8 or 16 bits")
    return np.asarray(SIXTEEN_TO_EIGHT[values])


def _from_floats(values: npt.NDArray[Any]) -> Pixels:
    """Scale float pixels from 0..1 to 0..255; refuse an image with values outside this range."""
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):
        raise _Unusable(f"the image holds floats from {low:g} to {high:g}, outside 0 to 1; save it with 8 or 16 bits")
    return np.asarray(np.round(values * 255).astype(np.uint8))


# ---------------------------------------------------------------- orientation, transparency and size


def _orientation(image: Any) -> int:
    """Return the EXIF orientation, 1 to 8; 1 if the EXIF data is missing or damaged."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:
        return 1


def _header_orientation(image: Any) -> int:
    # In a PNG, the EXIF data may follow the pixels, and Pillow would decode all of them to find it. In a TIFF, the header has
    # the displayed size already.
    if image.format == "TIFF" or (image.format == "PNG" and "exif" not in image.info):
        return 1
    return _orientation(image)


def _composite_on_white(image: Any) -> Any:
    if image.mode not in ("LA", "RGBA"):
        return image
    mode = image.mode[:-1]
    white = Image.new(mode, image.size, "white")
    white.paste(image.convert(mode), mask=image.getchannel("A"))
    return white


def _resize_and_crop(image: Any, height: int, width: int) -> Any:
    if image.size == (width, height):
        return image
    scale = min(image.width / width, image.height / height)
    half_w, half_h = width * scale / 2, height * scale / 2
    x, y = image.width / 2, image.height / 2
    box = (max(x - half_w, 0), max(y - half_h, 0), min(x + half_w, image.width), min(y + half_h, image.height))
    return image.resize((width, height), Image.Resampling.LANCZOS, box)


# ---------------------------------------------------------------- reasons why an image cannot be read


class _Unusable(Exception):
    """An image that can be opened, but not used. The text of the error is the reason."""


def _reason(path: Path | IO[bytes], error: Exception) -> str:
    """Return in plain words why a file could not be decoded."""
    if isinstance(error, _Unusable):
        return str(error)
    if isinstance(error, Image.DecompressionBombError):
        return (
            f"more than {2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6} million pixels, the limit of its format; save it smaller"
        )
    if isinstance(error, UnidentifiedImageError):
        return _describe_content(path)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    if isinstance(error, MemoryError):
        return "there is not enough memory to decode it"
    text = str(error).strip() or type(error).__name__
    return "truncated: the file ends too early" if "truncated" in text.lower() else f"damaged ({text})"


def _describe_content(path: Path | IO[bytes]) -> str:
    try:
        with _opened(path) as file:
            file.seek(0)
            first_bytes = file.read(512)
    except OSError:
        return "the file is gone"
    if not first_bytes:
        return "empty file"
    if first_bytes[4:8] == b"ftyp":
        return "an image in a format that cannot be read here, such as HEIC; save it as JPEG or PNG"
    if not any(byte < 9 or 13 < byte < 32 for byte in first_bytes):
        return "text, not an image"
    return "not an image, or damaged at its beginning"
