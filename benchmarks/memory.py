"""Memory of `samekind fit` on many images compared with few: as a folder of image files, and as one .npy file.

    python benchmarks/memory.py --work FOLDER [--many 100000] [--few 1000] [--steps 20] [--inputs folder npy]

The images are those of CIFAR-10, enlarged to 64 x 64 in three colours and repeated as often as needed. Every fit is the real
command in its own process, with one thread, and makes the same number of steps. The script reads the anonymous memory (RssAnon
in /proc/PID/status) of the process and its children every 50 ms. Memory-mapped files are not counted, because the system can
drop them at any time. The exit code is 1 if many images take over 300 MB more memory than few. Needs Linux, and about 3 GB in
FOLDER for 100,000 images, which are deleted afterwards.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from samekind.data.hub.loaders import load_dataset

from bench_tables import draw_labels, show

SIDE = 64
BATCH = 64  # unlabelled images per step, by default
LABELS_PER_CLASS = 10
ALLOWED = 300.0  # MB that many images may take more than few
POLL_INTERVAL = 0.05  # seconds
KB, MB = 2**10, 2**20
Pixels = npt.NDArray[np.uint8]


def enlarged(n: int, x: Pixels) -> Iterator[tuple[int, Image.Image]]:
    for i in range(n):
        yield i, Image.fromarray(x[i % len(x)]).resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def make_folder(path: Path, n: int, x: Pixels, y: npt.NDArray[np.int64]) -> Path:
    """Write n JPEG files, 1000 per folder, and labels.csv with a few labels; return the folder."""
    for k in range(-(-n // 1000)):
        (path / f"{k:04d}").mkdir(parents=True)

    def save(one: tuple[int, Image.Image]) -> None:
        i, image = one
        image.save(path / file_name(i), quality=90)

    with ThreadPoolExecutor(2) as executor:
        for _ in executor.map(save, enlarged(n, x)):
            pass
    lines = [f"{file_name(i)},{label}\n" for i, label in enumerate(y) if label >= 0]
    (path / "labels.csv").write_text("path,label\n" + "".join(lines))
    return path


def file_name(i: int) -> str:
    return f"{i // 1000:04d}/{i:06d}.jpg"


def make_npy(path: Path, n: int, x: Pixels, y: npt.NDArray[np.int64]) -> Path:
    """Write the same images as one array, and labels.npy next to it; return the path of the array."""
    path.mkdir()
    images = np.lib.format.open_memmap(path / "images.npy", mode="w+", dtype=np.uint8, shape=(n, SIDE, SIDE, 3))
    for i, image in enumerate(image for _, image in enlarged(n, x)):
        images[i] = np.asarray(image)
    images.flush()
    np.save(path / "labels.npy", np.concatenate([y, np.full(n - len(y), -1)]) if n > len(y) else y[:n])
    return path / "images.npy"


WRITERS: dict[str, Callable[[Path, int, Pixels, npt.NDArray[np.int64]], Path]] = {"folder": make_folder, "npy": make_npy}


def measure_peak(command: list[str]) -> tuple[float, float]:
    """Return the peak anonymous memory of a command and its children in MB, and its seconds."""
    began, peak = time.monotonic(), 0
    with tempfile.TemporaryFile() as output:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        while process.poll() is None:
            peak = max(peak, anonymous_memory(process.pid))
            time.sleep(POLL_INTERVAL)
        if process.returncode != 0:
            output.seek(0)
            raise SystemExit(f"{' '.join(command)} exited with {process.returncode}: {output.read().decode()[-2000:]}")
    return peak / MB, time.monotonic() - began


def anonymous_memory(pid: int) -> int:
    """Return the bytes of anonymous memory of a process and all its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return own_memory(pid) + sum(anonymous_memory(int(child)) for child in children)


def own_memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # the process has just ended
        return 0
    return next((int(line.split()[1]) * KB for line in lines if line.startswith("RssAnon:")), 0)


def measure_fit(kind: str, n: int, steps: int, work: Path) -> tuple[float, float]:
    """Return the peak memory and the seconds of a fit on n images, which are written and deleted."""
    cifar = load_dataset("cifar10")
    y = draw_labels(cifar.y[: min(n, 1000)], LABELS_PER_CLASS, 0)  # the same labelled images for few and many
    with tempfile.TemporaryDirectory(dir=work) as folder:
        data = WRITERS[kind](Path(folder) / "data", n, cifar.x, y)
        labels = ["--labels", str(data.parent / "labels.npy")] if kind == "npy" else []
        command = [sys.executable, "-m", "samekind", "fit", str(data), *labels, "--out", f"{folder}/run"]
        return measure_peak([*command, "--epochs", repr(steps * BATCH / n)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for images and runs")
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--inputs", nargs="+", choices=list(WRITERS), default=list(WRITERS))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    rows, worst = [], 0.0
    for kind in args.inputs:
        few, _ = measure_fit(kind, args.few, args.steps, args.work)
        many, seconds = measure_fit(kind, args.many, args.steps, args.work)
        print(f"{kind}: {few:.0f} MB, then {many:.0f} MB after {seconds:.0f} s", file=sys.stderr, flush=True)
        worst = max(worst, many - few)
        rows.append([kind, f"{few:.0f}", f"{many:.0f}", f"{many - few:.0f}", f"{seconds:.0f}"])
    print(f"peak anonymous memory in MB, {args.steps} steps, images of {SIDE} x {SIDE} x 3\n")
    show(["input", f"{args.few:,} images", f"{args.many:,} images", "difference", "seconds of the latter"], rows)
    if worst >= ALLOWED:
        raise SystemExit(f"{worst:.0f} MB more; expected less than {ALLOWED:.0f}")


if __name__ == "__main__":
    main()
