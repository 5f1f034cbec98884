"""Runs of `samekind fit` that are killed, against one that is not: the weights must be the same, bit for bit.

python benchmarks/killed.py [--runs 20] [--epochs 6] [--save-every 0.2] [--seed 0] [--work FOLDER]

600 images of CIFAR-10 with 60 labels, one thread. Every run is the real command in a process of its own. It gets SIGKILL at
a moment drawn evenly from the time that the undisturbed run took; every other run is then let live until a checkpoint's
temporary file appears, and killed while that is being written. A kill counts as one during a write if the temporary file is
still there when the process is gone. Then the same command is given again until it ends by itself. The exit code is 1 if the
saved model of any run differs from the undisturbed one.
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

from tables import draw_labels, show

LOOK = 0.0005  # seconds between two looks at the folder of checkpoints
ROWS, LABELS_PER_CLASS = 600, 6


@dataclass(frozen=True)
class Killed:
    """When a run was killed, in seconds, at which step of how many it went on, whether during a write, and what came of it."""

    moment: float
    step: int | None
    writing: bool
    sittings: int
    digest: str


def save_data(path: Path, seed: int) -> None:
    """The first images of CIFAR-10, with a few labels of each class."""
    cifar = load_dataset("cifar10")
    np.savez(path, X=cifar.x[:ROWS], y=draw_labels(cifar.y[:ROWS], LABELS_PER_CLASS, seed))


def command(data: Path, out: Path, args: argparse.Namespace) -> list[str]:
    timing = ["--epochs", str(args.epochs), "--save-every", str(args.save_every)]
    return [sys.executable, "-m", "samekind", "fit", str(data), "--out", str(out), "--seed", str(args.seed), *timing]


def started(words: list[str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(words, stdout=quiet, stderr=quiet, env={**os.environ, "OMP_NUM_THREADS": "1"})


def finished(words: list[str], most: int = 5) -> int:
    """Gives a command again until it ends by itself; how often it had to be given."""
    for sittings in range(1, most + 1):
        if started(words).wait() == 0:
            return sittings
    raise SystemExit(f"{' '.join(words)} did not end well in {most} attempts")


def kill(words: list[str], out: Path, moment: float, *, in_a_write: bool) -> tuple[float, bool]:
    """How long the run lived, and whether it was killed; it may have been quicker than its killer."""
    checkpoints = out / "checkpoints"
    process = started(words)
    began = time.monotonic()
    while process.poll() is None:
        time.sleep(LOOK)
        late_enough = time.monotonic() - began >= moment
        if late_enough and (not in_a_write or being_written(checkpoints)):
            process.kill()
            break
    seconds = time.monotonic() - began
    return seconds, process.wait() == -signal.SIGKILL


def being_written(checkpoints: Path) -> bool:
    return checkpoints.is_dir() and any(name.startswith(".step-") for name in os.listdir(checkpoints))


def step_in(checkpoints: Path) -> int | None:
    blob = newest(checkpoints)
    return None if blob is None else decode(blob).step


def digest(out: Path) -> str:
    """Of every safetensors file of the saved model."""
    found = hashlib.sha256()
    for path in sorted((out / "model").glob("*.safetensors")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def one_run(words: list[str], out: Path, luck: random.Random, seconds: float, *, in_a_write: bool) -> Killed:
    """`seconds` is how long a run may take; if this one is through before it is killed, it is done again and killed earlier."""
    while True:
        lived, killed = kill(words, out, luck.uniform(0.0, seconds), in_a_write=in_a_write)
        if killed:
            break
        seconds = min(seconds, lived)
        shutil.rmtree(out)
    checkpoints = out / "checkpoints"
    step, writing = step_in(checkpoints), being_written(checkpoints)
    return Killed(lived, step, writing, finished(words), digest(out))


def line(number: int, run: Killed, whole: str) -> list[str]:
    step = "none: begun anew" if run.step is None else str(run.step)
    cells = [str(number), f"{run.moment:.2f} s", step, "yes" if run.writing else "no", str(run.sittings)]
    return [*cells, "yes" if run.digest == whole else "NO"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--save-every", type=float, default=0.2, help="seconds between two checkpoints")
    parser.add_argument("--seed", type=int, default=0, help="draws labels, nets and the moments of the kills")
    parser.add_argument("--work", type=Path, default=None, help="folder for data and runs; else a temporary one")
    args = parser.parse_args()
    if args.work is not None:
        args.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        folder, luck = Path(work), random.Random(args.seed)
        save_data(folder / "cifar.npz", args.seed)
        began = time.monotonic()
        finished(command(folder / "cifar.npz", folder / "whole", args))
        seconds = time.monotonic() - began
        whole, steps = digest(folder / "whole"), step_in(folder / "whole" / "checkpoints")
        print(f"undisturbed: {seconds:.1f} s, {steps} steps, a checkpoint every {args.save_every} s, model {whole[:16]}\n")
        runs = []
        for k in range(args.runs):
            out = folder / f"run-{k}"
            words = command(folder / "cifar.npz", out, args)
            runs.append(one_run(words, out, luck, seconds, in_a_write=k % 2 == 1))
            print(" | ".join(line(k + 1, runs[-1], whole)), file=sys.stderr, flush=True)
    header = ["run", "killed after", "went on from step", "during a write", "more sittings", "same weights"]
    show(header, [line(k, run, whole) for k, run in enumerate(runs, 1)])
    same, writing = sum(run.digest == whole for run in runs), sum(run.writing for run in runs)
    print(f"\n{same} of {len(runs)} ended with the weights of the undisturbed run; {writing} kills fell into a write")
    if same < len(runs):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
