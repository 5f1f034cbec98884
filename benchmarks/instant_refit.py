"""Seconds per label of `SemiSupervisedClassifier.update`, and agreement of its answer with that of full fits.

    python benchmarks/instant_refit.py                              100,000 samples of 1,280 columns, then 60 labels
    python benchmarks/instant_refit.py --size 5000x1280 --labels 50

The samples are a curved mixture: four Gaussian clusters per class in 12 dimensions, mapped by a random two-layer network to
all columns, plus noise. After a fit with 5 labels per class, labels of random samples follow one by one. Every tenth label
is wrong, and the next update corrects it; the last update takes a label away. Then `refit` chooses the weights of the ensemble
again, and as many labels follow. Wall-clock seconds depend on what else the machine does, so the seconds of the processor are
printed too.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from samekind import SemiSupervisedClassifier

from bench_tables import draw_labels, show

N_CLASSES = 10
CLUSTERS = 4  # per class
LATENT = 12  # dimensions of the clusters
HIDDEN = 64  # of the network that maps clusters to columns
SEPARATION = 1.6  # standard deviation of the cluster centres, in units of that of a cluster
NOISE = 0.5  # standard deviation of the noise in each column


def curved_mixture(n: int, d: int) -> tuple[Any, Any]:
    """Return samples (n, d) in single precision and their classes (n,)."""
    rng = np.random.default_rng(0)
    cluster = rng.integers(0, N_CLASSES * CLUSTERS, n)
    centers = SEPARATION * rng.standard_normal((N_CLASSES * CLUSTERS, LATENT))
    z = (centers[cluster] + rng.standard_normal((n, LATENT))).astype(np.float32)
    hidden = np.tanh(z @ rng.standard_normal((LATENT, HIDDEN), dtype=np.float32) / 3)
    X = hidden @ rng.standard_normal((HIDDEN, d), dtype=np.float32) / np.float32(HIDDEN**0.5)
    X += np.float32(NOISE) * rng.standard_normal((n, d), dtype=np.float32)
    return X, cluster % N_CLASSES


def label_changes(y: Any, shown: Any, n_labels: int, seed: int) -> Iterator[tuple[int, int]]:
    """Yield (sample, label): new labels with a wrong one and its correction in between, and at last -1 for one of them."""
    rng = np.random.default_rng(seed)
    new = rng.choice(np.flatnonzero(shown < 0), n_labels, replace=False)
    for k, i in enumerate(new):
        if k % 10 == 9:
            yield int(i), int((y[i] + 1) % N_CLASSES)
        yield int(i), int(y[i])
    yield int(new[0]), -1


def timed(call: Any, *arguments: Any) -> tuple[float, float]:
    """Return the seconds of wall clock and processor that a call takes."""
    wall, processor = time.perf_counter(), time.process_time()
    call(*arguments)
    return time.perf_counter() - wall, time.process_time() - processor


def peak_gigabytes() -> float:
    """Return the largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="100000x1280", help="samples x columns")
    parser.add_argument("--labels", type=int, default=60, help="labels that follow the fit one by one")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    X, y = curved_mixture(*(int(part) for part in args.size.split("x")))
    shown = draw_labels(y, 5, 0)
    hidden = shown < 0
    model = SemiSupervisedClassifier(random_state=0)
    rows = []

    def record(name: str, seconds: tuple[float, float]) -> None:
        error = 100 * np.mean(model.transduction_[hidden] != y[hidden])
        rows.append([name, *(f"{value:.2f}" for value in seconds), f"{peak_gigabytes():.1f}", f"{error:.2f}"])
        print(rows[-1], flush=True)

    record("fit", timed(model.fit, X, shown))
    for label_set in (1, 2):
        record("update([], []), which prepares", timed(model.update, [], []))
        seconds = []
        for i, label in label_changes(y, shown, args.labels, label_set):
            seconds.append(timed(model.update, i, label))
            shown[i] = label
        for name, q in (("median", 50), ("99th percentile", 99)):
            record(f"update, {name} of {len(seconds)}", tuple(np.percentile(seconds, q, axis=0)))
        if label_set == 1:
            record("refit", timed(model.refit))
    updated = model.transduction_, model.fitted_proba()
    record("fit with all labels", timed(model.fit, X, shown))
    show(["call", "seconds", "processor seconds", "peak memory, GB", "error %"], rows)
    same = 100 * np.mean(updated[0] == model.transduction_)
    distance = np.abs(updated[1] - model.fitted_proba()).mean()
    print(f"same class as in the fit with all labels: {same:.2f} % of the samples; mean |difference of p|: {distance:.4f}")


if __name__ == "__main__":
    main()
