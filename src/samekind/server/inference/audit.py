"""An honest accuracy: from labels of items drawn at random, given without a look at the prediction, and not learned from.

Labels gathered where the model is in doubt say nothing about how often it is right.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from samekind.server.session import Session
from samekind.server.store.label_classes import AUDIT_KEY

Z95 = 1.959964


def interval(correct: int, n: int, z: float = Z95) -> tuple[float, float]:
    """The share that `correct` of n stands for, with 95 % confidence (Wilson)."""
    share = correct / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def of_page(session: Session) -> dict[str, Any] | None:
    """How right the model in use is by the audit; None if nothing was audited."""
    predictions, store = session.predictions, session.store
    states = store.states.first(len(predictions))
    audited = np.flatnonzero(states.audit & (states.status == 1))
    skipped = int((states.audit & (states.status == 2)).sum())
    if not len(audited) and not skipped:
        return None
    answer = {"n": len(audited), "skipped": skipped, "in_training": store.meta(AUDIT_KEY) == "yes"}
    unknown = dict.fromkeys(("correct", "accuracy", "low", "high"))
    if not predictions.trained:
        return {**answer, **unknown, "why": "There is no model yet that could be judged."}
    if predictions.words.get("audit_used"):
        why = "The model in use has learned from the audited items, so they cannot judge it. Audit others."
        return {**answer, **unknown, "why": why}
    if not len(audited):
        return {**answer, **unknown, "correct": 0, "why": "Only skipped so far."}
    correct = int((predictions.pred[audited] == states.class_id[audited]).sum())
    low, high = interval(correct, len(audited))
    rounded = {"accuracy": round(correct / len(audited), 4), "low": round(low, 4), "high": round(high, 4)}
    return {**answer, "correct": correct, **rounded, "why": None}
