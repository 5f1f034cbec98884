"""Images decoded once: one array on disk, opened as a memory map, so that a folder of any size takes little memory.

    CACHE/images-KEY/rows.npy    uint8 (n, H, W, C), one row for each file that could be read
    CACHE/images-KEY/rows.json   the number of each file that could not be read, with the reason
    CACHE/source-NAME.json         which KEY a folder had when it was read last, and the sizes and times of its files then

KEY is a hash of the bytes of all files in their order, the wanted shape, and the decoder. It appears whole, by renaming, or
not at all. As long as no size and no time changes, KEY is taken from the note without reading the files again.
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
from samekind.io import atomic_write
from samekind.progress import Progress

OnFailure = Callable[[int, str], None]
T = TypeVar("T")

BLOCK = 256  # files read before their rows are written
BLOCK_BYTES = 1 << 25
HANDFUL = 8
SETTLED = 2.0  # seconds after which a file system shows any further change in the time of a file
DAY = 86400.0
KEY = re.compile(r"images-[0-9a-f]{32}")


@dataclass(frozen=True)
class DecodedImages:
    """x (n, H, W, C), and for each file without a row its number and the reason."""

    x: Pixels
    failed: dict[int, str]


def cached_images(
    files: Sequence[Path],
    wish: TargetShape,
    cache: Path,
    *,
    source: str,
    on_failure: OnFailure | None = None,
    progress: Progress | None = None,
) -> DecodedImages:
    """The rows of `files`, from the cache if it holds them, else made and kept. `source` names the folder they are from.

    `on_failure` hears of each file that cannot be read, and may raise; then nothing is kept.
    """
    note = cache / f"source-{_hash([source, wish.name])[:16]}.json"
    before = _stamp(files)
    rows = _opened(cache / _noted_key(note, before.text))
    if rows is not None:
        return rows
    settled = before.newest < time.time() - SETTLED
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(cache)
        key = _content_key(files, wish, progress)
        rows = _opened(cache / key) or _build(files, wish, cache / key, on_failure, progress)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"the cache {cache} cannot be used ({reason}). Make room there, or choose another folder.") from error
    if _stamp(files).text != before.text:
        raise DataError(f"files in {source} were changed while they were read. Start again when nobody writes there.")
    # a file written a moment ago may change once more without a new time: then the bytes are read again at the next call
    _write_note(note, before.text if settled else "", key)
    return rows


def decode_images(
    files: Sequence[Path], wish: TargetShape, *, on_failure: OnFailure | None = None, progress: Progress | None = None
) -> DecodedImages:
    """The rows of a few files, with nothing kept."""
    good: list[Pixels] = []
    failed: dict[int, str] = {}
    with _workers() as pool:
        shape = _shape(files, wish, pool, progress)
        for start, block in _decoded(files, shape, pool, progress):
            good += _sorted_out(block, start, failed, on_failure)
    return DecodedImages(np.stack(good) if good else np.empty((0, *shape), np.uint8), failed)


# ---------------------------------------------------------------- reading the files, several at a time


@contextmanager
def _workers() -> Iterator[ThreadPoolExecutor]:
    """Threads: as fast as processes on photos, and safe beside torch, under notebooks and without a main guard.

    Pillow warns of odd files on its own; here the reason is in the list of what was skipped.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with warnings.catch_warnings(), ThreadPoolExecutor(min(cores, 16)) as pool:
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield pool


def _reporter(what: str, total: int, progress: Progress | None) -> Callable[[int], None]:
    return lambda done: progress(what, done, total) if progress else None


def _in_blocks(
    function: Callable[[Path], T],
    files: Sequence[Path],
    pool: ThreadPoolExecutor,
    report: Callable[[int], None],
    size: int = BLOCK,
) -> Iterator[tuple[int, list[T]]]:
    """function(file) for all files, in order, as (number of the first, results); never more than a block in memory."""

    def one_by_one(some: Sequence[Path]) -> list[T]:
        return [function(file) for file in some]

    for start in range(0, len(files), size):
        block = files[start : start + size]
        # a handful at a time: for small files, handing them over one by one would cost more than reading them
        handfuls = [block[k : k + HANDFUL] for k in range(0, len(block), HANDFUL)]
        yield start, [result for results in pool.map(one_by_one, handfuls) for result in results]
        report(start + len(block))


def _decoded(
    files: Sequence[Path], shape: Shape, pool: ThreadPoolExecutor, progress: Progress | None
) -> Iterator[tuple[int, list[Pixels | str]]]:
    size = max(HANDFUL, min(BLOCK, BLOCK_BYTES // math.prod(shape)))
    report = _reporter("decoding images", len(files), progress)
    return _in_blocks(partial(decode_image, shape=shape), files, pool, report, size)


def _shape(files: Sequence[Path], wish: TargetShape, pool: ThreadPoolExecutor, progress: Progress | None) -> Shape:
    report = _reporter("looking at images", len(files), progress)
    looks = _in_blocks(read_image_header, files, pool, report) if wish.needs_headers else ()
    return wish.choose([look for _, block in looks for look in block if isinstance(look, ImageHeader)])


def _sorted_out(
    block: Iterable[Pixels | str], start: int, failed: dict[int, str], on_failure: OnFailure | None
) -> list[Pixels]:
    """The images of a block; its failures go to `failed`."""
    good = []
    for i, one in enumerate(block, start):
        if isinstance(one, str):
            failed[i] = one
            if on_failure:
                on_failure(i, one)
        else:
            good.append(one)
    return good


# ---------------------------------------------------------------- the key


@dataclass(frozen=True)
class _Stamp:
    """Sizes and times of all files in one hash, and the newest of the times."""

    text: str
    newest: float


def _stamp(files: Iterable[Path]) -> _Stamp:
    newest = 0
    parts = []
    for file in files:
        try:
            seen = file.stat()
        except OSError as error:
            parts.append(f"{file}\0{error.errno}")
            continue
        newest = max(newest, seen.st_mtime_ns, seen.st_ctime_ns)
        parts.append(f"{file}\0{seen.st_size}\0{seen.st_mtime_ns}\0{seen.st_ctime_ns}")
    return _Stamp(_hash(parts), newest / 1e9)


def _content_key(files: Sequence[Path], wish: TargetShape, progress: Progress | None) -> str:
    report = _reporter("comparing files", len(files), progress)
    with _workers() as pool:
        digests = [one for _, block in _in_blocks(_digest, files, pool, report) for one in block]
    return "images-" + _hash([f"{DECODER} {PIL.__version__} {wish.name}", *digests])[:32]


def _digest(file: Path) -> str:
    hashed = hashlib.sha256()
    try:
        with file.open("rb") as opened:
            while chunk := opened.read(1 << 20):
                hashed.update(chunk)
    except OSError as error:
        return f"unreadable {error.errno}"
    return hashed.hexdigest()


def _hash(parts: Iterable[str]) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.hexdigest()


# ---------------------------------------------------------------- what is on disk


def _opened(entry: Path) -> DecodedImages | None:
    """The rows of an entry; None if there is none, or a damaged one."""
    try:
        x = np.load(entry / "rows.npy", mmap_mode="r", allow_pickle=False)
        failed = json.loads((entry / "rows.json").read_text(encoding="utf-8"))
        return DecodedImages(x, {int(i): str(reason) for i, reason in failed.items()})
    except (OSError, EOFError, ValueError, AttributeError):
        return None


def _build(
    files: Sequence[Path], wish: TargetShape, entry: Path, on_failure: OnFailure | None, progress: Progress | None
) -> DecodedImages:
    """Written beside, then renamed. Where no file can be read, nothing is kept."""
    beside = Path(tempfile.mkdtemp(prefix=f".part-{socket.gethostname()}-{os.getpid()}-", dir=entry.parent))
    try:
        with _workers() as pool:
            shape = _shape(files, wish, pool, progress)
            _require_room(entry.parent, len(files) * math.prod(shape))
            n_rows, failed = _write_rows(beside / "rows.npy", _decoded(files, shape, pool, progress), shape, on_failure)
        if n_rows == 0:
            return DecodedImages(np.empty((0, *shape), np.uint8), failed)
        atomic_write(beside / "rows.json", json.dumps(failed).encode(), DataError)
        _publish(beside, entry)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    rows = _opened(entry)
    if rows is None:
        raise DataError(f"the cache {entry.parent} lost what was written a moment ago. Choose another folder for it.")
    return rows


def _write_rows(
    path: Path, blocks: Iterable[tuple[int, list[Pixels | str]]], shape: Shape, on_failure: OnFailure | None
) -> tuple[int, dict[int, str]]:
    failed: dict[int, str] = {}
    n_rows = 0
    with path.open("wb") as file:
        file.write(_head(0, shape))
        for start, block in blocks:
            good = _sorted_out(block, start, failed, on_failure)
            file.write(b"".join(one.tobytes() for one in good))
            n_rows += len(good)
        file.seek(0)
        file.write(_head(n_rows, shape))
        file.flush()
        os.fsync(file.fileno())
    return n_rows, failed


def _head(n_rows: int, shape: Shape) -> bytes:
    """The head of a .npy file, of the same length whatever the number of rows, so that it can be written last."""
    text = repr({"descr": "|u1", "fortran_order": False, "shape": (n_rows, *shape)})
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"


def _publish(beside: Path, entry: Path) -> None:
    try:
        os.rename(beside, entry)
    except OSError:
        # another process was first, with the same bytes; or a damaged entry is in the way
        if _opened(entry) is None:
            shutil.rmtree(entry, ignore_errors=True)
            os.rename(beside, entry)


def _require_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"the decoded images take {needed / 1e9:.1f} GB, and {folder} has {free / 1e9:.1f} GB left. "
            "Make room, choose a smaller size, or another folder for the cache."
        )


def _remove_leftovers(cache: Path) -> None:
    """Parts of runs that were killed: their process is gone from this machine, or they are a day old."""
    for part in cache.glob(".part-*"):
        host, _, process = part.name.removeprefix(".part-").rpartition("-")[0].rpartition("-")
        here = host == socket.gethostname()
        try:
            old = time.time() - part.stat().st_mtime > DAY
        except OSError:
            continue
        if old or (here and process.isdigit() and not psutil.pid_exists(int(process))):
            shutil.rmtree(part, ignore_errors=True)


def _note(path: Path) -> dict[str, str]:
    """What was noted of a folder: "stamp" and "key"; empty if there is nothing, or nothing that we wrote."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    ours = isinstance(note, dict) and KEY.fullmatch(str(note.get("key"))) is not None
    return {name: str(value) for name, value in note.items()} if ours else {}


def _noted_key(path: Path, stamp: str) -> str:
    """The key of the last time, if nothing changed since; else a name that no entry has."""
    note = _note(path)
    return note["key"] if note.get("stamp") == stamp else "none"


def _write_note(path: Path, stamp: str, key: str) -> None:
    """Remembers the key, and removes the rows of the last time if no folder needs them any more."""
    last = _note(path).get("key", key)
    atomic_write(path, json.dumps({"stamp": stamp, "key": key}).encode(), DataError)
    if all(_note(other).get("key") != last for other in path.parent.glob("source-*.json")):
        shutil.rmtree(path.parent / last, ignore_errors=True)
