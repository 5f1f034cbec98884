"""ColumnPlan: what a fit does with each column of a table, decided from its values and never from the labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from samekind.data.columns.typed_table import Column, ColumnKind

Role = Literal["number", "one_hot", "frequent", "date", "text", "image", "dropped"]
ROLES: tuple[Role, ...] = get_args(Role)
MAX_ONE_HOT = 30  # a column with more categories gets its most frequent ones, and how frequent each is
MAX_COUNTED = 5000  # categories whose counts are kept; rarer ones count as seen once
MIN_IDS = 20  # a column with fewer values is never taken for an id
MOSTLY = 0.95  # fraction of different values from which text is an id, unless it has several words
TEXT_WORDS = 3.0  # mean words of a column of free text
ID_NAMES = ("id", "key", "uuid", "guid", "index", "row", "unnamed: 0")


@dataclass(frozen=True)
class ColumnPlan:
    """What becomes of one column: its role, the facts learned at the fit, and a sentence for the report.

    `categories` are the values with a feature of their own. `counts` are the frequencies of the values of a column with many
    categories. `origin` is the first day of a date column, in days since 1970.
    """

    name: str
    kind: ColumnKind
    role: Role
    note: str
    date_format: str = ""
    categories: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    origin: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}: {self.note}"

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a dict of JSON values."""
        return {**asdict(self), "categories": list(self.categories), "counts": dict(self.counts)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ColumnPlan:
        """Return the plan that `to_json` was called on."""
        return cls(**{**content, "categories": tuple(content["categories"])})


def plan_column(name: str, column: Column) -> ColumnPlan:
    """Return what a fit does with a column."""
    missing = column.missing()
    n, n_missing = len(column), int(missing.sum())
    present = column.values[~missing]
    plan = _Planner(name, column, n_missing, f" ({column.unread})" if column.unread else "")
    if n_missing == n:
        return plan.drop("it is empty in every row")
    if column.kind in ("number", "boolean"):
        return _plan_numbers(plan, present)
    if column.kind == "date":
        return _plan_dates(plan, present)
    if column.kind == "image":
        return plan.use("image", f"{n - n_missing} images{plan.gaps('an image of zeros')}")
    return _plan_texts(plan, present)


@dataclass(frozen=True)
class _Planner:
    name: str
    column: Column
    n_missing: int
    unread: str

    def use(self, role: Role, note: str, **facts: Any) -> ColumnPlan:
        """Return the plan to use the column."""
        return ColumnPlan(self.name, self.column.kind, role, note + self.unread, self.column.date_format, **facts)

    def drop(self, reason: str) -> ColumnPlan:
        """Return the plan to leave the column out."""
        return self.use("dropped", f"left out, because {reason}")

    def gaps(self, replacement: str) -> str:
        """Return the clause on missing values; empty if there are none."""
        if not self.n_missing:
            return ""
        return f"; {self.n_missing} of {len(self.column)} missing, replaced by {replacement} and marked by a flag"


def _plan_numbers(plan: _Planner, present: Any) -> ColumnPlan:
    low, high = float(present.min()), float(present.max())
    if low == high and not plan.n_missing:
        return plan.drop(f"it is always {_shown(low)}")
    if _numbers_rows(plan.name, present):
        return plan.drop("it numbers the rows")
    median = _shown(float(np.median(present)))
    if plan.column.kind == "boolean":
        return plan.use("number", f"true or false{plan.gaps(median)}")
    return plan.use("number", f"number from {_shown(low)} to {_shown(high)}{plan.gaps('the median ' + median)}")


def _numbers_rows(name: str, present: Any) -> bool:
    """Return whether numbers identify the rows: different whole numbers without gaps, or in a column whose name says so."""
    if len(present) < MIN_IDS or (present != np.floor(present)).any() or len(np.unique(present)) < len(present):
        return False
    return bool(present.max() - present.min() == len(present) - 1) or _is_id_name(name)


def _is_id_name(name: str) -> bool:
    lower = name.strip().lower()
    return lower in ID_NAMES or lower.endswith(("_id", " id", ".id", "-id")) or (name.endswith(("Id", "ID")))


def _plan_dates(plan: _Planner, present: Any) -> ColumnPlan:
    first, last = present.min(), present.max()
    if first == last and not plan.n_missing:
        return plan.drop(f"it is always {first.item():%Y-%m-%d}")
    days = f"date from {first.item():%Y-%m-%d} to {last.item():%Y-%m-%d}"
    read = f", read as {plan.column.date_format}" if plan.column.date_format.startswith(("%d", "%m")) else ""
    note = f"{days}{read}: year, month, day, weekday, hour and elapsed days{plan.gaps('the median of each')}"
    return plan.use("date", note, origin=float(first.astype("datetime64[D]").astype(np.int64)))


def _plan_texts(plan: _Planner, present: Any) -> ColumnPlan:
    counts = Counter(present.tolist())
    values = sorted(counts)
    if len(counts) == 1 and not plan.n_missing:
        return plan.drop(f"it is always {values[0][:40]!r}")
    gap = f"; {plan.n_missing} of {len(plan.column)} missing, which is a category too" if plan.n_missing else ""
    n_words = sum(len(value.split()) * count for value, count in counts.items()) / len(present)
    if plan.column.kind != "category" and n_words >= TEXT_WORDS and len(counts) > MAX_ONE_HOT:
        return plan.use("text", f"text with {n_words:.0f} words in the mean, as TF-IDF{plan.gaps('an empty text')}")
    if len(counts) >= MOSTLY * len(present) and len(present) >= MIN_IDS:
        return plan.drop(f"{len(counts)} of its {len(present)} values differ, like those of an id")
    if len(counts) <= MAX_ONE_HOT:
        return plan.use("one_hot", f"{len(counts)} categories ({_listed(values)}){gap}", categories=tuple(values))
    kept = sorted(sorted(counts, key=lambda value: (-counts[value], value))[:MAX_ONE_HOT])
    frequent = dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_COUNTED])
    note = f"{len(counts)} categories: a feature for each of the {MAX_ONE_HOT} most frequent, and how frequent each is{gap}"
    return plan.use("frequent", note, categories=tuple(kept), counts=frequent)


def _listed(values: list[str]) -> str:
    shown = ", ".join(value[:20] for value in values[:4])
    return f"{shown}, …" if len(values) > 4 else shown


def _shown(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e12 else f"{value:.4g}"
