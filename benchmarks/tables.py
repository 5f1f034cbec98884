"""Plain text tables, labels by draw, and runs and models that are kept: what the benchmark scripts share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from samekind import SemiSupervisedClassifier
from samekind.bench.records import append_records, read_records
from samekind.data.hub.loaders import load_dataset
from samekind.data.splits import hide_labels

draw_labels = hide_labels  # y with all labels hidden (-1) but `per_class` of each class, drawn by seed


def mean_and_spread(errors: Sequence[float]) -> str:
    return f"{np.mean(errors):5.2f} ± {np.std(errors, ddof=1) if len(errors) > 1 else 0.0:4.2f}"


def show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a Markdown table with aligned columns."""
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    for n, row in enumerate([header, *rows]):
        print("| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if n == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def kept(path: Path | str) -> list[dict[str, Any]]:
    """The runs in a file of one JSON line each; none if there is no file, or no path."""
    return read_records(Path(path)) if path else []


def keep(path: Path | str, *records: dict[str, Any]) -> None:
    """Adds runs to a file of one JSON line each; without a path they are not kept."""
    if path:
        append_records(Path(path), *records)


def fitted(model: SemiSupervisedClassifier, folder: Path | None, labels: int, seed: int) -> SemiSupervisedClassifier:
    """The model that is kept in the folder; else this one, fitted to MNIST with so many labels, and kept there."""
    if folder is not None and (folder / "model.json").exists():
        return SemiSupervisedClassifier.load(folder)
    mnist = load_dataset("mnist")
    model.fit(mnist.x, hide_labels(mnist.y, labels // 10, seed))
    if folder is not None:
        model.save(folder)
    return model
