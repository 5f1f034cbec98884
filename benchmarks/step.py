"""Time of a whole training step relative to the forward and backward passes of its networks, and time of a dataset graph.

    python benchmarks/step.py [--rounds 41] [--slow-rounds 3] [--nets compact quick cnn13] [--profile]

The first table is for learned_graph. A step is one iteration of the training loop: sample a batch of CIFAR-10, augment it, run
student, teacher and similarity network, compute all loss terms and gradients, update with Adam and the EMA. The bare passes are
the student's forward and backward pass and the teacher's forward pass, on prepared tensors of the same size. Step and bare
passes alternate in one process on one thread; medians of CPU seconds are reported. FLOPs are those of student and teacher
alone, by nets/net_cost.py. The peak is that of a float32 product of 1024 x 1024 matrices, measured in the same turns.

The second table is for dataset_graph with a full bank. A lookup finds the neighbours of a batch in the bank; a propagation
computes features of labelled samples, a graph over the bank, and the propagated labels. The last column is the time of a lookup
and of a step's share of a propagation, relative to the rest of the step.
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
from samekind.data.sampler import BatchSampler
from samekind.data.scaling import fit_scaler
from samekind.defaults import default_batch_sizes, view_defaults
from samekind.image_layout import as_tensor
from samekind.methods import build, method_defaults
from samekind.methods.base import Method, Task
from samekind.methods.dataset_graph import DatasetGraphWrapper
from samekind.methods.full_pass import dataset_features
from samekind.methods.learned_graph import LearnedGraph
from samekind.methods.spec import DataKind
from samekind.nets.classifier import Classifier
from samekind.nets.compact import compact_classifier, init_whitening
from samekind.nets.conv13 import conv13_classifier
from samekind.nets.net_cost import StepPasses, measure_net_cost, step_flops
from samekind.training.loop import fit
from samekind.training.schedules import OptimizerConfig, Schedule
from samekind.training.step_plan import StepPlan

from bench_tables import show

SHAPE = (3, 32, 32)
N_IMAGES, N_LABELLED, STEPS = 5000, 500, 1000
PROGRESS = 0.8  # fraction of the run at which the step is timed: all loss terms are active then
MATRIX = 1024
Work = Callable[[], None]
NETS: dict[str, Callable[[], Classifier]] = {
    "compact": lambda: compact_classifier(SHAPE, 10),
    "quick": lambda: compact_classifier(SHAPE, 10, quick=True),
    "cnn13": lambda: conv13_classifier(10),
}
SLOW = ("cnn13",)


@dataclass(frozen=True)
class StepBenchmark:
    """A training step and the bare passes of one network and batch size, and the FLOPs of the passes."""

    name: str
    batch: tuple[int, int]
    step: Work
    bare: Work
    flops: int


def cifar_dataset() -> Dataset:
    cifar = load_dataset("cifar10")
    x, y = as_tensor(cifar.x[:N_IMAGES]), torch.as_tensor(cifar.y[:N_IMAGES]).long()
    return Dataset(x, torch.where(torch.arange(N_IMAGES) < N_LABELLED, y, UNLABELLED), 10, fit_scaler(x))


def make_stream(method: Method, dataset: Dataset, n_labelled: int, n_unlabelled: int) -> BatchSampler:
    return BatchSampler(
        dataset,
        method.adapt_views(view_defaults(dataset, 0).views),
        labelled_views=method.labelled_views,
        unlabelled_views=method.unlabelled_views,
        n_labelled=n_labelled,
        n_unlabelled=n_unlabelled,
        generator=torch.Generator().manual_seed(0),
    )


def make_step(method: Method, stream: BatchSampler) -> Work:
    """Return one iteration of the training loop, late in a training."""
    optimizer, schedule = OptimizerConfig().build(method.parameters()), Schedule()

    def step() -> None:
        fit(method, islice(stream, 1), optimizer, schedule, plan=StepPlan(STEPS), start=round(PROGRESS * STEPS), on_step=ignore)

    return step


def make_method(name: str, net_name: str, dataset: Dataset, n_labelled: int, n_unlabelled: int) -> Method:
    torch.manual_seed(0)
    net = NETS[net_name]()
    init_whitening(net, dataset.inputs(slice(1000)))
    task = Task(10, N_LABELLED, len(dataset), STEPS, n_labelled, n_unlabelled)
    kind: DataKind = "photos" if name == "dataset_graph" else "images"
    return build(name, net, task, method_defaults(name, kind))


def make_benchmark(name: str, dataset: Dataset, n_labelled: int, n_unlabelled: int) -> StepBenchmark:
    method = make_method("learned_graph", name, dataset, n_labelled, n_unlabelled)
    assert isinstance(method, LearnedGraph)
    step = make_step(method, make_stream(method, dataset, n_labelled, n_unlabelled))
    n_samples = 2 * n_unlabelled + n_labelled
    x = dataset.inputs(slice(n_samples))
    cost = measure_net_cost(method.student, x[:8])
    flops = step_flops(StepPasses(cost, n_training=n_samples, n_inference=n_samples))
    return StepBenchmark(name, (n_labelled, n_unlabelled), step, bare_passes(method, x), flops)


def bare_passes(method: LearnedGraph, x: Tensor) -> Work:
    """Return the forward and backward pass of the student and the forward pass of the teacher."""
    student, teacher = method.student, method.ema_teacher
    gradients = [torch.randn_like(part) / len(x) for part in student(x)]

    def passes() -> None:
        for parameter in student.parameters():
            parameter.grad = None
        torch.autograd.backward(tuple(student(x)), gradients)
        with torch.no_grad():
            teacher(x)

    return passes


def measure_graph(name: str, dataset: Dataset, batch: tuple[int, int], rounds: int) -> list[str]:
    """Return a row of the second table: the times of a step, a lookup and a propagation of dataset_graph."""
    method = make_method("dataset_graph", name, dataset, *batch)
    assert isinstance(method, DatasetGraphWrapper)
    z = dataset_features(method.student, dataset)
    method.bank.store_unlabelled(z)
    method.graph_start.step.fill_(STEPS)
    n_neighbors, interval = method.config.n_neighbors, method.refresh_every

    def lookup() -> None:
        neighbors = method.bank.neighbors(z[: batch[1]], n_neighbors, lambda z, neighbor_z, cosines: torch.ones_like(cosines))
        assert neighbors is not None
        neighbors.mean_F()

    def propagate() -> None:
        method.refresh(dataset)

    works = (make_step(method, make_stream(method, dataset, *batch)), lookup, propagate)
    for work in (propagate, *works):
        work()  # warm up; the first lookup needs a graph
    turns = [[seconds(work) for work in works] for _ in range(rounds)]
    step, search, propagation = (median(turn[k] for turn in turns) for k in range(3))
    share = (search + propagation / interval) / (step - search)
    times = [f"{1e3 * time:.1f}" for time in (step, search, propagation)]
    return [name, f"{batch[0]}+{batch[1]}", *times, str(interval), f"{100 * share:.1f}"]


def ignore(step: int, terms: Any, observed: Any) -> None:
    """Ignore the log record."""


def seconds(work: Work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def matrix_product() -> Work:
    a, b, out = (torch.randn(MATRIX, MATRIX) for _ in range(3))

    def multiply() -> None:
        torch.mm(a, b, out=out)

    return multiply


def measure(one: StepBenchmark, rounds: int) -> list[str]:
    multiply = matrix_product()
    for work in (one.step, one.bare, multiply):
        work()  # warm up
    turns = [(seconds(one.step), seconds(one.bare), seconds(multiply)) for _ in range(rounds)]
    step, bare, matrix = (median(turn[k] for turn in turns) for k in range(3))
    ratio = median(turn[0] / turn[1] for turn in turns)
    peak, reached = 2 * MATRIX**3 / matrix, one.flops / step
    batch = f"{one.batch[0]} + {one.batch[1]}"
    times = [f"{1000 * step:.1f}", f"{1000 * bare:.1f}", f"{ratio:.3f}", f"{1 / step:.2f}"]
    return [one.name, batch, *times, f"{reached / 1e9:.1f}", f"{peak / 1e9:.1f}", f"{100 * reached / peak:.0f} %"]


def profile(one: StepBenchmark) -> None:
    one.step()
    with torch.profiler.profile() as found:
        for _ in range(5):
            one.step()
    print(found.key_averages().table(sort_by="self_cpu_time_total", row_limit=40, max_name_column_width=60))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--slow-rounds", type=int, default=3, help="for networks whose step takes many seconds")
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=list(NETS))
    parser.add_argument("--profile", action="store_true", help="profile a step instead of timing it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dataset, sizes = cifar_dataset(), default_batch_sizes(N_IMAGES)
    batches = [(64, 64), (sizes.labelled, sizes.unlabelled)]
    header = ["net", "batch", "step, ms", "bare, ms", "ratio", "steps/s", "GFLOP/s", "peak GFLOP/s", "% of peak"]
    rows, graph_rows = [], []
    for name in args.nets:
        for n_labelled, n_unlabelled in batches[-1:] if name in SLOW else batches:
            one = make_benchmark(name, dataset, n_labelled, n_unlabelled)
            if args.profile:
                profile(one)
            else:
                rows.append(measure(one, args.slow_rounds if name in SLOW else args.rounds))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
                rounds = args.slow_rounds if name in SLOW else args.rounds
                graph_rows.append(measure_graph(name, dataset, (n_labelled, n_unlabelled), rounds))
    if rows:
        show(header, rows)
        print()
        columns = ["net", "batch", "step, ms", "lookup, ms", "propagation, ms", "steps between propagations", "% of a step"]
        show(columns, graph_rows)


if __name__ == "__main__":
    main()
