"""Checkpoint files, from which a run resumes bit for bit: tensors as safetensors, metadata as JSON, no code.

    RUN/
      step-000000120-<hash>.safetensors   tensors after step 120; the metadata are in the header of the file
      step-000000080-<hash>.safetensors   the previous checkpoint
      .lock                               empty; locked while a process trains in the directory

A checkpoint is one file, written atomically. The hash in its name is that of its content, so that a damaged file is detected.
The last two checkpoints are kept: if the newest is damaged, the run resumes from the previous one.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from samekind.errors import CheckpointError, CheckpointWarning
from samekind.files.io import atomic_write, parse_json, remove_parts, shorten
from samekind.files.json_rules import COUNT, NUMBER, MapOf, Record, Rule
from samekind.files.tensor_file import TensorFile, read_header

FORMAT = 5  # version of the file format; 4: step counters of methods were renamed; 5: the operations counted so far were added
KEPT = 2
LOCK = ".lock"
START_AGAIN = "Delete it to start again, or choose another directory."
METADATA = Record({"step": COUNT}, {"run": Record({}, {"seed": COUNT}), "cost": MapOf(NUMBER)})
NAME = re.compile(r"step-(\d+)-([0-9a-f]{16})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """State of a run after `step` steps: tensors by name, and JSON-serializable metadata."""

    step: int
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Any]

    def under(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names start with `prefix` and a dot, without that prefix."""
        start = f"{prefix}."
        return {name[len(start) :]: tensor for name, tensor in self.tensors.items() if name.startswith(start)}


def encode(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as the bytes of a safetensors file.

    The tensors are copied, because tensors of a net may share memory and safetensors refuses shared memory.
    """
    metadata = {"format": FORMAT, "step": checkpoint.step, **checkpoint.metadata}
    tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in checkpoint.tensors.items()}
    return write_tensors(tensors, {"samekind": json.dumps(metadata, default=str)})


def decode(blob: bytes) -> Checkpoint:
    """Return the checkpoint in the bytes of a file; raise CheckpointError if they are damaged or have another format."""
    try:
        metadata = parse_json(read_header(io.BytesIO(blob), len(blob)).metadata.get("samekind", ""))
        found = metadata.get("format") if isinstance(metadata, dict) else None
        if found != FORMAT:
            raise CheckpointError(
                f"the checkpoint has format {shorten(found)}, but this version of samekind reads format {FORMAT}. Finish "
                "the run with the version that began it, or choose another directory."
            )
        require_metadata(METADATA, metadata)
        return Checkpoint(metadata["step"], read_tensors(blob), metadata)
    except (ValueError, SafetensorError) as error:
        raise CheckpointError(f"the checkpoint was changed after it was written: {error}. {START_AGAIN}") from error


def require_metadata(rule: Rule, metadata: Any) -> None:
    """Raise CheckpointError if the metadata of a checkpoint break this rule on their names and types."""
    problem = rule.problem(metadata)
    if problem is not None:
        raise CheckpointError(f"the checkpoint was changed after it was written: {problem}. {START_AGAIN}")


def newest(folder: Path) -> bytes | None:
    """Return the bytes of the newest undamaged checkpoint in a directory; None if the directory has no checkpoint.

    Damaged files are skipped with a warning. If all are damaged, CheckpointError is raised.
    """
    damaged: list[str] = []
    for path in _checkpoints(folder):
        blob = _read_if_complete(path)
        if blob is not None:
            if damaged:
                warnings.warn(
                    f"{', '.join(damaged)} in {folder} is damaged: its content does not match its name. The run resumes from "
                    f"the previous checkpoint, {path.name}.",
                    CheckpointWarning,
                    stacklevel=2,
                )
            return blob
        damaged.append(path.name)
    if damaged:
        raise CheckpointError(
            f"no checkpoint in {folder} is complete: the content of {', '.join(damaged)} does not match the hash in "
            "the file name. Check the disk; delete these files to start again, or choose another directory."
        )
    return None


class CheckpointDir:
    """Directory with the last two checkpoints of one run. It is locked, so that no second process trains in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: list[Path] = []
        self._lock = FileLock(folder / LOCK, mode=0o644)

    def __enter__(self) -> CheckpointDir:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(blocking=False)
        except Timeout as error:
            raise CheckpointError(
                f"another process is training in {self.folder}. Wait for it, or choose another directory."
            ) from error
        except FileExistsError as error:
            raise CheckpointError(
                f"{self.folder} is a file; expected a directory or an unused path. Choose another directory."
            ) from error
        except OSError as error:
            raise CheckpointError(
                f"{self.folder} cannot be used for checkpoints ({error.strerror or error}). Choose a directory you may write "
                "to."
            ) from error
        remove_parts(self.folder)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()

    def newest(self) -> bytes | None:
        """Return the bytes of the newest undamaged checkpoint; None if the directory has no checkpoint."""
        blob = newest(self.folder)
        self._kept = [path for path in _checkpoints(self.folder) if blob is not None and _digest(blob) in path.name]
        return blob

    def put(self, step: int, blob: bytes) -> None:
        """Write a checkpoint, then delete all checkpoints but this one and the one before it."""
        path = self.folder / f"step-{step:09d}-{_digest(blob)}.safetensors"
        atomic_write(path, blob, CheckpointError)
        self._kept = [*(kept for kept in self._kept if kept != path), path][-KEPT:]
        for old in _checkpoints(self.folder):
            if old not in self._kept:
                old.unlink(missing_ok=True)

    @property
    def last_step(self) -> int | None:
        """Return the step of the last checkpoint; None if there is no checkpoint."""
        return _step(self._kept[-1]) if self._kept else None


def require_same_run(saved: Mapping[str, Any], requested: Mapping[str, Any], folder: Path) -> None:
    """Raise CheckpointError, with a list of the differences, if the saved run has other settings or data."""
    # through JSON and back, so that tuples become lists as in the checkpoint
    requested = json.loads(json.dumps(requested, default=str))
    differences = [
        _difference(key if key in requested else shorten(key), saved.get(key), requested.get(key))
        for key in {**saved, **requested}
        if saved.get(key) != requested.get(key)
    ]
    if differences:
        raise CheckpointError(
            f"{folder} holds another run: {'; '.join(differences)}. Use the same arguments to resume it, or choose another "
            "directory."
        )


def _difference(key: str, saved: Any, requested: Any) -> str:
    if isinstance(saved, dict) and isinstance(requested, dict):
        changed = [name for name in {**saved, **requested} if saved.get(name) != requested.get(name)]
        names = {name: name if name in requested else shorten(name) for name in changed}
        return ", ".join(_difference(names[name], saved.get(name), requested.get(name)) for name in changed)
    is_digest = any(isinstance(value, str) and value.startswith("sha256:") for value in (saved, requested))
    return f"{key} has changed" if is_digest else f"{key} was {shorten(saved)} and is {shorten(requested)}"


def _checkpoints(folder: Path) -> list[Path]:
    """Return the paths of the checkpoint files in a directory, newest first."""
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=lambda path: (_step(path), path.name), reverse=True)


def _step(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    return int(match[1]) if match else -1


def _digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()[:16]


def _read_if_complete(path: Path) -> bytes | None:
    """Return the content of a checkpoint file; None if it does not match the hash in the file name, or cannot be read."""
    try:
        with TensorFile(path) as file:
            return file.read() if f"-{file.digest()}." in path.name else None
    except (OSError, ValueError):
        return None


def byte_blocks(x: Tensor, n_bytes: int = 2**24) -> Iterator[bytes]:
    """Yield the bytes of the tensor x in blocks of about `n_bytes` bytes."""
    sample_bytes = max(1, x[:1].numel() * x.element_size())
    for block in torch.split(x, max(1, n_bytes // sample_bytes)):
        yield block.reshape(-1).view(torch.uint8).numpy().tobytes()  # viewed as bytes, because numpy has no bfloat16


def tensor_digest(x: Tensor) -> str:
    """Return a SHA-256 digest of the values, the shape and the dtype of a tensor."""
    digest = hashlib.sha256(repr((tuple(x.shape), str(x.dtype))).encode())
    for block in byte_blocks(x):
        digest.update(block)
    return f"sha256:{digest.hexdigest()[:16]}"
