"""Background analysis of a model: how much each prediction disagrees with its neighbours, and the positions on the map.

This module runs as `python -m samekind.server.jobs.background FOLDER` on the folder of a model, and exits when its parent
process ends. It writes disagreement.npy (n,) and map.npy (n, 2) to that folder.
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
MIN_ITEMS = 3  # least number of items for which a map is computed
NICENESS = 10  # niceness of the child process; higher means lower priority


def analyze(folder: Path) -> None:
    """Write disagreement.npy and map.npy for a model, unless they exist. Without a trained model, write only map.npy."""
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
    """Return whether all files of the analysis exist; without a trained model that is only map.npy."""
    trained = np.load(folder / "f.npy", mmap_mode="r", allow_pickle=False).shape[1] > 0
    return all((folder / f"{name}.npy").exists() for name in (("disagreement", "map") if trained else ("map",)))


def disagreement(f: Floats, near: npt.NDArray[np.int64]) -> Floats:
    """Return for each item how little its neighbours support its predicted class: 1 - mean_j f_j[argmax f_i].

    f (n, C) are the class probabilities, and `near` (n, k) the indices of the neighbours j of each item i.
    """
    best = f.argmax(axis=1)
    agreement = np.zeros(len(f), dtype=np.float32)
    for column in near.T:
        agreement += f[column, best]
    return np.asarray(1.0 - agreement / near.shape[1], dtype=np.float32)


class BackgroundAnalysis:
    """Runs the background analysis in a child process of low priority, for one model at a time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self, folder: Path) -> None:
        """Start the analysis of a model, unless it is complete. A running analysis of another model is stopped."""
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
    """Exit this process when its stdin is closed. That happens when the parent process ends, for whatever reason."""

    def wait() -> None:
        # os.read and not sys.stdin.read, because the interpreter cannot exit while a thread holds the buffer of sys.stdin
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)  # ends the process at once, whatever the main thread is computing

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    exit_with_parent()
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    analyze(Path(sys.argv[1]))
