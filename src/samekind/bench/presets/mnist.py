"""MNIST with 100 labels: all methods that train a network. The paper has no such table, so there is no paper scale.

    samekind bench mnist

The network is a small convolutional one. A run has 4 TFLOP, which is two epochs or more over the unlabelled images for most
methods, and about two minutes on one core. All methods on 5 splits take three hours on two cores. All methods have the default
settings of the estimator. The network (docs/design/networks.md) and the defaults of learned_graph
(docs/design/similarity_network.md) were chosen on MNIST with other draws of the labels; the defaults of the other methods were
not tuned on MNIST. docs/results.md has errors with 1.2 TFLOP.
"""

from __future__ import annotations

from samekind.bench.grid import Bench, GridColumn, grid_rows
from samekind.methods import METHODS, is_iterative

BUDGET = 4e12  # FLOPs of a run: about 670,000 forward passes of one image, where a backward pass counts as two
COMBINATIONS = ("pi_model+sntg", "temporal_ensembling+sntg", "pi_model+learned_graph", "fixmatch+learned_graph")
DEEP = tuple(name for name in (*METHODS, *COMBINATIONS) if is_iterative(name))

CPU = Bench(
    name="mnist",
    title="MNIST with 100 labels",
    columns=(GridColumn("mnist", 100, BUDGET),),
    rows=grid_rows(*DEEP),
    options={"batch_size": (20, 64)},
    splits=5,
)
