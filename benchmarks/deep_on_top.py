"""Errors of deep methods that start from the predictions of the default for vectors, on development datasets.

    python benchmarks/deep_on_top.py
    python benchmarks/deep_on_top.py --sets ring,vehicle --labels 2,5 --draws 3

"default" is the ensemble, which trains no network. "NAME" is a deep method that learns from the given labels. "NAME after the
default" learns from the given labels and from the predictions of the default for the half of the samples in each predicted
class of which it is surest. The network of learned_graph also learns the weights of its graph from them.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

from samekind import SemiSupervisedClassifier

from bench_tables import show, show_labels
from datasets import DEVELOPMENT
from defaults import OURS

METHODS = ("mean_teacher", "learned_graph")


def surest_half(P: Any, shown: Any) -> Any:
    """Return the labels `shown`, completed by the predicted classes of the surest half of each predicted class."""
    predicted, confidence, labels = P.argmax(axis=1), P.max(axis=1), shown.copy()
    for c in range(P.shape[1]):
        members = np.flatnonzero((predicted == c) & (shown < 0))
        labels[members[np.argsort(-confidence[members])[: len(members) // 2]]] = c
    return labels


def one_draw(X: Any, shown: Any, seed: int) -> dict[str, Any]:
    """Return the predicted class of every sample by each row of the table."""
    default = SemiSupervisedClassifier(random_state=seed).fit(X, shown)
    found = {OURS: default.transduction_}
    completed = surest_half(default.fitted_proba(), shown)
    for method in METHODS:
        for name, labels in ((method, shown), (f"{method} after the default", completed)):
            model = SemiSupervisedClassifier(method, epochs="quick", random_state=seed).fit(X, labels)
            found[name] = model.predict(X)  # a class that the network changes although it was given counts as its prediction
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(name for name in DEVELOPMENT if name != "cifar10-lite0-dev"))
    parser.add_argument("--labels", default="2,5", help="labels per class, separated by commas")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--most", type=int, default=1000, help="samples of each dataset")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    counts = args.labels.split(",")
    errors: dict[tuple[str, str], list[float]] = {}
    for name in args.sets.split(","):
        X, y = DEVELOPMENT[name]()
        part = np.random.default_rng(0).permutation(len(y))[: args.most]
        X, y = X[part], np.unique(y[part], return_inverse=True)[1]
        for labels in counts:
            for seed in range(1000, 1000 + args.draws):
                shown = show_labels(y, labels, seed)
                for row, predicted in one_draw(X, shown, seed).items():
                    errors.setdefault((row, labels), []).append(100 * float(np.mean((predicted != y)[shown < 0])))
    rows = []
    for row in dict.fromkeys(row for row, _ in errors):
        cells = []
        for n in counts:
            found, reference = np.array(errors[row, n]), np.array(errors[OURS, n])
            cells += [f"{found.mean():.2f}", f"{int((found < reference).sum())} of {len(found)}"]
        rows.append([row, *cells])
    show(["row", *(cell for n in counts for cell in (f"{n} labels: error %", f"{n} labels: better than the default"))], rows)


if __name__ == "__main__":
    main()
