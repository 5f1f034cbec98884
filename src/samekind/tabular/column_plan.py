"""ColumnPlan: how a fit uses one column of a table. It is decided from the values of the column, never from the labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from samekind.data.columns.typed_table import Column, ColumnKind

Role = Literal["number", "one_hot", "frequent", "date", "text", "image", "dropped"]
ROLES: tuple[Role, ...] = get_args(Role)
# a column with more categories has a feature for each of its most frequent ones, and one for how frequent each is
MAX_ONE_HOT = 30
MAX_COUNTED = 5000  # number of categories whose frequencies are stored; rarer ones count as having occurred once
MIN_IDS = 20  # a column with fewer values is never treated as an id
MOSTLY = 0.95  # if at least this fraction of the values differ, a column of short texts is treated as an id
TEXT_WORDS = 3.0  # mean number of words from which a column is treated as free text
ID_NAMES = ("id", "key", "uuid", "guid", "index", "row", "unnamed: 0")


@dataclass(frozen=True)
class ColumnPlan:
    """How one column is used: its role, what the fit has learned about it, and a sentence for the report.

    `categories` are the values that have a feature of their own. `counts` are the frequencies of the values in a column with
    many categories. `origin` is the first day in a date column, in days since 1970.
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
        """Return the plan with the values that `to_json` returned."""
        return cls(**{**content, "categories": tuple(content["categories"])})


def plan_column(name: str, column: Column, text_encoder: str = "tfidf") -> ColumnPlan:
    """Return the plan for a column: whether and how a fit uses it. `text_encoder` encodes columns of free text."""
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
        return plan.use("image", f"{n - n_missing} images, by a pretrained encoder{_images_missing(n_missing)}")
    return _plan_texts(plan, present, text_encoder)


def _images_missing(n: int) -> str:
    return f"; {n} missing, replaced by the mean of the features" if n else ""


@dataclass(frozen=True)
class _Planner:
    name: str
    column: Column
    n_missing: int
    unread: str

    def use(self, role: Role, note: str, **facts: Any) -> ColumnPlan:
        """Return the plan that uses the column in this role."""
        return ColumnPlan(self.name, self.column.kind, role, note + self.unread, self.column.date_format, **facts)

    def drop(self, reason: str) -> ColumnPlan:
        """Return the plan that does not use the column, with the reason."""
        return self.use("dropped", f"left out, because {reason}")

    def gaps(self, replacement: str) -> str:
        """Return a clause about the missing values for the report; an empty text if no value is missing."""
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
    """Return whether numbers are row numbers: different whole numbers without gaps, or in a column with a name such as id."""
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


def _plan_texts(plan: _Planner, present: Any, text_encoder: str) -> ColumnPlan:
    counts = Counter(present.tolist())
    values = sorted(counts)
    if len(counts) == 1 and not plan.n_missing:
        return plan.drop(f"it is always {values[0][:40]!r}")
    gap = f"; {plan.n_missing} of {len(plan.column)} missing, which is a category too" if plan.n_missing else ""
    n_words = sum(len(value.split()) * count for value, count in counts.items()) / len(present)
    if plan.column.kind != "category" and n_words >= TEXT_WORDS and len(counts) > MAX_ONE_HOT:
        how = f"text with {n_words:.0f} words in the mean, by the encoder {text_encoder}"
        return plan.use("text", f"{how}{plan.gaps('an empty text')}")
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
