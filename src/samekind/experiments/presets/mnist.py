"""MNIST with 100 labels: every method that trains a net, at CPU scale only. The paper has no such table.

    samekind bench mnist

The small convolutional net, 1.2 TFLOP a run: about 40 seconds on one core, so 24 methods on 3 splits take half an hour on two.
Settings are those of the estimator, for all methods alike; none was chosen on this set. Expected errors: docs/results.md.
"""

from __future__ import annotations

from samekind.experiments.grid import Bench, Column, lines

BUDGET = 1.2e12  # about 200,000 passes of an image, a backward pass counting two
DEEP = (
    "supervised",
    "pseudo_label",
    "pi_model",
    "temporal_ensembling",
    "mean_teacher",
    "embedding",
    "vat",
    "ict",
    "mixmatch",
    "remixmatch",
    "fixmatch",
    "flexmatch",
    "freematch",
    "simmatch",
    "comatch",
    "pi_model+sntg",
    "mean_teacher+sntg",
    "mean_teacher+fast_swa",
    "cclp",
    "lpdssl",
    "gscnn",
    "learned_graph",
    "pi_model+learned_graph",
    "fixmatch+learned_graph",
)

CPU = Bench(
    name="mnist",
    title="MNIST with 100 labels",
    columns=(Column("mnist", 100, BUDGET),),
    rows=lines(*DEEP),
    options={"batch": (20, 64)},
    splits=3,
)
