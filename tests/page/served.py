"""A served run for the tests of the page: a small folder of pictures, fitted in moments, and its server as a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from samekind.project.fit import FitConfig, fit
from samekind.server.jobs.background import analyze
from samekind.server.session import Session

HOSTILE = "<img src=x onerror=alert(1)>"  # as the name of a file and of a class
KINDS = (HOSTILE, "across", "down")  # with the keys 1, 2 and 3
SIDE = 12


def picture(kind: int, seed: int) -> Image.Image:
    """Nothing but noise, lines across, or lines down."""
    noise = np.random.default_rng(seed).integers(0, 50, (SIDE, SIDE))
    stripes = np.tile(200 * (np.arange(SIDE) // 2 % 2), (SIDE, 1))
    return Image.fromarray(np.clip((0 * stripes, stripes.T, stripes)[kind] + noise, 0, 255).astype(np.uint8))


def fitted(folder: Path) -> Path:
    """A run on 60 pictures of three kinds with 4 labels of each."""
    photos = folder / "photos"
    for k in range(60):
        path = photos / f"roll{k // 20}" / (f"{HOSTILE}.png" if k == 20 else f"{k:02d}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(k % 3, k).save(path)
    rows = "".join(f'roll0/{k:02d}.png,"{KINDS[k % 3]}"\n' for k in range(12))
    (photos / "labels.csv").write_text(f"path,label\n{rows}")
    fit(FitConfig(str(photos), epochs=6), folder / "run")
    Session(folder / "run").close()  # asks the model here, so that no server has to load torch for it
    analyze(folder / "run" / "serve" / "model-1")
    return folder / "run"


@contextmanager
def serving(run: Path, *more: str) -> Iterator[str]:
    """The link to the page of a run, while its server runs."""
    command = [sys.executable, "-m", "samekind", "serve", str(run), "--no-browser", "--port", "0", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()
