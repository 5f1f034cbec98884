"""A picture of questions and answers: the query first, framed in blue, then what is most alike, each with its words."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

Pixels = npt.NDArray[Any]
SIDE = 96  # of a tile on the panel, in pixels
GAP, WORDS, EDGE = 10, 30, 3
INK, SOFT, PAPER, QUERY, OTHER = "#1f2328", "#59636e", "#ffffff", "#1560d4", "#d1123f"
LETTERS = 15  # of a label that fit under a tile


@dataclass(frozen=True)
class Tile:
    """An image (H, W, C) with two lines of words; `odd` frames it in red."""

    image: Pixels
    title: str
    words: str = ""
    odd: bool = False


def panel(rows: Sequence[Sequence[Tile]]) -> bytes:
    """One row for each query, the query first, as PNG."""
    columns = max(len(row) for row in rows)
    wide, tall = SIDE + GAP, SIDE + WORDS + GAP
    sheet = Image.new("RGB", (columns * wide + 2 * GAP, len(rows) * tall + GAP), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=12)
    for r, row in enumerate(rows):
        for c, tile in enumerate(row):
            # the query stands a little apart from what was found for it
            left, top = GAP + c * wide + (GAP if c else 0), GAP + r * tall
            picture = _picture(tile.image)
            sheet.paste(picture, (left + (SIDE - picture.width) // 2, top + (SIDE - picture.height) // 2))
            colour = QUERY if c == 0 else OTHER if tile.odd else None
            if colour:
                draw.rectangle((left - EDGE, top - EDGE, left + SIDE + EDGE - 1, top + SIDE + EDGE - 1), None, colour, EDGE)
            draw.text((left, top + SIDE + EDGE), _short(tile.title), INK, font)
            draw.text((left, top + SIDE + EDGE + 13), _short(tile.words), SOFT, font)
    buffer = io.BytesIO()
    sheet.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _picture(image: Pixels) -> Image.Image:
    """Bytes, or numbers spread from their least to their largest; as large as a tile, small ones with sharp pixels."""
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = ((pixels - low) / (high - low or 1.0) * 255).astype(np.uint8)
    if pixels.ndim == 3 and pixels.shape[2] != 3:
        pixels = pixels[:, :, 0]
    picture = Image.fromarray(pixels).convert("RGB")
    scale = SIDE / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Image.Resampling.NEAREST if scale > 2 else Image.Resampling.LANCZOS)


def _short(words: str) -> str:
    # the end of a path says more than its beginning
    return words if len(words) <= LETTERS else "…" + words[1 - LETTERS :]
