"""Reading ahead: a thread reads or decodes the next batches of images while the network encodes the current batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
Span = tuple[int, int]
AHEAD = 2  # number of batches that are read ahead


def read_ahead(read: Callable[[int, int], T], spans: Sequence[Span], ahead: int = AHEAD) -> Iterator[tuple[Span, T]]:
    """Yield each span (start, stop) with the result of read(start, stop), in order. At most `ahead` results wait in memory.

    An error in `read` is raised when its span is yielded.
    """
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
