"""Reading ahead: the next batches are read or decoded in a thread while the net works on the current one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
Span = tuple[int, int]
AHEAD = 2  # batches that are read and wait for the net


def read_ahead(read: Callable[[int, int], T], spans: Sequence[Span], ahead: int = AHEAD) -> Iterator[tuple[Span, T]]:
    """Yield each span with read(*span), in order; at most `ahead` results wait in memory. An error is raised at its place."""
    waiting: deque[tuple[Span, Future[T]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as reader:
        try:
            for span in spans:
                waiting.append((span, reader.submit(read, *span)))
                if len(waiting) > ahead:
                    done, future = waiting.popleft()
                    yield done, future.result()
            while waiting:
                done, future = waiting.popleft()
                yield done, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
