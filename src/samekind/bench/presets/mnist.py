"""MNIST with 100 labels: every method that trains a net, at CPU scale only. The paper has no such table.

    samekind bench mnist

The small convolutional net, 1.2 TFLOP a run: 22 to 34 seconds on one core, two to four minutes where the whole pool is looked
at. All of them on 3 splits took 30 minutes on two cores. Settings are those of the estimator, for all methods alike; none was
chosen on this set. Expected errors: docs/results.md.
"""

from __future__ import annotations

from samekind.bench.grid import Bench, GridColumn, grid_rows
from samekind.methods import METHODS, is_iterative

BUDGET = 1.2e12  # about 200,000 passes of an image, a backward pass counting two
COMBINATIONS = ("pi_model+sntg", "temporal_ensembling+sntg", "pi_model+learned_graph", "fixmatch+learned_graph")
DEEP = tuple(name for name in (*METHODS, *COMBINATIONS) if is_iterative(name))  # all that are trained in steps

CPU = Bench(
    name="mnist",
    title="MNIST with 100 labels",
    columns=(GridColumn("mnist", 100, BUDGET),),
    rows=grid_rows(*DEEP),
    options={"batch_size": (20, 64)},
    splits=3,
)
