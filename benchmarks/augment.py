"""Throughput of batch augmentation compared with image-by-image augmentation in Pillow and numpy, on one core.

    python benchmarks/augment.py

Both implementations get the same images and the same random parameters, and must give the same pixels; the last column counts
pixels that differ. The reference is what one would write for a dataset class: convert each array to a Pillow image, apply the
operations, and convert it back. The two implementations alternate, a few batches in each turn, and the median CPU time of all
turns is reported.
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

from bench_tables import show

Images = npt.NDArray[np.uint8]
ENHANCERS = {name: getattr(ImageEnhance, name) for name in ("Brightness", "Color", "Contrast", "Sharpness")}
MAX_SHIFT = 2  # pixels
BATCHES = 5  # per turn


@dataclass(frozen=True)
class AugmentationPair:
    """Two implementations of an augmentation; `ours` returns (n, C, H, W), `reference` returns (n, H, W, C)."""

    name: str
    ours: Callable[[], Tensor]
    reference: Callable[[], Images]


# ---------------------------------------------------------------- image by image


def apply_in_pillow(image: Image.Image, name: str, magnitude: float) -> Image.Image:
    if name in ENHANCERS:
        return ENHANCERS[name](image).enhance(magnitude)  # type: ignore[no-any-return]
    if name == "AutoContrast":
        return ImageOps.autocontrast(image)
    if name == "Equalize":
        return ImageOps.equalize(image)
    if name == "Posterize":
        return ImageOps.posterize(image, int(magnitude))
    if name == "Solarize":
        return ImageOps.solarize(image, int(magnitude))
    if name == "Rotate":
        return image.rotate(magnitude)
    matrices = {
        "ShearX": (1, magnitude, 0, 0, 1, 0),
        "ShearY": (1, 0, 0, magnitude, 1, 0),
        "TranslateX": (1, 0, magnitude, 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, magnitude),
    }
    if name in matrices:
        return image.transform(image.size, Image.Transform.AFFINE, matrices[name])
    return image


def operations_in_pillow(images: Images, plans: list[list[tuple[str, float]]]) -> Images:
    out = np.empty_like(images)
    for i, plan in enumerate(plans):
        image = Image.fromarray(images[i])
        for name, magnitude in plan:
            image = apply_in_pillow(image, name, magnitude)
        out[i] = np.asarray(image)
    return out


def shift_one_by_one(images: Images, moves: list[tuple[int, int, bool]]) -> Images:
    out = np.empty_like(images)
    height, width = images.shape[1:3]
    for i, (top, left, mirrored) in enumerate(moves):
        padded = np.pad(images[i], ((MAX_SHIFT, MAX_SHIFT), (MAX_SHIFT, MAX_SHIFT), (0, 0)), mode="reflect")
        crop = padded[top : top + height, left : left + width]
        out[i] = crop[:, ::-1] if mirrored else crop
    return out


def shift_padded_as_batch(images: Images, moves: list[tuple[int, int, bool]]) -> Images:
    """Return shifted images, with all images padded at once."""
    out = np.empty_like(images)
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (MAX_SHIFT, MAX_SHIFT), (MAX_SHIFT, MAX_SHIFT), (0, 0)), mode="reflect")
    for i, (top, left, mirrored) in enumerate(moves):
        crop = padded[i, top : top + height, left : left + width]
        out[i] = crop[:, ::-1] if mirrored else crop
    return out


# ---------------------------------------------------------------- pairs


def make_pairs(n: int, size: int, seed: int) -> list[AugmentationPair]:
    generator = torch.Generator().manual_seed(seed)
    x = smooth_images(n, size, generator)
    images = np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1))
    drawn = [PAPER.draw(n, generator)]
    for k in range(len(OPERATIONS)):
        draws = PAPER.draw(n, generator)
        drawn.append(Draws(np.full((n, 1), k), draws.level[:, :1], draws.sign[:, :1]))
    names = ["RandAugment, 2 operations", *(f"- {name}" for name in OPERATIONS)]
    found = [operations_pair(name, x, images, draws) for name, draws in zip(names, drawn, strict=True)]
    return [found[0], *shift_pairs(x, images, seed), *found[2:]]


def smooth_images(n: int, size: int, generator: torch.Generator) -> Tensor:
    """Return random images that are as smooth as photographs, with varying brightness and contrast."""
    rough = torch.randn((n, 3, 6, 6), generator=generator)
    smooth = torch.nn.functional.interpolate(rough, size=(size, size), mode="bicubic", align_corners=True)
    contrast, light = 20 + 50 * torch.rand((2, n, 1, 1, 1), generator=generator)
    noise = 4 * torch.randn(smooth.shape, generator=generator)
    pixels: Tensor = 60 + light + contrast * smooth + noise
    return pixels.clamp(0, 255).to(torch.uint8)


def operations_pair(name: str, x: Tensor, images: Images, draws: Draws) -> AugmentationPair:
    amounts = magnitudes(draws, GOOGLE, *x.shape[2:]).tolist()
    plans = [
        [(OPERATIONS[k], amount) for k, amount in zip(operations, row, strict=True)]
        for operations, row in zip(draws.operation.tolist(), amounts, strict=True)
    ]
    return AugmentationPair(name, lambda: apply_draws(x, draws, GOOGLE), lambda: operations_in_pillow(images, plans))


def shift_pairs(x: Tensor, images: Images, seed: int) -> list[AugmentationPair]:
    n = len(x)
    shift, indices = RandomShift(MAX_SHIFT, flip=True), torch.arange(n)
    generator = torch.Generator().manual_seed(seed)
    positions = 2 * MAX_SHIFT + 1
    top = torch.randint(positions, (n, 1), generator=generator).flatten().tolist()
    left = torch.randint(positions, (n, 1), generator=generator).flatten().tolist()
    mirrored = (torch.rand((n, 1), generator=generator) < 0.5).flatten().tolist()
    moves = list(zip(top, left, mirrored, strict=True))

    def ours() -> Tensor:
        return shift(x, indices, generator.manual_seed(seed))

    return [
        AugmentationPair("shift and flip", ours, lambda: shift_one_by_one(images, moves)),
        AugmentationPair("shift and flip, padded as a batch", ours, lambda: shift_padded_as_batch(images, moves)),
    ]


def seconds(work: Callable[[], Any]) -> float:
    """Return the CPU seconds per batch, over one turn."""
    began = time.process_time()
    for _ in range(BATCHES):
        work()
    return (time.process_time() - began) / BATCHES


def measure(pair: AugmentationPair, n: int, turns: int) -> list[str]:
    differ = int((pair.ours().numpy() != pair.reference().transpose(0, 3, 1, 2)).sum())
    times = np.array([(seconds(pair.ours), seconds(pair.reference)) for _ in range(turns)])
    ours, reference = np.median(times, axis=0)
    return [pair.name, f"{n / ours:,.0f}", f"{n / reference:,.0f}", f"{reference / ours:.1f}", str(differ)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=100, help="images in a batch")
    parser.add_argument("--size", type=int, default=32, help="height and width in pixels")
    parser.add_argument("--turns", type=int, default=31, help="number of turns; the median is reported")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(pair, args.batch, args.turns) for pair in make_pairs(args.batch, args.size, args.seed)]
    print(f"{args.batch} images of {args.size} x {args.size} in three colours, one core, median of {args.turns} turns\n")
    show(["", "batch, images/s", "one by one, images/s", "ratio", "pixels that differ"], rows)


if __name__ == "__main__":
    main()
