"""The estimator with default settings on many tabular datasets, compared with scikit-learn's semi-supervised methods.

    python benchmarks/defaults.py                       datasets that were never used to choose a default
    python benchmarks/defaults.py --sets development    datasets that were used to choose the defaults

5 labels per class, 5 random choices of labels; the error is on the unlabelled samples. The alternatives are favoured: their
inputs are standardized, and of each family the variant with the lowest *test* error is reported, which no user could choose.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from samekind import SemiSupervisedClassifier

from datasets import DEVELOPMENT, REPORTED, Pair
from tables import draw_labels, record_runs, show

FAMILIES = ("learned_graph", "supervised", "LabelSpreading", "SelfTraining")


def variants(d: int, seed: int) -> dict[str, tuple[str, Any]]:
    """Return {variant: (family, estimator)}."""
    return {
        "ours": ("learned_graph", SemiSupervisedClassifier(random_state=seed)),
        "supervised": ("supervised", SemiSupervisedClassifier("supervised", random_state=seed)),
        "LS knn": ("LabelSpreading", LabelSpreading(kernel="knn", n_neighbors=7, max_iter=300)),
        "LS rbf 20": ("LabelSpreading", LabelSpreading(kernel="rbf", gamma=20, max_iter=300)),
        "LS rbf 1/d": ("LabelSpreading", LabelSpreading(kernel="rbf", gamma=1 / d, max_iter=300)),
        "ST logistic": ("SelfTraining", SelfTrainingClassifier(LogisticRegression(max_iter=1000))),
        "ST svc": ("SelfTraining", SelfTrainingClassifier(SVC(probability=True, random_state=seed))),
    }


def run(name: str, data: Pair, seed: int, only: set[str]) -> list[dict[str, Any]]:
    X, y = data
    shown = draw_labels(y, 5, seed)
    scaled = StandardScaler().fit_transform(X)
    hidden = shown == -1
    records = []
    for variant, (family, model) in variants(X.shape[1], seed).items():
        if variant not in only or (variant in ("LS rbf 20", "LS rbf 1/d", "ST svc") and len(y) > 12000):
            continue
        began = time.perf_counter()
        model.fit(X if family in ("learned_graph", "supervised") else scaled, shown)
        # self-training leaves uncertain samples at -1 in its transduction, so its classifier predicts them
        predicted = model.predict(scaled[hidden]) if family == "SelfTraining" else model.transduction_[hidden]
        error = 100 * float(np.mean(predicted != y[hidden]))
        records.append(
            {
                "set": name,
                "seed": seed,
                "variant": variant,
                "family": family,
                "error": error,
                "seconds": time.perf_counter() - began,
            }
        )
    return records


def report(records: list[dict[str, Any]], sizes: dict[str, str]) -> None:
    rows, ranks, behind = [], [], []
    for name in dict.fromkeys(r["set"] for r in records):
        means: dict[str, tuple[float, str]] = {}
        for family in FAMILIES:
            best: tuple[float, str] | None = None
            for variant in dict.fromkeys(r["variant"] for r in records if r["family"] == family):
                errors = [r["error"] for r in records if r["set"] == name and r["variant"] == variant]
                if errors and (best is None or np.mean(errors) < best[0]):
                    best = (
                        float(np.mean(errors)),
                        f"{np.mean(errors):.1f} ± {np.std(errors, ddof=1) if len(errors) > 1 else 0:.1f}",
                    )
            if best:
                means[family] = best
        seconds = np.mean([r["seconds"] for r in records if r["set"] == name and r["variant"] == "ours"])
        if len(means) < len(FAMILIES):
            continue
        errors = [means[family][0] for family in FAMILIES]
        ranks.append(rankdata(errors))
        behind.append(errors[0] - min(errors[1:]))
        rows.append([name, sizes[name], *[means[family][1] for family in FAMILIES], f"{behind[-1]:+.1f}", f"{seconds:.1f}"])
    show(["dataset", "samples x features, classes", *FAMILIES, "ours - best other", "s/fit"], rows)
    print("\nmean rank: " + ", ".join(f"{f} {r:.2f}" for f, r in zip(FAMILIES, np.mean(ranks, axis=0), strict=True)))
    print(f"worst gap to the best other: {max(behind):+.1f} points")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="reported", help="'reported', 'development', or names separated by commas")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="variants, separated by commas; default: all")
    parser.add_argument("--record", default="", help="JSON-lines file for the runs")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    known = {**DEVELOPMENT, **REPORTED}
    names = list(
        {"reported": REPORTED, "development": DEVELOPMENT}.get(
            args.sets, {n: known[n] for n in args.sets.split(",") if n in known}
        )
    )
    only = set(args.only.split(",")) if args.only else set(variants(1, 0))
    records, sizes = [], {}
    for name in names:
        try:
            data = known[name]()
        except FileNotFoundError as error:
            print(f"left out {name}: {error}")
            continue
        sizes[name] = f"{data[0].shape[0]} x {data[0].shape[1]}, {len(np.unique(data[1]))}"
        for seed in range(args.first_seed, args.first_seed + args.draws):
            new = run(name, data, seed, only)
            records += new
            record_runs(args.record, *new)
        print(
            name,
            {
                v: round(float(np.mean([r["error"] for r in records if r["set"] == name and r["variant"] == v])), 2)
                for v in only
                if any(r["set"] == name and r["variant"] == v for r in records)
            },
            flush=True,
        )
    report(records, sizes)


if __name__ == "__main__":
    main()
