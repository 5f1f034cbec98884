"""Background analysis of a model's predictions: disagreement with neighbours, and the map.

Runs as `python -m samekind.server.jobs.background FOLDER` on the folder of a model, and exits when its parent process
ends. Writes disagreement.npy (n,) and map.npy (n, 2) into that folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt

from samekind.errors import ModelFileError
from samekind.files.io import atomic_write_array

Floats = npt.NDArray[np.float32]
N_NEIGHBORS = 15
MIN_ITEMS = 3  # a map needs at least this many items
NICENESS = 10  # of the child process


def analyze(folder: Path) -> None:
    """Write disagreement.npy and map.npy for a model unless they exist; without a trained model only map.npy."""
    if is_analyzed(folder):
        return
    import torch

    from samekind.graphs.nearest_neighbors import neighbors_within
    from samekind.server.jobs.map_layout import fit_into_square, neighbor_layout, principal_components

    f, z = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in "fz")
    if len(z) < MIN_ITEMS:
        return
    _, near = neighbors_within(torch.from_numpy(z), min(N_NEIGHBORS, len(z) - 1))
    if f.shape[1]:
        atomic_write_array(folder / "disagreement.npy", disagreement(f, near.numpy()), ModelFileError)
    layout = neighbor_layout(near, principal_components(z))
    atomic_write_array(folder / "map.npy", fit_into_square(layout), ModelFileError)


def is_analyzed(folder: Path) -> bool:
    """Return whether the analysis is complete; without a trained model it consists of map.npy only."""
    trained = np.load(folder / "f.npy", mmap_mode="r", allow_pickle=False).shape[1] > 0
    return all((folder / f"{name}.npy").exists() for name in (("disagreement", "map") if trained else ("map",)))


def disagreement(f: Floats, near: npt.NDArray[np.int64]) -> Floats:
    """Return 1 - mean_j f_j[argmax f_i] over the neighbours j of each item i, given as `near` (n, k)."""
    best = f.argmax(axis=1)
    agreement = np.zeros(len(f), dtype=np.float32)
    for column in near.T:
        agreement += f[column, best]
    return np.asarray(1.0 - agreement / near.shape[1], dtype=np.float32)


class BackgroundAnalysis:
    """Runs the analysis of one model at a time in a child process of low priority."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self, folder: Path) -> None:
        """Start the analysis of a model unless it is complete; stop a running analysis of another model."""
        with self._lock:
            self._stop()
            if is_analyzed(folder):
                return
            command = [sys.executable, "-m", "samekind.server.jobs.background", str(folder)]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def close(self) -> None:
        """Stop a running analysis."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            if self._child.stdin is not None:
                self._child.stdin.close()
            self._child = None


def exit_with_parent() -> None:
    """Exit this process when stdin is closed, which happens when the parent ends for any reason."""

    def wait() -> None:
        while os.read(0, 1024):  # not sys.stdin.read: the interpreter cannot exit while a thread holds its buffer
            pass
        os.kill(os.getpid(), signal.SIGTERM)  # ends the process at once, whatever the main thread computes

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    exit_with_parent()
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    analyze(Path(sys.argv[1]))
