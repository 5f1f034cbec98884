"""Thumbnails: made once, newest request first, and limited in size."""

from __future__ import annotations

import io
import threading
import time
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from samekind.server.media.thumbnails import (
    ImageSource,
    NewestFirstGate,
    Thumbnails,
    clear,
    draw_line_plot,
    draw_text_tile,
    encode_image,
    file_source,
)


def noise(name: str, side: int = 300) -> ImageSource:
    pixels = np.random.default_rng(zlib.crc32(name.encode())).integers(0, 255, (side, side, 3)).astype(np.uint8)
    return ImageSource(name, lambda _: Image.fromarray(pixels))


def test_the_least_recently_used_thumbnails_are_removed(tmp_path: Path) -> None:
    thumbs = Thumbnails(tmp_path, max_bytes=150_000)
    for k in range(12):
        thumbs.get(noise(f"{k}"), 256)
        time.sleep(0.01)
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert 1 < len(left) < 12 and sum(path.stat().st_size for path in left) <= 150_000
    n_decoded = thumbs.n_decoded
    thumbs.get(noise("11"), 256)  # the newest is still cached,
    assert thumbs.n_decoded == n_decoded
    thumbs.get(noise("0"), 256)  # and the oldest is not
    assert thumbs.n_decoded == n_decoded + 1


def test_concurrent_requests_decode_an_image_once(tmp_path: Path) -> None:
    thumbs = Thumbnails(tmp_path)
    source = noise("same")
    threads = [threading.Thread(target=thumbs.get, args=(source, 128)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert thumbs.n_decoded == 1


def test_the_newest_request_is_served_first() -> None:
    gate, served = NewestFirstGate(1), []

    def enter(name: int) -> None:
        with gate:
            served.append(name)

    with gate:
        threads = []
        for name in range(4):
            threads.append(threading.Thread(target=enter, args=(name,)))
            threads[-1].start()
            while len(gate._waiting) <= name:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert served == [3, 2, 1, 0]


def test_clearing_removes_all_and_returns_the_size(tmp_path: Path) -> None:
    Thumbnails(tmp_path).get(noise("a"), 128)
    assert clear(tmp_path) > 1000
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_small_images_are_encoded_without_loss() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8)
    blob = encode_image(Image.fromarray(pixels), 128)
    assert (np.asarray(Image.open(io.BytesIO(blob))) == pixels).all()


def test_a_reason_is_drawn_on_a_tile_and_a_vector_as_a_line() -> None:
    tile = np.asarray(draw_text_tile("truncated: the file ends too early", 128))
    drawn = np.asarray(draw_line_plot([0.0, 1.0, 0.5, 0.25], 128, 0.0, 1.0))
    assert tile.shape == drawn.shape == (128, 128, 3)
    assert len(np.unique(tile)) > 3 and (drawn < 100).any()


def test_a_file_that_cannot_be_decoded_gives_a_reason(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"GIF89a")
    assert isinstance(file_source(tmp_path, "a.png").load(128), str)
