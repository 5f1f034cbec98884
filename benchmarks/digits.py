"""Handwritten digits: 50 labels, the rest of the training images unlabelled, 500 test images held out, several splits.

    python benchmarks/digits.py --splits 10

learned_graph is compared with supervised training of the same network, Mean Teacher, scikit-learn's LabelSpreading (rbf, gamma
20, pixels/16) and an SVC on the labelled images. Then the learned similarity is compared with a Gaussian kernel on pixels, on
pairs of test images: by the ROC AUC of "same class", and by the precision among the 9 most similar images.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC

from samekind import SemiSupervisedClassifier
from samekind.data.hub.toys import digits
from samekind.data.splits import hide_labels, train_test_indices
from samekind.evaluation.metrics import error_rate, pixel_similarity, ranking_metrics

from bench_tables import mean_and_spread, show

OURS = ("supervised", "mean_teacher", "learned_graph")


def one_split(seed: int) -> tuple[dict[str, float], dict[str, float]]:
    images, y = digits()
    train, test = train_test_indices(y, 500, seed)
    shown = hide_labels(y[train], 5, seed)
    flat = images.reshape(len(images), -1) / 16.0
    errors, seconds = {}, {}
    for name in OURS:
        began = time.perf_counter()
        model = SemiSupervisedClassifier(name, random_state=seed).fit(images[train], shown)
        seconds[name] = time.perf_counter() - began
        errors[name] = error_rate(model.predict(images[test]), y[test])
    spreading = LabelSpreading(kernel="rbf", gamma=20, max_iter=300).fit(flat[train], shown)
    errors["LabelSpreading"] = error_rate(spreading.predict(flat[test]), y[test])
    labelled = shown != -1
    errors["SVC on labels"] = error_rate(SVC().fit(flat[train][labelled], shown[labelled]).predict(flat[test]), y[test])
    W, kernel = model.similarity(images[test]), pixel_similarity(images[test], np.arange(len(test)))
    quality: dict[str, float] = {}
    for one, scores in (("W", W), ("Gaussian", kernel)):
        order = ranking_metrics(scores, np.arange(len(test)), y[test], 9)
        quality |= {f"{one}: ROC-AUC": order.auc, f"{one}: precision@9": order.precision}
    print(
        f"split {seed}: " + ", ".join(f"{k} {v:.2f}" for k, v in {**errors, **quality}.items()),
        f"({seconds['learned_graph']:.0f} s)",
        flush=True,
    )
    return errors, quality


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    results = [one_split(args.first_seed + split) for split in range(args.splits)]
    print()
    show(["method", "test error %"], [[name, mean_and_spread([e[name] for e, _ in results])] for name in results[0][0]])
    print()
    show(
        ["similarity on test pairs", "mean ± std"],
        [[k, f"{np.mean([q[k] for _, q in results]):.4f} ± {np.std([q[k] for _, q in results]):.4f}"] for k in results[0][1]],
    )


if __name__ == "__main__":
    main()
