"""The random states that a net may draw from without being asked: torch's own, Python's and numpy's, as one row of bytes.

What the package itself draws comes from generators that are passed in. Dropout does not, and neither do nets of other people.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Bytes = npt.NDArray[np.uint8]


def random_state(device: torch.device) -> Tensor:
    """All states (n_bytes,); the device's own comes last, and a CPU has none besides torch's."""
    pieces = [torch.get_rng_state().numpy(), *_of_python(), *_of_numpy()]
    if device.type == "cuda":
        pieces.append(torch.cuda.get_rng_state(device).numpy())
    return torch.from_numpy(np.concatenate(pieces))


def set_random_state(state: Tensor, device: torch.device) -> None:
    """Puts all back; what a run on another kind of device has left out stays as it is."""
    own = [len(torch.get_rng_state()), *(len(piece) for piece in (*_of_python(), *_of_numpy()))]
    of_torch, whole, gauss, key, place, numpy_gauss, rest = np.split(state.numpy(), np.cumsum(own))
    torch.set_rng_state(torch.from_numpy(of_torch.copy()))
    drawn = float(gauss.view(np.float64)[0])
    random.setstate((3, tuple(whole.view(np.uint32).tolist()), None if np.isnan(drawn) else drawn))
    at, has_gauss = place.view(np.int64).tolist()
    np.random.set_state(("MT19937", key.view(np.uint32), at, has_gauss, float(numpy_gauss.view(np.float64)[0])))
    if device.type == "cuda" and len(rest):
        torch.cuda.set_rng_state(torch.from_numpy(rest.copy()), device)


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Whatever is set in here, Python's and numpy's states are afterwards what they were."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _of_python() -> tuple[Bytes, Bytes]:
    _, whole, gauss = random.getstate()
    return _bytes(np.array(whole, dtype=np.uint32)), _bytes(np.array([np.nan if gauss is None else gauss]))


def _of_numpy() -> tuple[Bytes, Bytes, Bytes]:
    _, key, at, has_gauss, gauss = np.random.get_state()
    return _bytes(np.asarray(key)), _bytes(np.array([at, has_gauss], dtype=np.int64)), _bytes(np.array([gauss]))


def _bytes(numbers: npt.NDArray[Any]) -> Bytes:
    return numbers.view(np.uint8)
