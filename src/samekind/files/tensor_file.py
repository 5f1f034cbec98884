"""Headers of safetensors files: the names, dtypes and shapes of the tensors are checked before any tensor is read.

A file consists of the length of the header (8 bytes), the header (JSON), and the values of all tensors. This module works
without torch.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from samekind.files.io import open_regular, shorten
from samekind.files.json_rules import COUNT, ListOf, MapOf, Record, one_of_texts, whole

MAX_HEADER = 100_000_000  # largest length of a header in bytes, as in safetensors
ITEM_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "I64": 8, "F64": 8}
FLOATS = ("F16", "BF16", "F32", "F64")
TENSORS = MapOf(
    Record(
        {"dtype": one_of_texts(*ITEM_BYTES), "shape": ListOf(whole(0), most=8), "data_offsets": ListOf(COUNT, 2, 2)},
        closed=True,
    )
)
BLOCK = 2**20


@dataclass(frozen=True)
class TensorInfo:
    """Dtype and shape of one tensor in a file."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class TensorHeader:
    """Header of a safetensors file: {name: dtype and shape of the tensor}, and the metadata."""

    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]

    def shapes(self, prefix: str = "") -> dict[str, tuple[int, ...]]:
        """Return {name without the prefix: shape} of all tensors whose names begin with `prefix`."""
        found = self.tensors.items()
        return {name[len(prefix) :]: tensor.shape for name, tensor in found if name.startswith(prefix)}


class TensorFile:
    """An open safetensors file. Its header and its hash can be checked before it is read into memory."""

    def __init__(self, path: Path) -> None:
        """Open the file and read its header; raise OSError or ValueError if it is not a complete safetensors file."""
        self._file: BinaryIO = open_regular(path)
        try:
            self.size = os.fstat(self._file.fileno()).st_size
            if self.size > psutil.virtual_memory().total:
                raise ValueError(f"the file has {self.size:,} bytes, more than the memory of this machine")
            self.header = read_header(self._file, self.size)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def digest(self) -> str:
        """Return the first 16 hex digits of the SHA-256 of the file."""
        digest = hashlib.sha256()
        self._file.seek(0)
        while block := self._file.read(BLOCK):
            digest.update(block)
        return digest.hexdigest()[:16]

    def read(self) -> bytes:
        """Return the whole content of the file."""
        self._file.seek(0)
        return self._file.read()


def read_header(file: BinaryIO, size: int) -> TensorHeader:
    """Return the header of a file of `size` bytes; raise ValueError unless it describes the whole content of the file."""
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MAX_HEADER):
        raise ValueError("the file is cut short, or is not a safetensors file")
    content = _parse(file.read(length))
    metadata = content.pop("__metadata__", {})
    problem = TENSORS.problem(content)
    if problem is not None:
        raise ValueError(problem)
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"the metadata in the header are {shorten(metadata)}; expected an object whose values are texts")
    _require_every_byte_used(content, size - 8 - length)
    tensors = {name: TensorInfo(entry["dtype"], tuple(entry["shape"])) for name, entry in content.items()}
    return TensorHeader(tensors, metadata)


def _parse(text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("the JSON text of the header is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"the header cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"the header is {shorten(content)}; expected a JSON object")
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name occurs twice in the header")
    return content


def _require_every_byte_used(content: Mapping[str, Any], n_bytes: int) -> None:
    """Raise ValueError unless the tensors follow each other without gaps and fill exactly `n_bytes` bytes."""
    at = 0
    for entry in sorted(content.values(), key=lambda entry: tuple(entry["data_offsets"])):
        start, stop = entry["data_offsets"]
        if start != at or stop - start != math.prod(entry["shape"]) * ITEM_BYTES[entry["dtype"]]:
            raise ValueError("the byte ranges of the tensors do not match their shapes")
        at = stop
    if at != n_bytes:
        raise ValueError(f"the file has {n_bytes:,} bytes of tensors, but its header describes {at:,}")
