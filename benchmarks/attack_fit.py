"""Kill `samekind fit` at random moments, the first writes included, and compare the resumed run with an undisturbed one.

    python benchmarks/attack_fit.py [--kills 60] [--seed 0] [--epochs 4] [--verbose]

The data are a table of 120 rows, and each step writes a checkpoint. Each run is killed with SIGKILL one to three times: just
before a random operation on its files (open, rename, create, delete: an audit hook counts them), or at a random time. Then the
same command is given until it succeeds, and the result files are compared, byte by byte; of model.json and run.json without the
cost, which holds seconds. Nothing unfinished may be left. Some runs are killed within their first ten operations.

The command runs in forked children, because importing torch takes longer than such a fit. benchmarks/killed.py does the same
with real processes on CIFAR-10. The exit code is 1 if a run differs or cannot be resumed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from samekind.cli import app
from samekind.files.io import is_part

from bench_tables import show

FILE_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate")
EARLY = 10  # a kill within this many operations on files is counted as early
FORK = multiprocessing.get_context("fork")
RESULTS = ("labels.csv", "skipped.csv", "model/weights-*.safetensors")


@dataclass(frozen=True)
class AttackedRun:
    """A run that was killed: when each kill came (in operations or seconds), the number of restarts, and the result."""

    kills: list[str]
    restarts: int
    digest: str
    problem: str = ""


def save_table(path: Path, seed: int) -> None:
    """Save a table of two classes with ten labels."""
    rng = np.random.default_rng(seed)
    kinds = np.arange(120) % 2
    x = 3.0 * kinds[:, None] + rng.standard_normal((120, 3))
    rows = (f"{a:.4f},{b:.4f},{c:.4f},{'ab'[kinds[k]] if k < 10 else ''}\n" for k, (a, b, c) in enumerate(x))
    path.write_text(f"u,v,w,label\n{''.join(rows)}")


def start(command: list[str], out: Path, log: Path, prepare: Callable[[Path], None]) -> ForkProcess:
    """Run the command in a forked child, and return the child."""
    child = FORK.Process(target=run_logged, args=(command, out, log, prepare))
    child.start()
    return child


def run_logged(command: list[str], out: Path, log: Path, prepare: Callable[[Path], None]) -> None:
    """Run the command in this process, a child, with its output in the log; exit with 1 if it fails."""
    quiet = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        prepare(out)
        app(command, standalone_mode=False)
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None


def kill_before_operation(count: int) -> Callable[[Path], None]:
    """Return a function that lets its process kill itself just before this many operations on files in the run."""

    def prepare(out: Path) -> None:
        left, place = [count], str(out)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in FILE_EVENTS and str(arguments[0]).startswith(place):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)

    return prepare


def count_operations(target: Path) -> Callable[[Path], None]:
    """Return a function that lets its process append a byte to `target` for each operation on files in the run."""

    def prepare(out: Path) -> None:
        place, counter = str(out), os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in FILE_EVENTS and str(arguments[0]).startswith(place):
                os.write(counter, b".")

        sys.addaudithook(hook)

    return prepare


def unchanged(out: Path) -> None:
    """Let the child run without kills and without counting."""


def start_and_kill(command: list[str], out: Path, log: Path, rng: random.Random, n_operations: int, seconds: float) -> str:
    """Start the command and kill it; return when it was killed, or an empty string if it ended before the kill."""
    way = rng.random()
    if way < 0.75:
        count = rng.randrange(1, EARLY if way < 0.25 else n_operations)
        child, when = start(command, out, log, kill_before_operation(count)), f"operation {count}"
    else:
        delay = rng.uniform(0.0, seconds)
        child, when = start(command, out, log, unchanged), f"{delay:.2f} s"
        threading.Event().wait(delay)
        child.kill()
    child.join()
    return when if child.exitcode == -signal.SIGKILL else ""


def run_to_the_end(command: list[str], out: Path, log: Path, prepare: Callable[[Path], None] = unchanged) -> str:
    """Run the command; return an empty string, or the last line of its output if it failed."""
    child = start(command, out, log, prepare)
    child.join()
    return "" if child.exitcode == 0 else log.read_text().strip().splitlines()[-1]


def digest(out: Path) -> str:
    """Return a hash of the result files."""
    found = hashlib.sha256()
    for pattern in RESULTS:
        for path in sorted(out.glob(pattern)):
            found.update(path.name.encode() + path.read_bytes())
    model, run = (json.loads((out / name).read_text()) for name in ("model/model.json", "run.json"))
    del model["metadata"]["cost"], run["result"]["cost"]
    found.update(json.dumps([model, run]).encode())
    return found.hexdigest()


def attack(command: list[str], out: Path, log: Path, rng: random.Random, n_operations: int, seconds: float) -> AttackedRun:
    """Kill a run one to three times, and let it end."""
    killed = [start_and_kill(command, out, log, rng, n_operations, seconds) for _ in range(rng.choice((1, 1, 2, 3)))]
    problem = run_to_the_end(command, out, log)
    if problem:
        return AttackedRun(killed, 1, "", problem)
    left = [path.name for path in out.rglob("*") if is_part(path)]
    return AttackedRun([kill for kill in killed if kill], 1, digest(out), f"left: {', '.join(left)}" if left else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--verbose", action="store_true", help="print each run")
    args = parser.parse_args()
    torch.set_num_threads(1)  # a process with threads cannot be forked safely
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name).resolve(), random.Random(args.seed)
        save_table(folder / "table.csv", args.seed)
        options = ["--method", "mean_teacher", "--epochs", str(args.epochs), "--save-every", "0"]

        def command(out: Path) -> list[str]:
            return ["fit", str(folder / "table.csv"), "--out", str(out), *options]

        whole, counter, log = folder / "whole", folder / "operations", folder / "log"
        app(command(folder / "first"), standalone_mode=False)  # imports all that the children need
        began = time.monotonic()
        problem = run_to_the_end(command(whole), whole, log, count_operations(counter))
        if problem:
            raise SystemExit(f"the undisturbed run failed: {problem}")
        seconds, n_operations, reference = time.monotonic() - began, counter.stat().st_size, digest(whole)
        print(f"seed {args.seed}; undisturbed: {seconds:.1f} s, {n_operations} operations on files, result {reference[:16]}\n")
        runs: list[AttackedRun] = []
        while sum(len(run.kills) for run in runs) < args.kills:
            out = folder / f"run-{len(runs)}"
            runs.append(attack(command(out), out, log, rng, n_operations, seconds))
            if args.verbose:
                print(len(runs), runs[-1], file=sys.stderr, flush=True)
    report(runs, reference, time.monotonic() - began)


def report(runs: list[AttackedRun], reference: str, seconds: float) -> None:
    """Print the results of the runs; exit with 1 if one differs, cannot be resumed, or left something unfinished."""
    outcomes = Counter(run.problem or ("same" if run.digest == reference else "different") for run in runs)
    early = sum(kill.startswith("operation") and int(kill.split()[1]) < EARLY for run in runs for kill in run.kills)
    show(["result", "runs"], [[outcome, str(count)] for outcome, count in outcomes.items()])
    n_kills = sum(len(run.kills) for run in runs)
    print(
        f"\n{n_kills} kills of {len(runs)} runs, {early} of them within the first {EARLY} operations; "
        f"{len(runs) - outcomes['same']} runs differ or were refused; {seconds:.0f} s"
    )
    if outcomes["same"] < len(runs):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
