"""Tables of recorded runs: errors, differences, cost, similarity, and settings that a search chose. Works without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

from samekind.bench.records import Record
from samekind.bench.reporting.compare import CONFIDENCE, NO_VALUE, Comparison, format_tflop
from samekind.bench.reporting.text_table import TextTable

COST_FORMATS: dict[str, Callable[[float], str]] = {  # {field in the cost of a record: function that formats its value}
    "flops": format_tflop,
    "steps": lambda steps: f"{steps:.0f}",
    "rows": lambda samples: f"{samples:.0f}",
    "cpu_seconds": lambda seconds: f"{seconds:.1f}",
    "seconds": lambda seconds: f"{seconds:.1f}",
    "peak_memory_mb": lambda mb: f"{mb:.0f}",
}
SIMILARITY_COLUMNS = {  # {field in the similarity metrics of a record: header of its column}
    "precision_at_9": "precision@9 %: W",
    "precision_at_9_gaussian": "Gaussian kernel",
    "auc": "AUC: W",
    "auc_gaussian": "Gaussian kernel",
    "mse": "MSE: W",
    "mse_labels": "0/1 by predicted class",
    "mse_balanced": "balanced MSE: W",
    "mse_labels_balanced": "0/1 by predicted class",
}


def error_table(comparison: Comparison) -> TextTable:
    """Return the table of errors: mean ± standard deviation over splits, the error of the student, and the paper's error.

    The lowest error in a column is bold if its difference from every other row is significant.
    """
    rows = comparison.rows
    header, contents = ["method"], [list(rows)]
    bold: set[tuple[int, int]] = set()
    for column in comparison.columns:
        best = comparison.best(column)
        if best is not None:
            bold.add((rows.index(best), len(header)))
        header.append(f"{column.label(comparison.columns)}: error %")
        contents.append([format_mean_std(comparison.errors(row, column)) for row in rows])
        if any(comparison.errors(row, column) != comparison.errors(row, column, "student_error") for row in rows):
            header.append("student")
            contents.append([format_mean_std(comparison.errors(row, column, "student_error")) for row in rows])
        published = [_published(comparison.runs.get((row, column), [])) for row in rows]
        if any(one != NO_VALUE for one in published):
            header.append("paper")
            contents.append(published)
    header.append("splits")
    contents.append([_format_range([len(comparison.errors(row, column)) for column in comparison.columns]) for row in rows])
    return TextTable(tuple(header), tuple(zip(*contents, strict=True)), frozenset(bold), frozenset(range(1, len(header))))


def difference_table(comparison: Comparison) -> TextTable:
    """Return the table of differences: error of each row minus error of the reference, with a confidence interval."""
    reference, columns = comparison.reference, comparison.columns
    header = (f"minus {reference}", *(column.label(columns) for column in columns))
    rows = tuple(
        (row, *(str(comparison.difference(row, reference, column)) for column in columns))
        for row in comparison.rows
        if row != reference
    )
    return TextTable(header, rows, numeric=frozenset(range(1, len(header))))


def cost_table(comparison: Comparison) -> TextTable:
    """Return the table of the mean cost of a run: FLOPs, steps, images, seconds and memory."""
    header = ("method", "data", "TFLOP", "steps", "images seen", "CPU-s", "s", "peak MB")
    rows = tuple(
        (row, column.label(comparison.columns), *(write(mean_cost(runs, name)) for name, write in COST_FORMATS.items()))
        for row, column, runs in comparison.iter_cells()
    )
    return TextTable(header, rows, numeric=frozenset(range(2, len(header))))


def mean_cost(runs: Sequence[Record], name: str) -> float:
    """Return the mean over runs of one field of their cost; a run without the field counts as 0."""
    return fmean(record["cost"].get(name) or 0.0 for record in runs)


def compute_table(comparison: Comparison) -> TextTable:
    """Return the table of error against FLOPs: a line for each dataset, method and budget, in ascending order of FLOPs."""
    rows = [
        (f"{data}, {labels} labels", row, format_tflop(flops), format_mean_std(errors), str(len(errors)))
        for data, labels, row, points in comparison.compute_curves()
        for flops, errors in points
    ]
    return TextTable(("data", "method", "TFLOP", "error %", "splits"), tuple(rows), numeric=frozenset({2, 3, 4}))


def similarity_table(comparison: Comparison) -> TextTable | None:
    """Return the table of metrics of the learned similarity W; None if no run has measured them."""
    rows = []
    digits = {name: 2 if name.startswith("precision") else 4 for name in SIMILARITY_COLUMNS}
    for row, column, runs in comparison.iter_cells():
        measured = [record["similarity"] for record in runs if "similarity" in record]
        if measured:
            values = [format_mean_std([one[name] for one in measured], digits[name]) for name in SIMILARITY_COLUMNS]
            rows.append((row, column.label(comparison.columns), *values))
    if not rows:
        return None
    header = ("method", "data", *SIMILARITY_COLUMNS.values())
    return TextTable(header, tuple(rows), numeric=frozenset(range(2, len(header))))


def tuned_settings_table(comparison: Comparison) -> TextTable | None:
    """Return the table of settings that a hyperparameter search has chosen; None if there was no search."""
    rows = []
    for row, column, runs in comparison.iter_cells():
        tuned = next((record["chosen"] for record in runs if record.get("trials")), None)
        if tuned is not None:
            text = ", ".join(f"{name} {_format_setting(value)}" for name, value in tuned.items()) or "the defaults"
            rows.append((row, column.label(comparison.columns), text))
    return TextTable(("method", "data", "chosen"), tuple(rows)) if rows else None


def remarks(comparison: Comparison, failed: Iterable[Record] = ()) -> list[str]:
    """Return sentences that explain the tables: the statistics, missing splits, versions of the code, and failed runs."""
    texts = [
        f"Mean ± standard deviation over splits. Differences are paired over common splits, with a {CONFIDENCE:.0%} t interval "
        "that is not corrected for the number of comparisons. Bold: the lowest error, if its difference to every other row is "
        "significant."
    ]
    if comparison.fewest_splits < 2:
        texts.append("Some rows have one split only: they have no standard deviation and no interval, and are never bold.")
    elif len(comparison.rows) > 1 and all(comparison.best(column) is None for column in comparison.columns):
        texts.append(
            "No row is bold: with this number of splits, the lowest error does not differ significantly from all others."
        )
    records = [record for runs in comparison.runs.values() for record in runs]
    if "unlabelled" in {record["judged_on"] for record in records}:
        texts.append("Moons and circles are evaluated on the unlabelled points.")
    hashes = {record["code"]["hash"] for record in records}
    if len(hashes) > 1:
        texts.append(f"These runs were made by {len(hashes)} versions of the code: {', '.join(sorted(hashes))}.")
    texts += [f"{one['row']}, split {one['seed']} failed: {one['failed']}" for one in failed]
    return texts


def format_mean_std(values: Sequence[float], digits: int = 2) -> str:
    """Return "mean ± standard deviation" as a text; for one value only the mean, and for none a dash."""
    if not values:
        return NO_VALUE
    mean = f"{fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {stdev(values):.{digits}f}"


def _format_setting(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _published(records: Sequence[Record]) -> str:
    published: dict[str, Any] = next((r["published"] for r in records if r.get("published")), {})
    if not published:
        return NO_VALUE
    return f"{published['error']:.2f}" + (f" ± {published['spread']:.2f}" if published.get("spread") is not None else "")


def _format_range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
