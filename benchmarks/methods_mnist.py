"""Every deep method on real images: MNIST, 100 labels, the small convolutional net, as many image passes for each.

    python benchmarks/methods_mnist.py                       3 splits, the test set once, at the end of each run
    python benchmarks/methods_mnist.py --methods vat,ict     some of them

60,000 training images, 10 labels a class drawn by seed. A pass is an image that goes through the net, forward; forward and
backward count as three. They are counted in a short fit. Every method gets --passes of them, so one that looks more often in a
step makes fewer steps; the floating-point operations in the table hold also what a method does besides in a step, such as a
graph. Looks at the whole pool (lpdssl, gscnn: forward, about once an epoch) are not counted; the CPU-seconds hold them.
Settings are those of the estimator (`recipe="auto"`), for all methods alike; none was tuned on this set.
"""

from __future__ import annotations

import argparse
import warnings
from datetime import date
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from samekind import SemiSupervisedClassifier
from samekind.data.sources import load
from samekind.data.splits import show_labels
from samekind.evaluation.metrics import error_rate
from samekind.experiments.presets.mnist import DEEP
from samekind.nets.classifier import Classifier

from tables import keep, kept, mean_and_spread, show

BATCH = (20, 64)
PROBES = (2, 6)  # steps of the fits in which passes are counted


def model_of(name: str, seed: int, steps: int, n: int) -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier(name, random_state=seed, batch=BATCH, epochs=steps * BATCH[1] / n)


def passes_a_step(name: str, x: np.ndarray, y: np.ndarray) -> float:
    """Counted in two short fits on a part of the images, the longer one less the shorter: what is done once falls out."""
    some = np.concatenate([np.flatnonzero(y >= 0), np.flatnonzero(y < 0)[:500]])
    counted = []
    for steps in PROBES:
        count = 0

        def seen(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            nonlocal count
            if isinstance(module, Classifier) and module.training:
                count += len(inputs[0]) * (3 if torch.is_grad_enabled() and output.logits.requires_grad else 1)

        hook = register_module_forward_hook(seen)
        try:
            SemiSupervisedClassifier(name, random_state=0, batch=BATCH, epochs=steps * BATCH[1] / len(some)).fit(
                x[some], y[some]
            )
        finally:
            hook.remove()
        counted.append(count)
    return (counted[1] - counted[0]) / (PROBES[1] - PROBES[0])


def one(name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = load("mnist")
    y = show_labels(found.y, args.labels // 10, seed)
    steps = max(1, int(args.passes / passes_a_step(name, found.x, y)))
    model = model_of(name, seed, steps, len(y)).fit(found.x, y)
    record = {
        "method": name,
        "seed": seed,
        "error": error_rate(model.predict(found.x_test), found.y_test),
        "steps": steps,
        "tflop": round(model.cost_["flops"] / 1e12, 3),
        "cpu_seconds": model.cost_["cpu_seconds"],
        "date": date.today().isoformat(),
    }
    keep(args.record, record)
    print(f"{name}, split {seed}: {record['error']:.2f} %, {steps} steps, {record['cpu_seconds']:.0f} CPU-s", flush=True)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--passes", type=float, default=300_000, help="image passes for each run, a backward pass counting two")
    parser.add_argument("--methods", default="", help="names with commas; default all that are trained in steps")
    parser.add_argument("--record", default="", help="a file for one JSON line per run; runs that stand in it are not repeated")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    wanted = args.methods.split(",") if args.methods else DEEP
    seeds = range(args.first_seed, args.first_seed + args.splits)
    records = kept(args.record)
    done = {(record["method"], record["seed"]) for record in records}
    jobs = [delayed(one)(name, seed, args) for seed in seeds for name in wanted if (name, seed) not in done]
    records += Parallel(n_jobs=args.jobs)(jobs)
    table = []
    for name in wanted:
        mine = [record for record in records if record["method"] == name and record["seed"] in seeds]
        means = [np.mean([record[key] for record in mine]) for key in ("steps", "tflop", "cpu_seconds")]
        errors = mean_and_spread([record["error"] for record in mine])
        table.append([name, errors, f"{means[0]:.0f}", f"{means[1]:.2f}", f"{means[2]:.0f}"])
    print()
    show(["method", "test error %", "steps", "TFLOP", "CPU-s"], table)


if __name__ == "__main__":
    main()
