"""Early stopping of trained networks: do held-out labels choose a better length of training, and does averaging weights help?

    python benchmarks/early_stopping.py digits --draws 3 --samples 500
    python benchmarks/early_stopping.py cifar10 --draws 3 --samples 500       (needs $SAMEKIND_DATA)

50 labels per draw, method learned_graph. A length is a fraction of the default number of epochs. The schedules are compressed
to the length, so that each length is a complete training. Printed for the unlabelled samples: the error, the expected
calibration error (15 bins) and the accuracy of predictions with a confidence above 0.9, in percent, of these networks:

    length L    trained for L times the default number of epochs
    held out    the length with the smallest cross-entropy of labels held out in three folds, each trained at each length
    averaged    default length, with weights averaged over a fifth of the steps instead of a fiftieth
    ensemble    the mean of the probabilities of all lengths
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt
from calibration import calibration_error
from sklearn.datasets import load_digits

from samekind import PartialLabelKFold, SemiSupervisedClassifier

from bench_tables import show
from datasets import cifar10_features

Array = npt.NDArray[Any]
LENGTHS = (0.25, 0.5, 1.0)
FOLDS = PartialLabelKFold(3)
N_LABELS = 50
SURE = 0.9


def fit(X: Array, y: Array, epochs: Any, seed: int, **settings: Any) -> SemiSupervisedClassifier:
    """Return a trained classifier on the samples as they are, without an encoder."""
    model = SemiSupervisedClassifier("learned_graph", encoder=None, epochs=epochs, random_state=seed, settings=settings or None)
    return model.fit(X, y)


def held_out_loss(X: Array, shown: Array, epochs: float, seed: int) -> float:
    """Return the mean cross-entropy of the labels that are held out in the folds."""
    losses = []
    for _, test in FOLDS.split(X, shown):
        y = shown.copy()
        y[test] = -1
        P = fit(X, y, epochs, seed).fitted_proba()[test]
        losses += (-np.log(np.maximum(P[np.arange(len(test)), shown[test]], 1e-12))).tolist()
    return float(np.mean(losses))


def figures(P: Array, y: Array) -> list[str]:
    """Return error, calibration error and accuracy of sure predictions in percent, as cells."""
    sure, correct = P.max(1) > SURE, P.argmax(1) == y
    above = f"{100 * correct[sure].mean():.1f}" if sure.any() else ""
    return [f"{100 * (1 - correct.mean()):.1f}", f"{100 * calibration_error(P, y):.1f}", above]


def draw_labels(truth: Array, seed: int) -> Array:
    """Return N_LABELS labels with equally many of each class, and -1 for all other samples."""
    rng, n_classes = np.random.default_rng(seed), int(truth.max()) + 1
    shown = np.full(len(truth), -1)
    for c in range(n_classes):
        shown[rng.permutation(np.flatnonzero(truth == c))[: N_LABELS // n_classes]] = c
    return shown


def measure(name: str, X: Array, truth: Array, seed: int) -> list[list[str]]:
    """Return one row of figures for each network of a draw."""
    shown = draw_labels(truth, seed)
    hidden, y = shown < 0, truth[shown < 0]
    default = fit(X, shown, "auto", seed)
    epochs, steps = float(default.epochs_), float(default.cost_["steps"])
    fitted = {length: default if length == 1.0 else fit(X, shown, length * epochs, seed) for length in LENGTHS}
    P = {length: model.fitted_proba()[hidden] for length, model in fitted.items()}
    losses = {length: held_out_loss(X, shown, length * epochs, seed) for length in LENGTHS}
    chosen = min(losses, key=lambda length: losses[length])
    averaged = fit(X, shown, "auto", seed, ema_decay=1.0 - 5.0 / steps)
    networks = {f"length {length:g}": P[length] for length in P} | {
        f"held out: {chosen:g}": P[chosen],
        "averaged": averaged.fitted_proba()[hidden],
        "ensemble": np.mean(list(P.values()), axis=0),
    }
    own = {f"length {length:g}": f"{loss:.2f}" for length, loss in losses.items()}
    return [[f"{name}, {seed}", row, own.get(row, ""), *figures(p, y)] for row, p in networks.items()]


def main() -> None:
    """Print a table for each draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["cifar10", "digits"])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--samples", type=int, default=2000, help="number of samples, at most 2,000")
    given = parser.parse_args()
    digits = load_digits()
    X, y = (digits.images, digits.target) if given.data == "digits" else cifar10_features(0, 2000)
    X, y = X[: given.samples], y[: given.samples]
    for seed in range(given.first, given.first + given.draws):
        show(["data, draw", "network", "held-out loss", "error", "ECE", "right above 0.9"], measure(given.data, X, y, seed))
        print(flush=True)


if __name__ == "__main__":
    main()
