"""What is worked out about a model's answers while the page is in use: who disagrees with the neighbours, and the map.

Called as `python -m samekind.server.jobs.background FOLDER` on the folder of a model; ends with its parent. Leaves
disagreement.npy (n,) and map.npy (n, 2) there.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt

from samekind.errors import ModelFileError
from samekind.io import atomic_write_array

Floats = npt.NDArray[np.float32]
NEIGHBOURS = 15
FEWEST = 3  # items that make a map
POLITENESS = 10


def analyze(folder: Path) -> None:
    """Both arrays, if they are not there; before the first model there is only a map."""
    if is_analyzed(folder):
        return
    import torch

    from samekind.graphs.nearest_neighbors import neighbors_within
    from samekind.server.jobs.map_layout import by_components, by_neighbours, in_a_square

    f, z = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in "fz")
    if len(z) < FEWEST:
        return
    _, near = neighbors_within(torch.from_numpy(z), min(NEIGHBOURS, len(z) - 1))
    if f.shape[1]:
        atomic_write_array(folder / "disagreement.npy", disagreement(f, near.numpy()), ModelFileError)
    atomic_write_array(folder / "map.npy", in_a_square(by_neighbours(near, by_components(z))), ModelFileError)


def is_analyzed(folder: Path) -> bool:
    """Whether all that can be known of a model's answers is there; before the first model nobody can disagree."""
    trained = np.load(folder / "f.npy", mmap_mode="r", allow_pickle=False).shape[1] > 0
    return all((folder / f"{name}.npy").exists() for name in (("disagreement", "map") if trained else ("map",)))


def disagreement(f: Floats, near: npt.NDArray[np.int64]) -> Floats:
    """How improbable the neighbours' answers make the class that an item got: 1 - mean_j f_j[argmax f_i]."""
    best = f.argmax(axis=1)
    agreed = np.zeros(len(f), dtype=np.float32)
    for column in near.T:
        agreed += f[column, best]
    return np.asarray(1.0 - agreed / near.shape[1], dtype=np.float32)


class BackgroundAnalysis:
    """Works out the extras of one model after the other, in a child process of low priority."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self, folder: Path) -> None:
        """Begins with a model, unless all is there; what was being worked out for another one is dropped."""
        with self._lock:
            self._end()
            if is_analyzed(folder):
                return
            command = [sys.executable, "-m", "samekind.server.jobs.background", str(folder)]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            if self._child.stdin is not None:
                self._child.stdin.close()
            self._child = None


def end_with_parent() -> None:
    """Ends this process when stdin is closed, as it is when the parent is gone, however it went."""

    def wait() -> None:
        while os.read(0, 1024):  # not sys.stdin: its buffer may not be held when the interpreter ends
            pass
        os._exit(3)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    end_with_parent()
    with contextlib.suppress(OSError, AttributeError):
        os.nice(POLITENESS)
    analyze(Path(sys.argv[1]))
    os._exit(0)
