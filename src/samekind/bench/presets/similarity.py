"""Figures 3 and 4: how good the learned similarity is, beside a Gaussian kernel on pixels and 0/1 by predicted classes.

    samekind bench similarity --scale paper --methods learned_graph
    samekind bench similarity

The first takes SVHN with 1000 labels and CIFAR-10 with 4000: 4.71e+17 and 3.86e+17 operations a run. Published: a mean squared
error of 0.149 to the ideal matrix of 500 images, and 0.201 for pi_model+sntg, though by which measure is not clear
(docs/bench.md).

On a CPU (second command): MNIST with 100 labels, 1.2 TFLOP a run, and CIFAR-10 with 4000 labels, 20 TFLOP a run; 2 rows on 3
splits, about 20 minutes on two cores. Expected numbers are not measured yet.
"""

from __future__ import annotations

from samekind.bench.grid import Bench, GridColumn, grid_rows, paper_bench
from samekind.bench.presets import cifar10, mnist, svhn

PRESETS = (svhn.LEARNED_GRAPH[-1], svhn.PI_SNTG[-1], cifar10.LEARNED_GRAPH[-1], cifar10.PI_SNTG[-1])

CPU = Bench(
    name="similarity",
    title="The learned similarity (Figures 3 and 4)",
    columns=(GridColumn("mnist", 100, mnist.BUDGET), GridColumn("cifar10", 4000, cifar10.BUDGET)),
    rows=grid_rows("learned_graph", "pi_model+sntg"),
    measure="similarity",
)
PAPER = paper_bench(CPU.name, CPU.title, PRESETS, measure="similarity")
