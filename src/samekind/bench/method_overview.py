"""The methods there are, in a table: idea, paper, what each needs, and what a step of it costs."""

from __future__ import annotations

import re
import sys
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

LABELLED, UNLABELLED_ROWS = 20, 64  # of a step
ROWS, SIDE, CLASSES = 128, 16, 4  # of the pool
COMPARED = "supervised"


@dataclass(frozen=True)
class Line:
    """What there is to know about a method before it is run."""

    name: str
    idea: str
    paper: str
    needs: str
    cost: str  # of a step, as a multiple of learning as many rows with labels


def overview() -> list[Line]:
    """One line for each method of the table; costs are counted in floating-point operations, by taking a step of each."""
    with single_thread():
        return _lines(_pool())


def _lines(pool: Dataset) -> list[Line]:
    rows = LABELLED + UNLABELLED_ROWS
    known = _cost(COMPARED, pool, labelled=rows)
    lines = []
    for name, entry in METHODS.items():
        if not is_iterative(name):
            lines.append(Line(name, entry.idea, paper_of(name), "a fixed graph", "no steps"))
            continue
        own = known * LABELLED / rows if name == COMPARED else _cost(name, pool, labelled=LABELLED)
        lines.append(Line(name, entry.idea, paper_of(name), _needs(name), f"{own / known:.2f}"))
    return lines


def table() -> TextTable:
    lines = overview()
    header = ("name", "idea", "paper", "needs", "cost")
    return TextTable(
        header, tuple((one.name, one.idea, one.paper, one.needs, one.cost) for one in lines), numeric=frozenset({4})
    )


def paper_of(name: str) -> str:
    """Authors and year, and where to find it: the docstring of a method's file begins its second paragraph with them."""
    words = sys.modules[METHODS[name].method.__module__].__doc__ or ""
    text = " ".join(words.split("\n\n")[1].split()) if "\n\n" in words else ""
    found = re.match(r'(.+? \d{4})(?:, "[^"]*")?(, arXiv:[\d.]*\d)?', text)
    return "" if found is None else found[1] + (found[2] or "")


def _needs(name: str) -> str:
    method = _fresh(name, LABELLED)
    needs = [f"a base, alone on {METHODS[name].base}"] if METHODS[name].base is not None else []
    needs += ["strong views"] if "strong" in method.unlabelled_views else []
    needs += ["images"] if getattr(method, "images_only", False) else []
    needs += ["a fixed graph"] if getattr(method, "on_fixed_graph", False) else []
    needs += ["looks at the whole pool"] if getattr(method, "refresh_every", 0) else []
    return ", ".join(needs)


def _cost(name: str, pool: Dataset, *, labelled: int) -> float:
    views = defaults.view_defaults(pool, seed=0).views
    plan = TrainConfig(1, labelled, UNLABELLED_ROWS, Schedule(), seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(train(_fresh(name, labelled), pool, views, plan).cost["flops"])


def _fresh(name: str, labelled: int) -> Method:
    torch.manual_seed(0)
    net = defaults.net_for((1, SIDE, SIDE), CLASSES)
    task = Task(CLASSES, LABELLED, ROWS, 1, labelled, UNLABELLED_ROWS)
    return build(name, net, task, method_defaults(name, "images"))


def _pool() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (ROWS, SIDE, SIDE, 1), dtype=torch.uint8, generator=generator)
    y = torch.where(torch.arange(ROWS) < LABELLED, torch.arange(ROWS) % CLASSES, UNLABELLED)
    return Dataset(images, y, CLASSES, defaults.choose_scaler(images, y))
