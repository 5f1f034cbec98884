"""Image cache: its content after changes, kills, races and damage, and its memory use."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import samekind.data.cache as cache_file
from samekind.data.cache import DecodedImages, cached_images, decode_images
from samekind.data.readers.image_decoder import ImageHeader, Pixels, decode_image
from samekind.data.target_shape import Shape, TargetShape
from samekind.errors import DataError


def choose(headers: Sequence[ImageHeader]) -> Shape:
    return (headers[0].height, headers[0].width, 3) if headers else (1, 1, 3)


AUTO = TargetShape("auto", choose)


def images(folder: Path, n: int = 5, side: int = 4) -> list[Path]:
    """Write n files of random pixels; image i is `pixels(i)`."""
    folder.mkdir(exist_ok=True)
    for i in range(n):
        Image.fromarray(pixels(i, side)).save(folder / f"{i:04d}.ppm")
    return sorted(folder.iterdir())


def pixels(i: int, side: int = 4) -> Pixels:
    return np.random.default_rng(i).integers(0, 256, (side, side, 3), dtype=np.uint8)


def cached(files: Sequence[Path], cache: Path, target: TargetShape = AUTO) -> DecodedImages:
    return cached_images(files, target, cache, source="here")


def stages(files: Sequence[Path], cache: Path) -> set[str]:
    """Return the titles of the operations that were needed."""
    done: set[str] = set()
    cached_images(files, AUTO, cache, source="here", progress=lambda what, _, __: done.add(what))
    return done


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.startswith("source-"))


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat new files as old."""
    monkeypatch.setattr(cache_file, "TIMESTAMP_RESOLUTION", -60.0)


# ---------------------------------------------------------------- right, and once


def test_cached_images_are_a_memory_map_in_the_order_of_the_files(tmp_path: Path) -> None:
    x = cached(images(tmp_path / "a"), tmp_path / "cache").x
    assert isinstance(x, np.memmap) and not x.flags.writeable
    assert np.array_equal(x, [pixels(i) for i in range(5)])


def test_images_decoded_in_memory_are_the_same_and_nothing_is_stored(tmp_path: Path) -> None:
    files = images(tmp_path / "a")
    assert np.array_equal(decode_images(files, AUTO).x, cached(files, tmp_path / "cache").x)
    assert not isinstance(decode_images(files, AUTO).x, np.memmap)


@pytest.mark.usefixtures("settled")
def test_the_second_time_no_file_is_read(tmp_path: Path) -> None:
    files = images(tmp_path / "a")
    assert stages(files, tmp_path / "cache") == {"hashing files", "reading image headers", "decoding images"}
    assert stages(files, tmp_path / "cache") == set()


def test_very_new_files_are_hashed_again(tmp_path: Path) -> None:
    files = images(tmp_path / "a")
    cached(files, tmp_path / "cache")
    assert stages(files, tmp_path / "cache") == {"hashing files"}


@pytest.mark.usefixtures("settled")
def test_unchanged_files_with_new_times_are_not_decoded_again(tmp_path: Path) -> None:
    files = images(tmp_path / "a")
    cached(files, tmp_path / "cache")
    os.utime(files[2], (1e9, 1e9))
    assert stages(files, tmp_path / "cache") == {"hashing files"}


def test_a_changed_file_of_the_same_size_and_time_is_decoded_again(tmp_path: Path) -> None:
    files = images(tmp_path / "a")
    before = files[3].stat()
    cached(files, tmp_path / "cache")
    Image.fromarray(pixels(99)).save(files[3])
    os.utime(files[3], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files[3].stat().st_size == before.st_size
    assert np.array_equal(cached(files, tmp_path / "cache").x[3], pixels(99))


@pytest.mark.usefixtures("settled")
def test_added_and_removed_files_are_noticed(tmp_path: Path) -> None:
    files = images(tmp_path / "a", 6)
    assert len(cached(files[:5], tmp_path / "cache").x) == 5
    assert len(cached(files, tmp_path / "cache").x) == 6
    assert np.array_equal(cached(files[1:], tmp_path / "cache").x, [pixels(i) for i in range(1, 6)])


def test_the_previous_entry_is_removed_unless_another_folder_uses_it(tmp_path: Path) -> None:
    files, cache = images(tmp_path / "a"), tmp_path / "cache"
    cached(files, cache)
    cached_images(files, AUTO, cache, source="elsewhere")
    cached(files[1:], cache)
    assert len(entries(cache)) == 2
    cached_images(files[1:], AUTO, cache, source="elsewhere")
    assert len(entries(cache)) == 1


def test_another_target_shape_has_its_own_entry(tmp_path: Path) -> None:
    files = images(tmp_path / "a")
    grey = TargetShape("2 2 1", lambda _: (2, 2, 1), needs_headers=False)
    assert cached(files, tmp_path / "cache").x.shape == (5, 4, 4, 3)
    assert cached(files, tmp_path / "cache", grey).x.shape == (5, 2, 2, 1)
    assert len(entries(tmp_path / "cache")) == 2


def test_a_new_decoder_decodes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = images(tmp_path / "a")
    cached(files, tmp_path / "cache")
    monkeypatch.setattr(cache_file, "DECODER", 99)
    assert "decoding images" in stages(files, tmp_path / "cache")


def test_blocks_keep_the_order_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_file, "BLOCK_BYTES", 10 * 4 * 4 * 3)
    files = images(tmp_path / "a", 53)
    assert np.array_equal(cached(files, tmp_path / "cache").x, [pixels(i) for i in range(53)])


def test_progress_counts_up_to_all_files(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    cached_images(images(tmp_path / "a"), AUTO, tmp_path / "cache", source="", progress=lambda *call: calls.append(call))
    assert calls == [("hashing files", 5, 5), ("reading image headers", 5, 5), ("decoding images", 5, 5)]


# ---------------------------------------------------------------- files that fail


def test_an_unreadable_file_is_reported_also_from_the_cache(tmp_path: Path) -> None:
    files = images(tmp_path / "a")
    files[1].write_bytes(files[1].read_bytes()[:-4])
    for _ in range(2):
        made = cached(files, tmp_path / "cache")
        assert np.array_equal(made.x, [pixels(i) for i in (0, 2, 3, 4)])
        assert list(made.failed) == [1]


def test_a_repaired_file_is_decoded(tmp_path: Path) -> None:
    files = images(tmp_path / "a")
    files[1].write_bytes(b"")
    assert cached(files, tmp_path / "cache").failed == {1: "empty file"}
    Image.fromarray(pixels(1)).save(files[1])
    assert cached(files, tmp_path / "cache").failed == {}


def test_a_missing_file_fails_and_is_decoded_when_it_is_back(tmp_path: Path) -> None:
    files = images(tmp_path / "a")
    files[0].rename(tmp_path / "away")
    assert cached(files, tmp_path / "cache").failed == {0: "no such file or directory"}
    (tmp_path / "away").rename(files[0])
    assert cached(files, tmp_path / "cache").failed == {}


def test_if_on_failure_raises_nothing_is_stored(tmp_path: Path) -> None:
    files = images(tmp_path / "a")
    files[1].write_bytes(b"")

    def refuse(i: int, reason: str) -> None:
        raise DataError(f"{i} {reason}")

    with pytest.raises(DataError, match="1 empty file"):
        cached_images(files, AUTO, tmp_path / "cache", source="", on_failure=refuse)
    assert list((tmp_path / "cache").iterdir()) == []


def test_if_no_file_can_be_decoded_nothing_is_stored(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    made = cached([tmp_path / "a.png"], tmp_path / "cache")
    assert len(made.x) == 0 and made.failed == {0: "empty file"}
    assert entries(tmp_path / "cache") == []


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    files = images(tmp_path / "a")

    def meddle(what: str, done: int, total: int) -> None:
        if what == "decoding images":
            files[0].write_bytes(b"other")

    with pytest.raises(DataError, match="changed while samekind read them"):
        cached_images(files, AUTO, tmp_path / "cache", source="photos", progress=meddle)


def test_warnings_of_pillow_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(pixels(0)).save(path, exif=b"Exif\0\0II*\0\x08\0\0\0\x05\0")
    with pytest.warns(UserWarning, match="EXIF"):
        decode_image(path, (4, 4, 3))
    with warnings.catch_warnings(record=True) as failures:
        warnings.simplefilter("always")
        assert np.array_equal(cached([path], tmp_path / "cache").x, [pixels(0)])
    assert failures == []


# ---------------------------------------------------------------- the disk


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("damage", ["cut", "emptied", "no list", "no rows", "list of nonsense"])
def test_a_damaged_entry_is_built_again(tmp_path: Path, damage: str) -> None:
    files, cache = images(tmp_path / "a"), tmp_path / "cache"
    cached(files, cache)
    (entry,) = cache.glob("images-*")
    blob = (entry / "images.npy").read_bytes()
    if damage == "cut":
        (entry / "images.npy").write_bytes(blob[:-1])
    elif damage == "emptied":
        (entry / "images.npy").write_bytes(b"")
    elif damage == "list of nonsense":
        (entry / "failed.json").write_text("[3")
    else:
        (entry / ("failed.json" if damage == "no list" else "images.npy")).unlink()
    assert np.array_equal(cached(files, cache).x, [pixels(i) for i in range(5)])
    assert (entry / "images.npy").read_bytes() == blob


@pytest.mark.parametrize("note", ["", "[]", '{"key": "../../a"}', '{"key": 3, "stamp": ""}'])
def test_an_invalid_source_record_is_replaced_and_removes_no_entry(tmp_path: Path, note: str) -> None:
    files, cache = images(tmp_path / "a"), tmp_path / "cache"
    cached(files, cache)
    (path,) = cache.glob("source-*.json")
    path.write_text(note)
    assert len(cached(files, cache).x) == 5
    assert set(json.loads(path.read_text())) == {"key", "stamp"}
    assert len(files) == len(list((tmp_path / "a").iterdir()))


def test_a_cache_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(DataError, match=r"cache .* cannot be used .*choose another folder"):
        cached(images(tmp_path / "a"), tmp_path / "cache")


def test_too_little_disk_space_is_an_error_before_decoding(tmp_path: Path) -> None:
    files = images(tmp_path / "a")
    huge = TargetShape("huge", lambda _: (10**6, 10**6, 3), needs_headers=False)
    with pytest.raises(DataError, match=r"need 15000\.0 GB, but .* of free space. Free some space"):
        cached(files, tmp_path / "cache", huge)
    assert entries(tmp_path / "cache") == []


def test_temporary_folders_of_killed_processes_are_removed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    host = socket.gethostname()
    for name in (f".part-{host}-{os.getpid()}-abc", f".part-{host}-999999999-abc", ".part-other-1-abc", ".part-other-1-old"):
        (cache / name).mkdir(parents=True)
    os.utime(cache / ".part-other-1-old", (time.time() - 1e6, time.time() - 1e6))
    cached(images(tmp_path / "a"), cache)
    assert sorted(path.name for path in cache.glob(".part-*")) == sorted(
        [f".part-{host}-{os.getpid()}-abc", ".part-other-1-abc"]
    )


# ---------------------------------------------------------------- other processes

SCRIPT = """
import hashlib, os, signal, sys, time
from pathlib import Path
from samekind.data.cache import cached_images
from samekind.data.target_shape import TargetShape

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1])

folder, cache, what = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
memory = []

def progress(stage, done, total):
    memory.append(peak())
    if what == "die" and stage == "decoding images" and done > total // 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "race":
        time.sleep(0.02)

while what == "race" and not (folder.parent / "go").exists():
    time.sleep(0.001)
shape = TargetShape("64", lambda _: (64, 64, 3), needs_headers=False)
rows = cached_images(sorted(folder.iterdir()), shape, cache, source="x", progress=progress)
print(hashlib.sha256(rows.x.tobytes()).hexdigest() if what == "race" else max(memory), len(rows.x))
"""


def start(folder: Path, cache: Path, what: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder), str(cache), what]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_after_a_kill_the_next_call_is_correct_and_cleans_up(tmp_path: Path) -> None:
    files, cache = images(tmp_path / "a", 600), tmp_path / "cache"
    target = TargetShape("64", lambda _: (64, 64, 3), needs_headers=False)
    killed = start(tmp_path / "a", cache, "die")
    killed.communicate()
    assert killed.returncode == -9
    (part,) = cache.iterdir()
    assert part.name.startswith(".part-") and (part / "images.npy").stat().st_size > 64 * 64 * 3
    made = cached_images(files, target, cache, source="x")
    assert np.array_equal(made.x, decode_images(files, target).x)
    assert not part.exists() and len(entries(cache)) == 1


def test_two_processes_at_once_get_the_same_images(tmp_path: Path) -> None:
    files = images(tmp_path / "a", 600)
    both = [start(tmp_path / "a", tmp_path / "cache", "race") for _ in range(2)]
    time.sleep(0.5)
    (tmp_path / "go").touch()
    outputs = [one.communicate()[0].split() for one in both]
    assert outputs[0] == outputs[1]
    assert outputs[0][1] == str(len(files))
    assert len(entries(tmp_path / "cache")) == 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_folder(tmp_path: Path) -> None:
    images(tmp_path / "few", 300, side=64)
    many = tmp_path / "many"
    many.mkdir()
    for i in range(3000):
        os.link(tmp_path / "few" / f"{i % 300:04d}.ppm", many / f"{i:04d}.ppm")
    kilobytes: dict[int, list[int]] = {}
    for k in range(2):  # other load on the machine only increases the memory, so the smaller of two measurements counts
        for folder in (tmp_path / "few", many):
            used, n = map(int, start(folder, tmp_path / f"cache{k}", "measure").communicate()[0].split())
            kilobytes.setdefault(n, []).append(used)
    assert sorted(kilobytes) == [300, 3000]
    assert min(kilobytes[3000]) - min(kilobytes[300]) < 12_000  # 2700 more rows have 33 MB
