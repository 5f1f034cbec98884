"""One thread for the linear algebra of the ensemble: on small matrices, several threads wait for each other longer than they
compute, above all while other programs use the processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS and torch compute with one thread inside the block, and restore their numbers of threads afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _thread_pools().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@cache
def _thread_pools() -> ThreadpoolController:
    """Return the thread pools of all libraries, which take longer to find than an update of few samples."""
    return ThreadpoolController()
