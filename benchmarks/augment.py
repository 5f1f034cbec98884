"""Augmentation of batches beside the same done image by image with Pillow and numpy: how many images a second, on one core.

    python benchmarks/augment.py

Both sides get the same images and the same draws, and give the same pixels; the last column counts those that differ. The
other side is what one would write by hand for a data set: an array becomes a Pillow image, its operations follow, and the
result goes back into an array. The two sides take turns of a few batches each, and the median of many turns counts, as
machines are noisy; time that the core spends on other programs is not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from samekind.data.augment.ops import OPERATIONS
from samekind.data.augment.randaugment import GOOGLE, PAPER, Draws, apply_draws, magnitudes
from samekind.data.augment.transforms import RandomShift

from tables import show

Images = npt.NDArray[np.uint8]
ENHANCERS = {name: getattr(ImageEnhance, name) for name in ("Brightness", "Color", "Contrast", "Sharpness")}
PIXELS = 2  # of the shift
BATCHES = 5  # of one turn


@dataclass(frozen=True)
class Duel:
    """One thing done in two ways; ours gives (n, C, H, W), theirs (n, H, W, C)."""

    name: str
    ours: Callable[[], Tensor]
    theirs: Callable[[], Images]


# ---------------------------------------------------------------- image by image


def by_pillow(picture: Image.Image, name: str, magnitude: float) -> Image.Image:
    if name in ENHANCERS:
        return ENHANCERS[name](picture).enhance(magnitude)  # type: ignore[no-any-return]
    if name == "AutoContrast":
        return ImageOps.autocontrast(picture)
    if name == "Equalize":
        return ImageOps.equalize(picture)
    if name == "Posterize":
        return ImageOps.posterize(picture, int(magnitude))
    if name == "Solarize":
        return ImageOps.solarize(picture, int(magnitude))
    if name == "Rotate":
        return picture.rotate(magnitude)
    matrices = {
        "ShearX": (1, magnitude, 0, 0, 1, 0),
        "ShearY": (1, 0, 0, magnitude, 1, 0),
        "TranslateX": (1, 0, magnitude, 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, magnitude),
    }
    if name in matrices:
        return picture.transform(picture.size, Image.Transform.AFFINE, matrices[name])
    return picture


def operations_by_pillow(images: Images, plans: list[list[tuple[str, float]]]) -> Images:
    out = np.empty_like(images)
    for i, plan in enumerate(plans):
        picture = Image.fromarray(images[i])
        for name, magnitude in plan:
            picture = by_pillow(picture, name, magnitude)
        out[i] = np.asarray(picture)
    return out


def shift_by_hand(images: Images, moves: list[tuple[int, int, bool]]) -> Images:
    out = np.empty_like(images)
    height, width = images.shape[1:3]
    for i, (top, left, mirrored) in enumerate(moves):
        padded = np.pad(images[i], ((PIXELS, PIXELS), (PIXELS, PIXELS), (0, 0)), mode="reflect")
        crop = padded[top : top + height, left : left + width]
        out[i] = crop[:, ::-1] if mirrored else crop
    return out


def shift_padded_before(images: Images, moves: list[tuple[int, int, bool]]) -> Images:
    """The same with all images padded at once: half of a batch already."""
    out = np.empty_like(images)
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (PIXELS, PIXELS), (PIXELS, PIXELS), (0, 0)), mode="reflect")
    for i, (top, left, mirrored) in enumerate(moves):
        crop = padded[i, top : top + height, left : left + width]
        out[i] = crop[:, ::-1] if mirrored else crop
    return out


# ---------------------------------------------------------------- the duels


def duels(n: int, size: int, seed: int) -> list[Duel]:
    generator = torch.Generator().manual_seed(seed)
    x = photos(n, size, generator)
    images = np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1))
    drawn = [PAPER.draw(n, generator)]
    for k in range(len(OPERATIONS)):
        draws = PAPER.draw(n, generator)
        drawn.append(Draws(np.full((n, 1), k), draws.level[:, :1], draws.sign[:, :1]))
    names = ["RandAugment, 2 operations", *(f"- {name}" for name in OPERATIONS)]
    found = [operations_duel(name, x, images, draws) for name, draws in zip(names, drawn, strict=True)]
    return [found[0], *shift_duels(x, images, seed), *found[2:]]


def photos(n: int, size: int, generator: torch.Generator) -> Tensor:
    """Images as smooth as photos are, each with its own brightness and contrast."""
    rough = torch.randn((n, 3, 6, 6), generator=generator)
    smooth = torch.nn.functional.interpolate(rough, size=(size, size), mode="bicubic", align_corners=True)
    contrast, light = 20 + 50 * torch.rand((2, n, 1, 1, 1), generator=generator)
    noise = 4 * torch.randn(smooth.shape, generator=generator)
    pixels: Tensor = 60 + light + contrast * smooth + noise
    return pixels.clamp(0, 255).to(torch.uint8)


def operations_duel(name: str, x: Tensor, images: Images, draws: Draws) -> Duel:
    amounts = magnitudes(draws, GOOGLE, *x.shape[2:]).tolist()
    plans = [
        [(OPERATIONS[k], amount) for k, amount in zip(kinds, row, strict=True)]
        for kinds, row in zip(draws.operation.tolist(), amounts, strict=True)
    ]
    return Duel(name, lambda: apply_draws(x, draws, GOOGLE), lambda: operations_by_pillow(images, plans))


def shift_duels(x: Tensor, images: Images, seed: int) -> list[Duel]:
    n = len(x)
    view, rows = RandomShift(PIXELS, flip=True), torch.arange(n)
    generator = torch.Generator().manual_seed(seed)
    places = 2 * PIXELS + 1
    top = torch.randint(places, (n, 1), generator=generator).flatten().tolist()
    left = torch.randint(places, (n, 1), generator=generator).flatten().tolist()
    mirrored = (torch.rand((n, 1), generator=generator) < 0.5).flatten().tolist()
    moves = list(zip(top, left, mirrored, strict=True))

    def ours() -> Tensor:
        return view(x, rows, generator.manual_seed(seed))

    return [
        Duel("shift and flip", ours, lambda: shift_by_hand(images, moves)),
        Duel("shift and flip, padded as a batch", ours, lambda: shift_padded_before(images, moves)),
    ]


def seconds(work: Callable[[], Any]) -> float:
    """For one batch, in a turn."""
    began = time.process_time()
    for _ in range(BATCHES):
        work()
    return (time.process_time() - began) / BATCHES


def measured(duel: Duel, n: int, turns: int) -> list[str]:
    differ = int((duel.ours().numpy() != duel.theirs().transpose(0, 3, 1, 2)).sum())
    times = np.array([(seconds(duel.ours), seconds(duel.theirs)) for _ in range(turns)])
    ours, theirs = np.median(times, axis=0)
    return [duel.name, f"{n / ours:,.0f}", f"{n / theirs:,.0f}", f"{theirs / ours:.1f}", str(differ)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=100, help="images in a batch")
    parser.add_argument("--size", type=int, default=32, help="pixels along each side")
    parser.add_argument("--turns", type=int, default=31, help="of each side; the median counts")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measured(duel, args.batch, args.turns) for duel in duels(args.batch, args.size, args.seed)]
    print(f"{args.batch} images of {args.size} x {args.size} in three colours, one core, median of {args.turns} turns\n")
    show(["", "batch, images/s", "one by one, images/s", "ratio", "pixels that differ"], rows)


if __name__ == "__main__":
    main()
