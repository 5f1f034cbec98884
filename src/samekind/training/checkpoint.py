"""Checkpoints: all that a run needs to go on as if nothing had happened. Numbers as safetensors, words as JSON, no code.

    RUN/
      step-000000120-<hash>.safetensors   numbers, and in the file's header the words; named by content
      step-000000080-<hash>.safetensors   the one before

A checkpoint is one file, written beside and then renamed, and its name tells whether its content is whole. The last two are
kept: should one be damaged, the other is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from samekind.errors import CheckpointError, CheckpointWarning
from samekind.io import atomic_write

FORMAT = 1
KEPT = 2
NAME = re.compile(r"step-(\d+)-([0-9a-f]{16})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A run after `step` steps: tensors by name, and words, which are anything that JSON can hold."""

    step: int
    tensors: Mapping[str, Tensor]
    words: Mapping[str, Any]

    def under(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose name starts with `prefix` and a dot, without it."""
        start = f"{prefix}."
        return {name[len(start) :]: tensor for name, tensor in self.tensors.items() if name.startswith(start)}


def encode(checkpoint: Checkpoint) -> bytes:
    """The file of a checkpoint. Two tensors may share their memory, which the format forbids; so each is copied."""
    words = {"format": FORMAT, "step": checkpoint.step, **checkpoint.words}
    tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in checkpoint.tensors.items()}
    return write_tensors(tensors, {"samekind": json.dumps(words, default=str)})


def decode(blob: bytes) -> Checkpoint:
    """The checkpoint in a file."""
    (size,) = struct.unpack_from("<Q", blob)  # a safetensors file: the length of its header, the header, the numbers
    words = json.loads(json.loads(blob[8 : 8 + size])["__metadata__"]["samekind"])
    if words["format"] != FORMAT:
        raise CheckpointError(
            f"the checkpoint has format {words['format']!r}; this version reads {FORMAT}. Finish the run with the version that "
            "began it, or choose another folder."
        )
    return Checkpoint(words["step"], read_tensors(blob), words)


def newest(folder: Path) -> bytes | None:
    """The last whole checkpoint in a folder, or None if there is none; damaged ones are passed over with a warning."""
    damaged: list[str] = []
    for path in _checkpoints(folder):
        blob = _whole(path)
        if blob is not None:
            if damaged:
                warnings.warn(
                    f"{', '.join(damaged)} in {folder} is damaged: its content does not match its name. The run goes on from "
                    f"the checkpoint before, {path.name}.",
                    CheckpointWarning,
                    stacklevel=2,
                )
            return blob
        damaged.append(path.name)
    if damaged:
        raise CheckpointError(
            f"no checkpoint in {folder} is whole ({', '.join(damaged)}): the content does not match the name. Look at the "
            "disk; delete them to start anew, or choose another folder."
        )
    return None


class CheckpointDir:
    """The folder of one run, for one process at a time: the last two checkpoints stay on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: list[Path] = []
        self._lock: int | None = None

    def __enter__(self) -> CheckpointDir:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.folder)
        except FileExistsError as error:
            raise CheckpointError(f"{self.folder} is a file; expected a folder, or a name that is free.") from error
        except OSError as error:
            raise CheckpointError(
                f"{self.folder} cannot be used for checkpoints ({error.strerror or error}). Choose a folder you may write to."
            ) from error
        for part in self.folder.glob(".step-*.part"):  # of a process that was killed while it wrote
            part.unlink(missing_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def newest(self) -> bytes | None:
        blob = newest(self.folder)
        self._kept = [path for path in _checkpoints(self.folder) if blob is not None and _digest(blob) in path.name]
        return blob

    def put(self, step: int, blob: bytes) -> None:
        """Writes a checkpoint; when it stands, the one before stays, and older and damaged ones go."""
        path = self.folder / f"step-{step:09d}-{_digest(blob)}.safetensors"
        atomic_write(path, blob, CheckpointError)
        self._kept = [*(kept for kept in self._kept if kept != path), path][-KEPT:]
        for old in _checkpoints(self.folder):
            if old not in self._kept:
                old.unlink(missing_ok=True)

    @property
    def last_step(self) -> int | None:
        """The step of the last checkpoint that stands."""
        return _step(self._kept[-1]) if self._kept else None


def require_same_run(was: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """What the folder holds must be the run that is asked for; if not, says what differs."""
    now = json.loads(json.dumps(now, default=str))  # as it would come back from a file
    other = [_difference(key, was.get(key), now.get(key)) for key in {**was, **now} if was.get(key) != now.get(key)]
    if other:
        raise CheckpointError(
            f"{folder} holds another run: {'; '.join(other)}. Ask for the same again to go on with it, or choose another "
            "folder."
        )


def _difference(key: str, was: Any, now: Any) -> str:
    if isinstance(was, dict) and isinstance(now, dict):
        other = [name for name in {**was, **now} if was.get(name) != now.get(name)]
        return ", ".join(_difference(name, was.get(name), now.get(name)) for name in other)
    hidden = any(isinstance(value, str) and value.startswith("sha256:") for value in (was, now))
    return f"{key} has changed" if hidden else f"{key} was {was!r} and is {now!r}"


def _checkpoints(folder: Path) -> list[Path]:
    """Newest first."""
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=lambda path: (_step(path), path.name), reverse=True)


def _step(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    return int(match[1]) if match else -1


def _digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()[:16]


def _whole(path: Path) -> bytes | None:
    try:
        blob = path.read_bytes()
    except OSError:
        return None
    return blob if f"-{_digest(blob)}." in path.name else None


def _locked(folder: Path) -> int | None:
    """The folder, held as long as the process lives; a second process that wants it is told so."""
    if sys.platform == "win32":
        return None
    import fcntl

    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(held)
        raise CheckpointError(f"another process is training in {folder}. Wait for it, or choose another folder.") from error
    except OSError:  # a file system that knows no locks
        return held
    return held


def blocks(x: Tensor, n_bytes: int = 2**24) -> Iterator[bytes]:
    """The bytes of x, a piece at a time."""
    per_row = max(1, x[:1].numel() * x.element_size())
    for block in torch.split(x, max(1, n_bytes // per_row)):
        yield block.reshape(-1).view(torch.uint8).numpy().tobytes()  # as bytes: numpy knows no bfloat16


def digest_of(x: Tensor) -> str:
    """The same for the same numbers in the same shape, and practically never for others."""
    digest = hashlib.sha256(repr((tuple(x.shape), str(x.dtype))).encode())
    for block in blocks(x):
        digest.update(block)
    return f"sha256:{digest.hexdigest()[:16]}"
