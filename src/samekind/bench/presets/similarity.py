"""Figures 3 and 4 of the paper: the learned similarity compared with a Gaussian kernel on pixels, and with "same
predicted class".

    samekind bench similarity --scale paper --methods learned_graph
    samekind bench similarity

The first command trains on SVHN with 1000 labels and CIFAR-10 with 4000 labels: 4.71e+17 and 3.86e+17 FLOPs per run. The paper
reports the mean squared error between W and the ideal matrix of 500 images: 0.149 for learned_graph, and 0.201 for
pi_model+sntg; lower is better. The paper does not define this error clearly (docs/bench.md).

At CPU scale (second command): MNIST with 100 labels at 4 TFLOP per run, and CIFAR-10 with 4000 labels at 20 TFLOP per run. 2
rows on 3 splits take about 20 minutes on two cores. Expected values are not measured yet.
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
