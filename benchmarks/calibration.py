"""Calibration of trained networks: how much does a temperature fitted to held-out labels lower the calibration error?

    python benchmarks/calibration.py digits --draws 3
    python benchmarks/calibration.py cifar10 --draws 3      (needs $SAMEKIND_DATA and the extra `encoders`)

50 labels per draw, method learned_graph. Printed for the unlabelled samples: the error, the expected calibration error
(15 bins) as trained, and after temperature scaling by three temperatures:

    retrained   from labels held out in five folds, each predicted by a network trained without them for a fifth of the steps
    head        from labels held out in five folds, each predicted by logistic regression on the features of the final network
    oracle      from the true classes of the unlabelled samples: the best that any temperature can do
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from samekind import PartialLabelKFold, SemiSupervisedClassifier

from datasets import cifar10_features

Array = npt.NDArray[Any]
TEMPERATURES = np.geomspace(0.3, 10.0, 80)
FOLDS = PartialLabelKFold(5)


def calibration_error(P: Array, y: Array, n_bins: int = 15) -> float:
    """Return the expected calibration error: the mean gap of confidence and accuracy over bins of confidence."""
    confidence, correct = P.max(1), P.argmax(1) == y
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    gaps = [abs((confidence[bins == b] - correct[bins == b]).sum()) for b in range(n_bins)]
    return float(sum(gaps) / len(y))


def temper(P: Array, temperature: float) -> Array:
    """Return the probabilities of logits that are divided by the temperature."""
    powers = np.clip(P, 1e-12, 1.0) ** (1.0 / temperature)
    return np.asarray(powers / powers.sum(1, keepdims=True))


def best_temperature(P: Array, y: Array) -> float:
    """Return the temperature with the smallest mean cross-entropy."""
    losses = [-np.log(temper(P, T)[np.arange(len(y)), y]).mean() for T in TEMPERATURES]
    return float(TEMPERATURES[int(np.argmin(losses))])


def held_out_by_retraining(X: Array, shown: Array, epochs: float, seed: int) -> Array:
    """Return the probabilities of each labelled sample by a network trained without its label."""
    P = np.zeros((len(X), shown.max() + 1))
    for _, test in FOLDS.split(X, shown):
        y = shown.copy()
        y[test] = -1
        P[test] = SemiSupervisedClassifier("learned_graph", epochs=epochs, random_state=seed).fit(X, y).fitted_proba()[test]
    return P


def held_out_by_head(z: Array, shown: Array) -> Array:
    """Return the probabilities of each labelled sample by logistic regression on features, fitted without its label."""
    P, labelled = np.zeros((len(z), shown.max() + 1)), shown >= 0
    z = (z - z.mean(0)) / z.std()
    for train, test in FOLDS.split(z, shown):
        own = train[labelled[train]]
        P[test] = LogisticRegression(max_iter=500).fit(z[own], shown[own]).predict_proba(z[test])
    return P


def measure(X: Array, truth: Array, seed: int, n_labels: int = 50) -> str:
    """Return one line with the figures of a draw of labels."""
    rng, n_classes = np.random.default_rng(seed), int(truth.max()) + 1
    shown = np.full(len(truth), -1)
    for c in range(n_classes):
        shown[rng.permutation(np.flatnonzero(truth == c))[: n_labels // n_classes]] = c
    model = SemiSupervisedClassifier("learned_graph", random_state=seed).fit(X, shown)
    labelled, y = shown >= 0, truth[shown < 0]
    P, own = model.fitted_proba()[~labelled], shown[labelled]
    found = {
        "retrained": best_temperature(held_out_by_retraining(X, shown, model.epochs_ / 5, seed)[labelled], own),
        "head": best_temperature(held_out_by_head(model.fitted_features(), shown)[labelled], own),
        "oracle": best_temperature(P, y),
    }
    after = [f"{name} T {T:.2f} ECE {100 * calibration_error(temper(P, T), y):.1f}" for name, T in found.items()]
    error = 100 * float(np.mean(P.argmax(1) != y))
    return f"draw {seed}: error {error:.1f} %, ECE {100 * calibration_error(P, y):.1f}; {'; '.join(after)}"


def main() -> None:
    """Print one line for each draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", choices=["digits", "cifar10"])
    parser.add_argument("--draws", type=int, default=3)
    given = parser.parse_args()
    digits = load_digits()
    X, y = (digits.images, digits.target) if given.data == "digits" else cifar10_features(0, 2000)
    for seed in range(given.draws):
        print(measure(X, y, seed), flush=True)


if __name__ == "__main__":
    main()
