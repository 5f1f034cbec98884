"""Runs of a grid side by side: in processes of this machine (joblib), or on a Dask cluster. Each is handed over as it ends.

A worker makes one run at a time, since the seed of torch belongs to the whole process. What a run cannot do for a reason of its
own (a loss that is no number any more) is handed over as a failure and stops no other run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any

from samekind.bench.grid import RunSpec
from samekind.bench.running.runner import RunContext, RunResult, code_version, run
from samekind.errors import CheckpointError, DataError, Interrupted, SamekindError, SettingError

LOST = 5  # workers that one run may lose before it is given up
LOOK = 0.5  # seconds between two looks whether the parent still lives
_one_at_a_time = threading.Lock()
_watching = False


def launch_runs(cells: Sequence[RunSpec], where: RunContext, *, jobs: int = 1, dask: str | None = None) -> Iterator[RunResult]:
    """The runs in the order in which they end."""
    if not cells:
        return iter(())
    if dask is not None:
        return _on_dask(cells, where, dask)
    return (_done(cell, where) for cell in cells) if jobs == 1 else _in_processes(cells, where, jobs)


def _done(cell: RunSpec, where: RunContext) -> RunResult:
    """The run, or why there is none. What would be wrong with every run of its kind is raised."""
    with _one_at_a_time:
        try:
            return _run_or_begin_again(cell, where)
        except (Interrupted, DataError, SettingError):
            raise
        except SamekindError as error:
            return RunResult({**cell.as_dict(), "failed": str(error), "code": code_version()}, {})


def _run_or_begin_again(cell: RunSpec, where: RunContext) -> RunResult:
    """A checkpoint that cannot be gone on with, as after a change of the code, is not worth stopping for."""
    try:
        return run(cell, where)
    except CheckpointError:
        time.sleep(4 * LOOK)  # or it is held by a process whose parent was killed just now
        where.forget(cell.key)
        return run(cell, where)


def _in_processes(cells: Sequence[RunSpec], where: RunContext, jobs: int) -> Iterator[RunResult]:
    from joblib import Parallel, delayed

    parent = os.getpid()
    tasks = (delayed(_for_parent)(cell, where, parent) for cell in cells)
    workers = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", pre_dispatch=jobs, batch_size=1)
    try:
        yield from workers(tasks)
    except BrokenExecutor as error:
        raise SamekindError(
            "a process that made a run is gone, perhaps for want of memory. Finished runs are kept: run the same again, "
            "perhaps with --jobs 1."
        ) from error


def _for_parent(cell: RunSpec, where: RunContext, parent: int) -> RunResult:
    """In a process of its own, which ends when its parent does: nobody would hear of the run, and its folder is wanted."""
    global _watching
    if not _watching:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        _watching = True
    return _done(cell, where)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


def _on_dask(cells: Sequence[RunSpec], where: RunContext, address: str) -> Iterator[RunResult]:
    """Each run as a task of the cluster. The run of a worker that dies is given to another one."""
    distributed = _distributed()
    try:
        client = distributed.Client(address, timeout="20s")
    except (OSError, ValueError) as error:
        raise SettingError(f"no Dask scheduler answers at {address} ({error}). Start one with: dask scheduler") from error
    with client:
        waiting = {client.submit(_done, cell, where, pure=False): cell for cell in cells}
        lost = dict.fromkeys((cell.key for cell in cells), 0)
        arriving = distributed.as_completed(list(waiting))
        for future in arriving:
            cell = waiting.pop(future)
            if future.status in ("cancelled", "lost"):
                raise SamekindError(f"the Dask scheduler at {address} is gone. Finished runs are kept: run the same again.")
            failure = future.exception() if future.status == "error" else None
            if isinstance(failure, distributed.scheduler.KilledWorker) and lost[cell.key] < LOST:
                lost[cell.key] += 1
                again = client.submit(_done, cell, where, pure=False)
                waiting[again] = cell
                arriving.add(again)
                continue
            yield future.result()


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise SettingError("Dask is not installed. Install samekind[dask], or leave --dask out.") from error
    return distributed
