"""A small fitted run, its server in a process of its own, and what the page tests wait for and check."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from samekind.project.fit import FitConfig, fit
from samekind.server.jobs.background import analyze
from samekind.server.session import Session

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "<img src=x onerror=alert(1)>"  # as the name of a file and of a class
CLASSES = (HOSTILE, "across", "down")  # with the keys 1, 2 and 3
SIDE = 12


def draw_image(pattern: int, seed: int) -> Image.Image:
    """Return an image with noise only (0), horizontal stripes (1) or vertical stripes (2)."""
    noise = np.random.default_rng(seed).integers(0, 50, (SIDE, SIDE))
    stripes = np.tile(200 * (np.arange(SIDE) // 2 % 2), (SIDE, 1))
    return Image.fromarray(np.clip((0 * stripes, stripes.T, stripes)[pattern] + noise, 0, 255).astype(np.uint8))


def fitted(folder: Path) -> Path:
    """Fit a run on 60 images of three classes with 4 labels of each; return its folder."""
    images = folder / "photos"
    for k in range(60):
        path = images / f"roll{k // 20}" / (f"{HOSTILE}.png" if k == 20 else f"{k:02d}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        draw_image(k % 3, k).save(path)
    rows = "".join(f'roll0/{k:02d}.png,"{CLASSES[k % 3]}"\n' for k in range(12))
    (images / "labels.csv").write_text(f"path,label\n{rows}")
    fit(FitConfig(str(images), epochs=6), folder / "run")
    Session(folder / "run").close()  # writes the predictions here, so that no server has to load torch for them
    analyze(folder / "run" / "serve" / "model-1")
    return folder / "run"


@contextmanager
def serving(run: Path, *more: str) -> Iterator[str]:
    """Serve a run and yield the link to its page."""
    command = [sys.executable, "-m", "samekind", "serve", str(run), "--no-browser", "--port", "0", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def wait_for_message(page: Page, text: str) -> None:
    page.wait_for_function("words => document.querySelector('#message').textContent.includes(words)", arg=text)


def saved(page: Page) -> None:
    page.wait_for_function("() => samekind.state.pending === 0")


def serious_faults(page: Page) -> list[str]:
    """Return the serious accessibility faults that axe finds."""
    from axe_playwright_python.base import AXE_FILE_PATH

    page.evaluate(Path(AXE_FILE_PATH).read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run()")
    assert len(found["passes"]) > 20  # it did check the page
    return [one["id"] + one["nodes"][0]["html"] for one in found["violations"] if one["impact"] in ("serious", "critical")]
