"""CIFAR-10 in ten minutes on two cores: learned_graph beside supervised training and Mean Teacher.

    samekind bench cpu
    samekind bench cpu --labels 4000 --methods learned_graph --splits 1

Each run has a budget of 45 TFLOP. On two threads of a small machine (77 GFLOP/s), that is ten minutes of learned_graph; on one
core, while another run uses the other core, it is 12 to 16 minutes. 3 rows, 3 numbers of labels and 3 splits take 3 to 4 hours
on two cores.

All rows have the same network, optimizer and budget. Mean Teacher uses RandAugment, as learned_graph does, and twice the
default learning rate, because that gave a lower validation error. All other settings are the defaults for images, and
`SemiSupervisedClassifier(minutes=10)` trains with them on other images of about this size. Expected errors: docs/results.md.
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
            "mean_teacher", {"strong_view": True}, "mean_teacher (RandAugment)", learning_rate=0.4
        ),  # docs/design/image_training.md gives the reason for this learning rate
        grid_row("learned_graph"),
    ),
    splits=3,
)
