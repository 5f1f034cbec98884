"""CIFAR-10 in ten minutes on two cores: the recipe for people without a GPU, beside the labels alone and Mean Teacher.

    samekind bench cpu
    samekind bench cpu --labels 4000 --methods learned_graph --splits 1

45 TFLOP a run: what learned_graph makes of ten minutes on two threads of a small machine (77 GFLOP/s; 103 were measured on
another day, which makes them seven), or of 12 to 16 minutes on one core beside another run. 3 rows, 3 numbers of labels and 3
splits take 3 to 4 hours on two cores. All rows have one net, one optimiser and one budget; Mean Teacher looks through
RandAugment, as learned_graph does, and has twice the estimator's learning rate, because it was better so on validation images.
Settings are else the estimator's for photos, and `SemiSupervisedClassifier(minutes=10)` is the same recipe for anybody's
images of about this size. Expected: docs/results.md.
"""

from __future__ import annotations

from samekind.bench.grid import Bench, grid_columns, grid_row

BUDGET = 4.5e13

CPU = Bench(
    name="cpu",
    title="CIFAR-10 in ten minutes on two cores",
    columns=grid_columns("cifar10", (4000, 1000, 250), BUDGET),
    rows=(
        grid_row("supervised", batch_size=(64, 32)),
        grid_row(
            "mean_teacher", {"strong": True}, "mean_teacher (RandAugment)", learning_rate=0.4
        ),  # docs/design/image_training.md
        grid_row("learned_graph"),
    ),
    splits=3,
)
