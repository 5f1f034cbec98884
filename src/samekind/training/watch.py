"""Watchfulness: what is recorded at each look, and when to raise the alarm."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor

from samekind.errors import CollapseWarning, DivergedError


def require_finite(terms: Mapping[str, Tensor], step: int) -> None:
    """Stops at the first term that is not finite, and names it."""
    for name, term in terms.items():
        if not bool(term.isfinite()):
            raise DivergedError(
                f"the loss term {name!r} became {float(term.detach())} at step {step}. Look for extreme "
                "values in X first; then try a smaller learning_rate, or a larger eps in the settings of the method."
            )


def look(step: int, terms: Mapping[str, Tensor], observed: Mapping[str, Tensor]) -> dict[str, Any]:
    """One record: each loss term, mean W, entropy of the mean prediction (1 = classes even), class shares, spread of f."""
    record: dict[str, Any] = {"step": step, "loss": {name: round(float(term.detach()), 6) for name, term in terms.items()}}
    if "mean_w" in observed:
        record["mean_w"] = round(float(observed["mean_w"]), 4)
    if "mean_f" in observed:
        shares = observed["mean_f"].tolist()
        record["entropy"] = round(relative_entropy(shares), 4)
        record["class_shares"] = [round(share, 4) for share in shares]
    if "spread" in observed:
        record["spread"] = round(float(observed["spread"]), 5)
    return record


def relative_entropy(shares: list[float]) -> float:
    """Entropy of the mean prediction as a share of its maximum: 0 if all rows get one class, 1 if classes are even."""
    if len(shares) < 2:
        return 1.0
    return -sum(p * math.log(p) for p in shares if p > 0) / math.log(len(shares))


def is_collapsed(record: Mapping[str, Any]) -> bool:
    """The same answer for every row: a certain one, or any answer at all where the graph holds every pair to be alike."""
    if "mean_w" in record:
        return bool(record["mean_w"] > 0.9 and record.get("spread", 1.0) < 0.01)
    return bool(record.get("entropy", 1.0) < 0.05)


class Watch:
    """Keeps the records of a run, writes each as a JSON line, and warns once if the classifier collapses."""

    def __init__(self, path: str | Path | None = None, *, patience: int = 3) -> None:
        self.records: list[dict[str, Any]] = []
        self.patience = patience
        self._file: TextIO | None = None
        if path is not None:
            self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - stays open until close()
        self._started = time.perf_counter()
        self._collapsed = 0

    def __call__(self, step: int, terms: Mapping[str, Tensor], observed: Mapping[str, Tensor]) -> None:
        record = look(step, terms, observed)
        self.records.append(record)
        self._collapsed = self._collapsed + 1 if is_collapsed(record) else 0
        if self._collapsed == self.patience:
            _warn_of_collapse(record)
        if self._file is not None:
            seconds = round(time.perf_counter() - self._started, 3)
            self._file.write(json.dumps({**record, "seconds": seconds}) + "\n")
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _warn_of_collapse(record: Mapping[str, Any]) -> None:
    mean_w = f", mean W {record['mean_w']:.2f}" if "mean_w" in record else ""
    warnings.warn(
        f"at step {record['step']} every row gets the same answer (entropy of the mean prediction {record['entropy']:.2f} of "
        f"1{mean_w}). Lower lambda2 or raise graph_start in the settings, use weaker views, or label more rows of the "
        "classes that vanished.",
        CollapseWarning,
        stacklevel=3,
    )
