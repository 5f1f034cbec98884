"""Audit: an unbiased estimate of the model's accuracy, from random items that a person labels without seeing the prediction.

By default, these labels are not used for training. Other labels would bias the estimate, because a person
usually labels the uncertain items before the others.
"""

from __future__ import annotations

import math

import numpy as np
from typing_extensions import TypedDict

from samekind.server.session import Session
from samekind.server.store.label_classes import AUDIT_KEY

Z95 = 1.959964


class AuditResult(TypedDict):
    """Accuracy of the active model on the audited items, as JSON. If it cannot be measured, `reason` says why."""

    n: int
    skipped: int
    in_training: bool
    correct: int | None
    accuracy: float | None
    low: float | None
    high: float | None
    reason: str | None


def wilson_interval(correct: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Return the Wilson confidence interval of a fraction, `correct` out of n; with the default z at 95 % confidence.

    It is computed here, because importing scipy.stats would delay the first response by half a second.
    """
    fraction = correct / n
    middle = (fraction + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(fraction * (1 - fraction) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def audit_accuracy(session: Session) -> AuditResult | None:
    """Return the accuracy of the active model on the audited items; None if no item was audited."""
    predictions, store = session.predictions, session.store
    states = store.states.first(len(predictions))
    audited = np.flatnonzero(states.audit & (states.status == 1))
    skipped = int((states.audit & (states.status == 2)).sum())
    if not len(audited) and not skipped:
        return None
    result: AuditResult = {
        "n": len(audited),
        "skipped": skipped,
        "in_training": store.meta(AUDIT_KEY) == "yes",
        "correct": None,
        "accuracy": None,
        "low": None,
        "high": None,
        "reason": None,
    }
    if not predictions.trained:
        return {**result, "reason": "There is no model yet whose accuracy could be measured."}
    if predictions.metadata.get("audit_used"):
        return {
            **result,
            "reason": "The active model was trained on the audited items, so they cannot measure it. Audit other items.",
        }
    if not len(audited):
        return {**result, "correct": 0, "reason": "All audited items were skipped so far."}
    correct = int((predictions.pred[audited] == states.class_id[audited]).sum())
    low, high = wilson_interval(correct, len(audited))
    accuracy = round(correct / len(audited), 4)
    return {**result, "correct": correct, "accuracy": accuracy, "low": round(low, 4), "high": round(high, 4)}
