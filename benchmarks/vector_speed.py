"""Seconds of the processor for a fit of the default for vectors, beside LogisticRegression and LabelSpreading in the same run.

    python benchmarks/vector_speed.py                          1,000 x 20, 5,000 x 1,280 and 70,000 x 50
    python benchmarks/vector_speed.py --sizes 1000x20

Gaussian classes; one thread. LogisticRegression sees the labelled samples only and predicts all. The peak memory is that of the
whole process so far.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading

from samekind import SemiSupervisedClassifier

from bench_tables import draw_labels, show

N_CLASSES = 10


def gaussian_classes(n: int, d: int) -> tuple[Any, Any]:
    """Return samples (n, d) of ten Gaussian classes, and their classes (n,)."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, N_CLASSES, n)
    return rng.standard_normal((N_CLASSES, d))[y] + rng.standard_normal((n, d)), y


def cpu_seconds(call: Callable[..., Any], *arguments: Any) -> float:
    """Return the seconds of the processor that a call takes."""
    began = time.process_time()
    call(*arguments)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000x20,5000x1280,70000x50", help="samples x columns, separated by commas")
    parser.add_argument("--per-class", type=int, default=10, help="labels per class")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    SemiSupervisedClassifier().fit(*gaussian_classes(50, 2))  # imports are not timed
    for size in args.sizes.split(","):
        X, y = gaussian_classes(*(int(part) for part in size.split("x")))
        shown = draw_labels(y, args.per_class, 0)
        known = shown >= 0
        linear = LogisticRegression(max_iter=1000)
        seconds = [
            cpu_seconds(SemiSupervisedClassifier(random_state=0).fit, X, shown),
            cpu_seconds(linear.fit, X[known], shown[known]) + cpu_seconds(linear.predict, X),
            cpu_seconds(LabelSpreading(kernel="knn", max_iter=300).fit, X, shown),
        ]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows.append([size, *(f"{value:.2f}" for value in seconds), f"{peak:.0f}"])
    show(["samples x columns", "default", "LogisticRegression", "LabelSpreading, knn", "peak memory, MB"], rows)


if __name__ == "__main__":
    main()
