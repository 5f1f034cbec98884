"""Sizes are known before an image is opened, and few large images are decoded at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from PIL import Image

from samekind.data.readers.image_size import PixelGate, peek_size


@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 80}, {"exif": b"Exif\0\0"}])
def test_the_size_of_a_webp_image_is_in_its_first_bytes(tmp_path: Path, options: dict[str, object]) -> None:
    Image.new("RGB", (300, 20), "red").save(tmp_path / "a.webp", **options)  # type: ignore[arg-type]
    with (tmp_path / "a.webp").open("rb") as file:
        found = peek_size(file)
    assert found is not None and found.size == (300, 20)


def test_the_size_of_an_icon_is_that_of_its_largest_image_and_not_the_one_in_its_directory(tmp_path: Path) -> None:
    Image.new("RGB", (200, 90)).save(tmp_path / "a.ico", sizes=[(16, 16), (200, 90)], bitmap_format="bmp")
    data = bytearray((tmp_path / "a.ico").read_bytes())
    data[6:8] = data[22:24] = b"\1\1"  # the directory calls both images 1 x 1
    (tmp_path / "a.ico").write_bytes(data)
    with (tmp_path / "a.ico").open("rb") as file:
        found = peek_size(file)
    assert found is not None and found.size == (200, 90)


def test_the_pixels_inside_a_gate_stay_below_its_limit() -> None:
    gate, inside, most = PixelGate(100), [0], []

    def pass_gate(n_pixels: int) -> None:
        for _ in range(20):
            with gate.hold(n_pixels):
                inside[0] += min(n_pixels, 100)
                most.append(inside[0])
                inside[0] -= min(n_pixels, 100)

    threads = [threading.Thread(target=pass_gate, args=(n_pixels,)) for n_pixels in (30, 60, 70, 5000, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(most) == 100
    assert max(most) <= 100
