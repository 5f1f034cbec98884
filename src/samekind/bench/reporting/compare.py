"""Comparison of recorded runs: arranges them in rows and columns, and computes differences with confidence intervals.

Two methods are compared on the splits that both have, identified by their hashes. Which samples are labelled in a split makes
it easier or harder for all methods; differences within a split remove this effect. Intervals are Student's t intervals at 95 %.
This module works without torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from samekind.bench.records import Record
from samekind.errors import DataError, SettingError, did_you_mean

CONFIDENCE = 0.95
NO_VALUE = "–"
# the first of these rows that has runs is the reference, unless the user names another
REFERENCES = ("mean_teacher", "supervised", "pi_model")
# runs of one name that differ in one of these fields get separate rows
SETTING_FIELDS = ("method", "settings", "options", "preset", "width", "test")


class ColumnKey(NamedTuple):
    """Column of a comparison: dataset, number of labels, budget in FLOPs (None: no budget), and whether it is at paper
    scale.
    """

    data: str
    labels: int
    budget: float | None
    paper: bool

    def label(self, columns: Sequence[ColumnKey]) -> str:
        """Return the shortest label that distinguishes this column from the others."""
        text = f"{self.data}, {self.labels} labels"
        same_data = [column for column in columns if column[:2] == self[:2]]
        if len({column.budget for column in same_data}) > 1:
            text += f", {format_tflop(self.budget)} TFLOP" if self.budget is not None else ", no budget"
        return f"{text}, paper scale" if self.paper and len({column.paper for column in columns}) > 1 else text


class PairedDifference(NamedTuple):
    """Mean difference over n common splits, with its confidence interval, which is infinite if n is below 2."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        if not self.n:
            return NO_VALUE
        return f"{self.mean:+.2f}" + (f" [{self.low:+.2f}, {self.high:+.2f}]" if self.n > 1 else " (1 split)")


class ComputeCurve(NamedTuple):
    """Error against compute of one row on one dataset.

    `points` are (FLOPs, errors of all splits), in ascending order of FLOPs.
    """

    data: str
    labels: int
    row: str
    points: list[tuple[float, list[float]]]


@dataclass(frozen=True)
class Comparison:
    """Runs arranged in rows and columns. `runs[row, column]` has one record for each split."""

    rows: tuple[str, ...]
    columns: tuple[ColumnKey, ...]
    runs: dict[tuple[str, ColumnKey], list[Record]]
    reference: str

    def errors(self, row: str, column: ColumnKey, field: str = "error") -> list[float]:
        """Return the errors of all splits in percent. With field="student_error", they are those of the student network."""
        return [record[field] for record in self.runs.get((row, column), [])]

    def iter_cells(self) -> Iterator[tuple[str, ColumnKey, list[Record]]]:
        """Yield (row, column, records) for all cells that have runs, one column after the other."""
        for column in self.columns:
            for row in self.rows:
                if (row, column) in self.runs:
                    yield row, column, self.runs[row, column]

    def first_common_split(self, column: ColumnKey) -> dict[str, Record]:
        """Return {row: record} of the first split that all rows of the column have; an empty dict if there is no such split."""
        runs = {row: {one["seed"]: one for one in records} for row, at, records in self.iter_cells() if at == column}
        common = set.intersection(*(set(by_seed) for by_seed in runs.values())) if runs else set()
        return {row: by_seed[min(common)] for row, by_seed in runs.items()} if common else {}

    def difference(self, row: str, other: str, column: ColumnKey) -> PairedDifference:
        """Return the error of `row` minus the error of `other`, in percentage points, over the splits that both have."""
        ours, theirs = (
            {record["split"]["hash"]: record["error"] for record in self.runs.get((name, column), [])} for name in (row, other)
        )
        return paired_difference([error - theirs[split] for split, error in ours.items() if split in theirs])

    def best(self, column: ColumnKey) -> str | None:
        """Return the row with the lowest mean error; None if its difference from some other row is not significant."""
        present = [row for row in self.rows if self.runs.get((row, column))]
        if len(present) < 2:
            return None
        lowest = min(present, key=lambda row: fmean(self.errors(row, column)))
        significant = all(self.difference(row, lowest, column).excludes_zero for row in present if row != lowest)
        return lowest if significant else None

    @property
    def fewest_splits(self) -> int:
        return min(len(runs) for runs in self.runs.values())

    def compute_curves(self) -> list[ComputeCurve]:
        """Return the curve of error against FLOPs for each dataset and row. Methods without training steps have no curve."""
        curves = []
        for data, labels in dict.fromkeys((column.data, column.labels) for column in self.columns):
            for row in self.rows:
                held = [self.runs.get((row, column), []) for column in self.columns if column[:2] == (data, labels)]
                points = [(fmean(r["cost"]["flops"] for r in runs), [r["error"] for r in runs]) for runs in held if runs]
                points = sorted((flops, errors) for flops, errors in points if flops > 0)
                if points:
                    curves.append(ComputeCurve(data, labels, row, points))
        return curves


def paired_difference(differences: Sequence[float]) -> PairedDifference:
    """Return the mean of the differences, with Student's t interval."""
    n = len(differences)
    if n < 2:
        return PairedDifference(differences[0] if n else math.nan, -math.inf, math.inf, n)
    from scipy.stats import t

    # scale the interval here, because t.interval returns nan for a scale of 0, when all differences are equal
    low, high = t.interval(CONFIDENCE, n - 1)
    mean, standard_error = fmean(differences), stdev(differences) / math.sqrt(n)
    return PairedDifference(mean, mean + float(low) * standard_error, mean + float(high) * standard_error, n)


def compare_runs(records: Iterable[Record], reference: str = "") -> Comparison:
    """Return the final runs, arranged in rows and columns. The trials of a hyperparameter search are left out."""
    final = [record for record in records if "error" in record and record["judged_on"] != "validation"]
    if not final:
        raise DataError("none of these runs is finished. Run `samekind bench` first, or run it again to resume.")
    column_of_run = _columns_of(final)
    names = _row_names(final, column_of_run)
    runs: dict[tuple[str, ColumnKey], list[Record]] = {}
    for record, name, column in zip(final, names, column_of_run, strict=True):
        runs.setdefault((name, column), []).append(record)
    for held in runs.values():
        held.sort(key=lambda record: record["seed"])
    rows = tuple(dict.fromkeys(names))
    datasets = list(dict.fromkeys(column.data for _, column in runs))
    order = {column: (column.paper, datasets.index(column.data), column.labels, column.budget or 0.0) for _, column in runs}
    columns = tuple(sorted(order, key=order.__getitem__))
    if reference and reference not in rows:
        raise SettingError(
            f"the reference is {reference!r}, but no row of the table has this name; {did_you_mean(reference, rows)}"
        )
    return Comparison(rows, columns, runs, reference or next((name for name in REFERENCES if name in rows), rows[0]))


def format_tflop(flops: float | None) -> str:
    """Return FLOPs as a text in units of 1e12 (TFLOP); a dash for None."""
    return NO_VALUE if flops is None else f"{flops / 1e12:.3g}"


def _row_names(records: Sequence[Record], columns: Sequence[ColumnKey]) -> list[str]:
    """Return the name of the row of each run. Runs of one name with different settings get "#2", "#3", ... appended.

    Runs that differ only in their budget, or in settings that a search has chosen, stay in one row, so that the row can show
    error against compute.
    """
    seen: dict[tuple[str, ColumnKey], list[str]] = {}
    names = []
    for record, column in zip(records, columns, strict=True):
        trials = record.get("trials")
        name = record["row"] + (f", tuned ({trials} trials)" if trials else "")
        variants = seen.setdefault((name, column if trials else column._replace(budget=None)), [])
        variant = repr([record.get(field) for field in SETTING_FIELDS])
        if variant not in variants:
            variants.append(variant)
        position = variants.index(variant)
        names.append(name if position == 0 else f"{name} #{position + 1}")
    return names


def _columns_of(records: Sequence[Record]) -> list[ColumnKey]:
    """Return the column that each run belongs to."""
    names = _short_names({str(record["data"]) for record in records})
    return [
        ColumnKey(names[str(record["data"])], record["labels"], record.get("budget"), bool(record.get("preset")))
        for record in records
    ]


def _short_names(paths: Iterable[str]) -> dict[str, str]:
    """Return {path: its shortest ending that is unique}. Usually that is the last part of the path."""
    parts = {path: path.rstrip("/").split("/") for path in paths}

    def ending(path: str, n: int) -> str:
        return "/".join(parts[path][-n:])

    def shortest(path: str) -> str:
        others = [other for other in parts if parts[other] != parts[path]]
        lengths = range(1, len(parts[path]) + 1)
        n = next((n for n in lengths if all(ending(other, n) != ending(path, n) for other in others)), len(parts[path]))
        return ending(path, n)

    return {path: shortest(path) for path in parts}
