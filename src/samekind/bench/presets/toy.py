"""Two moons and two circles: Figures 2 and 22.

    samekind bench toy
    samekind bench toy --scale paper

6000 points each; 12 labels on the moons, 8 on the circles, 4 draws. Every method makes as many steps as the estimator finds
right, 6 seconds of the processor for the labels alone to 22 for learned_graph: some 5 minutes on two free cores. The second
command has the paper's own settings.

The paper gives no numbers. Expected are those of docs/results.md, over 10 draws: 2 to 4 % on the moons and 1 to 2 % on the
circles for the deep methods, 16 and 20 % for the labels alone; the spread over draws is as large.
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
