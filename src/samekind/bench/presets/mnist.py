"""MNIST with 100 labels: all methods that train a network. The paper has no such table, so there is no paper scale.

    samekind bench mnist

The network is a small convolutional one. A run has 1.2 TFLOP, which is 22 to 34 seconds on one core, or two to four minutes for
methods with full passes over the training set. All methods on 3 splits take 30 minutes on two cores. All methods have the
default settings of the estimator; none was tuned on MNIST. Expected errors: docs/results.md.
"""

from __future__ import annotations

from samekind.bench.grid import Bench, GridColumn, grid_rows
from samekind.methods import METHODS, is_iterative

BUDGET = 1.2e12  # FLOPs of a run: about 200,000 forward passes of one image, where a backward pass counts as two
COMBINATIONS = ("pi_model+sntg", "temporal_ensembling+sntg", "pi_model+learned_graph", "fixmatch+learned_graph")
DEEP = tuple(name for name in (*METHODS, *COMBINATIONS) if is_iterative(name))

CPU = Bench(
    name="mnist",
    title="MNIST with 100 labels",
    columns=(GridColumn("mnist", 100, BUDGET),),
    rows=grid_rows(*DEEP),
    options={"batch_size": (20, 64)},
    splits=3,
)
