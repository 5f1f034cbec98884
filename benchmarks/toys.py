"""Errors on two moons and two circles, the datasets of the paper's Figures 2 and 3.

    python benchmarks/toys.py --draws 10
    python benchmarks/toys.py --methods all     all deep methods with default settings: moons, 5 draws
    python benchmarks/toys.py --ablation        learned_graph without each of its parts

6000 points; moons: noise 0.15, 12 labels; circles: radii 1 and 2.5, noise 0.3, 8 labels. A draw is a random choice of labels,
the same for all methods. Each method is first tuned with the same small budget: --trials settings, of which the first is the
default, are compared on --tuning-draws other draws. The error is on all unlabelled points.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading

from samekind import SemiSupervisedClassifier
from samekind.bench.presets.mnist import DEEP
from samekind.data.hub.toys import circles, moons
from samekind.data.splits import hide_labels
from samekind.errors import SettingError
from samekind.evaluation.metrics import error_rate

from bench_tables import mean_and_spread, show

TASKS: dict[str, tuple[Any, int]] = {"moons": (moons, 6), "circles": (circles, 4)}
Settings = dict[str, Any]

# the first trial is the default; every method gets the same number of trials
TRIALS: dict[str, list[Settings]] = {
    "supervised": [{}, {"learning_rate": 0.001}, {"learning_rate": 0.01}, {"epochs": 10}],
    "pi_model": [{}, {"w_max": 3.0}, {"w_max": 30.0}, {"rampup": 0.6}],
    "mean_teacher": [{}, {"w_max": 3.0}, {"w_max": 30.0}, {"rampup": 0.6}],
    "LabelSpreading": [
        {"kernel": "rbf", "gamma": 20, "alpha": 0.2},
        {"kernel": "rbf", "gamma": 20, "alpha": 0.9},
        {"kernel": "rbf", "gamma": 10, "alpha": 0.99},
        {"kernel": "knn", "n_neighbors": 50, "alpha": 0.99},
    ],
    "label_propagation": [{}, {"n_neighbors": 20}, {"n_neighbors": 50}, {"n_neighbors": 100}],
    "lgc": [{}, {"n_neighbors": 50}, {"n_neighbors": 50, "alpha": 0.999}, {"alpha": 0.999}],
    "learned_graph": [{}, {"lambda2": 0.3}, {"lambda1": 3.0}, {"lambda1": 0.3}],
}
ABLATION: dict[str, Settings] = {
    "learned_graph (default)": {},
    "on pi_model": {"method": "pi_model+learned_graph"},
    "lambda2 = 0 (no learned graph)": {"lambda2": 0.0},
    "W detached": {"detach_w": True},
    "labelled pairs in the Laplacian too": {"labelled_pair_weight": 1.0},
    "lambda1 = 0.3 (weaker consistency of f)": {"lambda1": 0.3},
    "lambda3 = 0 (no consistency of Phi)": {"lambda3": 0.0},
    "dropout 0.2 in Phi": {"dropout": 0.2},
    "graph from the paper's 1/6 of the run": {"graph_start": 1 / 6, "graph_rampup": 1 / 12},
    "pairs as in the paper": {"pairs": "paper", "prior": None, "virtual_pair_weight": 1.0, "labelled_pair_weight": 1.0},
    "no prior": {"prior": None},
    "noise instead of random walks": {"views": "noise"},
    "the paper's settings throughout": {"preset": "paper"},
}
ESTIMATOR_ARGUMENTS = {"method", "learning_rate", "epochs", "preset", "views"}


def fit_error(name: str, task: str, seed: int, settings: Settings) -> float:
    """Return the error in % of one fit on the unlabelled points."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    make, per_class = TASKS[task]
    X, y = make(seed=0)
    shown = hide_labels(y, per_class, seed)
    hidden = shown == -1
    if name == "LabelSpreading":
        predicted = LabelSpreading(max_iter=300, **settings).fit(StandardScaler().fit_transform(X), shown).transduction_
    else:
        arguments = {key: value for key, value in settings.items() if key in ESTIMATOR_ARGUMENTS}
        method_settings = {key: value for key, value in settings.items() if key not in ESTIMATOR_ARGUMENTS}
        predicted = (
            SemiSupervisedClassifier(**{"method": name, "random_state": seed, "settings": method_settings, **arguments})
            .fit(X, shown)
            .transduction_
        )
    return error_rate(predicted[hidden], y[hidden])


def fit_errors(jobs: list[tuple[str, str, int, Settings]], n_jobs: int) -> list[float]:
    return list(Parallel(n_jobs=n_jobs)(delayed(fit_error)(*job) for job in jobs))


def choose_settings(name: str, task: str, args: argparse.Namespace) -> Settings:
    """Return the trial with the lowest mean error on the tuning draws, which are not reported."""
    trials = TRIALS.get(name, [{}])[: args.trials]
    if len(trials) == 1:
        return trials[0]
    draws = range(1000, 1000 + args.tuning_draws)
    errors = fit_errors([(name, task, seed, trial) for trial in trials for seed in draws], args.jobs)
    means = np.array(errors).reshape(len(trials), -1).mean(axis=1)
    return trials[int(means.argmin())]


def compare(args: argparse.Namespace) -> None:
    names = list(TRIALS) if args.methods == "main" else args.methods.split(",")
    rows = {name: [name] for name in names}
    tasks = args.tasks.split(",")
    for task in tasks:
        for name in names:
            settings = choose_settings(name, task, args)
            errors = fit_errors([(name, task, seed, settings) for seed in range(args.draws)], args.jobs)
            rows[name] += [mean_and_spread(errors), f"{max(errors):.1f}", str(settings or "default")]
            print(
                f"{task}, {name}: {mean_and_spread(errors)}  {np.round(errors, 2).tolist()}  {settings or 'default'}",
                flush=True,
            )
    print()
    show(["method", *[h for task in tasks for h in (f"{task} error %", "worst", "setting")]], list(rows.values()))


def all_deep(args: argparse.Namespace) -> None:
    """Print the error of all deep methods with default settings, and the difference to supervised's on the same draws."""
    supervised = np.array([])
    rows = []
    for name in DEEP:
        try:
            errors = np.array(fit_errors([(name, "moons", seed, {}) for seed in range(args.draws)], args.jobs))
        except SettingError as error:
            rows.append([name, "-", "-", str(error).split(". ")[0]])
            continue
        supervised = errors if name == "supervised" else supervised
        rows.append([name, mean_and_spread(errors.tolist()), f"{errors.max():.1f}", f"{(errors - supervised).mean():+.2f}"])
        print(f"{name}: {mean_and_spread(errors.tolist())}  {np.round(errors, 2).tolist()}", flush=True)
    print()
    show(["method", "moons error %", "worst", "against supervised"], rows)


def ablate(args: argparse.Namespace) -> None:
    rows = []
    for variant, settings in ABLATION.items():
        row = [variant]
        for task in args.tasks.split(","):
            errors = fit_errors([("learned_graph", task, seed, settings) for seed in range(args.draws)], args.jobs)
            row.append(mean_and_spread(errors))
            print(f"{variant}, {task}: {row[-1]}  {np.round(errors, 2).tolist()}", flush=True)
        rows.append(row)
    print()
    show(["variant", *[f"{task} error %" for task in args.tasks.split(",")]], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, help="default 10; 5 with --methods all")
    parser.add_argument("--methods", default="main", help="'main', names separated by commas, or 'all' for all deep methods")
    parser.add_argument("--trials", type=int, default=3, help="settings to try per method; 1: defaults only")
    parser.add_argument("--tuning-draws", type=int, default=2)
    parser.add_argument("--tasks", default="moons,circles")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    args.draws = args.draws or (5 if args.methods == "all" else 10)
    (ablate if args.ablation else all_deep if args.methods == "all" else compare)(args)


if __name__ == "__main__":
    main()
