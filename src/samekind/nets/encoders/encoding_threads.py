"""Number of threads for encoding images. On a machine whose cores are busy, torch's threads wait for each other, and one thread
can be several times as fast as all of them. The features are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch

N_TIMED = 4  # images that are encoded with one thread, and then with all
WORTH_TIMING = 100  # fewer images are encoded with all threads
CLEARLY_FASTER = 0.8  # all threads are used if they take at most this fraction of the time of one


@contextmanager
def faster_threads(encode: Callable[[Any], object], images: Any, n: int) -> Iterator[None]:
    """Let torch compute with one thread or with all inside the block, whichever encodes a few of the n images faster."""
    n_threads = torch.get_num_threads()
    if n_threads == 1 or n < WORTH_TIMING:
        yield
        return
    try:
        torch.set_num_threads(1)
        encode(images[:N_TIMED])  # the first call takes longer
        with_one = _seconds(encode, images[:N_TIMED])
        torch.set_num_threads(n_threads)
        if _seconds(encode, images[:N_TIMED]) > CLEARLY_FASTER * with_one:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(n_threads)


def _seconds(encode: Callable[[Any], object], images: Any) -> float:
    began = perf_counter()
    encode(images)
    return perf_counter() - began
