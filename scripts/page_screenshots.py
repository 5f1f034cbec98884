"""Take the screenshots of the labelling page for the README: docs/page.png and docs/page_similar.png.

    python scripts/page_screenshots.py [--folder runs/page] [--out docs] [--narrow FILE]

Writes 2,400 images of CIFAR-10 into a folder, with a label for 80 of them, fits a run on the folder if there is none, serves a
copy of the run, and drives the page in a headless Chromium. With --narrow, a third screenshot shows the page on a screen that
is 400 pixels wide.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from samekind.data.hub.loaders import load_dataset
from samekind.data.splits import hide_labels
from samekind.project.fit import FitConfig, fit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
N_IMAGES, PER_CLASS, PER_FOLDER = 2400, 8, 400
N_EXAMPLES = 7  # similar images that the second screenshot shows as selected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/page"), help="folder for the images and the run")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder for the screenshots")
    parser.add_argument("--narrow", type=Path, metavar="FILE", help="also show a screen that is 400 pixels wide")
    options = parser.parse_args()
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit(f"There is no browser: found none of {', '.join(BROWSERS)}. Install Chromium and try again.")
    run = fitted_run(options.folder)
    with served(run) as link, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        uncertain(open_page(chromium, link)).screenshot(path=options.out / "page.png")
        similar(open_page(chromium, link, dark=True)).screenshot(path=options.out / "page_similar.png")
        if options.narrow:
            open_page(chromium, link, width=400).screenshot(path=options.narrow)
        chromium.close()


def fitted_run(folder: Path) -> Path:
    """Return the folder of a fresh copy of the fitted run; write the images and fit the run if there is none."""
    images, original, copied = folder / "photos", folder / "fitted", folder / "photos_run"
    if not (original / "run.json").exists():
        write_images(images)
        fit(FitConfig(str(images)), original)
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(original, copied)
    return copied


def write_images(folder: Path) -> None:
    """Write images of CIFAR-10 and a labels.csv with the class of a few of them."""
    cifar = load_dataset("cifar10")
    chosen = np.sort(np.random.default_rng(0).choice(len(cifar.x), N_IMAGES, replace=False))
    names = [f"roll_{k // PER_FOLDER + 1}/img_{k:04d}.png" for k in range(N_IMAGES)]
    for name, index in zip(names, chosen, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(cifar.x[index]).save(folder / name)
    shown = hide_labels(cifar.y[chosen], PER_CLASS, seed=0)
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        rows = ([name, cifar.classes[c]] for name, c in zip(names, shown, strict=True) if c >= 0)
        csv.writer(file).writerows([["path", "label"], *rows])


@contextmanager
def served(run: Path) -> Iterator[str]:
    """Serve a run until the end of the block; yield the link to its page."""
    command = [sys.executable, "-m", "samekind", "serve", str(run), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def open_page(browser: Browser, link: str, *, width: int = 1280, dark: bool = False) -> Page:
    """Open the page at the unlabelled images and wait for its first images."""
    context = browser.new_context(viewport={"width": width, "height": 860}, color_scheme="dark" if dark else "light")
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(link)
    page.wait_for_selector(".tile .chip:not([hidden])")
    page.evaluate("() => import('/static/state.js').then(({ show }) => show({ status: 'unlabelled' }))")
    wait_for_images(page)
    return page


def uncertain(page: Page) -> Page:
    """Label one image, then select three of the most uncertain ones."""
    page.locator("#grid").press("3")
    page.wait_for_function("() => samekind.state.pending === 0")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Space")
    page.wait_for_selector("#similar .mini img")
    wait_for_images(page)
    return page


def similar(page: Page) -> Page:
    """Show the images most similar to a confident cat, with a few of them selected."""
    page.get_by_role("button", name="cat:").first.click()
    page.locator("#sort").select_option("confidence")
    wait_for_images(page)
    page.locator("#grid").press("s")
    page.wait_for_function("() => samekind.state.view.similarTo !== ''")
    wait_for_images(page)
    for _ in range(N_EXAMPLES):
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Space")
    wait_for_images(page)
    return page


def wait_for_images(page: Page) -> None:
    """Wait until no request is open and all images in view are drawn."""
    page.wait_for_load_state("networkidle")
    page.wait_for_function("() => [...document.images].every((image) => image.complete)")
    page.wait_for_timeout(500)


if __name__ == "__main__":
    main()
