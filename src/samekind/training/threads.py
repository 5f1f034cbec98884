"""How many threads torch has, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread(wanted: bool = True) -> Iterator[None]:
    """torch with one thread, and with as many as before afterwards; without `wanted` it keeps those it has.

    Threads that wait for one another slow small nets many times over on busy cores; and the order of sums is fixed.
    """
    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
