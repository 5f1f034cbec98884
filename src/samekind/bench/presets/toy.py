"""Two moons and two circles, as in Figures 2 and 22 of the paper.

    samekind bench toy
    samekind bench toy --scale paper

There are 6000 points each, with 12 labels on the moons and 8 on the circles, and 4 splits. All methods make the default number
of steps of the estimator: a run takes 6 CPU seconds (supervised) to 22 (learned_graph), and the benchmark about 5 minutes on
two cores. The second command uses the networks, the noise and the settings of the paper, and no random walks.

The paper gives no errors. Expected errors over 10 splits (docs/results.md): 2 to 4 % on the moons and 1 to 2 % on the circles
for the semi-supervised methods; 16 and 20 % for supervised training. The standard deviation over splits is as large as these
errors.
"""

from __future__ import annotations

from dataclasses import replace

from samekind.bench.grid import Bench, GridColumn, grid_rows

CPU = Bench(
    name="toy",
    title="Two moons and two circles",
    columns=(GridColumn("moons", 12), GridColumn("circles", 8)),
    rows=grid_rows("supervised", "mean_teacher", "pi_model", "mean_teacher+sntg", "learned_graph"),
    splits=4,
    measure="regions",
)
PAPER = replace(CPU, options={"preset": "paper"})
