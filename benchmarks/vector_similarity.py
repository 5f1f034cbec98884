"""Precision@9 of the similarity that the default for vectors learns, beside the cosine of the same features.

    python benchmarks/vector_similarity.py
    python benchmarks/vector_similarity.py --sets cifar10-lite0 --labels 2,10

Queries are unlabelled samples, and all samples are searched. "Saturated" is the fraction of the ten highest similarities of a
query that are exactly 1, so that only log-odds rank them.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.preprocessing import normalize

from samekind import SemiSupervisedClassifier

from bench_tables import draw_labels, show
from datasets import DEVELOPMENT, REPORTED

QUERIES = 400


def precision_at_9(scores: Any, queries: Any, y: Any) -> float:
    """Return the fraction of the nine best samples of each query (a row of scores) that have its class, without itself."""
    scores = scores.copy()
    scores[np.arange(len(queries)), queries] = -np.inf
    nearest = np.argsort(-scores, axis=1)[:, :9]
    return float((y[nearest] == y[queries][:, None]).mean())


def one_draw(X: Any, y: Any, per_class: int, seed: int) -> list[float]:
    """Return precision@9 of W and of the cosine, and the fraction of saturated similarities."""
    shown = draw_labels(y, per_class, seed)
    model = SemiSupervisedClassifier(random_state=seed).fit(X, shown)
    unlabelled = np.flatnonzero(shown < 0)
    queries = unlabelled[:: max(1, len(unlabelled) // QUERIES)]
    unit = normalize(X)
    saturated = np.sort(model.similarity(X[queries], X), axis=1)[:, -10:] >= 1.0
    learned = precision_at_9(model.log_odds(X[queries], X), queries, y)
    return [learned, precision_at_9(unit[queries] @ unit.T, queries, y), float(saturated.mean())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="photos-lite0-128,photos-lite0-224,cifar10-lite0", help="separated by commas")
    parser.add_argument("--labels", default="1,5", help="labels per class, separated by commas")
    parser.add_argument("--draws", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for name in args.sets.split(","):
        X, y = {**DEVELOPMENT, **REPORTED}[name]()
        for labels in args.labels.split(","):
            means = np.mean([one_draw(X, y, int(labels), seed) for seed in range(args.draws)], axis=0)
            rows.append([name, labels, *(f"{value:.3f}" for value in means)])
    show(["dataset", "labels per class", "W", "cosine", "saturated"], rows)


if __name__ == "__main__":
    main()
