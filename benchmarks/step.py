"""A whole training step of learned_graph against the bare passes of its nets, which no implementation can do without.

python benchmarks/step.py [--rounds 41] [--slow-rounds 3] [--nets compact quick cnn13] [--profile]

A step is what the loop does: draw a batch of CIFAR-10, its views, student and teacher, similarity net, all terms of the loss,
gradients, Adam, slow copies. Bare is the student forward and backward and the teacher forward, on the same number of rows as
tensors that lie ready in memory, with gradients that lie ready too. Both take turns in one process on one thread; seconds are
those of the processor (other work on the machine then disturbs little), and medians count. FLOPs are those of student and
teacher alone, by nets/net_cost.py, and the peak is that of a float32 product of 1024 x 1024 matrices in the same turns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any

import torch
from torch import Tensor

from samekind.data.dataset import UNLABELLED, Dataset
from samekind.data.hub.loaders import load_dataset
from samekind.data.image_layout import as_tensor
from samekind.data.sampler import BatchSampler
from samekind.data.scaling import fit_scaler
from samekind.defaults import default_batch_sizes, view_defaults
from samekind.methods import build, method_defaults
from samekind.methods.base import Task
from samekind.nets.classifier import Classifier
from samekind.nets.compact import compact_classifier, init_whitening
from samekind.nets.conv13 import conv13_classifier
from samekind.nets.net_cost import StepPasses, measure_net_cost, step_flops
from samekind.training.loop import fit
from samekind.training.schedules import OptimizerConfig, Schedule

from tables import show

SHAPE = (3, 32, 32)
ROWS, LABELLED, STEPS = 5000, 500, 1000
LATE = 0.8  # of the run: all terms of the loss act
MATRIX = 1024
Work = Callable[[], None]
NETS: dict[str, Callable[[], Classifier]] = {
    "compact": lambda: compact_classifier(SHAPE, 10),
    "quick": lambda: compact_classifier(SHAPE, 10, quick=True),
    "cnn13": lambda: conv13_classifier(10),
}
SLOW = ("cnn13",)


@dataclass(frozen=True)
class Race:
    """A step and the bare passes of one net and batch, and what the passes cost in floating-point operations."""

    name: str
    batch: tuple[int, int]
    step: Work
    bare: Work
    flops: int


def pool_of_cifar() -> Dataset:
    cifar = load_dataset("cifar10")
    x, y = as_tensor(cifar.x[:ROWS]), torch.as_tensor(cifar.y[:ROWS]).long()
    return Dataset(x, torch.where(torch.arange(ROWS) < LABELLED, y, UNLABELLED), 10, fit_scaler(x))


def race(name: str, pool: Dataset, n_labelled: int, n_unlabelled: int) -> Race:
    torch.manual_seed(0)
    net = NETS[name]()
    init_whitening(net, pool.inputs(slice(1000)))
    task = Task(10, LABELLED, len(pool), STEPS, n_labelled, n_unlabelled)
    method: Any = build("learned_graph", net, task, method_defaults("learned_graph", "images"))
    stream = BatchSampler(
        pool,
        view_defaults(pool, 0).views,
        labelled_views=method.labelled_views,
        unlabelled_views=method.unlabelled_views,
        n_labelled=n_labelled,
        n_unlabelled=n_unlabelled,
        generator=torch.Generator().manual_seed(0),
    )
    optimizer, schedule = OptimizerConfig().build(method.parameters()), Schedule()

    def step() -> None:
        fit(method, islice(stream, 1), optimizer, schedule, steps=STEPS, start=round(LATE * STEPS), on_step=ignore)

    n_rows = 2 * n_unlabelled + n_labelled
    rows = pool.inputs(slice(n_rows))
    cost = measure_net_cost(net, rows[:8])
    flops = step_flops(StepPasses(cost, n_training=n_rows, n_inference=n_rows))
    return Race(name, (n_labelled, n_unlabelled), step, bare_passes(method, rows), flops)


def bare_passes(method: Any, rows: Tensor) -> Work:
    student, teacher = method.student, method.teacher
    gradients = [torch.randn_like(part) / len(rows) for part in student(rows)]

    def passes() -> None:
        for parameter in student.parameters():
            parameter.grad = None
        torch.autograd.backward(tuple(student(rows)), gradients)
        with torch.no_grad():
            teacher(rows)

    return passes


def ignore(step: int, terms: Any, observed: Any) -> None:
    """Nothing is recorded."""


def seconds(work: Work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def product() -> Work:
    a, b, out = (torch.randn(MATRIX, MATRIX) for _ in range(3))

    def multiply() -> None:
        torch.mm(a, b, out=out)

    return multiply


def measured(one: Race, rounds: int) -> list[str]:
    multiply = product()
    for work in (one.step, one.bare, multiply):
        work()  # what is made once is made here
    turns = [(seconds(one.step), seconds(one.bare), seconds(multiply)) for _ in range(rounds)]
    step, bare, matrix = (median(turn[k] for turn in turns) for k in range(3))
    ratio = median(turn[0] / turn[1] for turn in turns)
    peak, reached = 2 * MATRIX**3 / matrix, one.flops / step
    batch = f"{one.batch[0]} + {one.batch[1]}"
    times = [f"{1000 * step:.1f}", f"{1000 * bare:.1f}", f"{ratio:.3f}", f"{1 / step:.2f}"]
    return [one.name, batch, *times, f"{reached / 1e9:.1f}", f"{peak / 1e9:.1f}", f"{100 * reached / peak:.0f} %"]


def profile(one: Race) -> None:
    one.step()
    with torch.profiler.profile() as found:
        for _ in range(5):
            one.step()
    print(found.key_averages().table(sort_by="self_cpu_time_total", row_limit=40, max_name_column_width=60))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--slow-rounds", type=int, default=3, help="of nets whose step takes many seconds")
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=list(NETS))
    parser.add_argument("--profile", action="store_true", help="show where a step's time goes, and measure nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    pool, sizes = pool_of_cifar(), default_batch_sizes(ROWS)
    batches = [(64, 64), (sizes.labelled, sizes.unlabelled)]
    header = ["net", "batch", "step, ms", "bare, ms", "ratio", "steps/s", "GFLOP/s", "peak GFLOP/s", "share"]
    rows = []
    for name in args.nets:
        for n_labelled, n_unlabelled in batches[-1:] if name in SLOW else batches:
            one = race(name, pool, n_labelled, n_unlabelled)
            if args.profile:
                profile(one)
            else:
                rows.append(measured(one, args.slow_rounds if name in SLOW else args.rounds))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    if rows:
        show(header, rows)


if __name__ == "__main__":
    main()
