"""Cache of decoded images: one array on disk, opened as a memory map, so that even a large folder takes little memory.

    CACHE/images-KEY/images.npy    uint8 (n, H, W, C), the files that could be decoded
    CACHE/images-KEY/failed.json   the index of each file that could not be decoded, with the reason
    CACHE/source-NAME.json         the last KEY of a folder, and a hash of the sizes and times of its files

NAME is a hash of the path of the folder and of the target shape. KEY is a hash of the bytes of all files in their order, of
the target shape, and of the version of the decoder. An entry is written to a temporary folder, which is then renamed. As long
as no file changes its size or time, KEY is read from source-NAME.json, and the files are not read again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import socket
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import PIL
import psutil

from samekind.data.readers.image_decoder import DECODER, ImageHeader, Pixels, decode_image, read_image_header
from samekind.data.target_shape import Shape, TargetShape
from samekind.errors import DataError
from samekind.files.io import atomic_write
from samekind.progress import Progress

OnFailure = Callable[[int, str], None]
T = TypeVar("T")

BLOCK = 256  # number of files that are decoded in memory before they are written to disk
BLOCK_BYTES = 1 << 25
BATCH_FILES = 8
# seconds; a file that changes twice within this time may have the same time stamp after both changes
TIMESTAMP_RESOLUTION = 2.0
DAY = 86400.0
KEY = re.compile(r"images-[0-9a-f]{32}")


@dataclass(frozen=True)
class DecodedImages:
    """Decoded images x (n, H, W, C), and for each file that could not be decoded {index of the file: reason}."""

    x: Pixels
    failed: dict[int, str]


def cached_images(
    files: Sequence[Path],
    target: TargetShape,
    cache: Path,
    *,
    source: str,
    on_failure: OnFailure | None = None,
    progress: Progress | None = None,
) -> DecodedImages:
    """Return the decoded images of `files` from the cache; decode and store them if the cache does not have them.

    `source` is a name for the folder of the files. `on_failure(index, reason)` is called for each file that cannot be decoded.
    If it raises an error, nothing is stored.
    """
    record = cache / f"source-{_hash([source, target.name])[:16]}.json"
    before = _stamp_files(files)
    images = _open_entry(cache / _recorded_key(record, before.text))
    if images is not None:
        return images
    is_settled = before.newest < time.time() - TIMESTAMP_RESOLUTION
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _remove_stale_parts(cache)
        key = _content_key(files, target, progress)
        images = _open_entry(cache / key) or _build(files, target, cache / key, on_failure, progress)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"the cache {cache} cannot be used ({reason}). Free some space there, or choose another folder."
        ) from error
    if _stamp_files(files).text != before.text:
        raise DataError(f"files in {source} changed while samekind read them. Start again when no other program writes there.")
    # Very new files are recorded without a stamp, so the next call hashes them again. They could change again without a new
    # time stamp.
    _write_record(record, before.text if is_settled else "", key)
    return images


def decode_images(
    files: Sequence[Path], target: TargetShape, *, on_failure: OnFailure | None = None, progress: Progress | None = None
) -> DecodedImages:
    """Return the decoded images of `files` in memory, without using a cache."""
    decoded: list[Pixels] = []
    failed: dict[int, str] = {}
    with _workers() as workers:
        shape = _choose_shape(files, target, workers, progress)
        for start, block in _decode_blocks(files, shape, workers, progress):
            decoded += _collect(block, start, failed, on_failure)
    return DecodedImages(np.stack(decoded) if decoded else np.empty((0, *shape), np.uint8), failed)


# ---------------------------------------------------------------- reading files in parallel


@contextmanager
def _workers() -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads for reading and decoding images.

    For images, threads are as fast as processes, and safe with torch and in notebooks. Warnings of Pillow are ignored, because
    the reason for each unusable file is reported anyway.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with warnings.catch_warnings(), ThreadPoolExecutor(min(cores, 16)) as workers:
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield workers


def _reporter(title: str, total: int, progress: Progress | None) -> Callable[[int], None]:
    return lambda done: progress(title, done, total) if progress else None


def _in_blocks(
    function: Callable[[Path], T],
    files: Sequence[Path],
    workers: ThreadPoolExecutor,
    report: Callable[[int], None],
    size: int = BLOCK,
) -> Iterator[tuple[int, list[T]]]:
    """Call `function` on all files in parallel; yield (index of the first file, results) for one block after the other."""

    def call_on_each(some: Sequence[Path]) -> list[T]:
        return [function(file) for file in some]

    for start in range(0, len(files), size):
        block = files[start : start + size]
        # several files per task, because a task costs more than reading a small file
        batches = [block[k : k + BATCH_FILES] for k in range(0, len(block), BATCH_FILES)]
        yield start, [result for results in workers.map(call_on_each, batches) for result in results]
        report(start + len(block))


def _decode_blocks(
    files: Sequence[Path], shape: Shape, workers: ThreadPoolExecutor, progress: Progress | None
) -> Iterator[tuple[int, list[Pixels | str]]]:
    size = max(BATCH_FILES, min(BLOCK, BLOCK_BYTES // math.prod(shape)))
    report = _reporter("decoding images", len(files), progress)
    return _in_blocks(partial(decode_image, shape=shape), files, workers, report, size)


def _choose_shape(files: Sequence[Path], target: TargetShape, workers: ThreadPoolExecutor, progress: Progress | None) -> Shape:
    report = _reporter("reading image headers", len(files), progress)
    headers = _in_blocks(read_image_header, files, workers, report) if target.needs_headers else ()
    return target.choose([header for _, block in headers for header in block if isinstance(header, ImageHeader)])


def _collect(block: Iterable[Pixels | str], start: int, failed: dict[int, str], on_failure: OnFailure | None) -> list[Pixels]:
    """Return the images of a block, and store its failures in `failed` as {index of the file: reason}."""
    decoded = []
    for i, one in enumerate(block, start):
        if isinstance(one, str):
            failed[i] = one
            if on_failure:
                on_failure(i, one)
        else:
            decoded.append(one)
    return decoded


# ---------------------------------------------------------------- keys of entries in the cache


@dataclass(frozen=True)
class _FolderStamp:
    """Hash of the sizes and times of all files (`text`), and the latest of these times (`newest`, seconds)."""

    text: str
    newest: float


def _stamp_files(files: Iterable[Path]) -> _FolderStamp:
    newest = 0
    parts = []
    for file in files:
        try:
            status = file.stat()
        except OSError as error:
            parts.append(f"{file}\0{error.errno}")
            continue
        newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
        parts.append(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}")
    return _FolderStamp(_hash(parts), newest / 1e9)


def _content_key(files: Sequence[Path], target: TargetShape, progress: Progress | None) -> str:
    report = _reporter("hashing files", len(files), progress)
    with _workers() as workers:
        digests = [one for _, block in _in_blocks(_digest, files, workers, report) for one in block]
    return "images-" + _hash([f"{DECODER} {PIL.__version__} {target.name}", *digests])[:32]


def _digest(file: Path) -> str:
    hasher = hashlib.sha256()
    try:
        with file.open("rb") as opened:
            while chunk := opened.read(1 << 20):
                hasher.update(chunk)
    except OSError as error:
        return f"unreadable {error.errno}"
    return hasher.hexdigest()


def _hash(parts: Iterable[str]) -> str:
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.hexdigest()


# ---------------------------------------------------------------- reading and writing entries


def _open_entry(entry: Path) -> DecodedImages | None:
    """Return the images of an entry in the cache; None if the entry is missing or damaged."""
    try:
        x = np.load(entry / "images.npy", mmap_mode="r", allow_pickle=False)
        failed = json.loads((entry / "failed.json").read_text(encoding="utf-8"))
        return DecodedImages(x, {int(i): str(reason) for i, reason in failed.items()})
    except (OSError, EOFError, ValueError, AttributeError):
        return None


def _build(
    files: Sequence[Path], target: TargetShape, entry: Path, on_failure: OnFailure | None, progress: Progress | None
) -> DecodedImages:
    """Decode the files into a temporary folder, rename it to `entry`, and return the images.

    If no file can be decoded, nothing is stored.
    """
    temporary = Path(tempfile.mkdtemp(prefix=f".part-{socket.gethostname()}-{os.getpid()}-", dir=entry.parent))
    try:
        with _workers() as workers:
            shape = _choose_shape(files, target, workers, progress)
            _require_room(entry.parent, len(files) * math.prod(shape))
            n_images, failed = _write_images(
                temporary / "images.npy", _decode_blocks(files, shape, workers, progress), shape, on_failure
            )
        if n_images == 0:
            return DecodedImages(np.empty((0, *shape), np.uint8), failed)
        atomic_write(temporary / "failed.json", json.dumps(failed).encode(), DataError)
        _publish(temporary, entry)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    images = _open_entry(entry)
    if images is None:
        raise DataError(
            f"the images that were just written to the cache {entry.parent} cannot be read. Choose another folder for "
            "the cache."
        )
    return images


def _write_images(
    path: Path, blocks: Iterable[tuple[int, list[Pixels | str]]], shape: Shape, on_failure: OnFailure | None
) -> tuple[int, dict[int, str]]:
    failed: dict[int, str] = {}
    n_images = 0
    with path.open("wb") as file:
        file.write(_npy_header(0, shape))
        for start, block in blocks:
            decoded = _collect(block, start, failed, on_failure)
            file.write(b"".join(one.tobytes() for one in decoded))
            n_images += len(decoded)
        file.seek(0)
        file.write(_npy_header(n_images, shape))
        file.flush()
        os.fsync(file.fileno())
    return n_images, failed


def _npy_header(n_images: int, shape: Shape) -> bytes:
    """Return the header of a .npy file with `n_images` images.

    It has the same length for any number of images, so it can be overwritten when their number is known.
    """
    text = repr({"descr": "|u1", "fortran_order": False, "shape": (n_images, *shape)})
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"


def _publish(temporary: Path, entry: Path) -> None:
    try:
        os.rename(temporary, entry)
    except OSError:
        # The rename fails if another process stored the same entry first, or if a damaged entry is there.
        if _open_entry(entry) is None:
            shutil.rmtree(entry, ignore_errors=True)
            os.rename(temporary, entry)


def _require_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"the decoded images need {needed / 1e9:.1f} GB, but {folder} has only {free / 1e9:.1f} GB of free space. "
            "Free some space, choose a smaller image size, or choose another folder for the cache."
        )


def _remove_stale_parts(cache: Path) -> None:
    """Remove temporary folders that killed processes left behind.

    A folder is removed if its process no longer runs on this machine, or if it is a day old.
    """
    for part in cache.glob(".part-*"):
        host, _, process = part.name.removeprefix(".part-").rpartition("-")[0].rpartition("-")
        here = host == socket.gethostname()
        try:
            old = time.time() - part.stat().st_mtime > DAY
        except OSError:
            continue
        if old or (here and process.isdigit() and not psutil.pid_exists(int(process))):
            shutil.rmtree(part, ignore_errors=True)


def _read_record(path: Path) -> dict[str, str]:
    """Return the content of a source-NAME.json file, with "stamp" and "key"; an empty dict if it is missing or invalid."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    is_valid = isinstance(record, dict) and KEY.fullmatch(str(record.get("key"))) is not None
    return {name: str(value) for name, value in record.items()} if is_valid else {}


def _recorded_key(path: Path, stamp: str) -> str:
    """Return the recorded key of the entry if the files are unchanged since then; else a name that no entry has."""
    record = _read_record(path)
    return record["key"] if record.get("stamp") == stamp else "none"


def _write_record(path: Path, stamp: str, key: str) -> None:
    """Write the key of the new entry. Remove the previous entry of this source, unless another source uses it."""
    previous = _read_record(path).get("key", key)
    atomic_write(path, json.dumps({"stamp": stamp, "key": key}).encode(), DataError)
    if all(_read_record(other).get("key") != previous for other in path.parent.glob("source-*.json")):
        shutil.rmtree(path.parent / previous, ignore_errors=True)
