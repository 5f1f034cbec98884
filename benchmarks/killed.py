"""Kill and resume `samekind fit`, and compare the weights with those of an uninterrupted run, bit for bit.

    python benchmarks/killed.py [--runs 20] [--epochs 6] [--save-every 0.2] [--seed 0] [--work FOLDER]

600 images of CIFAR-10 with 60 labels, one thread. Every run is the real command in its own process. It gets SIGKILL at a random
time within the duration of the uninterrupted run. Every second run is left alive after that time until the temporary file of a
checkpoint appears, and is killed during this write. A kill counts as one during a write if the temporary file still exists
afterwards. Then the same command is repeated until it succeeds. The exit code is 1 if the saved model of any run differs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from samekind.data.hub.loaders import load_dataset
from samekind.training.checkpoint import decode, newest

from bench_tables import draw_labels, show

POLL_INTERVAL = 0.0005  # seconds
N_IMAGES, LABELS_PER_CLASS = 600, 6


@dataclass(frozen=True)
class KilledRun:
    """A killed run: seconds until the kill, step it resumed from, kill during a write, restarts, hash of the weights."""

    seconds: float
    step: int | None
    writing: bool
    restarts: int
    digest: str


def save_data(path: Path, seed: int) -> None:
    """Save the first images of CIFAR-10, with a few labels per class."""
    cifar = load_dataset("cifar10")
    np.savez(path, X=cifar.x[:N_IMAGES], y=draw_labels(cifar.y[:N_IMAGES], LABELS_PER_CLASS, seed))


def fit_command(data: Path, out: Path, args: argparse.Namespace) -> list[str]:
    timing = ["--epochs", str(args.epochs), "--save-every", str(args.save_every)]
    return [sys.executable, "-m", "samekind", "fit", str(data), "--out", str(out), "--seed", str(args.seed), *timing]


def start(command: list[str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, env={**os.environ, "OMP_NUM_THREADS": "1"})


def run_until_success(command: list[str], attempts: int = 5) -> int:
    """Repeat a command until it succeeds, and return the number of attempts."""
    for attempt in range(1, attempts + 1):
        if start(command).wait() == 0:
            return attempt
    raise SystemExit(f"{' '.join(command)} failed {attempts} times")


def start_and_kill(command: list[str], out: Path, delay: float, *, in_a_write: bool) -> tuple[float, bool]:
    """Start a run and kill it after a delay; return its lifetime, and False if it finished before the kill."""
    checkpoints = out / "checkpoints"
    process = start(command)
    began = time.monotonic()
    while process.poll() is None:
        time.sleep(POLL_INTERVAL)
        is_due = time.monotonic() - began >= delay
        if is_due and (not in_a_write or is_writing(checkpoints)):
            process.kill()
            break
    seconds = time.monotonic() - began
    return seconds, process.wait() == -signal.SIGKILL


def is_writing(checkpoints: Path) -> bool:
    return checkpoints.is_dir() and any(name.startswith(".step-") for name in os.listdir(checkpoints))


def checkpoint_step(checkpoints: Path) -> int | None:
    blob = newest(checkpoints)
    return None if blob is None else decode(blob).step


def digest(out: Path) -> str:
    """Return a hash of all safetensors files of the saved model."""
    found = hashlib.sha256()
    for path in sorted((out / "model").glob("*.safetensors")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def kill_and_resume(command: list[str], out: Path, rng: random.Random, seconds: float, *, in_a_write: bool) -> KilledRun:
    """Kill a run within `seconds` and resume it; if it finishes before the kill, start again and kill it earlier."""
    while True:
        lived, killed = start_and_kill(command, out, rng.uniform(0.0, seconds), in_a_write=in_a_write)
        if killed:
            break
        seconds = min(seconds, lived)
        shutil.rmtree(out)
    checkpoints = out / "checkpoints"
    step, writing = checkpoint_step(checkpoints), is_writing(checkpoints)
    return KilledRun(lived, step, writing, run_until_success(command), digest(out))


def format_row(number: int, run: KilledRun, reference: str) -> list[str]:
    step = "none: started again" if run.step is None else str(run.step)
    cells = [str(number), f"{run.seconds:.2f} s", step, "yes" if run.writing else "no", str(run.restarts)]
    return [*cells, "yes" if run.digest == reference else "NO"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--save-every", type=float, default=0.2, help="seconds between two checkpoints")
    parser.add_argument("--seed", type=int, default=0, help="seed of the labels, the weights and the times of the kills")
    parser.add_argument("--work", type=Path, default=None, help="folder for data and runs; default: a temporary one")
    args = parser.parse_args()
    if args.work is not None:
        args.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        folder, rng = Path(work), random.Random(args.seed)
        save_data(folder / "cifar.npz", args.seed)
        began = time.monotonic()
        run_until_success(fit_command(folder / "cifar.npz", folder / "whole", args))
        seconds = time.monotonic() - began
        reference, steps = digest(folder / "whole"), checkpoint_step(folder / "whole" / "checkpoints")
        print(
            f"uninterrupted: {seconds:.1f} s, {steps} steps, a checkpoint every {args.save_every} s, model {reference[:16]}\n"
        )
        runs = []
        for k in range(args.runs):
            out = folder / f"run-{k}"
            command = fit_command(folder / "cifar.npz", out, args)
            runs.append(kill_and_resume(command, out, rng, seconds, in_a_write=k % 2 == 1))
            print(" | ".join(format_row(k + 1, runs[-1], reference)), file=sys.stderr, flush=True)
    header = ["run", "killed after", "resumed from step", "during a write", "restarts", "same weights"]
    show(header, [format_row(k, run, reference) for k, run in enumerate(runs, 1)])
    same, writing = sum(run.digest == reference for run in runs), sum(run.writing for run in runs)
    print(f"\n{same} of {len(runs)} ended with the weights of the uninterrupted run; {writing} kills were during a write")
    if same < len(runs):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
