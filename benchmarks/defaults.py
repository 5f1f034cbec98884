"""Compare the default for vectors with the estimators that scikit-learn users would try first, on many datasets.

    python benchmarks/defaults.py                        reported datasets, which were never used to choose a default
    python benchmarks/defaults.py --sets development     development datasets, on which the defaults were chosen
    python benchmarks/defaults.py --labels 5,5r          5 labels per class, and as many labels drawn at random
    python benchmarks/defaults.py --table --short        print short tables of the recorded runs

Errors are on the unlabelled samples. Each run is recorded in --record, and recorded runs are not repeated. All alternatives get
standardized columns; logistic regression and LabelSpreading get rows of length 1 as well. Every parameter setting of an
alternative is listed as an estimator of its own, so none is chosen by its test error. A table per number of labels is followed
by mean ranks with Nemenyi's critical difference (p = 0.05), by the gap to the best alternative (median and largest), and by the
gap to the best estimator that uses the labelled samples alone. Both best estimators are chosen by their test error.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, studentized_range
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from samekind import SemiSupervisedClassifier

from bench_tables import read_runs, record_runs, show, show_labels
from datasets import DEVELOPMENT, REPORTED, Pair

OURS = "default"
LABELS_ALONE = ("LogisticRegression", "LogisticRegression, unit rows", "SVC")
SLOW = "supervised"  # our network trained on the labels only, which takes seconds per fit
LARGEST_KERNEL = 12_000  # samples, above which an n x n kernel does not fit into memory
# (input: "raw", "standardized" or "unit"; function of the number of columns and the seed that makes an estimator)
Rival = tuple[str, Callable[[int, int], Any]]

RIVALS: dict[str, Rival] = {
    OURS: ("raw", lambda d, seed: SemiSupervisedClassifier(random_state=seed)),
    "LogisticRegression": ("standardized", lambda d, seed: LogisticRegression(max_iter=1000)),
    "LogisticRegression, unit rows": ("unit", lambda d, seed: LogisticRegression(C=10, max_iter=1000)),
    "SVC": ("standardized", lambda d, seed: SVC(random_state=seed)),
    "LabelSpreading, knn": ("standardized", lambda d, seed: LabelSpreading(kernel="knn", n_neighbors=7, max_iter=300)),
    "LabelSpreading, knn, unit rows": ("unit", lambda d, seed: LabelSpreading(kernel="knn", n_neighbors=7, max_iter=300)),
    "LabelSpreading, rbf": ("standardized", lambda d, seed: LabelSpreading(kernel="rbf", gamma=20, max_iter=300)),
    "LabelSpreading, rbf 1/d": ("standardized", lambda d, seed: LabelSpreading(kernel="rbf", gamma=1 / d, max_iter=300)),
    "SelfTraining": ("standardized", lambda d, seed: SelfTrainingClassifier(LogisticRegression(max_iter=1000))),
    "poisson": ("raw", lambda d, seed: SemiSupervisedClassifier("poisson", random_state=seed)),
    SLOW: ("raw", lambda d, seed: SemiSupervisedClassifier("supervised", random_state=seed)),
}


def calibration_error(confidence: Any, correct: Any) -> float:
    """Return the expected calibration error in percent: the mean gap of confidence and accuracy in ten equal bins."""
    bins = np.minimum((confidence * 10).astype(int), 9)
    gaps = [abs(float(np.sum(confidence[bins == b] - correct[bins == b]))) for b in range(10)]
    return 100 * sum(gaps) / len(confidence)


def one_run(name: str, data: Pair, labels: str, seed: int, rival: str) -> dict[str, Any]:
    X, y = data
    kind, make = RIVALS[rival]
    inputs = X if kind == "raw" else StandardScaler().fit_transform(X) if kind == "standardized" else normalize(X)
    shown = show_labels(y, labels, seed)
    known, model = shown >= 0, make(X.shape[1], seed)
    began = time.process_time()
    if rival in LABELS_ALONE:
        model.fit(inputs[known], shown[known])
        predicted = model.predict(inputs[~known])
    else:
        model.fit(inputs, shown)
        # self-training leaves uncertain samples at -1 in its transduction, so its classifier predicts them
        predicted = model.predict(inputs[~known]) if rival == "SelfTraining" else model.transduction_[~known]
    seconds = time.process_time() - began
    record: dict[str, Any] = {"set": name, "labels": labels, "seed": seed, "rival": rival, "cpu_seconds": seconds}
    if rival == OURS:
        confidence = model.fitted_proba().max(axis=1)[~known]
        record["calibration_error"] = calibration_error(confidence, predicted == y[~known])
    return {**record, "error": 100 * float(np.mean(predicted != y[~known]))}


def report(records: list[dict[str, Any]], labels: str, *, short: bool) -> None:
    """Print the table of one number of labels, the ranks, and the gaps. Datasets without runs of the default are left out."""
    errors: dict[str, dict[str, list[float]]] = {}
    for r in records:
        if r["labels"] == labels:
            errors.setdefault(r["set"], {}).setdefault(r["rival"], []).append(r["error"])
    errors = {
        name: errors[name] for name in (*REPORTED, *DEVELOPMENT) if len(errors.get(name, {})) > 1 and OURS in errors[name]
    }
    if not errors:
        return
    print(f"\n## {labels.removesuffix('r')} labels per class{', drawn at random' if labels.endswith('r') else ''}\n")
    means = {name: {rival: float(np.mean(found)) for rival, found in row.items()} for name, row in errors.items()}
    (show_short if short else show_all)(errors, means)
    rivals = [rival for rival in RIVALS if all(rival in mean for mean in means.values())]
    ranks = np.mean([rankdata([mean[rival] for rival in rivals]) for mean in means.values()], axis=0)
    k, n = len(rivals), len(means)
    difference = studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n))
    order = sorted(zip(rivals, ranks, strict=True), key=lambda pair: pair[1])
    print("\nmean rank: " + ", ".join(f"{rival} {rank:.2f}" for rival, rank in order))
    print(f"Nemenyi's critical difference: {difference:.2f} ({n} datasets, {k} estimators)")
    found = {name: gaps(mean) for name, mean in means.items()}
    to_best, to_alone = np.array(list(found.values())).T
    print(f"gap to the best other: median {np.median(to_best):+.1f}, worst {to_best.max():+.1f} points")
    print(f"gap to labels alone: median {np.median(to_alone):+.1f}, worst {to_alone.max():+.1f} points")
    behind = sorted(((gap[0], name) for name, gap in found.items() if gap[0] > 1.0), reverse=True)
    print(f"more than 1 point behind the best other: {', '.join(f'{name} {gap:+.1f}' for gap, name in behind) or 'none'}")
    calibration = [
        r["calibration_error"] for r in records if r["labels"] == labels and r["set"] in errors and r["rival"] == OURS
    ]
    print(f"expected calibration error of {OURS}: mean {np.mean(calibration):.1f} points")


def gaps(mean: dict[str, float]) -> tuple[float, float]:
    """Return the error of the default minus that of the best other estimator, and minus the best of LABELS_ALONE."""
    alone = [mean[rival] for rival in LABELS_ALONE if rival in mean]
    return mean[OURS] - min(value for rival, value in mean.items() if rival != OURS), mean[OURS] - min(alone, default=np.nan)


def show_all(errors: dict[str, dict[str, list[float]]], means: dict[str, dict[str, float]]) -> None:
    """Print the mean error of each estimator on each dataset, ± standard deviation over the draws."""
    rivals = [rival for rival in RIVALS if any(rival in row for row in errors.values())]
    rows = []
    for name, row in errors.items():
        cells = [f"{np.mean(row[rival]):.1f} ± {np.std(row[rival]):.1f}" if rival in row else "–" for rival in rivals]
        rows.append([name, *cells, *(f"{gap:+.1f}" for gap in gaps(means[name]))])
    show(["dataset", *rivals, "to the best other", "to the best on labels alone"], rows)


def show_short(errors: dict[str, dict[str, list[float]]], means: dict[str, dict[str, float]]) -> None:
    """Print for each dataset the default, the best other estimator and the best one on labels alone."""
    rows = []
    for name, mean in means.items():
        best = min((rival for rival in mean if rival != OURS), key=lambda rival: mean[rival])
        alone = min((rival for rival in LABELS_ALONE if rival in mean), key=lambda rival: mean[rival])
        cells = [f"{mean[rival]:.1f} ± {np.std(errors[name][rival]):.1f}" for rival in (OURS, best, alone)]
        to_best, to_alone = gaps(mean)
        rows.append([name, cells[0], cells[1], best, f"{to_best:+.1f}", cells[2], f"{to_alone:+.1f}"])
    show(["dataset", "default", "best other", "which", "gap", "best on labels alone", "gap"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="reported", help="'reported', 'development', or names separated by commas")
    parser.add_argument("--labels", default="1,2,5,10,5r", help="labels per class, separated by commas; 5r: at random")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--leave-out", default="", help="estimators that are not run, separated by semicolons")
    parser.add_argument("--record", type=Path, default=Path("results/defaults.jsonl"))
    parser.add_argument("--short", action="store_true", help="only the default, the best other and the best on labels alone")
    parser.add_argument("--table", action="store_true", help="print the tables of recorded runs, and run nothing")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    known = {**DEVELOPMENT, **REPORTED}
    groups = {"reported": REPORTED, "development": DEVELOPMENT}
    names = list(groups[args.sets]) if args.sets in groups else args.sets.split(",")
    rivals = [rival for rival in RIVALS if rival not in args.leave_out.split(";")]
    done = {(r["set"], r["labels"], r["seed"], r["rival"]) for r in read_runs(args.record)}
    for name in [] if args.table else names:
        try:
            data = known[name]()
        except FileNotFoundError as error:
            print(f"left out {name}: {error}")
            continue
        for labels in args.labels.split(","):
            for rival in rivals:
                if len(data[1]) > LARGEST_KERNEL and rival.startswith("LabelSpreading, rbf"):
                    continue
                for seed in range(args.draws):
                    if (name, labels, seed, rival) not in done:
                        record_runs(args.record, one_run(name, data, labels, seed, rival))
        print(f"{name}: {data[0].shape[0]} x {data[0].shape[1]}, {len(np.unique(data[1]))} classes", flush=True)
    records = [r for r in read_runs(args.record) if r["set"] in names and r["rival"] in rivals and r["seed"] < args.draws]
    for labels in args.labels.split(","):
        report(records, labels, short=args.short)


if __name__ == "__main__":
    main()
