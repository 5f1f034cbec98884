"""Frozen features: any encoder, run once over the images, its answers kept on disk.

    cache/
      features-<hash>.npy      float32 (n, d), opened as a memory map
      features-<hash>.blocks/  the blocks that are done, while the features are being made

The hash is that of the images and of the encoder. Each block is written whole or not at all, so that a run that was killed
goes on where it stopped, and two runs at once do no harm.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from samekind.errors import DataError, SamekindError, SettingError, did_you_mean
from samekind.io import atomic_write
from samekind.nets.encoders.efficientnet import efficientnet_lite0
from samekind.nets.forward import eval_mode

Floats = npt.NDArray[np.float32]
Encoder = Callable[[Any], Any]  # a batch of images -> features (n, d)
OnSamples = Callable[[int, int], None]  # (rows done, rows in all)

ENCODERS: dict[str, Callable[[], nn.Module]] = {"efficientnet_lite0": efficientnet_lite0}


class SliceableImages(Protocol):
    """Anything with a length whose slices are arrays or tensors; they may be made when they are asked for."""

    def __len__(self) -> int: ...
    def __getitem__(self, which: slice, /) -> Any: ...


Images = npt.NDArray[Any] | Tensor | SliceableImages
FORMAT = 1  # of what is hashed; raised when old files must not be found any more


@dataclass(frozen=True)
class FeatureCache:
    """Where features are kept. `key` names an encoder that is no module, and so has no weights to be told by."""

    folder: str | Path
    key: str | None = None
    block: int = 1024  # rows in a file while the features are being made
    min_samples: int = 1  # the features of fewer samples are looked for, but not stored


def resolve_encoder(wanted: str | Encoder) -> Encoder:
    """An encoder by its name in ENCODERS, or one of your own as it is."""
    if not isinstance(wanted, str):
        if not callable(wanted):
            raise SettingError(
                f"encoder is {wanted!r}; expected a function of images, a torch.nn.Module, or a name in ENCODERS"
            )
        return wanted
    if wanted not in ENCODERS:
        how = "pass your own as it is, not by a name"
        raise SettingError(f"no encoder is called {wanted!r} ({how}); {did_you_mean(wanted, ENCODERS)}")
    return ENCODERS[wanted]()


def extract_features(
    encoder: Encoder, images: Images, *, cache: FeatureCache | None = None, batch: int = 32, on_samples: OnSamples | None = None
) -> Floats:
    """What `encoder` says about every image: float32 (n, d). With a cache it is asked once, and a memory map is given.

    A module gets tensors (n, C, H, W), bytes as values from 0 to 1, in eval mode and without gradient. Any other callable
    gets the images as they are. Arrays of images are (n, H, W) or (n, H, W, C), tensors (n, C, H, W). `batch` images are
    encoded at a time; `on_samples(done, total)` is told how far it is.
    """
    if len(images) == 0:
        raise DataError("there are no images to encode (0 rows). Pass one or more.")
    work = Work(encoder, images, batch, on_samples or _nobody)
    with eval_mode(encoder) if isinstance(encoder, nn.Module) else nullcontext():
        return work.answers(0, len(images)) if cache is None else _kept(work, cache)


@dataclass(frozen=True)
class Work:
    """An encoder, what it is to encode, and who wants to know how far it is."""

    encoder: Encoder
    images: Images
    batch: int
    tell: OnSamples

    def answers(self, start: int, stop: int) -> Floats:
        """Features of the rows from `start` to `stop`."""
        parts = []
        for first in range(start, stop, self.batch):
            last = min(first + self.batch, stop)
            parts.append(_answer(self.encoder, self.images[first:last]))
            self.tell(last, len(self.images))
        _require_one_width(parts)
        return np.concatenate(parts)


def _answer(encoder: Encoder, rows: Any) -> Floats:
    """Features (n, d) of one batch, checked."""
    if isinstance(encoder, nn.Module):
        with torch.inference_mode():
            answer = encoder(_as_tensor(rows).to(_device_of(encoder)))
    else:
        answer = encoder(rows)
    array = answer.detach().cpu().float().numpy() if isinstance(answer, Tensor) else np.asarray(answer)
    if array.ndim != 2 or len(array) != len(rows) or array.dtype.kind not in "fiu":
        raise SettingError(
            f"the encoder gave {array.shape} of {array.dtype} for {len(rows)} images; expected numbers ({len(rows)}, d). "
            "End it with a pooling or flattening layer."
        )
    if not np.isfinite(array).all():
        raise SettingError("the encoder gave values that are not finite. Check the range of images that it expects.")
    return array.astype(np.float32)


def _as_tensor(rows: Any) -> Tensor:
    """A batch as float32 (n, C, H, W); bytes become values from 0 to 1."""
    # a copy, since torch warns of memory that cannot be written to, such as a map of a file
    x = rows if isinstance(rows, Tensor) else torch.from_numpy(np.array(_as_numbers(rows), order="C"))
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and not isinstance(rows, Tensor):
        x = x.permute(0, 3, 1, 2)
    return x.float() / 255.0 if x.dtype == torch.uint8 else x.float()


def _as_numbers(rows: Any) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
    if array.dtype.kind not in "fiub":
        raise DataError(f"images are held as {array.dtype}; expected numbers (n, H, W) or (n, H, W, C). Read the files first.")
    return array


# ---------------------------------------------------------------- on disk


def _kept(work: Work, cache: FeatureCache) -> Floats:
    """The features from the disk, after making what is not there yet."""
    folder, n = Path(cache.folder), len(work.images)
    name = f"features-{_hash_of(work, cache)}"
    path = folder / f"{name}.npy"
    features = _opened(path, n, mapped=True)
    if features is None and n < cache.min_samples:
        return work.answers(0, n)
    if features is None:
        _make(work, path, folder / f"{name}.blocks", cache.block)
        features = _opened(path, n, mapped=True)
    if features is None:
        raise SamekindError(f"{path} vanished while it was being made. Start again: what was done is kept.")
    return features


def _make(work: Work, path: Path, blocks: Path, block: int) -> None:
    """Every block that is missing or damaged, then all of them as one file."""
    n = len(work.images)
    spans = [(start, min(start + block, n)) for start in range(0, n, block)]
    for start, stop in spans:
        file = _block(blocks, start, stop)
        if _opened(file, stop - start) is None:
            blob = io.BytesIO()
            np.save(blob, work.answers(start, stop))
            _make_folder(blocks)
            atomic_write(file, blob.getvalue())
        work.tell(stop, n)
    _join([_block(blocks, *span) for span in spans], n, path)
    shutil.rmtree(blocks, ignore_errors=True)


def _join(files: Sequence[Path], n: int, path: Path) -> None:
    """One file out of the blocks, written beside them and then renamed. One block is held in memory at a time."""
    beside = files[0].with_name(f"joined-{os.getpid()}.part")
    try:
        width = np.load(files[0]).shape[1]
        with beside.open("wb") as whole:
            header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (n, width)}
            np.lib.format.write_array_header_1_0(whole, header)
            for file in files:
                rows = np.load(file)
                _require_one_width([rows], width)
                whole.write(np.ascontiguousarray(rows).data)
            whole.flush()
            os.fsync(whole.fileno())
        os.replace(beside, path)
    except FileNotFoundError:
        return  # another run was faster, and has cleared the blocks away
    except OSError as reason:
        raise SamekindError(
            f"{path} could not be written ({reason.strerror or reason}). Make room and start again."
        ) from reason


def _block(blocks: Path, start: int, stop: int) -> Path:
    return blocks / f"{start:09d}-{stop:09d}.npy"


def _opened(path: Path, n_rows: int, *, mapped: bool = False) -> Floats | None:
    """The features in a file; None if there are none, or not for `n_rows`."""
    try:
        features: Floats = np.load(path, mmap_mode="r" if mapped else None)
    except (OSError, ValueError, EOFError):
        return None
    return features if features.ndim == 2 and len(features) == n_rows and features.dtype == np.float32 else None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise SettingError(
            f"the folder {folder.parent} cannot be used for features ({reason.strerror or reason}). Choose another one."
        ) from reason


def _require_one_width(parts: Sequence[Floats], width: int | None = None) -> None:
    widths = {part.shape[1] for part in parts} | ({width} if width is not None else set())
    if len(widths) > 1:
        raise SettingError(f"the encoder gave features of several widths {sorted(widths)}; expected one for all images")


# ---------------------------------------------------------------- what the hash is made of


def _hash_of(work: Work, cache: FeatureCache) -> str:
    digest = hashlib.sha256(f"{FORMAT}\n".encode())
    if cache.key is not None:
        digest.update(f"key {cache.key}\n".encode())
    elif isinstance(work.encoder, nn.Module):
        _add_module(digest, work.encoder)
    else:
        raise SettingError(
            "an encoder that is no torch.nn.Module has no weights to hash. Give it a name: FeatureCache(folder, key='...')."
        )
    _add_images(digest, work.images)
    return digest.hexdigest()[:32]


def _add_module(digest: Any, module: nn.Module) -> None:
    """Class, layers and every number."""
    digest.update(f"{type(module).__module__}.{type(module).__qualname__} {module!r}\n".encode())
    for name, value in module.state_dict().items():
        tensor = value.detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)


def _add_images(digest: Any, images: Images, at_once: int = 256) -> None:
    digest.update(f"{len(images)} {'tensor' if isinstance(images, Tensor) else 'array'}\n".encode())
    for start in range(0, len(images), at_once):
        rows = np.ascontiguousarray(_as_numbers(images[start : start + at_once]))
        digest.update(f"{rows.dtype.str} {rows.shape}\n".encode())
        digest.update(rows.data)


# ---------------------------------------------------------------- modules


def _device_of(module: nn.Module) -> torch.device:
    first = next(chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def _nobody(done: int, total: int) -> None:
    """Nobody wants to know."""
