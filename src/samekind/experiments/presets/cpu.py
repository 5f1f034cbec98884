"""CIFAR-10 in ten minutes on two cores: the recipe for people without a GPU, beside the labels alone and Mean Teacher.

    samekind bench cpu
    samekind bench cpu --labels 4000 --methods learned_graph --splits 1

85 TFLOP a run, about ten minutes of two threads, or of one run on each core in twenty: 3 rows, 3 numbers of labels and 3 splits
take 4.5 hours on two cores. All rows have one net, one optimiser and one budget. Settings are the estimator's for photos, so
`SemiSupervisedClassifier(minutes=10)` is the same recipe on anybody's images of about this size. Expected: docs/results.md.
"""

from __future__ import annotations

from samekind.experiments.grid import Bench, columns_of, line

BUDGET = 8.5e13

CPU = Bench(
    name="cpu",
    title="CIFAR-10 in ten minutes on two cores",
    columns=columns_of("cifar10", (4000, 1000, 250), BUDGET),
    rows=(line("supervised", batch=(64, 32)), line("mean_teacher"), line("learned_graph")),
    splits=3,
)
