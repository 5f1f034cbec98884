"""Launch the runs of a grid in parallel: in processes of this machine (joblib), or on a Dask cluster.

The result of a run is yielded as soon as the run finishes. A worker process executes one run at a time, because torch's random
seed is global to a process. If a run fails for a reason of its own, for example a loss of NaN, it is recorded as failed, and
the other runs continue.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any

from samekind.bench.grid import RunSpec
from samekind.bench.running.runner import RunContext, RunResult, code_version, execute_run
from samekind.errors import CheckpointError, DataError, Interrupted, SamekindError, SettingError

MAX_LOST_WORKERS = 5  # number of Dask workers that may die while they execute a run before it counts as failed
PARENT_CHECK_INTERVAL = 0.5  # seconds after which a worker checks again whether its parent process is alive
_one_run_at_a_time = threading.Lock()
_watching_parent = False


def launch_runs(
    specs: Sequence[RunSpec], context: RunContext, *, jobs: int = 1, dask: str | None = None
) -> Iterator[RunResult]:
    """Execute the runs, and yield their results in the order in which they finish."""
    if not specs:
        return iter(())
    if dask is not None:
        return _launch_on_dask(specs, context, dask)
    return (_execute(spec, context) for spec in specs) if jobs == 1 else _launch_processes(specs, context, jobs)


def _execute(spec: RunSpec, context: RunContext) -> RunResult:
    """Return the result of a run, or a record of its failure. Errors that would occur in every run are raised."""
    with _one_run_at_a_time:
        try:
            return _execute_or_restart(spec, context)
        except (Interrupted, DataError, SettingError):
            raise
        except SamekindError as error:
            return RunResult({**spec.as_dict(), "failed": str(error), "code": code_version()}, {})


def _execute_or_restart(spec: RunSpec, context: RunContext) -> RunResult:
    """Resume the run, or start it; if its checkpoint cannot be used, for example after a change of the code, start it again."""
    try:
        return execute_run(spec, context)
    except CheckpointError:
        # A worker whose parent was killed may still have the checkpoint locked; this gives it time to exit.
        time.sleep(4 * PARENT_CHECK_INTERVAL)
        context.delete_checkpoint(spec.key)
        return execute_run(spec, context)


def _launch_processes(specs: Sequence[RunSpec], context: RunContext, jobs: int) -> Iterator[RunResult]:
    from joblib import Parallel, delayed

    parent = os.getpid()
    tasks = (delayed(_execute_in_worker)(spec, context, parent) for spec in specs)
    workers = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", pre_dispatch=jobs, batch_size=1)
    try:
        yield from workers(tasks)
    except BrokenExecutor as error:
        raise SamekindError(
            "a worker process has died, perhaps for lack of memory. Finished runs are kept: run the same command again to "
            "resume, perhaps with --jobs 1."
        ) from error


def _execute_in_worker(spec: RunSpec, context: RunContext, parent: int) -> RunResult:
    """Execute a run in a worker process.

    The process exits when its parent process does, so that the folder does not stay locked.
    """
    global _watching_parent
    if not _watching_parent:
        threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
        _watching_parent = True
    return _execute(spec, context)


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_INTERVAL)
    # the parent process is dead, and nobody will read the result
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def _launch_on_dask(specs: Sequence[RunSpec], context: RunContext, address: str) -> Iterator[RunResult]:
    """Submit each run to the cluster as a task, and yield the results. A run whose worker dies is submitted again."""
    distributed = _import_distributed()
    try:
        client = distributed.Client(address, timeout="20s")
    except (OSError, ValueError) as error:
        raise SettingError(f"no Dask scheduler responds at {address} ({error}). Start one with: dask scheduler") from error
    with client:
        pending = {client.submit(_execute, spec, context, pure=False): spec for spec in specs}
        lost_workers = dict.fromkeys((spec.key for spec in specs), 0)
        # fetch each result as soon as its run ends, because a result on a worker is lost if the worker dies
        completed = distributed.as_completed(list(pending), with_results=True, raise_errors=False)
        for future, result in completed:
            spec = pending.pop(future)
            if isinstance(result, RunResult):
                yield result
                continue
            if future.status in ("cancelled", "lost"):
                raise SamekindError(
                    f"the Dask scheduler at {address} is gone. Finished runs are kept: run the same command again to resume."
                )
            failure = future.exception()
            if not isinstance(failure, distributed.scheduler.KilledWorker) or lost_workers[spec.key] >= MAX_LOST_WORKERS:
                raise failure
            lost_workers[spec.key] += 1
            retry = client.submit(_execute, spec, context, pure=False)
            pending[retry] = spec
            completed.add(retry)


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise SettingError("Dask is not installed. Install samekind[dask], or leave --dask out.") from error
    return distributed
