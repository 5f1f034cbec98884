"""Helpers of the benchmark scripts: text tables, random labels, recorded runs and saved models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind import SemiSupervisedClassifier
from samekind.bench.records import append_records, read_records
from samekind.data.hub.loaders import load_dataset
from samekind.data.splits import hide_labels, labels_at_random

draw_labels = hide_labels  # returns y with `per_class` random labels per class, and -1 elsewhere


def show_labels(y: npt.NDArray[np.int64], labels: str, seed: int) -> npt.NDArray[np.int64]:
    """Return y with -1 for hidden labels: "5" shows 5 labels of each class, "5r" as many in total, drawn at random."""
    if labels.endswith("r"):
        return labels_at_random(y, int(labels[:-1]) * len(np.unique(y)), seed)
    smallest = int(np.bincount(y).min()) - 1
    return draw_labels(y, max(1, min(int(labels), smallest)), seed)


def labels_title(labels: str) -> str:
    """Return a heading for the labels that `show_labels` shows."""
    if labels.endswith("r"):
        return f"{labels[:-1]} labels per class on average, drawn at random"
    return f"{labels} {'label' if labels == '1' else 'labels'} of each class"


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
