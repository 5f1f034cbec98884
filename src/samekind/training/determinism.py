"""Reproducibility: save and restore the global random states, and compute with a fixed number of threads.

samekind draws its random numbers from generators that are passed as arguments. Dropout layers and users' networks draw from the
global random states of torch, Python and numpy. So checkpoints contain these states too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Bytes = npt.NDArray[np.uint8]


def random_state(device: torch.device) -> Tensor:
    """Return the states of torch, Python, numpy and, on CUDA, the device as one tensor of bytes (n_bytes,)."""
    pieces = [torch.get_rng_state().numpy(), *_python_bytes(), *_numpy_bytes()]
    if device.type == "cuda":
        pieces.append(torch.cuda.get_rng_state(device).numpy())
    return torch.from_numpy(np.concatenate(pieces))


def set_random_state(state: Tensor, device: torch.device) -> None:
    """Set all random states from the tensor of bytes that `random_state` returned.

    If the bytes contain no CUDA state, the CUDA state stays as it is. ValueError is raised if the bytes are not a random state:
    from a wrong position, numpy would read memory beyond its own state.
    """
    sizes = [len(torch.get_rng_state()), *(len(piece) for piece in (*_python_bytes(), *_numpy_bytes()))]
    if state.dtype != torch.uint8 or state.ndim != 1 or len(state) < sum(sizes):
        raise ValueError(
            f"the saved random state has the shape {tuple(state.shape)} and the type {state.dtype}; expected "
            f"{sum(sizes)} bytes or more"
        )
    torch_state, python_key, gauss, key, numpy_position, numpy_gauss, rest = np.split(state.numpy(), np.cumsum(sizes))
    at, has_gauss = numpy_position.view(np.int64).tolist()
    if not 0 <= at <= key.nbytes // 4 or has_gauss not in (0, 1):
        raise ValueError(f"the saved random state of numpy is at position {at}; expected 0 to {key.nbytes // 4}")
    torch.set_rng_state(torch.from_numpy(torch_state.copy()))
    drawn = float(gauss.view(np.float64)[0])
    random.setstate((3, tuple(python_key.view(np.uint32).tolist()), None if np.isnan(drawn) else drawn))
    np.random.set_state(("MT19937", key.view(np.uint32), at, has_gauss, float(numpy_gauss.view(np.float64)[0])))
    if device.type == "cuda" and len(rest):
        torch.cuda.set_rng_state(torch.from_numpy(rest.copy()), device)


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the global random states of Python and numpy when the block ends."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _python_bytes() -> tuple[Bytes, Bytes]:
    _, python_key, gauss = random.getstate()
    return _bytes(np.array(python_key, dtype=np.uint32)), _bytes(np.array([np.nan if gauss is None else gauss]))


def _numpy_bytes() -> tuple[Bytes, Bytes, Bytes]:
    _, key, at, has_gauss, gauss = np.random.get_state()
    return _bytes(np.asarray(key)), _bytes(np.array([at, has_gauss], dtype=np.int64)), _bytes(np.array([gauss]))


def _bytes(numbers: npt.NDArray[Any]) -> Bytes:
    return numbers.view(np.uint8)


@contextmanager
def thread_count(n: int | None) -> Iterator[None]:
    """Let torch compute with n threads inside the block, and restore the number of threads afterwards. None changes nothing."""
    before = torch.get_num_threads()
    if n is not None:
        torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def single_thread(enabled: bool = True) -> AbstractContextManager[None]:
    """Let torch compute with one thread inside the block, and restore the number of threads afterwards.

    Small nets are many times slower with several threads if the cores are busy, because the threads wait for each other. One
    thread also fixes the order of sums, and so the last bits of the results.
    """
    return thread_count(1 if enabled else None)
