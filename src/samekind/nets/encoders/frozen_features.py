"""Frozen features: apply an encoder once to all images, and cache the features on disk.

    cache/
      features-<hash>.npy      float32 (n, d), opened as a memory map
      features-<hash>.blocks/  finished blocks, while the features are being computed

The hash is that of the images and of the encoder. Each block is written atomically. So a run that was killed resumes with the
next block, and two runs at the same time do not disturb each other.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from samekind.errors import DataError, SamekindError, SettingError
from samekind.files.io import atomic_write
from samekind.image_layout import channels_first_view
from samekind.nets.encoders.encoding_threads import N_TIMED, faster_threads
from samekind.nets.encoders.fingerprints import add_weights
from samekind.nets.encoders.prefetch import read_ahead
from samekind.nets.forward import eval_mode

Floats = npt.NDArray[np.float32]
Encoder = Callable[[Any], Any]  # from a batch of images to features (n, d)
OnSamples = Callable[[int, int], None]  # called with (number of images done, number of all images)


class SliceableImages(Protocol):
    """Sequence of images that can be sliced. Reading a slice may compute it, for example decode files."""

    def __len__(self) -> int: ...
    def __getitem__(self, which: slice, /) -> Any: ...


Images = npt.NDArray[Any] | Tensor | SliceableImages  # or a list of strings, for an encoder of texts
FORMAT = 1  # version of the cache, which is part of the hash; raise it when old files must no longer be used


@dataclass(frozen=True)
class FeatureCache:
    """Folder with cached features. `key` names an encoder that is not a module, and so has no weights to hash."""

    folder: str | Path
    key: str | None = None
    block: int = 1024  # number of images in a block
    min_samples: int = 1  # features of fewer images are not stored, but read if they are in the cache


def extract_features(
    encoder: Encoder, images: Images, *, cache: FeatureCache | None = None, batch: int = 32, on_samples: OnSamples | None = None
) -> Floats:
    """Return the features of all images, float32 (n, d). With a cache they are computed once, and returned as a memory map.

    A module is called in eval mode, without gradient, with tensors (n, C, H, W); bytes are scaled to [0, 1]. Any other function
    is called with the images unchanged, or with these tensors if it has the attribute `takes_tensors`, or with a list of
    strings if it has the attribute `takes_texts`. `images` are an array (n, H, W) or (n, H, W, C), or a tensor (n, C, H, W).
    `batch` images are encoded at a time, while the next ones are read. `on_samples(done, total)` is called after each batch.
    """
    if len(images) == 0:
        raise DataError("there are no images to encode (0 samples). Pass one or more.")
    job = EncodingJob(encoder, images, batch, on_samples or _ignore_progress)
    with ExitStack() as stack:
        for part in (encoder, *getattr(encoder, "parts", ())):
            if isinstance(part, nn.Module):
                stack.enter_context(eval_mode(part))
        return job.features(0, len(images)) if cache is None else _cached_features(job, cache)


@dataclass(frozen=True)
class EncodingJob:
    """An encoder, the images to encode, the batch size, and a function that is called with the progress."""

    encoder: Encoder
    images: Images
    batch: int
    on_samples: OnSamples

    def features(self, start: int, stop: int) -> Floats:
        """Return the features of the images number `start` to `stop` - 1."""
        spans = [(first, min(first + self.batch, stop)) for first in range(start, stop, self.batch)]
        parts = []
        with self._threads(start, stop):
            for (_, last), images in read_ahead(lambda first, last: self.images[first:last], spans):
                parts.append(encode_batch(self.encoder, images))
                self.on_samples(last, len(self.images))
        _require_one_width(parts)
        return np.concatenate(parts)

    def _threads(self, start: int, stop: int) -> AbstractContextManager[None]:
        if not isinstance(self.encoder, nn.Module) or _device_of(self.encoder).type != "cpu":
            return nullcontext()
        first = self.images[start : min(start + N_TIMED, stop)]
        return faster_threads(lambda images: encode_batch(self.encoder, images), first, stop - start)


def encode_batch(encoder: Encoder, images: Any) -> Floats:
    """Return the features (n, d) of one batch; raise SettingError if the encoder returned another shape, or infinite
    values or NaN.
    """
    with torch.inference_mode():
        if isinstance(encoder, nn.Module):
            output = encoder(_as_tensor(images).to(_device_of(encoder)))
        else:
            output = encoder(_as_tensor(images) if getattr(encoder, "takes_tensors", False) else images)
    array = output.detach().cpu().float().numpy() if isinstance(output, Tensor) else np.asarray(output)
    if array.ndim != 2 or len(array) != len(images) or array.dtype.kind not in "fiu":
        raise SettingError(
            f"the encoder returned {array.shape} of {array.dtype} for {len(images)} images; expected numbers "
            f"({len(images)}, d). End it with a pooling or flattening layer."
        )
    if not np.isfinite(array).all():
        raise SettingError(
            "the encoder returned values that are not finite. Check which range of pixel values the encoder expects."
        )
    return array.astype(np.float32)


def _as_tensor(images: Any) -> Tensor:
    """Return a batch of images as float32 (n, C, H, W). Bytes are scaled to [0, 1]."""
    if isinstance(images, Tensor):
        x = images if images.ndim != 3 else images[:, None]
    else:  # copied, because torch warns about read-only memory, for example of a memory map
        x = channels_first_view(torch.from_numpy(np.array(_as_numbers(images), order="C")))
    return x.float() / 255.0 if x.dtype == torch.uint8 else x.float()


def _as_numbers(images: Any) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = images.detach().cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"images have the dtype {array.dtype}; expected numbers (n, H, W) or (n, H, W, C). Read the files first."
        )
    return array


# ---------------------------------------------------------------- features on disk


def _cached_features(job: EncodingJob, cache: FeatureCache) -> Floats:
    """Return the features from the cache. If they are missing, compute and store them first."""
    folder, n = Path(cache.folder), len(job.images)
    name = f"features-{_cache_key(job, cache)}"
    path = folder / f"{name}.npy"
    features = _load_features(path, n, mapped=True)
    if features is None and n < cache.min_samples:
        return job.features(0, n)
    if features is None:
        _compute_blocks(job, path, folder / f"{name}.blocks", cache.block)
        features = _load_features(path, n, mapped=True)
    if features is None:
        raise SamekindError(f"{path} was deleted while it was being written. Start again: finished blocks are kept.")
    return features


def _compute_blocks(job: EncodingJob, path: Path, blocks: Path, block: int) -> None:
    """Compute each block of features that is missing or damaged, then join all blocks to one file."""
    n = len(job.images)
    spans = [(start, min(start + block, n)) for start in range(0, n, block)]
    for start, stop in spans:
        file = _block_path(blocks, start, stop)
        if _load_features(file, stop - start) is None:
            blob = io.BytesIO()
            np.save(blob, job.features(start, stop))
            _make_folder(blocks)
            atomic_write(file, blob.getvalue())
        job.on_samples(stop, n)
    _join_blocks([_block_path(blocks, *span) for span in spans], n, path)
    shutil.rmtree(blocks, ignore_errors=True)


def _join_blocks(files: Sequence[Path], n: int, path: Path) -> None:
    """Write all blocks to one file, with one block in memory at a time, and rename the file when it is complete."""
    temporary = files[0].with_name(f"joined-{os.getpid()}.part")
    try:
        width = np.load(files[0]).shape[1]
        with temporary.open("wb") as joined:
            header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (n, width)}
            np.lib.format.write_array_header_1_0(joined, header)
            for file in files:
                features = np.load(file)
                _require_one_width([features], width)
                joined.write(np.ascontiguousarray(features).data)
            joined.flush()
            os.fsync(joined.fileno())
        os.replace(temporary, path)
    except FileNotFoundError:
        return  # another run has finished first and deleted the blocks
    except OSError as reason:
        raise SamekindError(
            f"{path} could not be written ({reason.strerror or reason}). Free some disk space and start again."
        ) from reason


def _block_path(blocks: Path, start: int, stop: int) -> Path:
    return blocks / f"{start:09d}-{stop:09d}.npy"


def _load_features(path: Path, n_samples: int, *, mapped: bool = False) -> Floats | None:
    """Return the features in a file; None if the file is missing or damaged, or does not have `n_samples` samples."""
    try:
        features: Floats = np.load(path, mmap_mode="r" if mapped else None)
    except (OSError, ValueError, EOFError):
        return None
    return features if features.ndim == 2 and len(features) == n_samples and features.dtype == np.float32 else None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise SettingError(
            f"features cannot be stored in the folder {folder.parent} ({reason.strerror or reason}). Choose another folder."
        ) from reason


def _require_one_width(parts: Sequence[Floats], width: int | None = None) -> None:
    widths = {part.shape[1] for part in parts} | ({width} if width is not None else set())
    if len(widths) > 1:
        raise SettingError(
            f"the encoder returned different numbers of features for different images: {sorted(widths)}; expected one "
            "number for all images"
        )


# ---------------------------------------------------------------- hash of the images and the encoder


def _cache_key(job: EncodingJob, cache: FeatureCache) -> str:
    """Return the hash of the encoder and of the images, which is the name of the cached file."""
    digest = hashlib.sha256(f"{FORMAT}\n".encode())
    fingerprint = getattr(job.encoder, "fingerprint", None)
    if isinstance(job.encoder, nn.Module):
        digest.update(f"{type(job.encoder).__module__}.{type(job.encoder).__qualname__} {job.encoder!r}\n".encode())
        add_weights(digest, job.encoder)
    elif isinstance(fingerprint, str):
        digest.update(f"fingerprint {fingerprint}\n".encode())
    elif cache.key is not None:
        digest.update(f"key {cache.key}\n".encode())
    else:
        raise SettingError(
            "the feature cache needs a name for this encoder, because it is not a torch.nn.Module and has no weights "
            "to hash. Pass FeatureCache(folder, key='...')."
        )
    (_add_texts if getattr(job.encoder, "takes_texts", False) else _add_images)(digest, job.images)
    return digest.hexdigest()[:32]


def _add_images(digest: Any, images: Images, chunk: int = 256) -> None:
    digest.update(f"{len(images)} {'tensor' if isinstance(images, Tensor) else 'array'}\n".encode())
    for start in range(0, len(images), chunk):
        values = np.ascontiguousarray(_as_numbers(images[start : start + chunk]))
        digest.update(f"{values.dtype.str} {values.shape}\n".encode())
        digest.update(values.data)


def _add_texts(digest: Any, texts: Any) -> None:
    digest.update(f"{len(texts)} texts\n".encode())
    for text in texts:
        blob = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(blob)}\n".encode() + blob)


def _device_of(module: nn.Module) -> torch.device:
    first = next(chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def _ignore_progress(done: int, total: int) -> None:
    pass
