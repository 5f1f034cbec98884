"""Helpers of the benchmark scripts: text tables, random labels, recorded runs and saved models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from samekind import SemiSupervisedClassifier
from samekind.bench.records import append_records, read_records
from samekind.data.hub.loaders import load_dataset
from samekind.data.splits import hide_labels

draw_labels = hide_labels  # returns y with `per_class` random labels per class, and -1 elsewhere


def mean_and_spread(errors: Sequence[float]) -> str:
    """Return mean ± standard deviation as text."""
    return f"{np.mean(errors):5.2f} ± {np.std(errors, ddof=1) if len(errors) > 1 else 0.0:4.2f}"


def show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table with aligned columns."""
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    for n, row in enumerate([header, *rows]):
        print("| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if n == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def read_runs(path: Path | str) -> list[dict[str, Any]]:
    """Return the runs in a JSON-lines file, or an empty list if the file does not exist or no path is given."""
    return read_records(Path(path)) if path else []


def record_runs(path: Path | str, *records: dict[str, Any]) -> None:
    """Append runs to a JSON-lines file; without a path, do nothing."""
    if path:
        append_records(Path(path), *records)


def load_or_fit(model: SemiSupervisedClassifier, folder: Path | None, labels: int, seed: int) -> SemiSupervisedClassifier:
    """Return the model saved in the folder; if there is none, fit the given model on MNIST and save it there."""
    if folder is not None and (folder / "model.json").exists():
        return SemiSupervisedClassifier.load(folder)
    mnist = load_dataset("mnist")
    model.fit(mnist.x, hide_labels(mnist.y, labels // 10, seed))
    if folder is not None:
        model.save(folder)
    return model
