"""The fourteen operations of RandAugment for batches of images, where each image has its own operation and magnitude.

Images are uint8 (n, C, H, W) with C = 1 (grey) or 3 (RGB). Each operation has the same result as in Pillow;
docs/augmentation.md lists the tolerances. Images with the same operation are processed together, in one of three ways:

    tables    the new level of a pixel depends only on its old level, so each image has a table of 256 levels
    blends    the image is mixed with another version of it, for example a grey or a smoothed one
    affine    every pixel is copied from another position (nearest neighbour), in one pass for all five affine operations

Pillow and torchvision transform one image at a time, so the operations are implemented here. They use numpy and not torch: a
batch takes many small steps, and numpy has a third of torch's overhead per step.
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
Fill = int | tuple[int, ...]  # level from 0 to 255 of pixels outside the image: one for all channels, or one for each

# weights of red, green and blue in the grey level, out of 65536
GREY_WEIGHTS = np.array([[19595, 38470, 7471]], dtype=np.float32)
LEVELS = np.arange(256, dtype=np.uint8)
FLOAT_LEVELS = LEVELS.astype(np.float32)
BLOCK = 2**16  # bytes of images that are processed at a time, so that intermediate results stay in the CPU cache
UP, DOWN = LEVELS.tobytes(), LEVELS[::-1].tobytes()
POSTERIZED = [bytes(level >> 8 - bits << 8 - bits for level in UP) for bits in range(9)]


def apply_ops(x: Images, operation: Integers, magnitude: Floats, fill: Fill = 0) -> Images:
    """Return new images: image i after OPERATIONS[operation[i]] at the magnitude magnitude[i]."""
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1] not in (1, 3):
        raise DataError(
            f"found images of {x.dtype} and shape {x.shape}; expected uint8 and (n, C, H, W) with 1 or 3 channels. "
            "Augment uint8 images, and normalize them afterwards."
        )
    order = np.argsort(operation, kind="stable")
    ends = np.searchsorted(operation[order], np.arange(len(OPERATIONS) + 1)).tolist()
    out = np.empty(x.shape, dtype=np.uint8)
    for name, (start, end) in zip(PIXEL_OPS, pairwise(ends), strict=False):
        for index in _blocks(order[start:end], x):
            out[index] = PIXEL_OPS[name](x[index], magnitude[index])
    for index in _blocks(order[ends[len(PIXEL_OPS)] :], x):
        out[index] = _apply_affine(x[index], operation[index], magnitude[index], fill)
    return out


def _blocks(index: Integers, x: Images) -> Iterator[Integers]:
    """Yield the index in blocks, each for at most BLOCK bytes of images."""
    step = max(1, BLOCK // max(1, x[:1].size))
    return (index[at : at + step] for at in range(0, len(index), step))


def fill_values(fill: Fill, channels: int) -> Images:
    """Return the fill levels as an array (C, 1, 1); raise SettingError if they are no levels or not one for each channel."""
    levels = (fill,) * channels if isinstance(fill, int) else fill
    if len(levels) != channels or not all(0 <= level <= 255 for level in levels):
        raise SettingError(f"fill is {fill}; expected a level from 0 to 255, or one for each of {channels} channel(s)")
    return np.array(levels, dtype=np.uint8).reshape(-1, 1, 1)


# ---------------------------------------------------------------- operations by tables of levels


def _identity(images: Images, magnitude: Floats) -> Images:
    return images


def _brightness(images: Images, factor: Floats) -> Images:
    return _apply_tables(images, _blend(np.zeros(1, dtype=np.float32), FLOAT_LEVELS, factor[:, None]))


def _contrast(images: Images, factor: Floats) -> Images:
    """Blend each image with its mean grey level, rounded. The factor is 0 for the mean level and 1 for the image."""
    grey = _grey(images.astype(np.float32))
    mean = np.floor(grey.mean((1, 2, 3), dtype=np.float64) + 0.5).astype(np.float32)
    return _apply_tables(images, _blend(mean[:, None], FLOAT_LEVELS, factor[:, None]))


def _solarize(images: Images, threshold: Floats) -> Images:
    """Invert all levels that are not below the threshold."""
    return _translate_levels(
        images, [UP[:level] + DOWN[level:] for level in np.ceil(np.maximum(threshold, 0)).astype(int).tolist()]
    )


def _posterize(images: Images, bits: Floats) -> Images:
    """Keep the highest `bits` bits of each level, but at least one bit: without any, every image would be black."""
    return _translate_levels(images, [POSTERIZED[min(max(int(n_bits), 1), 8)] for n_bits in bits.tolist()])


def _autocontrast(images: Images, fraction: Floats) -> Images:
    """Stretch the levels of each channel to 0..255, unless it is constant. `fraction` is how much of this effect is applied."""
    pixels = images.reshape(len(images) * images.shape[1], -1)
    ends = zip(pixels.min(1).tolist(), pixels.max(1).tolist(), strict=True)
    scale, low = np.array([(255.0 / (high - low), low) if high > low else (1.0, 0.0) for low, high in ends]).T[..., None]
    stretched = np.minimum(np.maximum(FLOAT_LEVELS * scale - low * scale, 0.0), 255.0)
    return _apply_tables(images, _blend_tables(stretched.astype(np.uint8), fraction))


def _equalize(images: Images, fraction: Floats) -> Images:
    """Flatten the histogram of each channel. `fraction` is how much of this effect is applied.

    As in Pillow, a channel with fewer than 255 pixels below its highest level stays as it is.
    """
    pixels = images.reshape(len(images) * images.shape[1], -1)
    counts = np.array([np.bincount(row, minlength=256) for row in pixels])
    brightest = counts[np.arange(len(pixels)), pixels.max(1)]
    step = ((pixels.shape[1] - brightest) // 255)[:, None]
    below = np.cumsum(counts, axis=1) - counts
    spread = np.minimum((step // 2 + below) / np.maximum(step, 1), 255.0).astype(np.uint8)
    return _apply_tables(images, _blend_tables(np.where(step > 0, spread, LEVELS), fraction))


def _blend_tables(tables: Images, fraction: Floats) -> Images:
    """Blend the level tables (n C, 256) of all channels with the unchanged levels; `fraction` (n,) belongs to each image."""
    if (fraction == 1.0).all():
        return tables
    return _blend(FLOAT_LEVELS, tables.astype(np.float32), fraction.repeat(len(tables) // len(fraction))[:, None])


def _apply_tables(images: Images, tables: Images) -> Images:
    """Replace each level by its entry in the table of its image, tables (n, 256), or of its channel, tables (n C, 256)."""
    return _translate_levels(images, [table.tobytes() for table in tables])


def _translate_levels(images: Images, tables: list[bytes]) -> Images:
    index = images.reshape(len(tables), -1)
    translated = b"".join([row.tobytes().translate(table) for row, table in zip(index, tables, strict=True)])
    return np.frombuffer(translated, dtype=np.uint8).reshape(images.shape)


# ---------------------------------------------------------------- operations by blending two images


def _color(images: Images, factor: Floats) -> Images:
    """Blend each image with its grey version. The factor is 0 for the grey version and 1 for the image."""
    image = images.astype(np.float32)
    return _blend(_grey(image), image, factor[:, None, None, None])


def _sharpness(images: Images, factor: Floats) -> Images:
    """Blend each image with a smoothed version. The factor is 0 for the smoothed version and 1 for the image.

    A smoothed pixel is the mean of 3 x 3 pixels, of which the middle one has weight 5. Pixels at the border are not smoothed.
    """
    if min(images.shape[2:]) < 3:
        return images
    wide = images.astype(np.uint16)
    row_sums = wide[:, :, :-2] + wide[:, :, 1:-1]
    row_sums += wide[:, :, 2:]
    box_sums = row_sums[..., :-2] + row_sums[..., 1:-1]
    box_sums += row_sums[..., 2:]
    box_sums += 4 * wide[:, :, 1:-1, 1:-1]
    box_sums *= 2
    box_sums += 13
    box_sums //= 26  # the weighted sum divided by 13, and rounded to the nearest level; exact ties cannot occur
    image = images.astype(np.float32)
    smooth = image.copy()
    smooth[:, :, 1:-1, 1:-1] = box_sums
    return _blend(smooth, image, factor[:, None, None, None])


def _blend(base: Singles, image: Singles, factor: Floats) -> Images:
    """Return base + factor (image - base), clipped to 0..255 and truncated.

    The factor 0 gives the base, 1 gives the image, and a larger factor extrapolates beyond the image.
    """
    mixed = (image - base) * factor.astype(np.float32)
    mixed += base
    np.minimum(np.maximum(mixed, 0.0, out=mixed), 255.0, out=mixed)
    return mixed.astype(np.uint8)


def _grey(image: Singles) -> Singles:
    """Return grey levels (n, 1, H, W). Single precision is exact, because the sums stay below 2^24."""
    n, channels, height, width = image.shape
    if channels == 1:
        return image
    grey: Singles = GREY_WEIGHTS @ image.reshape(n, channels, height * width)
    grey += 32768.0
    grey /= 65536.0
    return np.floor(grey, out=grey).reshape(n, 1, height, width)


# ---------------------------------------------------------------- affine operations


def _apply_affine(images: Images, operation: Integers, magnitude: Floats, fill: Fill) -> Images:
    """Return images in which each pixel is copied from another position of the image, by the affine operation of the image.

    The pixel (column, row) comes from (a0 column + a1 row + a2, a3 column + a4 row + a5), measured at the centres of pixels.
    """
    n, channels, height, width = images.shape
    chosen = zip(operation.tolist(), magnitude.tolist(), strict=True)
    affine = [_fixed_point(*GEOMETRIC_OPS[OPERATIONS[kind]](amount, height, width)) for kind, amount in chosen]
    a0, a1, a2, a3, a4, a5 = np.array(affine, dtype=np.int32).T[..., None, None]
    column, row = np.arange(width, dtype=np.int32), np.arange(height, dtype=np.int32)[:, None]
    # A border of one pixel with the fill value is added. All positions outside the image are moved to this border.
    framed = np.empty((channels, n, height + 2, width + 2), dtype=np.uint8)
    framed[...] = fill_values(fill, channels)[..., None]
    framed[:, :, 1:-1, 1:-1] = images.swapaxes(0, 1)
    positions = _clip_to_frame(a3 * column + (a4 * row + a5), height)
    positions *= width + 2
    positions += _clip_to_frame(a0 * column + (a1 * row + a2), width)
    everywhere = positions + framed[0, 0].size * np.arange(n)[:, None, None]
    gathered: Images = framed.reshape(channels, -1).take(everywhere, axis=1, mode="clip")
    return gathered.swapaxes(0, 1)


def _clip_to_frame(position: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.int32]:
    """Turn positions into pixel indices, in place: 1 to `size` inside the image, 0 or size + 1 on the border that was added."""
    position >>= 16
    return np.minimum(np.maximum(position, 0, out=position), size + 1, out=position)


def _fixed_point(a0: float, a1: float, a2: float, a3: float, a4: float, a5: float) -> list[int]:
    """Return the affine coefficients in units of 1/65536 pixel, as Pillow has them.

    They are moved to the centres of pixels, and by one pixel for the added border.
    """
    framed = (a0, a1, a2 + 0.5 * a0 + 0.5 * a1 + 1.0, a3, a4, a5 + 0.5 * a3 + 0.5 * a4 + 1.0)
    return [math.floor(a * 65536.0 + 0.5) for a in framed]


def _rotate(degrees: float, height: int, width: int) -> Affine:
    """Return the affine coefficients of a counter-clockwise rotation about the centre of the image."""
    angle = -math.radians(degrees)
    cosine, sine = math.cos(angle), math.sin(angle)
    x, y = width / 2, height / 2
    return cosine, sine, x - cosine * x - sine * y, -sine, cosine, y + sine * x - cosine * y


def _shear_x(shear: float, height: int, width: int) -> Affine:
    return 1.0, shear, 0.0, 0.0, 1.0, 0.0


def _shear_y(shear: float, height: int, width: int) -> Affine:
    return 1.0, 0.0, 0.0, shear, 1.0, 0.0


def _translate_x(pixels: float, height: int, width: int) -> Affine:
    """Return the affine coefficients of a move to the left, by the nearest whole number of pixels."""
    return 1.0, 0.0, math.floor(pixels + 0.5), 0.0, 1.0, 0.0


def _translate_y(pixels: float, height: int, width: int) -> Affine:
    """Return the affine coefficients of a move up, by the nearest whole number of pixels."""
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
