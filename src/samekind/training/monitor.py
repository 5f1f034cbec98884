"""Watchfulness: what is recorded at each look, and when to raise the alarm."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor

from samekind.errors import CollapseWarning, DivergedError
from samekind.io import atomic_write
from samekind.training.metering import Meter


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


class Monitor:
    """Keeps the records of a run, writes each as a JSON line, and warns once if the classifier collapses."""

    def __init__(self, path: str | Path | None = None, *, patience: int = 3, meter: Meter | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self.patience = patience
        self._path = None if path is None else Path(path)
        self._file: TextIO | None = None
        self._meter = meter or Meter()
        self._collapsed = 0

    def __call__(self, step: int, terms: Mapping[str, Tensor], observed: Mapping[str, Tensor]) -> None:
        record = look(step, terms, observed)
        self.records.append(record)
        self._collapsed = self._collapsed + 1 if is_collapsed(record) else 0
        if self._collapsed == self.patience:
            _warn_of_collapse(record)
        if self._path is not None:
            if self._file is None:
                self._file = self._path.open("a" if len(self.records) > 1 else "w", encoding="utf-8")
            self._file.write(json.dumps({**record, "seconds": round(self._meter.seconds, 3)}) + "\n")
            self._file.flush()

    def state_dict(self) -> dict[str, Any]:
        return {"records": self.records, "collapsed": self._collapsed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a run stopped; what it wrote after that will come again, and is taken out of the file."""
        self.records, self._collapsed = list(state["records"]), state["collapsed"]
        if self._path is not None:
            written = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
            lines = written[: len(self.records)]
            if [_step_of(line) for line in lines] != [record["step"] for record in self.records]:
                lines = [json.dumps(record) for record in self.records]  # the file of another run, or none
            atomic_write(self._path, "".join(line + "\n" for line in lines).encode())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _step_of(line: str) -> Any:
    try:
        return json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return None


def _warn_of_collapse(record: Mapping[str, Any]) -> None:
    mean_w = f", mean W {record['mean_w']:.2f}" if "mean_w" in record else ""
    warnings.warn(
        f"at step {record['step']} every row gets the same answer (entropy of the mean prediction {record['entropy']:.2f} of "
        f"1{mean_w}). Lower lambda2 or raise graph_start in the settings, use weaker views, or label more rows of the "
        "classes that vanished.",
        CollapseWarning,
        stacklevel=3,
    )
