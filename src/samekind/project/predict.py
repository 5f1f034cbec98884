"""Prediction with a run: writes a label and a confidence for each item of new data as CSV."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy.typing as npt

from samekind.data.readers.reader import Skipped
from samekind.data.user_data import open_like
from samekind.estimator import SemiSupervisedClassifier
from samekind.files.io import write_output
from samekind.files.output_paths import require_output_path
from samekind.progress import Progress
from samekind.project.run_folder import open_run, write_csv


def predict(
    run: Path,
    data: str | Path,
    out: Path,
    *,
    strict: bool = False,
    reject_below: float | None = None,
    progress: Progress | None = None,
) -> tuple[int, tuple[Skipped, ...]]:
    """Write labels and confidences of new data to the CSV file `out`; return the number of items and the skipped files.

    Where the confidence is below `reject_below`, the label is left empty.
    """
    require_output_path(out)
    opened = open_run(run)
    model = opened.model
    new = open_like(data, opened.encoding, strict=strict, cache=run / "cache", progress=progress)
    out.parent.mkdir(parents=True, exist_ok=True)
    found = top_predictions(model, model.predict_proba(new.x))
    lowest = 0.0 if reject_below is None else reject_below
    write_predictions(
        out, new.names, [(label if p >= lowest else "", p) for label, p in found], header=new.encoding.name_column
    )
    return len(new), new.skipped


def top_predictions(model: SemiSupervisedClassifier, probabilities: npt.NDArray[Any]) -> list[tuple[str, float]]:
    """Return the most probable class of each sample and its probability, from probabilities (n, C)."""
    best = probabilities.argmax(axis=1)
    return [(str(model.classes_[c]), float(probabilities[sample, c])) for sample, c in enumerate(best)]


def write_predictions(
    path: Path,
    names: Iterable[str],
    predictions: list[tuple[str, float]],
    given: Iterable[Any] | None = None,
    *,
    header: str = "path",
) -> None:
    """Write the name, label and confidence of each item as CSV. `header` is the header of the column with the names.

    `given` are the training labels of a run, None for an unlabelled item. A training label is written instead of the
    prediction, with "yes" in a further column "given". Without `given`, `path` was chosen by the user, so it may be a link, a
    pipe or a device.
    """
    if given is None:
        cells = ([name, *_cells(p)] for name, p in zip(names, predictions, strict=True))
        write_csv(path, [header, "label", "confidence"], cells, write=write_output)
        return
    rows = (
        [name, *_cells(prediction), ""] if label is None else [name, str(label), "1.000000", "yes"]
        for name, prediction, label in zip(names, predictions, given, strict=True)
    )
    write_csv(path, [header, "label", "confidence", "given"], rows)


def _cells(prediction: tuple[str, float]) -> list[str]:
    label, confidence = prediction
    return [label, f"{confidence:.6f}"]
