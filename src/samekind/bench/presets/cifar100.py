"""Table 5 of the paper: CIFAR-100 with 10,000 labels. Only the last row uses RandAugment.

    samekind bench cifar100 --scale paper --methods learned_graph --labels 10000
    samekind bench cifar100

At paper scale (first command), learned_graph costs 1.2864 TFLOP per step and 3.86e+17 FLOP per run of 600 epochs. Its expected
test error is 32.25 ± 0.44 %.

At CPU scale (second command): a compact network, 20 TFLOP per run, about 5 minutes on one core. 6 rows on 3 splits take 45
minutes on two cores. Expected errors are not measured yet.
"""

from __future__ import annotations

from dataclasses import replace

from samekind.bench.grid import Bench, grid_columns, grid_row, grid_rows, paper_bench, published_errors
from samekind.bench.presets import cifar10, cifar10_randaugment
from samekind.bench.presets.cifar10 import ROWS
from samekind.bench.presets.paper_preset import Augmentation, NetSpec, OptimizerSpec, PublishedError, ScheduleSpec

TABLE = "cifar100"
SETTINGS = {**cifar10_randaugment.SETTINGS, "k1": 1.5, "k2": 0.75, "lambda3": 0.15}
EPOCH = ROWS // 97  # number of steps in an epoch; a batch of 128 images has 97 unlabelled ones

LEARNED_GRAPH = replace(
    cifar10.OURS,
    table=TABLE,
    data="cifar100",
    labels=10_000,
    net=NetSpec(dropout=0.0),
    augmentation=cifar10_randaugment.STRONG,
    published=PublishedError(32.25, 0.44),
    settings=SETTINGS,
    note="Assumptions: no dropout in CNN-13; pairs in random order, so that Phi cannot learn which is strong.",
)
PI_MODEL = replace(
    cifar10.PI,
    table=TABLE,
    data="cifar100",
    labels=10_000,
    batch_labelled=20,
    batch_unlabelled=80,
    published=PublishedError(39.19, 0.36),
    source="Laine & Aila 2017, arXiv:1610.02242",
)
TEMPORAL_ENSEMBLING = replace(
    PI_MODEL,
    method="temporal_ensembling",
    published=PublishedError(38.65, 0.51),
    settings={"w_max": 100 * 10_000 / ROWS, "rampup": 80 / 300},
)
LPDSSL = replace(
    LEARNED_GRAPH,
    method="lpdssl+mean_teacher",
    net=NetSpec(),
    augmentation=Augmentation(shift=4, flip=True),
    batch_labelled=31,
    batch_unlabelled=97,
    optimizer=OptimizerSpec(kind="sgd", lr=0.2, momentum=0.9, weight_decay=2e-4),
    schedule=ScheduleSpec(steps=180 * EPOCH, epoch=EPOCH, decay="cosine", rampdown=210 * EPOCH),
    published=PublishedError(35.92, 0.47),
    source="Iscen et al. 2019, arXiv:1904.04717",
    settings={"w_max": 100.0, "rampup": 5 / 180, "ema_decay": 0.97, "start": 0.0},
    note="They had two heads with a cost of 0.01 on their difference.",
    first_stage="mean_teacher",
)
FAST_SWA = replace(
    LPDSSL,
    method="mean_teacher+fast_swa",
    first_stage="",
    schedule=ScheduleSpec(steps=780 * EPOCH, epoch=EPOCH, decay="cycles", rampdown=210 * EPOCH),
    published=PublishedError(33.62, 0.54),
    source="Athiwaratkun et al. 2019, arXiv:1806.05594",
    settings={"w_max": 100.0, "rampup": 5 / 780, "ema_decay": 0.97},
    note="Two heads with a cost of 0.01 on their difference. After epoch 180 the learning rate repeats epochs 150 to 180.",
)

PRESETS = (PI_MODEL, TEMPORAL_ENSEMBLING, LPDSSL, FAST_SWA, LEARNED_GRAPH)

CPU = Bench(
    name="cifar100",
    title="CIFAR-100 (Table 5)",
    columns=grid_columns("cifar100", (10_000,), cifar10.BUDGET),
    rows=(
        grid_row("supervised", batch_size=(64, 32)),
        *grid_rows("pi_model", "temporal_ensembling", "lpdssl+mean_teacher", "mean_teacher+fast_swa"),
        grid_row("learned_graph", {"strong_view": True, "sharpen_temperature": 0.5}),
    ),
    options={"batch_size": (32, 32)},
    published=published_errors(PRESETS),
)
PAPER = paper_bench(CPU.name, CPU.title, PRESETS)
