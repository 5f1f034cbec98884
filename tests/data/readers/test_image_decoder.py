"""Image files of every type are decoded to the expected pixels; unusable files give a reason."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from samekind.data.readers import portable_pixmap
from samekind.data.readers.image_decoder import MAX_PIXELS, ImageHeader, Pixels, decode_image, is_image_file, read_image_header

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def read(path: Path, height: int, width: int, channels: int = 3) -> Pixels:
    pixels = decode_image(path, (height, width, channels))
    assert not isinstance(pixels, str), pixels
    assert pixels.shape == (height, width, channels)
    assert pixels.dtype == np.uint8
    return pixels


def reason(path: Path) -> str:
    result = decode_image(path, (4, 4, 3))
    assert isinstance(result, str)
    return result


def saved(path: Path, image: Image.Image, **how: Any) -> Path:
    image.save(path, **how)
    return path


def noise(height: int, width: int, channels: int = 3) -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


# ---------------------------------------------------------------- kinds of pixels


@pytest.mark.parametrize("ending", ["png", "bmp", "tiff", "webp", "ppm", "PNG"])
def test_colour_images_are_decoded_exactly(tmp_path: Path, ending: str) -> None:
    X = noise(5, 7)
    path = saved(tmp_path / f"a.{ending}", Image.fromarray(X), **({"lossless": True} if ending == "webp" else {}))
    assert np.array_equal(read(path, 5, 7), X)


def test_a_jpeg_is_decoded_approximately(tmp_path: Path) -> None:
    X = np.full((16, 16, 3), (200, 100, 50), dtype=np.uint8)
    path = saved(tmp_path / "a.jpg", Image.fromarray(X), quality=95)
    assert np.abs(read(path, 16, 16).astype(int) - X).max() <= 3


def test_grey_images_have_one_channel_or_three_equal_ones(tmp_path: Path) -> None:
    X = noise(4, 6, 1)
    path = saved(tmp_path / "a.png", Image.fromarray(X[..., 0]))
    assert np.array_equal(read(path, 4, 6, 1), X)
    assert np.array_equal(read(path, 4, 6, 3), np.repeat(X, 3, axis=2))


def test_colour_becomes_grey_by_the_usual_weights(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.fromarray(np.array([[RED, GREEN, BLUE]], dtype=np.uint8)))
    assert read(path, 1, 3, 1).ravel().tolist() == [76, 150, 29]


@pytest.mark.parametrize("ending", ["png", "gif"])
def test_a_palette_gives_its_colours(tmp_path: Path, ending: str) -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([*RED, *GREEN, *BLUE])
    image.putdata([2, 0, 1])
    assert read(saved(tmp_path / f"a.{ending}", image), 1, 3)[0].tolist() == [list(BLUE), list(RED), list(GREEN)]


def test_one_bit_is_black_and_white(tmp_path: Path) -> None:
    bits = np.array([[True, False], [False, True]])
    assert read(saved(tmp_path / "a.png", Image.fromarray(bits)), 2, 2, 1)[..., 0].tolist() == [[255, 0], [0, 255]]


def test_cmyk_is_turned_into_rgb(tmp_path: Path) -> None:
    image = Image.new("CMYK", (3, 1))
    image.putdata([(0, 255, 255, 0), (255, 0, 255, 0), (0, 0, 0, 255)])
    assert read(saved(tmp_path / "a.tiff", image), 1, 3)[0].tolist() == [list(RED), list(GREEN), [0, 0, 0]]


def test_a_cmyk_jpeg_is_not_inverted(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.jpg", Image.new("CMYK", (16, 16), (0, 255, 255, 0)), quality=95)
    assert np.abs(read(path, 16, 16).astype(int) - RED).max() <= 4


@pytest.mark.parametrize("ending", ["png", "tiff", "pgm"])
def test_a_16_bit_ramp_becomes_the_8_bit_ramp(tmp_path: Path, ending: str) -> None:
    ramp = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    path = saved(tmp_path / f"a.{ending}", Image.fromarray(ramp))
    assert read(path, 16, 16, 1).ravel().tolist() == list(range(256))


def test_16_bits_are_rounded_to_the_nearest(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.fromarray(np.array([[0, 128, 129, 65406, 65407, 65535]], dtype=np.uint16)))
    assert read(path, 1, 6, 1).ravel().tolist() == [0, 0, 1, 254, 255, 255]


def test_16_bit_images_of_both_byte_orders_are_equal(tmp_path: Path) -> None:
    image = Image.frombytes("I;16B", (4, 1), struct.pack(">4H", 0, 257, 128 * 257, 65535))
    path = saved(tmp_path / "a.tif", image)
    assert path.read_bytes().startswith(b"MM")
    assert read(path, 1, 4, 1).ravel().tolist() == [0, 1, 128, 255]


def test_32_bit_integers_are_read_like_16_bit_ones_or_refused(tmp_path: Path) -> None:
    fine = saved(tmp_path / "a.tiff", Image.fromarray(np.array([[0, 257, 65535]], dtype=np.int32)))
    assert read(fine, 1, 3, 1).ravel().tolist() == [0, 1, 255]
    wide = saved(tmp_path / "b.tiff", Image.fromarray(np.array([[-5, 70000]], dtype=np.int32)))
    assert reason(wide) == "the image holds integers from -5 to 70000, outside 0 to 65535; save it with 8 or 16 bits"


def test_floats_are_read_from_0_to_1_or_refused(tmp_path: Path) -> None:
    fine = saved(tmp_path / "a.tiff", Image.fromarray(np.array([[0, 0.5, 1]], dtype=np.float32)))
    assert read(fine, 1, 3, 1).ravel().tolist() == [0, 128, 255]
    wide = saved(tmp_path / "b.tiff", Image.fromarray(np.array([[0, 300]], dtype=np.float32)))
    assert "floats from 0 to 300" in reason(wide)
    gap = saved(tmp_path / "c.tiff", Image.fromarray(np.array([[0, np.nan]], dtype=np.float32)))
    assert "nan" in reason(gap)


# ---------------------------------------------------------------- alpha on white


def test_transparent_pixels_are_put_on_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (3, 1))
    image.putdata([(255, 0, 0, 255), (255, 0, 0, 0), (0, 0, 0, 51)])
    assert read(saved(tmp_path / "a.png", image), 1, 3)[0].tolist() == [list(RED), list(WHITE), [204, 204, 204]]


def test_transparent_grey_pixels_are_put_on_white(tmp_path: Path) -> None:
    image = Image.new("LA", (3, 1))
    image.putdata([(10, 255), (10, 0), (0, 51)])
    assert read(saved(tmp_path / "a.png", image), 1, 3, 1).ravel().tolist() == [10, 255, 204]


@pytest.mark.parametrize("ending", ["png", "gif"])
def test_a_transparent_colour_of_a_palette_is_white(tmp_path: Path, ending: str) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *GREEN])
    image.putdata([0, 1])
    assert read(saved(tmp_path / f"a.{ending}", image, transparency=1), 1, 2)[0].tolist() == [list(RED), list(WHITE)]


def test_half_transparent_colours_of_a_palette_are_mixed_with_white(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, *GREEN])
    image.putdata([0, 1])
    path = saved(tmp_path / "a.png", image, transparency=bytes([51, 255]))
    assert read(path, 1, 2)[0].tolist() == [[204, 204, 204], list(GREEN)]


@pytest.mark.parametrize(("mode", "colours", "see_through"), [("RGB", [RED, GREEN], GREEN), ("L", [7, 9], 9)])
def test_a_colour_declared_transparent_is_white(tmp_path: Path, mode: str, colours: list[Any], see_through: Any) -> None:
    image = Image.new(mode, (2, 1))
    image.putdata(colours)
    pixels = read(saved(tmp_path / "a.png", image, transparency=see_through), 1, 2)
    assert pixels[0, 0].tolist() == (list(RED) if mode == "RGB" else [7, 7, 7])
    assert pixels[0, 1].tolist() == list(WHITE)


# ---------------------------------------------------------------- turned, animated, wrongly named


UPRIGHT: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("ending", ["png", "tiff", "webp", "jpg"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int, ending: str) -> None:
    X = np.kron(noise(2, 3), np.ones((16, 16, 1), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    how: dict[str, Any] = (
        {"lossless": True} if ending == "webp" else {"quality": 100, "subsampling": 0} if ending == "jpg" else {}
    )
    path = saved(tmp_path / f"a.{ending}", Image.fromarray(X), exif=exif, **how)
    expected = UPRIGHT[orientation](X)
    height, width = expected.shape[:2]
    assert read_image_header(path) == ImageHeader(height, width, grey=False)
    difference = np.abs(read(path, height, width).astype(int) - expected)
    assert difference.max() <= (40 if ending == "jpg" else 0)
    assert difference.mean() <= 1.5


def test_an_image_with_damaged_exif_is_read(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.fromarray(noise(3, 4)), exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert np.array_equal(read(path, 3, 4), noise(3, 4))


def test_exif_after_the_pixels_of_a_png_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    X = noise(2, 3)
    plain = saved(tmp_path / "a.png", Image.fromarray(X)).read_bytes()
    data = exif.tobytes().removeprefix(b"Exif\0\0")
    chunk = struct.pack(">I", len(data)) + b"eXIf" + data + struct.pack(">I", zlib.crc32(b"eXIf" + data))
    (tmp_path / "a.png").write_bytes(plain[:-12] + chunk + plain[-12:])
    assert np.array_equal(read(tmp_path / "a.png", 3, 2), np.rot90(X, -1))


@pytest.mark.parametrize("ending", ["gif", "png", "webp", "tiff"])
def test_of_an_animation_the_first_frame_is_taken(tmp_path: Path, ending: str) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, GREEN, BLUE)]
    how = {"lossless": True} if ending == "webp" else {}
    path = saved(tmp_path / f"a.{ending}", frames[0], save_all=True, append_images=frames[1:], **how)
    assert (read(path, 4, 4) == RED).all()


def test_a_png_named_jpg_is_read(tmp_path: Path) -> None:
    saved(tmp_path / "a.png", Image.fromarray(noise(3, 3))).rename(tmp_path / "a.jpg")
    assert np.array_equal(read(tmp_path / "a.jpg", 3, 3), noise(3, 3))


def test_a_file_without_suffix_is_recognized_by_its_first_bytes(tmp_path: Path) -> None:
    saved(tmp_path / "a.png", Image.fromarray(noise(3, 3))).rename(tmp_path / "a")
    (tmp_path / "b").write_text("All rights reserved.")
    assert is_image_file(tmp_path / "a")
    assert not is_image_file(tmp_path / "b")
    assert not is_image_file(tmp_path / "gone")


# ---------------------------------------------------------------- size


def test_a_larger_image_is_scaled_by_its_shorter_side_and_cropped_in_the_middle(tmp_path: Path) -> None:
    X = np.zeros((40, 100, 3), dtype=np.uint8)
    X[:, 30:50], X[:, 50:70] = RED, BLUE
    pixels = read(saved(tmp_path / "a.png", Image.fromarray(X)), 8, 8)
    assert np.abs(pixels[:, :3].astype(int) - RED).max() <= 20
    assert np.abs(pixels[:, 5:].astype(int) - BLUE).max() <= 20


def test_downscaling_averages_pixels(tmp_path: Path) -> None:
    board = (np.indices((128, 128)).sum(0) % 2 * 255).astype(np.uint8)
    pixels = read(saved(tmp_path / "a.png", Image.fromarray(board)), 8, 8, 1)
    assert np.abs(pixels[1:-1, 1:-1].astype(int) - 127).max() <= 1


def test_a_large_jpeg_is_decoded_at_reduced_size_to_the_same_image(tmp_path: Path) -> None:
    X = np.kron(np.array([[RED, GREEN], [BLUE, WHITE]], dtype=np.uint8), np.ones((400, 400, 1), np.uint8))
    pixels = read(saved(tmp_path / "a.jpg", Image.fromarray(X), quality=95), 8, 8).astype(int)
    for (y, x), colour in {(1, 1): RED, (1, 6): GREEN, (6, 1): BLUE, (6, 6): WHITE}.items():
        assert np.abs(pixels[y, x] - colour).max() <= 5


def test_an_image_of_one_pixel_fills_the_result(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.new("RGB", (1, 1), (10, 20, 30)))
    assert read_image_header(path) == ImageHeader(1, 1, grey=False)
    assert (read(path, 6, 4) == (10, 20, 30)).all()


@settings(max_examples=40, deadline=None)
@given(h=st.integers(1, 40), w=st.integers(1, 40), to_h=st.integers(1, 20), to_w=st.integers(1, 20), shade=st.integers(0, 255))
def test_a_constant_image_stays_constant_at_any_size(
    tmp_path_factory: pytest.TempPathFactory, h: int, w: int, to_h: int, to_w: int, shade: int
) -> None:
    path = saved(tmp_path_factory.mktemp("shade") / "a.bmp", Image.new("L", (w, h), shade))
    assert (read(path, to_h, to_w, 1) == shade).all()


def grey_png(path: Path, width: int, height: int) -> Path:
    """Return a black one-bit PNG of any size in a few kilobytes."""
    packer = zlib.compressobj(9)
    line = b"\0" * (1 + (width + 7) // 8)
    data = b"".join(packer.compress(line) for _ in range(height)) + packer.flush()
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)), (b"IDAT", data), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


def test_a_hundred_megapixels_are_read_without_a_warning(tmp_path: Path) -> None:
    path = grey_png(tmp_path / "a.png", 10_000, 10_000)
    assert not Image.MAX_IMAGE_PIXELS or Image.MAX_IMAGE_PIXELS < 10_000**2
    assert (read(path, 8, 8, 1) == 0).all()


def test_a_decompression_bomb_is_refused_before_decoding(tmp_path: Path) -> None:
    path = grey_png(tmp_path / "a.png", 60_000, 8)
    data = bytearray(path.read_bytes())
    data[20:24] = struct.pack(">I", 60_000)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    path.write_bytes(data)
    assert MAX_PIXELS < 60_000**2
    assert reason(path) == "the image has 60000 x 60000 pixels, more than the limit of 300 million; save it smaller"
    assert read_image_header(path) == reason(path)


# ---------------------------------------------------------------- what cannot be read


def test_each_failure_has_a_plain_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("this is no photo\n")
    (tmp_path / "noise.png").write_bytes(bytes(range(256)))
    (tmp_path / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    assert reason(tmp_path / "empty.jpg") == "empty file"
    assert reason(tmp_path / "text.jpg") == "text, not an image"
    assert reason(tmp_path / "noise.png") == "not an image, or damaged at its beginning"
    assert "HEIC" in reason(tmp_path / "phone.heic")
    assert reason(tmp_path / "gone.png") == "no such file or directory"
    assert reason(tmp_path) == "is a directory"


@pytest.mark.parametrize("ending", ["jpg", "png", "gif", "bmp", "webp", "tiff"])
@pytest.mark.parametrize("share", [0.9, 0.5, 0.1, 0.02])
def test_a_truncated_file_is_refused_at_any_length(tmp_path: Path, ending: str, share: float) -> None:
    path = saved(tmp_path / f"a.{ending}", Image.fromarray(noise(40, 40)))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert isinstance(decode_image(path, (40, 40, 3)), str)


def test_the_reason_for_a_truncated_image_is_given(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.jpg", Image.fromarray(noise(40, 40)))
    path.write_bytes(path.read_bytes()[:-300])
    assert reason(path) == "truncated: the file ends too early"


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_bytes_give_an_image_or_a_reason_and_never_an_exception(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    ending = data.draw(st.sampled_from(["jpg", "png", "gif", "bmp", "tiff", "webp", "ppm"]))
    path = saved(folder / f"a.{ending}", Image.fromarray(noise(12, 9)))
    blob = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(blob) - 1), max_size=8)):
        blob[at] = data.draw(st.integers(0, 255))
    path.write_bytes(blob)
    result = decode_image(path, (6, 6, 3))
    assert isinstance(result, str) or result.shape == (6, 6, 3)
    assert isinstance(read_image_header(path), (str, ImageHeader))


def test_global_settings_of_pillow_are_not_changed(tmp_path: Path) -> None:
    before = Image.MAX_IMAGE_PIXELS
    read(saved(tmp_path / "a.png", Image.fromarray(noise(3, 3))), 3, 3)
    assert before == Image.MAX_IMAGE_PIXELS


def test_image_headers_distinguish_grey_from_colour(tmp_path: Path) -> None:
    for mode, grey in {"1": True, "L": True, "LA": True, "I;16": True, "RGB": False, "RGBA": False, "P": False}.items():
        path = saved(tmp_path / "a.png", Image.new(mode, (5, 3)))
        assert read_image_header(path) == ImageHeader(3, 5, grey)
        os.remove(path)


# ---------------------------------------------------------------- what a decoder costs


def icon(image: bytes, side: int = 0) -> bytes:
    """Return an icon file with one PNG image."""
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, side, side, 0, 0, 1, 32, len(image), 22) + image


def png_header(width: int, height: int) -> bytes:
    data = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + data + struct.pack(">I", zlib.crc32(data))


def test_a_large_icon_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "a.ico").write_bytes(icon(png_header(7000, 7000)))
    expected = "the image has 7000 x 7000 pixels, more than the limit of 16 million; save it smaller"
    assert reason(tmp_path / "a.ico") == read_image_header(tmp_path / "a.ico") == expected


def test_an_icon_gives_its_largest_image(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.ico", Image.new("RGBA", (40, 40), (*RED, 255)), sizes=[(16, 16), (40, 40)])
    assert read_image_header(path) == ImageHeader(40, 40, grey=False)
    assert read(path, 40, 40)[0, 0].tolist() == list(RED)


@pytest.mark.parametrize(("form", "values"), [("P3", 255), ("P2", 255), ("P2", 1000), ("P6", 77), ("P5", 300), ("P6", 900)])
def test_a_pixmap_of_text_or_of_another_scale_has_the_pixels_of_pillow(tmp_path: Path, form: str, values: int) -> None:
    x = np.random.default_rng(0).integers(0, values + 1, (7, 5, 3 if form in ("P3", "P6") else 1))
    text = b"# a comment\n " + " ".join(map(str, x.ravel())).encode() + b"\n"
    data = text if form in ("P2", "P3") else x.astype(np.uint8 if values < 256 else ">u2").tobytes()
    path = tmp_path / "a.ppm"
    path.write_bytes(f"{form} 5 7 {values}\n".encode() + data)
    with Image.open(path) as image:
        expected = (
            image.convert("RGB") if image.mode != "I" else Image.fromarray((np.asarray(image) / 257).round().astype("u1"))
        )
    assert np.array_equal(read(path, 7, 5), np.asarray(expected.convert("RGB")))


def test_a_pixmap_of_text_is_read_over_blocks_and_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable_pixmap, "BLOCK_BYTES", 3)
    (tmp_path / "a.pgm").write_bytes(b"P2 2 2 255\n10 200 # 7 8 9\r# 1\n\t255\n0 99")
    assert read(tmp_path / "a.pgm", 2, 2, 1).ravel().tolist() == [10, 200, 255, 0]
    (tmp_path / "a.pbm").write_bytes(b"P1 4 2\n0110#11\n1 0\n01")
    assert read(tmp_path / "a.pbm", 2, 4, 1).ravel().tolist() == [255, 0, 0, 255, 0, 255, 255, 0]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"P2 2 2 255\n1 2 3", "truncated: the file ends too early"),
        (b"P2 2 1 255\n1 256", "damaged (a pixel value is 256, above the maximum of 255 in the header)"),
        (b"P2 2 1 255\n1 -2", "damaged (a pixel value is not a whole number)"),
        (b"P2 2 1 255\n" + b"1" * 5000, "damaged (a pixel value has more than 10 digits)"),
        (b"P1 2 1\n12", "damaged (a pixel value is 2, above the maximum of 1 in the header)"),
    ],
)
def test_a_damaged_pixmap_of_text_gives_a_reason(tmp_path: Path, data: bytes, expected: str) -> None:
    (tmp_path / "a.ppm").write_bytes(data)
    assert reason(tmp_path / "a.ppm") == expected


def test_a_tiff_may_be_larger_than_the_limit_of_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "a.tiff", Image.fromarray(noise(9, 9)), compression="tiff_deflate")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    assert np.array_equal(read(path, 9, 9), noise(9, 9))
