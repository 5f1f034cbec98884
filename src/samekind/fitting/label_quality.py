"""Quality of a fit, judged by its labels: cross-validated accuracy with an interval, and advice on what to label next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Z_95 = 1.96  # quantile of the normal distribution for a 95 % interval
CONFUSED = 0.3  # a confusion is reported if at least this fraction of a class's held-out labels is predicted as one other class
# if the classifiers that ignore unlabelled samples have together more than this weight, the quality report says so
LABELS_ALONE = 0.9
CLASSES_SHOWN = 5  # largest number of classes with one label that are named


@dataclass(frozen=True)
class LabelQuality:
    """Quality of a fit, judged by its labels.

    Attributes
    ----------
    n_labels : int
        Number of labels that were held out from training, in turn or once.
    accuracy : float or None
        Fraction of held-out labels that were predicted. None if no class has two labels.
    low, high : float
        95 % interval of the accuracy (Wilson).
    advice : tuple of str
        Sentences on what to label next, and on what the unlabelled samples gain.
    """

    n_labels: int
    accuracy: float | None
    low: float
    high: float
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.accuracy is None:
            return "accuracy unknown: no class has two labels, so none can be held out. Label a second sample of each class."
        return (
            f"cross-validated accuracy on {self.n_labels} labels: {100 * self.accuracy:.0f} % "
            f"(95 % interval {100 * self.low:.0f} to {100 * self.high:.0f} %)"
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LabelQuality:
        """Return the quality with the values that `to_json` returned."""
        return cls(**{**values, "advice": tuple(values["advice"])})

    def to_json(self) -> dict[str, Any]:
        """Return the values as a dict of JSON types."""
        return {**asdict(self), "advice": list(self.advice)}


def wilson_interval(fraction: float, n: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a fraction measured on n samples (Wilson 1927)."""
    centre = (fraction + Z_95**2 / (2 * n)) / (1 + Z_95**2 / n)
    half = Z_95 / (1 + Z_95**2 / n) * math.sqrt(fraction * (1 - fraction) / n + Z_95**2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def assess(
    predicted: NDArray[Any], true: NDArray[Any], label_counts: NDArray[Any], classes: Sequence[Any], graph_weight: float
) -> LabelQuality:
    """Return the quality of a fit.

    Parameters
    ----------
    predicted, true : ndarray of shape (m,)
        Class indices of labelled samples that were held out; a sample may occur several times.
    label_counts : ndarray of shape (n_classes,)
        Number of labels of each class.
    classes : sequence of n_classes
        Names of the classes.
    graph_weight : float
        Weight of the predictions that use unlabelled samples, from 0 to 1.
    """
    advice = _one_label_advice(label_counts, classes)
    if len(true) == 0:
        return LabelQuality(0, None, 0.0, 1.0, advice)
    n = min(int(label_counts[label_counts > 1].sum()), len(true))
    accuracy = float(np.mean(predicted == true))
    advice += _confusion_advice(predicted, true, classes)
    if 1.0 - graph_weight > LABELS_ALONE:
        advice += (
            "Held-out labels favour classifiers that ignore the unlabelled samples: "
            "expect little gain from them with these features.",
        )
    return LabelQuality(n, accuracy, *wilson_interval(accuracy, n), advice)


def _one_label_advice(counts: NDArray[Any], classes: Sequence[Any]) -> tuple[str, ...]:
    single = [str(name) for name, count in zip(classes, counts, strict=True) if count == 1]
    if not single:
        return ()
    more = f" and {len(single) - CLASSES_SHOWN} more" if len(single) > CLASSES_SHOWN else ""
    return (f"One label only: {', '.join(single[:CLASSES_SHOWN])}{more}. A second label of each lets the fit check itself.",)


def _confusion_advice(predicted: NDArray[Any], true: NDArray[Any], classes: Sequence[Any]) -> tuple[str, ...]:
    """Return a sentence about the class that is most often predicted as one other class, if that happens often."""
    confusion = np.zeros((len(classes), len(classes)))
    np.add.at(confusion, (true, predicted), 1.0)
    totals = np.maximum(confusion.sum(axis=1, keepdims=True), 1.0)
    np.fill_diagonal(confusion, 0.0)
    fractions = confusion / totals
    a, b = divmod(int(fractions.argmax()), len(classes))
    if fractions[a, b] < CONFUSED:
        return ()
    return (
        f"{100 * fractions[a, b]:.0f} % of the held-out labels of {classes[a]} were predicted as {classes[b]}: "
        f"more labels of {classes[a]} and {classes[b]} would help most.",
    )
