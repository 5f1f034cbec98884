"""Table 6 of the paper: the effect of the learned similarity on two base methods, and of its consistency loss L_cons.

For L_cons the paper has no numbers.

    samekind bench ablation --scale paper --methods learned_graph --labels 1000
    samekind bench ablation
    samekind bench ablation --data svhn --labels 1000

At paper scale, learned_graph costs 1.2863 TFLOP per step and 4.71e+17 FLOP per run of 500 epochs. Expected test errors on SVHN
with 1000 labels, in percent: learned_graph 3.50, pi_model 4.82, pi_model+learned_graph 3.84, mean_teacher 3.93.

At CPU scale (the other two commands): MNIST with 100 labels at 4 TFLOP per run, and CIFAR-10 with 1000 labels at 20 TFLOP per
run. 8 rows on 5 splits take about 2 hours on two cores. Errors on MNIST over 10 splits with 1.2 TFLOP, in %: mean_teacher 2.56
± 0.45, learned_graph 2.30 ± 0.45, without similarity distillation 2.54 ± 0.34 (docs/results.md). CIFAR-10 is not measured yet.
"""

from __future__ import annotations

from dataclasses import replace

from samekind.bench.grid import Bench, GridColumn, grid_row, grid_rows, paper_bench, published_errors
from samekind.bench.presets import cifar10, mnist, svhn
from samekind.bench.presets.paper_preset import PaperPreset, PublishedError

TABLE = "ablation"
NO_CONS = "no L_cons"
WITH_SIMILARITY = replace(
    svhn.LEARNED_GRAPH[-1], table=TABLE, published=PublishedError(3.50)
)  # the base method is mean_teacher, as in the other tables
TEACHER = replace(
    WITH_SIMILARITY,
    method="mean_teacher",
    published=PublishedError(3.93),
    settings={"rampup": 80 / 500, "ema_decay": 0.999, "ema_decay_start": 0.99},
    note="The base method alone, with the network, batch sizes and schedule of the row with similarity.",
)
PI = replace(TEACHER, method="pi_model", published=PublishedError(4.82), settings={"rampup": 80 / 500})
PI_WITH_SIMILARITY = replace(WITH_SIMILARITY, method="pi_model+learned_graph", published=PublishedError(3.84))


def without_consistency(preset: PaperPreset) -> PaperPreset:
    """Return the preset without the consistency loss between the similarity network and its EMA teacher (lambda3 = 0)."""
    settings = {**preset.settings, "lambda3": 0.0}
    return replace(preset, settings=settings, published=None, variant=NO_CONS, note="Announced but missing in the paper.")


PRESETS = (
    PI,
    PI_WITH_SIMILARITY,
    without_consistency(PI_WITH_SIMILARITY),
    TEACHER,
    WITH_SIMILARITY,
    without_consistency(WITH_SIMILARITY),
)

CPU = Bench(
    name=TABLE,
    title="Ablation (Table 6)",
    columns=(GridColumn("mnist", 100, mnist.BUDGET), GridColumn("cifar10", 1000, cifar10.BUDGET)),
    rows=(
        *grid_rows("pi_model", "pi_model+learned_graph"),
        grid_row("pi_model+learned_graph", {"lambda3": 0.0}, f"pi_model+learned_graph ({NO_CONS})"),
        *grid_rows("mean_teacher", "learned_graph"),
        grid_row("learned_graph", {"lambda3": 0.0}, f"learned_graph ({NO_CONS})"),
        grid_row("learned_graph", {"lambda2": 0.0}, "learned_graph (no graph term)"),
        grid_row("learned_graph", {"similarity_distillation": 0.0}, "learned_graph (no distillation)"),
    ),
    splits=5,
    published=published_errors(PRESETS),
)
PAPER = paper_bench(CPU.name, CPU.title, PRESETS)
