"""Monitoring of a run: log records, their files, and warnings about divergence and collapse."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor

from samekind.errors import CollapseWarning, DivergedError, SettingError
from samekind.files.io import atomic_write, read_regular
from samekind.training.metering import Meter


def require_finite(terms: Mapping[str, Tensor], step: int) -> None:
    """Raise DivergedError, with the name of the term, if a loss term is infinite or NaN."""
    for name, term in terms.items():
        if not bool(term.isfinite()):
            raise DivergedError(
                f"the loss term {name!r} became {float(term.detach())} at step {step}. Check X for extreme "
                "values first; then try a smaller learning_rate, or a larger eps in the settings of the method."
            )


def log_record(step: int, terms: Mapping[str, Tensor], observed: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return one log record: the loss terms, and statistics of the batch if `observed` has them.

    The statistics are: the mean of the pairwise similarities W; the mean prediction, as the fraction of each class; the entropy
    of the mean prediction, from 0 to 1; and the spread of the predictions, which is their variance over the samples of the
    batch, summed over the classes.
    """
    record: dict[str, Any] = {"step": step, "loss": {name: round(float(term.detach()), 6) for name, term in terms.items()}}
    if "mean_w" in observed:
        record["mean_w"] = round(float(observed["mean_w"]), 4)
    if "mean_f" in observed:
        fractions = observed["mean_f"].tolist()
        record["entropy"] = round(relative_entropy(fractions), 4)
        record["class_fractions"] = [round(fraction, 4) for fraction in fractions]
    if "spread" in observed:
        record["spread"] = round(float(observed["spread"]), 5)
    return record


def relative_entropy(p: list[float]) -> float:
    """Return the entropy of a distribution, divided by its maximum: 0 if one class has all, 1 if all classes are equal."""
    if len(p) < 2:
        return 1.0
    return -sum(p_c * math.log(p_c) for p_c in p if p_c > 0) / math.log(len(p))


def is_collapsed(record: Mapping[str, Any]) -> bool:
    """Return whether the classifier predicts the same class probabilities for all samples.

    With a similarity network, that is a mean similarity W above 0.9 and almost no variance of the predictions over the samples.
    Without one, it is a mean prediction whose entropy is near 0.
    """
    if "mean_w" in record:
        return bool(record["mean_w"] > 0.9 and record.get("spread", 1.0) < 0.01)
    return bool(record.get("entropy", 1.0) < 0.05)


class Monitor:
    """Collects the log records of a run, writes each as a JSON line, and warns once if the classifier collapses.

    The classifier has collapsed if it predicts the same for all samples in `patience` records in a row.
    """

    def __init__(self, path: str | Path | None = None, *, patience: int = 3, meter: Meter | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self.patience = patience
        self._path = None if path is None else Path(path)
        self._file: TextIO | None = None
        self._meter = meter or Meter()
        self._collapsed = 0

    def __call__(self, step: int, terms: Mapping[str, Tensor], observed: Mapping[str, Tensor]) -> None:
        """Add the log record of a step."""
        record = log_record(step, terms, observed)
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
        """Return the log records, and how many records in a row were collapsed; both JSON-serializable."""
        return {"records": self.records, "collapsed": self._collapsed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the records and the collapse counter from a checkpoint.

        Lines after the checkpoint are removed from the file of JSON lines, because the resumed run writes them again.
        """
        self.records, self._collapsed = list(state["records"]), state["collapsed"]
        if self._path is not None:
            written = _lines_of(self._path)
            lines = written[: len(self.records)]
            if [_step_of(line) for line in lines] != [record["step"] for record in self.records]:
                lines = [json.dumps(record) for record in self.records]  # the file is missing, or belongs to another run
            atomic_write(self._path, "".join(line + "\n" for line in lines).encode())

    def close(self) -> None:
        """Close the file of JSON lines."""
        if self._file is not None:
            self._file.close()


def _lines_of(path: Path) -> list[str]:
    """Return the lines of a text file, or an empty list if the file is missing or not a regular file."""
    try:
        return read_regular(path).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _step_of(line: str) -> Any:
    try:
        return json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return None


def _warn_of_collapse(record: Mapping[str, Any]) -> None:
    mean_w = f", mean W {record['mean_w']:.2f}" if "mean_w" in record else ""
    warnings.warn(
        f"at step {record['step']} every sample gets the same prediction (entropy of the mean prediction "
        f"{record['entropy']:.2f} of 1{mean_w}). Lower lambda2 or raise graph_start in the settings, use weaker views, or "
        "label more samples of the classes that vanished.",
        CollapseWarning,
        stacklevel=3,
    )


class TensorBoardWriter:
    """Writer of log records as TensorBoard events. Events of an interrupted run from step `start` on are hidden."""

    def __init__(self, folder: str | Path, start: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise SettingError(
                "tensorboard= is set, and TensorBoard is not installed. Install samekind[tensorboard], or leave out "
                "tensorboard=: history= writes the same numbers as JSON lines."
            ) from error
        self._writer: Any = SummaryWriter(str(folder), purge_step=start)

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Write all numbers of a log record."""
        for name, number in scalars(record):
            self._writer.add_scalar(name, number, record["step"])

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


def scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield each number of a log record, except the step, with a name such as loss/supervised or class_fractions/0."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}/{name}", number) for name, number in value.items())
        elif isinstance(value, list):
            yield from ((f"{key}/{place}", number) for place, number in enumerate(value))
        elif key != "step":
            yield key, value
