"""Graph methods on all 70,000 images of MNIST with 10 labels per class, compared with graphlearning and scikit-learn.

    pip install graphlearning annoy
    python benchmarks/classic.py [--images 70000] [--subset 70000] [--draws 5] [--laprls 5000]

Raw pixels in [0, 1], training and test images together; the error in % is on the unlabelled images. Our methods and those of
graphlearning get all images. scikit-learn's LabelSpreading with its knn kernel gets the first --subset images, and laprls the
first --laprls. Each method runs in its own process, in turn, with one thread (annoy builds its trees with all cores). The graph
is built once and solved for each random choice of labels; a fit is the graph and one of these solutions. The table has CPU
seconds, which do not depend on other programs, and wall-clock seconds. Memory is the peak of the process while the graph is
built or solved, with libraries and images; this needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.hub.loaders import load_dataset
from samekind.evaluation.metrics import error_rate

from bench_tables import draw_labels, mean_and_spread, show

PER_CLASS = 10
Integers = npt.NDArray[np.int64]
Features = npt.NDArray[np.float32]
Solve = Callable[[Integers], Integers]  # labels, -1 if unlabelled -> classes of all images
Record = dict[str, Any]


class Meter:
    """Wall-clock seconds, CPU seconds and peak memory since its creation."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak memory of the process
        self.wall_start, self.cpu_start = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float, float]:
        """Return wall-clock seconds, CPU seconds and peak memory in MB."""
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
        return time.perf_counter() - self.wall_start, time.process_time() - self.cpu_start, peak / 1024


def images(n: int) -> tuple[Features, Integers]:
    """Return the first n images in a fixed random order, and their classes."""
    mnist = load_dataset("mnist")
    x, y = np.concatenate([mnist.x, mnist.x_test]), np.concatenate([mnist.y, mnist.y_test])
    chosen = np.random.default_rng(0).permutation(len(x))[:n]
    return np.divide(x[chosen].reshape(len(chosen), -1), 255, dtype=np.float32), y[chosen]


def ours(name: str, x: Features, y: Integers) -> Solve:
    """Return the solver of one of our methods, on the graph that it builds by default."""
    import torch

    from samekind.data.dataset import Dataset
    from samekind.graphs.poisson_learning import poisson_learning
    from samekind.graphs.propagation import harmonic, label_propagation, local_global_consistency, normalize_class_mass
    from samekind.methods.fixed_graph import GraphConfig, build_dataset_graph
    from samekind.methods.poisson import PoissonConfig

    dataset = Dataset(torch.from_numpy(x), torch.from_numpy(y), 10)
    config = PoissonConfig() if name == "poisson" else GraphConfig()
    W = build_dataset_graph(dataset, config, sharpness=config.sharpness if isinstance(config, PoissonConfig) else 1.0).W
    solve: dict[str, Callable[[Integers], npt.NDArray[np.float64]]] = {
        "poisson": lambda shown: poisson_learning(W, shown, 10),
        "label_propagation": lambda shown: label_propagation(W, shown, 10),
        "harmonic": lambda shown: normalize_class_mass(harmonic(W, shown, 10), shown < 0, np.ones(10)),
        "lgc": lambda shown: local_global_consistency(W, shown, 10),
    }
    return lambda shown: solve[name](shown).argmax(axis=1)


def laprls(x: Features) -> Solve:
    """Return the solver of LapRLS; it shares no graph, because its linear system changes with the labels."""
    import torch

    from samekind.data.dataset import Dataset
    from samekind.methods.base import Task
    from samekind.methods.laprls import LapRLS
    from samekind.methods.predictors import KernelPredictor

    def solve(shown: Integers) -> Integers:
        method = LapRLS(None, Task(10, n_labelled=int((shown >= 0).sum()), n_samples=len(x), steps=1))
        samples = torch.from_numpy(x)
        method.refresh(Dataset(samples, torch.from_numpy(shown), 10))
        predictor = method.predictor()
        assert isinstance(predictor, KernelPredictor)
        return np.concatenate([predictor.probabilities(some).argmax(1).numpy() for some in torch.split(samples, 1000)])

    return solve


def graphlearning(name: str, x: Features) -> Solve:
    """Return a solver of graphlearning with its defaults; with "given neighbours" it gets our neighbours, not annoy's."""
    import graphlearning as gl

    if "given" in name:
        import torch

        from samekind.graphs.nearest_neighbors import neighbors_within

        distances, indices = neighbors_within(torch.from_numpy(x), 10)
        self_index = np.arange(len(x))[:, None]
        found = (
            np.hstack([self_index, indices.numpy()]),
            np.hstack([np.zeros_like(self_index), distances.numpy().astype(float)]),
        )
        W = gl.weightmatrix.knn(x, 10, knn_data=found)
    else:
        W = gl.weightmatrix.knn(x, 10)
    model = (gl.ssl.laplace if "laplace" in name else gl.ssl.poisson)(W)

    def solve(shown: Integers) -> Integers:
        labelled = np.flatnonzero(shown >= 0)
        return np.asarray(model.fit_predict(labelled, shown[labelled]))

    return solve


def label_spreading(x: Features) -> Solve:
    """Return LabelSpreading with kernel="knn"; the neighbours are computed once, not again for each choice of labels."""
    from sklearn.neighbors import NearestNeighbors
    from sklearn.semi_supervised import LabelSpreading

    graph = NearestNeighbors(n_neighbors=7).fit(x).kneighbors_graph(x, mode="connectivity")
    return lambda shown: np.asarray(LabelSpreading(kernel=lambda a, b: graph).fit(x, shown).transduction_)


def make_solver(name: str, x: Features, y: Integers) -> Solve:
    if name.startswith("graphlearning"):
        return graphlearning(name, x)
    if name.startswith("scikit-learn"):
        return label_spreading(x)
    return laprls(x) if name == "laprls" else ours(name, x, y)


def measure(name: str, n: int, draws: int) -> Record:
    """Return errors, seconds and peak memory of one method, measured in this process."""
    warnings.simplefilter("ignore")
    x, y = images(n)
    shown = [draw_labels(y, PER_CLASS, seed) for seed in range(draws)]
    make_solver(name, x[:500], shown[0][:500])  # import the libraries before the measurement
    meter = Meter()
    solve = make_solver(name, x, shown[0])
    graph = meter.read()
    errors, meter = [], Meter()
    for labels in shown:
        hidden = labels < 0
        errors.append(error_rate(solve(labels)[hidden], y[hidden]))
    solved = meter.read()
    wall, cpu = (graph[i] + solved[i] / draws for i in (0, 1))
    return {
        "method": name,
        "images": n,
        "errors": errors,
        "graph": graph[1],
        "cpu": cpu,
        "wall": wall,
        "peak": max(graph[2], solved[2]),
    }


def in_own_process(name: str, n: int, draws: int) -> Record:
    command = [sys.executable, __file__, "--one", name, "--images", str(n), "--draws", str(draws)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    record: Record = json.loads(done.stdout.decode().splitlines()[-1])
    print(json.dumps(record), file=sys.stderr, flush=True)
    return record


def compare(args: argparse.Namespace) -> None:
    jobs = [
        ("poisson", args.images),
        ("graphlearning poisson", args.images),
        ("scikit-learn LabelSpreading", args.subset),
        ("poisson", args.subset),
        ("graphlearning poisson, given neighbours", args.images),
        ("lgc", args.images),
        ("label_propagation", args.images),
        ("harmonic", args.images),
        ("laprls", args.laprls),
    ]
    records = [in_own_process(name, n, args.draws) for name, n in dict.fromkeys(jobs) if n > 0]
    print(f"{args.draws} draws, {PER_CLASS} labels per class, one thread\n")
    header = ["method", "images", "error %", "CPU s: graph", "fit", "wall s", "peak MB"]
    show(
        header,
        [
            [
                str(r["method"]),
                f"{r['images']:,}",
                mean_and_spread(r["errors"]),
                *(f"{r[key]:.1f}" for key in ("graph", "cpu", "wall")),
                f"{r['peak']:.0f}",
            ]
            for r in records
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=70_000)
    parser.add_argument("--subset", type=int, default=70_000, help="images for LabelSpreading; 0: leave it out")
    parser.add_argument("--laprls", type=int, default=5_000, help="images for laprls; 0: leave it out")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.images, args.draws)))
    else:
        compare(args)


if __name__ == "__main__":
    main()
