"""Real CIFAR-10 on a small CPU: 4000 labels, the same budget for every method.

    python benchmarks/cifar10_cpu.py                         3 splits, the test set once, at the end of each run
    python benchmarks/cifar10_cpu.py --validation --first-seed 1000 --splits 1    how settings were chosen

The budget is 5 minutes on 2 cores, counted as 600 CPU-seconds of training: every run has one thread and runs go two at a time,
so that other work on the machine changes little of what a method gets. How many steps that is, is measured before, once for all
splits, by short fits of all methods in turn, or read off the runs that --record holds, which are not repeated; the CPU-seconds
that were really used stand in the table. All methods share net, views, labels and schedule; batch and share of labels first are
those that were best for each on the validation images.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

from samekind import SemiSupervisedClassifier
from samekind.data.sources import load
from samekind.data.splits import show_labels, train_test
from samekind.evaluation.metrics import error_rate

from tables import keep, kept, mean_and_spread, show

LABELS, VALIDATION = 4000, 5000
PROBES, ROUNDS = (20, 80), 2  # steps of the two short fits that say how long a step takes, and how often they are made
Settings = dict[str, Any]

ROWS: dict[str, Settings] = {
    "supervised": {"method": "supervised", "batch": (128, 64)},
    "mean_teacher": {"method": "mean_teacher", "labels_first": 0.2},
    "learned_graph": {"method": "learned_graph"},
    "learned_graph, RandAugment": {"method": "learned_graph", "settings": {"strong": True}},
}


def data(seed: int, validation: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(x, y with hidden labels, x to be judged on, its labels): the test set, or images kept back from training."""
    found = load("cifar10")
    x, y = found.x, found.y
    if not validation:
        return x, show_labels(y, LABELS // 10, seed), found.x_test, found.y_test
    kept, out = train_test(y, VALIDATION, 0)
    return x[kept], show_labels(y[kept], LABELS // 10, seed), x[out], y[out]


def model(settings: Settings, seed: int, steps: int, n: int) -> SemiSupervisedClassifier:
    batch = settings.get("batch", (64, 64))
    return SemiSupervisedClassifier(**{"random_state": seed, "epochs": steps * batch[1] / n, "batch": batch, **settings})


def seconds_a_step(settings: Settings, x: np.ndarray, y: np.ndarray) -> float:
    """CPU-seconds, from two short fits on a part of the images."""
    some = np.concatenate([np.flatnonzero(y >= 0), np.flatnonzero(y < 0)[:1000]])
    spent = [float(model(settings, 0, n, len(some)).fit(x[some], y[some]).cost_["cpu_seconds"]) for n in PROBES]
    return (spent[1] - spent[0]) / (PROBES[1] - PROBES[0])


def steps_within(rows: dict[str, Settings], args: argparse.Namespace) -> dict[str, int]:
    """How many steps of each method the budget allows. Other work can only make a step seem longer: the shortest counts."""
    torch.set_num_threads(1)
    x, y, _, _ = data(args.first_seed, args.validation)
    found = [{name: seconds_a_step(settings, x, y) for name, settings in rows.items()} for _ in range(ROUNDS)]
    return {name: int(args.seconds / min(one[name] for one in found)) for name in rows}


def one(name: str, settings: Settings, steps: int, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    x, y, x_new, y_new = data(seed, args.validation)
    began = time.perf_counter()
    fitted = model(settings, seed, steps, len(x)).fit(x, y)
    record = {
        "row": name,
        "seed": seed,
        "judged on": "validation" if args.validation else "test",
        "labels": LABELS,
        "error": error_rate(fitted.predict(x_new), y_new),
        "steps": steps,
        "cpu_seconds": fitted.cost_["cpu_seconds"],
        "seconds": round(time.perf_counter() - began, 1),
        "settings": settings,
        "tflop": round(fitted.cost_["flops"] / 1e12, 2),
        "mean_w": fitted.history_[-1].get("mean_w"),
    }
    keep(args.record, record)
    print(f"{name}, split {seed}: {record['error']:.2f} %, {steps} steps, {record['cpu_seconds']:.0f} CPU-s", flush=True)
    return record


def was_asked(record: dict[str, Any], rows: dict[str, Settings], *, validation: bool) -> bool:
    """Whether a recorded run is one of these rows, with the same settings, judged on the same images."""
    asked = json.loads(json.dumps(rows.get(record["row"])))  # JSON knows lists only
    return bool(record["judged on"] == ("validation" if validation else "test") and record["settings"] == asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="CPU-seconds of training for each run")
    parser.add_argument("--rows", default="", help=f"some of {', '.join(ROWS)}, with semicolons; default all")
    parser.add_argument("--try", dest="tried", default="", help="JSON of settings to try instead: {name: {...}}")
    parser.add_argument("--validation", action="store_true", help="judge on 5000 images kept back from training instead")
    parser.add_argument("--record", default="", help="a file for one JSON line per run")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    rows = (
        json.loads(args.tried) if args.tried else {n: s for n, s in ROWS.items() if not args.rows or n in args.rows.split(";")}
    )
    seeds = range(args.first_seed, args.first_seed + args.splits)
    records = [one for one in kept(args.record) if was_asked(one, rows, validation=args.validation)]
    steps = {record["row"]: record["steps"] for record in records}
    if not rows.keys() <= steps.keys():
        steps = steps_within(rows, args)
    print(f"steps in {args.seconds:.0f} CPU-s: {steps}", flush=True)
    records = [record for record in records if record["steps"] == steps[record["row"]] and record["seed"] in seeds]
    done = {(record["row"], record["seed"]) for record in records}
    wanted = [(name, seed) for seed in seeds for name in rows if (name, seed) not in done]
    records += Parallel(n_jobs=args.jobs)(delayed(one)(name, rows[name], steps[name], seed, args) for name, seed in wanted)
    print()
    table = []
    for name in rows:
        mine = [record for record in records if record["row"] == name]
        spent = np.mean([record["cpu_seconds"] for record in mine])
        table.append([name, mean_and_spread([record["error"] for record in mine]), f"{steps[name]}", f"{spent:.0f}"])
    show(["method", "validation error %" if args.validation else "test error %", "steps", "CPU-s"], table)


if __name__ == "__main__":
    main()
