"""An unlabelled project of colour images: the page shows neighbours by the features of a pretrained encoder at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageDraw
from tests.page.served import serving

from samekind.nets.encoders.frozen_features import FeatureCache
from samekind.preprocessing.baseline_features import compute_baseline_features, compute_encoder_features
from samekind.preprocessing.encoder_choice import encoder_without_labels
from samekind.preprocessing.preprocessor import build_encoder

if TYPE_CHECKING:
    from playwright.sync_api import Browser

N, SIDE, SHOWN = 30, 64, 5
Floats = npt.NDArray[np.float32]


def draw_shape(k: int) -> Image.Image:
    """Return a disc, a square or a cross in a random colour at a random place."""
    rng = np.random.default_rng(k)
    image = Image.new("RGB", (SIDE, SIDE), tuple(rng.integers(0, 256, 3).tolist()))
    draw, (x, y), colour = ImageDraw.Draw(image), rng.integers(4, 24, 2).tolist(), tuple(rng.integers(0, 256, 3).tolist())
    box = (x, y, x + 32, y + 32)
    if k % 3 == 0:
        draw.ellipse(box, fill=colour)
    elif k % 3 == 1:
        draw.rectangle(box, fill=colour)
    else:
        draw.line(box, fill=colour, width=8)
        draw.line((x + 32, y, x, y + 32), fill=colour, width=8)
    return image


@pytest.fixture(scope="module")
def project(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Floats]]:
    """Serve a folder of images without labels; yield the link and the images."""
    folder = tmp_path_factory.mktemp("neighbors")
    (folder / "photos").mkdir()
    for k in range(N):
        draw_shape(k).save(folder / "photos" / f"{k:02d}.png")
    images = np.stack([np.asarray(draw_shape(k)) for k in range(N)])
    with serving(folder / "photos", "--out", str(folder / "run")) as link:
        yield link, images


def nearest(z: Floats, query: int) -> set[int]:
    similarity = z @ z[query]
    similarity[query] = -np.inf
    return set(np.argsort(-similarity)[:SHOWN].tolist())


def test_the_neighbours_before_the_first_label_are_those_of_the_encoder(
    opened: Callable[..., Any], project: tuple[str, Floats], tmp_path: Path
) -> None:
    link, images = project
    name = encoder_without_labels(images)
    assert name is not None
    encoded = compute_encoder_features(images, build_encoder(name), FeatureCache(tmp_path))
    page = opened(address=link, until=".tile img[src]")
    focus = "() => samekind.state.items.get(samekind.state.order[samekind.state.focus])?.path"
    page.wait_for_function(focus)
    query = int(page.evaluate(focus)[:2])
    page.locator("#min-sim-number").fill("-1")
    page.wait_for_function(f"() => document.querySelectorAll('#similar .mini[title]').length >= {SHOWN}")
    titles = [mini.get_attribute("title") for mini in page.locator("#similar .mini").all()[:SHOWN]]
    shown = {int(title[:2]) for title in titles}
    assert shown == nearest(encoded, query)
    assert shown != nearest(compute_baseline_features(images), query)
