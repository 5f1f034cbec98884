"""Figure of a similarity search: for each query a row with its image, in a blue frame, and its most similar images."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

Pixels = npt.NDArray[Any]
TILE_SIZE = 96  # width and height of a tile in pixels
GAP, TEXT_HEIGHT, FRAME_WIDTH = 10, 30, 3  # distances and sizes in pixels
TITLE_COLOR, CAPTION_COLOR, BACKGROUND = "#1f2328", "#59636e", "#ffffff"
QUERY_COLOR, OTHER_CLASS_COLOR = "#1560d4", "#d1123f"
MAX_CHARACTERS = 15  # largest number of characters that fit under a tile


@dataclass(frozen=True)
class Tile:
    """Image (H, W, C) with two lines of text under it. An image of another class than the query has a red frame."""

    image: Pixels
    title: str
    caption: str = ""
    other_class: bool = False


def render_figure(rows: Sequence[Sequence[Tile]]) -> bytes:
    """Return a PNG image with a row of tiles for each query; the query is the first tile."""
    columns = max(len(row) for row in rows)
    tile_width, tile_height = TILE_SIZE + GAP, TILE_SIZE + TEXT_HEIGHT + GAP
    figure = Image.new("RGB", (columns * tile_width + 2 * GAP, len(rows) * tile_height + GAP), BACKGROUND)
    draw, font = ImageDraw.Draw(figure), ImageFont.load_default(size=12)
    for r, row in enumerate(rows):
        for c, tile in enumerate(row):
            # the space after the query is wider than between its results
            left, top = GAP + c * tile_width + (GAP if c else 0), GAP + r * tile_height
            image = _resize(tile.image)
            figure.paste(image, (left + (TILE_SIZE - image.width) // 2, top + (TILE_SIZE - image.height) // 2))
            color = QUERY_COLOR if c == 0 else OTHER_CLASS_COLOR if tile.other_class else None
            if color:
                right, bottom = left + TILE_SIZE + FRAME_WIDTH - 1, top + TILE_SIZE + FRAME_WIDTH - 1
                draw.rectangle((left - FRAME_WIDTH, top - FRAME_WIDTH, right, bottom), None, color, FRAME_WIDTH)
            draw.text((left, top + TILE_SIZE + FRAME_WIDTH), _shorten(tile.title), TITLE_COLOR, font)
            draw.text((left, top + TILE_SIZE + FRAME_WIDTH + 13), _shorten(tile.caption), CAPTION_COLOR, font)
    buffer = io.BytesIO()
    figure.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _resize(image: Pixels) -> Image.Image:
    """Return the image at the size of a tile. Float images are scaled to 0..255; small images keep sharp pixels."""
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = ((pixels - low) / (high - low or 1.0) * 255).astype(np.uint8)
    if pixels.ndim == 3 and pixels.shape[2] != 3:
        pixels = pixels[:, :, 0]
    rgb = Image.fromarray(pixels).convert("RGB")
    scale = TILE_SIZE / max(rgb.size)
    size = (max(1, round(rgb.width * scale)), max(1, round(rgb.height * scale)))
    return rgb.resize(size, Image.Resampling.NEAREST if scale > 2 else Image.Resampling.LANCZOS)


def _shorten(text: str) -> str:
    # the end of a long path says more than its beginning, so the beginning is cut off
    return text if len(text) <= MAX_CHARACTERS else "…" + text[1 - MAX_CHARACTERS :]
