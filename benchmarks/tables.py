"""Plain text tables, and labels by draw: what the benchmark scripts share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samekind.data.splits import show_labels

draw_labels = show_labels  # y with all labels hidden (-1) but `per_class` of each class, drawn by seed


def mean_and_spread(errors: Sequence[float]) -> str:
    return f"{np.mean(errors):5.2f} ± {np.std(errors, ddof=1) if len(errors) > 1 else 0.0:4.2f}"


def show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a Markdown table with aligned columns."""
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    for n, row in enumerate([header, *rows]):
        print("| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if n == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
