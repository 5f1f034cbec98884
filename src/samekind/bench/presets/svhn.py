"""Table 1 of the paper: SVHN, with shifts as augmentation.

    samekind bench svhn --scale paper --methods learned_graph --labels 1000
    samekind bench svhn

At paper scale (first command), learned_graph costs 1.2863 TFLOP per step and 4.71e+17 FLOP per run of 500 epochs. Expected test
errors in percent: 250 labels 3.98 ± 0.21, 500 labels 3.68 ± 0.16, 1000 labels 3.48 ± 0.11.

At CPU scale (second command): a compact network, 20 TFLOP per run, about 5 minutes on one core. 8 rows, 2 numbers of labels and
3 splits take about 2 hours on two cores. Expected errors are not measured yet.
"""

from __future__ import annotations

from dataclasses import replace

from samekind.bench.grid import Bench, grid_columns, grid_row, grid_rows, paper_bench, published_errors
from samekind.bench.presets.paper_preset import (
    Augmentation,
    NetSpec,
    OptimizerSpec,
    PaperPreset,
    PublishedError,
    ScheduleSpec,
    table_row,
)

TABLE = "svhn"
ROWS = 73_257
EPOCH = 732  # number of steps in an epoch, with 100 images in a step; the remaining 57 images are not used
SMALLER_BETA2 = OptimizerSpec(beta2_start=0.99)  # as in the SVHN experiments of the Mean Teacher paper
VIEWS = Augmentation(shift=2, noise=0.15)

OURS = PaperPreset(
    table=TABLE,
    data="svhn",
    labels=250,
    method="learned_graph",
    net=NetSpec(dropout=0.5),
    augmentation=VIEWS,
    normalization="per_image",
    batch_labelled=20,
    batch_unlabelled=100,
    optimizer=SMALLER_BETA2,
    schedule=ScheduleSpec(steps=500 * EPOCH, epoch=EPOCH, rampup=80 * EPOCH, rampdown=50 * EPOCH),
    published=PublishedError(3.98, 0.21),
    source="Wang, Tu & Zhou 2020, arXiv:2002.09891; optimizer and EMA of Mean Teacher",
    settings={
        "beta": 1.5,
        "k1": 8.0,
        "k2": 4.0,
        "lambda3": 0.05,
        "dropout": 0.2,
        "rampup": 80 / 500,
        "graph_start": 100 / 500,
        "graph_rampup": 50 / 500,
        "ema_decay": 0.999,
        "ema_decay_start": 0.99,
    },
    note="Assumptions: variant B of CNN-13, dropout 0.2 in Phi.",
)
LEARNED_GRAPH = table_row(OURS, {500: PublishedError(3.68, 0.16), 1000: PublishedError(3.48, 0.11)})

PI = replace(
    OURS,
    method="pi_model",
    net=NetSpec(variant="A"),
    batch_labelled=1,
    batch_unlabelled=99,
    optimizer=OptimizerSpec(),
    schedule=ScheduleSpec(steps=300 * EPOCH, epoch=EPOCH, rampup=80 * EPOCH, rampdown=50 * EPOCH),
    published=PublishedError(9.93, 1.15),
    source="Laine & Aila 2017, arXiv:1610.02242",
    settings={"rampup": 80 / 300},
    note="Batches were drawn from all images; ours have 1 labelled image, the mean number or the minimum.",
)
PI_MODEL = table_row(PI, {500: PublishedError(6.65, 0.53), 1000: PublishedError(4.82, 0.17)})

ENSEMBLE = replace(
    PI,
    method="temporal_ensembling",
    optimizer=OptimizerSpec(lr=0.001),
    published=PublishedError(12.62, 2.91),
    settings={"w_max": 30 * 250 / ROWS, "rampup": 80 / 300},
)
TEMPORAL_ENSEMBLING = table_row(
    ENSEMBLE,
    {500: PublishedError(5.12, 0.13), 1000: PublishedError(4.42, 0.16)},
    settings={labels: {"w_max": 30 * labels / ROWS, "rampup": 80 / 300} for labels in (500, 1000)},
)

VAT = replace(
    OURS,
    labels=1000,
    method="vat",
    net=NetSpec(weight_norm=False),
    augmentation=Augmentation(shift=2),
    normalization="symmetric",
    batch_labelled=32,
    batch_unlabelled=128,
    optimizer=OptimizerSpec(lr=0.001),
    schedule=ScheduleSpec(steps=48_000, epoch=400, decay="linear", rampdown=16_000),
    published=PublishedError(5.42, 0.22),
    source="Miyato et al. 2018, arXiv:1704.03976",
    settings={"eps": 7.0},
    note="eps is 3.5 on their scale, (x - 127.5)/255. They padded with zeros and applied batch norm to the logits.",
)

TEACHER = replace(
    PI,
    method="mean_teacher",
    optimizer=SMALLER_BETA2,
    schedule=ScheduleSpec(steps=180_000, epoch=EPOCH, rampup=40_000, rampdown=25_000),
    published=PublishedError(4.35, 0.50),
    source="Tarvainen & Valpola 2017, arXiv:1703.01780",
    settings={"w_max": 1.0, "rampup": 40 / 180, "ema_decay": 0.999, "ema_decay_start": 0.99},
    note="",
)
MEAN_TEACHER = table_row(TEACHER, {500: PublishedError(4.18, 0.27), 1000: PublishedError(3.95, 0.19)})

CCLP = replace(
    OURS,
    labels=1000,
    method="cclp",
    net=NetSpec(kind="cclp", maps=64, channel_dropout=0.1),
    augmentation=Augmentation(shift=0, noise=0.05),
    normalization="per_channel",
    batch_labelled=100,
    batch_unlabelled=100,
    optimizer=OptimizerSpec(lr=3e-4, beta1_end=0.9, weight_decay=1e-6),
    schedule=ScheduleSpec(steps=75_000, epoch=EPOCH, decay="multistep", milestones=((40_000, 1 / 3), (55_000, 0.1))),
    published=PublishedError(5.69, 0.28),
    source="Kamnitsas et al. 2018, arXiv:1806.02679",
    settings={"w": 1.0},
    note="No augmentation. 10 labelled images per class in a batch.",
)

GSCNN = replace(
    OURS,
    labels=1000,
    method="gscnn",
    published=PublishedError(5.13, 0.39),
    source="Taherkhani, Kazemi & Nasrabadi 2019",
    settings={},
    note="No public code: network, optimizer and schedule of the learned_graph row, all other settings are ours.",
)

DIFFUSION = replace(
    OURS,
    method="lpdssl",
    augmentation=Augmentation(shift=4),
    normalization="per_channel",
    batch_labelled=50,
    batch_unlabelled=50,
    optimizer=OptimizerSpec(kind="sgd", lr=0.05, momentum=0.9, weight_decay=2e-4),
    schedule=ScheduleSpec(steps=180 * (ROWS // 50), epoch=ROWS // 50, decay="cosine", rampdown=210 * (ROWS // 50)),
    published=PublishedError(18.45),
    source="Wang, Tu & Zhou 2020, who ran the code of Iscen et al. 2019, arXiv:1904.04717",
    settings={"start": 0.0},
    note="Settings of the CIFAR-10 rows, as those for SVHN are not known.",
    first_stage="supervised",
)
LPDSSL = table_row(DIFFUSION, {500: PublishedError(9.49), 1000: PublishedError(7.38)})

PI_SNTG = table_row(
    replace(
        PI,
        method="pi_model+sntg",
        published=PublishedError(5.07, 0.25),
        source="Luo et al. 2018, arXiv:1711.00258",
    ),
    {500: PublishedError(4.52, 0.30), 1000: PublishedError(3.82, 0.25)},
)
TEACHER_SNTG = table_row(
    replace(
        TEACHER,
        method="mean_teacher+sntg",
        published=PublishedError(4.29, 0.23),
        source="Luo et al. 2018, arXiv:1711.00258",
    ),
    {500: PublishedError(3.99, 0.24), 1000: PublishedError(3.86, 0.27)},
)

PRESETS = (
    *PI_MODEL,
    *TEMPORAL_ENSEMBLING,
    VAT,
    *MEAN_TEACHER,
    CCLP,
    GSCNN,
    *LPDSSL,
    *PI_SNTG,
    *TEACHER_SNTG,
    *LEARNED_GRAPH,
)

CPU = Bench(
    name="svhn",
    title="SVHN (Table 1)",
    columns=grid_columns("svhn", (250, 1000), 2e13),
    rows=(
        grid_row("supervised", batch_size=(64, 32)),
        *grid_rows("pi_model", "temporal_ensembling", "mean_teacher", "vat", "pi_model+sntg", "mean_teacher+sntg"),
        grid_row("learned_graph", {"strong_view": False, "sharpen_temperature": None}),
    ),
    options={"batch_size": (32, 32)},
    published=published_errors(PRESETS),
)
PAPER = paper_bench(CPU.name, CPU.title, PRESETS)
