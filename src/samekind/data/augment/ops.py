"""The fourteen operations of RandAugment on batches of images, each image with its own operation and its own magnitude.

Images are bytes of shape (n, C, H, W), C = 1 (grey) or 3 (red, green, blue). Each operation does what Pillow does with one
image; docs/augmentation.md says how closely. Images that get the same operation are handled together, in three ways:

    tables    what becomes of a pixel depends on its own level alone: 256 new levels for each image, looked up
    blends    an image mixed with a duller version of itself
    moves     every pixel is fetched from elsewhere, from the nearest one; all five operations are one pass

The work is done by numpy, not torch: a batch means many small steps, and numpy starts a step in a third of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from samekind.errors import DataError, SettingError

Images = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
Affine = tuple[float, float, float, float, float, float]
Fill = int | tuple[int, ...]  # level of pixels that come from outside the image: one, or one for each channel

GREY_WEIGHTS = np.array([[19595, 38470, 7471]], dtype=np.float32)  # of red, green and blue in a grey level, out of 65536
LEVELS = np.arange(256, dtype=np.uint8)
FLOAT_LEVELS = LEVELS.astype(np.float32)
BLOCK = 2**16  # bytes of images that are handled together: what is made on the way then stays close to the processor
UP, DOWN = LEVELS.tobytes(), LEVELS[::-1].tobytes()
POSTERIZED = [bytes(level >> 8 - bits << 8 - bits for level in UP) for bits in range(9)]


def apply_ops(x: Images, operation: Integers, magnitude: Floats, fill: Fill = 0) -> Images:
    """Image i after OPERATIONS[operation[i]] at magnitude[i]; operation and magnitude are (n,)."""
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1] not in (1, 3):
        raise DataError(
            f"found images of {x.dtype} and shape {x.shape}; expected uint8 and (n, C, H, W) with 1 or 3 channels. "
            "Augment images as they are stored, and normalise them afterwards."
        )
    order = np.argsort(operation, kind="stable")
    ends = np.searchsorted(operation[order], np.arange(len(OPERATIONS) + 1)).tolist()
    out = np.empty(x.shape, dtype=np.uint8)
    for name, (start, end) in zip(PIXEL_OPS, pairwise(ends), strict=False):
        for rows in _blocks(order[start:end], x):
            out[rows] = PIXEL_OPS[name](x[rows], magnitude[rows])
    for rows in _blocks(order[ends[len(PIXEL_OPS)] :], x):
        out[rows] = _moved(x[rows], operation[rows], magnitude[rows], fill)
    return out


def _blocks(rows: Integers, x: Images) -> Iterator[Integers]:
    """The numbers of a few images at a time."""
    step = max(1, BLOCK // max(1, x[:1].size))
    return (rows[at : at + step] for at in range(0, len(rows), step))


def paint(fill: Fill, channels: int) -> Images:
    """The fill as (C, 1, 1)."""
    levels = (fill,) * channels if isinstance(fill, int) else fill
    if len(levels) != channels or not all(0 <= level <= 255 for level in levels):
        raise SettingError(f"fill is {fill}; expected a level from 0 to 255, or one for each of {channels} channel(s)")
    return np.array(levels, dtype=np.uint8).reshape(-1, 1, 1)


# ---------------------------------------------------------------- tables


def _identity(images: Images, nothing: Floats) -> Images:
    return images


def _brightness(images: Images, factor: Floats) -> Images:
    return _looked_up(images, _blend(np.zeros(1, dtype=np.float32), FLOAT_LEVELS, factor[:, None]))


def _contrast(images: Images, factor: Floats) -> Images:
    """Away from or towards the mean grey level of the image, rounded."""
    grey = _grey(images.astype(np.float32))
    mean = np.floor(grey.mean((1, 2, 3), dtype=np.float64) + 0.5).astype(np.float32)
    return _looked_up(images, _blend(mean[:, None], FLOAT_LEVELS, factor[:, None]))


def _solarize(images: Images, threshold: Floats) -> Images:
    """Levels from the threshold on turned round."""
    return _translated(images, [UP[:level] + DOWN[level:] for level in np.ceil(np.maximum(threshold, 0)).astype(int).tolist()])


def _posterize(images: Images, bits: Floats) -> Images:
    """The highest bits kept, the others 0. At least one is kept: with none, every image would be black."""
    return _translated(images, [POSTERIZED[min(max(int(kept), 1), 8)] for kept in bits.tolist()])


def _autocontrast(images: Images, share: Floats) -> Images:
    """Each channel stretched to 0..255; a flat one stays. A share below 1 does only so much of it."""
    pixels = images.reshape(len(images) * images.shape[1], -1)
    ends = zip(pixels.min(1).tolist(), pixels.max(1).tolist(), strict=True)
    scale, low = np.array([(255.0 / (high - low), low) if high > low else (1.0, 0.0) for low, high in ends]).T[..., None]
    stretched = np.minimum(np.maximum(FLOAT_LEVELS * scale - low * scale, 0.0), 255.0)
    return _looked_up(images, _partly(stretched.astype(np.uint8), share))


def _equalize(images: Images, share: Floats) -> Images:
    """Each channel with its levels spread evenly; one with less than 255 pixels below its brightest level stays."""
    pixels = images.reshape(len(images) * images.shape[1], -1)
    counts = np.array([np.bincount(row, minlength=256) for row in pixels])
    brightest = counts[np.arange(len(pixels)), pixels.max(1)]
    step = ((pixels.shape[1] - brightest) // 255)[:, None]
    below = np.cumsum(counts, axis=1) - counts
    spread = np.minimum((step // 2 + below) / np.maximum(step, 1), 255.0).astype(np.uint8)
    return _looked_up(images, _partly(np.where(step > 0, spread, LEVELS), share))


def _partly(tables: Images, share: Floats) -> Images:
    """Tables of channels (n C, 256) that go only a part of the way."""
    if (share == 1.0).all():
        return tables
    return _blend(FLOAT_LEVELS, tables.astype(np.float32), share.repeat(len(tables) // len(share))[:, None])


def _looked_up(images: Images, tables: Images) -> Images:
    """Each level replaced by what stands at its place in the table: one for each image (n, 256) or channel (n C, 256)."""
    return _translated(images, [table.tobytes() for table in tables])


def _translated(images: Images, tables: list[bytes]) -> Images:
    rows = images.reshape(len(tables), -1)
    seen = b"".join([row.tobytes().translate(table) for row, table in zip(rows, tables, strict=True)])
    return np.frombuffer(seen, dtype=np.uint8).reshape(images.shape)


# ---------------------------------------------------------------- blends


def _color(images: Images, factor: Floats) -> Images:
    """Away from or towards its own grey version."""
    image = images.astype(np.float32)
    return _blend(_grey(image), image, factor[:, None, None, None])


def _sharpness(images: Images, factor: Floats) -> Images:
    """Away from or towards a smooth version: the mean over 3 x 3 pixels, the middle counted five times. The edge stays."""
    if min(images.shape[2:]) < 3:
        return images
    wide = images.astype(np.uint16)
    lines = wide[:, :, :-2] + wide[:, :, 1:-1]
    lines += wide[:, :, 2:]
    boxes = lines[..., :-2] + lines[..., 1:-1]
    boxes += lines[..., 2:]
    boxes += 4 * wide[:, :, 1:-1, 1:-1]
    boxes *= 2
    boxes += 13
    boxes //= 26  # the sum over 13, rounded; thirteenths are never halfway between two levels
    image = images.astype(np.float32)
    smooth = image.copy()
    smooth[:, :, 1:-1, 1:-1] = boxes
    return _blend(smooth, image, factor[:, None, None, None])


def _blend(dull: Singles, image: Singles, factor: Floats) -> Images:
    """dull + factor (image - dull) in single precision, cut off to whole levels: at 0 dull, at 1 the image, and beyond."""
    mixed = (image - dull) * factor.astype(np.float32)
    mixed += dull
    np.minimum(np.maximum(mixed, 0.0, out=mixed), 255.0, out=mixed)
    return mixed.astype(np.uint8)


def _grey(image: Singles) -> Singles:
    """Grey levels (n, 1, H, W). The sums stay below 2^24, so that single precision holds them exactly."""
    n, channels, height, width = image.shape
    if channels == 1:
        return image
    grey: Singles = GREY_WEIGHTS @ image.reshape(n, channels, height * width)
    grey += 32768.0
    grey /= 65536.0
    return np.floor(grey, out=grey).reshape(n, 1, height, width)


# ---------------------------------------------------------------- moves


def _moved(images: Images, operation: Integers, magnitude: Floats, fill: Fill) -> Images:
    """Pixel (column, row) fetched from (a0 column + a1 row + a2, a3 column + a4 row + a5), measured at pixel centres."""
    n, channels, height, width = images.shape
    asked = zip(operation.tolist(), magnitude.tolist(), strict=True)
    affine = [_fixed_point(*GEOMETRIC_OPS[OPERATIONS[kind]](amount, height, width)) for kind, amount in asked]
    a0, a1, a2, a3, a4, a5 = np.array(affine, dtype=np.int32).T[..., None, None]
    column, row = np.arange(width, dtype=np.int32), np.arange(height, dtype=np.int32)[:, None]
    # a frame of one pixel in the colour of the fill stands for all that is outside
    framed = np.empty((channels, n, height + 2, width + 2), dtype=np.uint8)
    framed[...] = paint(fill, channels)[..., None]
    framed[:, :, 1:-1, 1:-1] = images.swapaxes(0, 1)
    places = _in_frame(a3 * column + (a4 * row + a5), height)
    places *= width + 2
    places += _in_frame(a0 * column + (a1 * row + a2), width)
    everywhere = places + framed[0, 0].size * np.arange(n)[:, None, None]
    fetched: Images = framed.reshape(channels, -1).take(everywhere, axis=1, mode="clip")
    return fetched.swapaxes(0, 1)


def _in_frame(place: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.int32]:
    """The pixel that each place lies in: 1 to size, 0 and size + 1 if outside. Changes the places."""
    place >>= 16
    return np.minimum(np.maximum(place, 0, out=place), size + 1, out=place)


def _fixed_point(a0: float, a1: float, a2: float, a3: float, a4: float, a5: float) -> list[int]:
    """Whole numbers of 1/65536 pixel, as Pillow counts; from the centre of the first pixel, in an image with a frame."""
    framed = (a0, a1, a2 + 0.5 * a0 + 0.5 * a1 + 1.0, a3, a4, a5 + 0.5 * a3 + 0.5 * a4 + 1.0)
    return [math.floor(a * 65536.0 + 0.5) for a in framed]


def _rotate(degrees: float, height: int, width: int) -> Affine:
    """Counter-clockwise about the centre."""
    angle = -math.radians(degrees)
    cosine, sine = math.cos(angle), math.sin(angle)
    x, y = width / 2, height / 2
    return cosine, sine, x - cosine * x - sine * y, -sine, cosine, y + sine * x - cosine * y


def _shear_x(slant: float, height: int, width: int) -> Affine:
    return 1.0, slant, 0.0, 0.0, 1.0, 0.0


def _shear_y(slant: float, height: int, width: int) -> Affine:
    return 1.0, 0.0, 0.0, slant, 1.0, 0.0


def _translate_x(pixels: float, height: int, width: int) -> Affine:
    """To the left by the nearest whole number of pixels."""
    return 1.0, 0.0, math.floor(pixels + 0.5), 0.0, 1.0, 0.0


def _translate_y(pixels: float, height: int, width: int) -> Affine:
    """Upwards by the nearest whole number of pixels."""
    return 1.0, 0.0, 0.0, 0.0, 1.0, math.floor(pixels + 0.5)


PIXEL_OPS: dict[str, Callable[[Images, Floats], Images]] = {
    "Identity": _identity,
    "AutoContrast": _autocontrast,
    "Equalize": _equalize,
    "Brightness": _brightness,
    "Contrast": _contrast,
    "Posterize": _posterize,
    "Solarize": _solarize,
    "Color": _color,
    "Sharpness": _sharpness,
}
GEOMETRIC_OPS: dict[str, Callable[[float, int, int], Affine]] = {
    "Rotate": _rotate,
    "ShearX": _shear_x,
    "ShearY": _shear_y,
    "TranslateX": _translate_x,
    "TranslateY": _translate_y,
}
OPERATIONS = (*PIXEL_OPS, *GEOMETRIC_OPS)
