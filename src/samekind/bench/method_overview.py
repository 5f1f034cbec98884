"""Table of all methods: a summary, the paper, what the method needs, and what a training step costs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch

from samekind import defaults
from samekind.bench.reporting.text_table import TextTable
from samekind.data.dataset import UNLABELLED, Dataset
from samekind.methods import METHODS, build, is_iterative, method_defaults
from samekind.methods.base import Method, Task
from samekind.training.determinism import single_thread
from samekind.training.schedules import Schedule
from samekind.training.trainer import TrainConfig, train

BATCH_LABELLED, BATCH_UNLABELLED = 20, 64
# numbers of samples, pixels per side and classes of the random images with which the cost of a step is measured
N_SAMPLES, SIDE, N_CLASSES = 128, 16, 4
REFERENCE = "supervised"  # costs are relative to a step of this method with the same number of samples


@dataclass(frozen=True)
class MethodSummary:
    """One row of the table of methods."""

    name: str
    summary: str
    paper: str
    needs: str
    cost: str  # FLOPs of a step, divided by those of a supervised step with the same number of samples


def summarize_methods() -> list[MethodSummary]:
    """Return one row for each method. The cost is found by counting the FLOPs of one step."""
    with single_thread():
        return _summarize(_random_dataset())


def _summarize(dataset: Dataset) -> list[MethodSummary]:
    n_batch = BATCH_LABELLED + BATCH_UNLABELLED
    reference = _step_flops(REFERENCE, dataset, labelled=n_batch)
    summaries = []
    for name, spec in METHODS.items():
        if not is_iterative(name):
            summaries.append(MethodSummary(name, spec.summary, spec.paper, "a fixed graph", "no steps"))
            continue
        flops = (
            reference * BATCH_LABELLED / n_batch if name == REFERENCE else _step_flops(name, dataset, labelled=BATCH_LABELLED)
        )
        cost = f"{flops / reference:.2f}"
        summaries.append(MethodSummary(name, spec.summary, spec.paper, _requirements(name), cost))
    return summaries


def method_table() -> TextTable:
    """Return the table of all methods."""
    header = ("name", "summary", "paper", "needs", "cost")
    rows = tuple((one.name, one.summary, one.paper, one.needs, one.cost) for one in summarize_methods())
    return TextTable(header, rows, numeric=frozenset({4}))


def _requirements(name: str) -> str:
    method = _build_method(name, BATCH_LABELLED)
    needs = [f"a base, alone on {METHODS[name].base}"] if METHODS[name].base is not None else []
    needs += ["strong augmentation"] if "strong" in method.unlabelled_views else []
    needs += ["images"] if method.images_only else []
    needs += ["a fixed graph"] if method.uses_fixed_graph else []
    needs += ["full passes over the dataset"] if method.refresh_every else []
    return ", ".join(needs)


def _step_flops(name: str, dataset: Dataset, *, labelled: int) -> float:
    views = defaults.view_defaults(dataset, seed=0).views
    config = TrainConfig(1, labelled, BATCH_UNLABELLED, Schedule(), seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(train(_build_method(name, labelled), dataset, views, config).cost["flops"])


def _build_method(name: str, labelled: int) -> Method:
    torch.manual_seed(0)
    net = defaults.net_for((1, SIDE, SIDE), N_CLASSES)
    task = Task(N_CLASSES, BATCH_LABELLED, N_SAMPLES, 1, labelled, BATCH_UNLABELLED)
    return build(name, net, task, method_defaults(name, "images"))


def _random_dataset() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (N_SAMPLES, SIDE, SIDE, 1), dtype=torch.uint8, generator=generator)
    y = torch.where(torch.arange(N_SAMPLES) < BATCH_LABELLED, torch.arange(N_SAMPLES) % N_CLASSES, UNLABELLED)
    return Dataset(images, y, N_CLASSES, defaults.choose_scaler(images, y))
