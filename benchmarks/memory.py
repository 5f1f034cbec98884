"""Memory that `samekind fit` holds for itself on many images against few: as a folder of pictures, and as one .npy file.

python benchmarks/memory.py --work FOLDER [--many 100000] [--few 1000] [--steps 20] [--kinds folder npy]

Images of CIFAR-10 enlarged to 64 x 64 in three colours, beginning anew where they come to an end. Every fit is the real
command in a process of its own, with one thread, and takes the same number of steps. What counts is anonymous memory
(RssAnon in /proc/PID/status) of the process and its children, looked at from outside every 50 ms: maps of files can be
dropped at any time and are not counted. The exit code is 1 if many images take 300 MB more than few. Needs Linux, and about
3 GB in FOLDER for 100,000 images, which is cleared afterwards.
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

from tables import draw_labels, show

SIDE = 64
BATCH = 64  # pool rows in a step of the recipe
LABELS_PER_CLASS = 10
ALLOWED = 300.0  # MB
LOOK = 0.05  # seconds between two looks
KB, MB = 2**10, 2**20
Pixels = npt.NDArray[np.uint8]


def enlarged(n: int, x: Pixels) -> Iterator[tuple[int, Image.Image]]:
    for i in range(n):
        yield i, Image.fromarray(x[i % len(x)]).resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def make_folder(path: Path, n: int, x: Pixels, y: npt.NDArray[np.int64]) -> Path:
    """n pictures as JPEG files, 1000 in a folder, and labels.csv with those of a few."""
    for k in range(-(-n // 1000)):
        (path / f"{k:04d}").mkdir(parents=True)

    def save(one: tuple[int, Image.Image]) -> None:
        i, image = one
        image.save(path / name_of(i), quality=90)

    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(save, enlarged(n, x)):
            pass
    lines = [f"{name_of(i)},{label}\n" for i, label in enumerate(y) if label >= 0]
    (path / "labels.csv").write_text("path,label\n" + "".join(lines))
    return path


def name_of(i: int) -> str:
    return f"{i // 1000:04d}/{i:06d}.jpg"


def make_npy(path: Path, n: int, x: Pixels, y: npt.NDArray[np.int64]) -> Path:
    """The same images in one array, and labels.npy beside it."""
    path.mkdir()
    images = np.lib.format.open_memmap(path / "images.npy", mode="w+", dtype=np.uint8, shape=(n, SIDE, SIDE, 3))
    for i, image in enumerate(image for _, image in enlarged(n, x)):
        images[i] = np.asarray(image)
    images.flush()
    np.save(path / "labels.npy", np.concatenate([y, np.full(n - len(y), -1)]) if n > len(y) else y[:n])
    return path / "images.npy"


KINDS: dict[str, Callable[[Path, int, Pixels, npt.NDArray[np.int64]], Path]] = {"folder": make_folder, "npy": make_npy}


def peak_of(words: list[str]) -> tuple[float, float]:
    """The most anonymous memory of a command and its children, in MB, and the seconds it took."""
    began, peak = time.monotonic(), 0
    with tempfile.TemporaryFile() as said:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(words, stdout=said, stderr=said, env=environment)
        while process.poll() is None:
            peak = max(peak, held_by(process.pid))
            time.sleep(LOOK)
        if process.returncode != 0:
            said.seek(0)
            raise SystemExit(f"{' '.join(words)} ended with {process.returncode}: {said.read().decode()[-2000:]}")
    return peak / MB, time.monotonic() - began


def held_by(pid: int) -> int:
    """Bytes of anonymous memory of a process and all below it."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return anonymous(pid) + sum(held_by(int(child)) for child in below)


def anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    return next((int(line.split()[1]) * KB for line in lines if line.startswith("RssAnon:")), 0)


def measured(kind: str, n: int, steps: int, work: Path) -> tuple[float, float]:
    """Peak and seconds of a fit on n images, which are made and removed again."""
    cifar = load_dataset("cifar10")
    y = draw_labels(cifar.y[: min(n, 1000)], LABELS_PER_CLASS, 0)  # the same labelled images for few and many
    with tempfile.TemporaryDirectory(dir=work) as folder:
        data = KINDS[kind](Path(folder) / "data", n, cifar.x, y)
        labels = ["--labels", str(data.parent / "labels.npy")] if kind == "npy" else []
        words = [sys.executable, "-m", "samekind", "fit", str(data), *labels, "--out", f"{folder}/run"]
        return peak_of([*words, "--epochs", repr(steps * BATCH / n)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for images and runs")
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    rows, worst = [], 0.0
    for kind in args.classes:
        few, _ = measured(kind, args.few, args.steps, args.work)
        many, seconds = measured(kind, args.many, args.steps, args.work)
        print(f"{kind}: {few:.0f} MB, then {many:.0f} MB after {seconds:.0f} s", file=sys.stderr, flush=True)
        worst = max(worst, many - few)
        rows.append([kind, f"{few:.0f}", f"{many:.0f}", f"{many - few:.0f}", f"{seconds:.0f}"])
    print(f"anonymous memory at its peak in MB, {args.steps} steps, images of {SIDE} x {SIDE} x 3\n")
    show(["input", f"{args.few:,} images", f"{args.many:,} images", "difference", "seconds of the latter"], rows)
    if worst >= ALLOWED:
        raise SystemExit(f"{worst:.0f} MB more; expected less than {ALLOWED:.0f}")


if __name__ == "__main__":
    main()
