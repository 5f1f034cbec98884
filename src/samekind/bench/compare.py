"""From recorded runs to tables: mean and spread, the paper's number beside ours, paired differences, and what it cost.

Two rows are compared over the splits that both have seen, by the hash of the split: the draw of the labels moves all methods
together, and in the difference it drops out. The interval is Student's t at 95 %. The lowest error is bold only where its
difference to every other row has an interval without 0. Needs no torch.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple

from samekind.bench.records import Record
from samekind.bench.reporting.tables import TextTable
from samekind.errors import DataError, SettingError, did_you_mean

LEVEL = 0.95
NOTHING = "–"
REFERENCES = ("mean_teacher", "supervised", "pi_model")  # the first of these that is there, unless another is asked for


class ColumnKey(NamedTuple):
    """A column: data, labels, budget in operations (None: none was set), and whether the nets are the paper's."""

    data: str
    labels: int
    budget: float | None
    paper: bool

    def words(self, all_heads: Sequence[ColumnKey]) -> str:
        """As short as it may be among the others."""
        said = f"{self.data}, {self.labels} labels"
        same = [head for head in all_heads if head[:2] == self[:2]]
        if len({head.budget for head in same}) > 1:
            said += f", {_tera(self.budget)} TFLOP" if self.budget is not None else ", no budget"
        return f"{said}, paper scale" if self.paper and len({head.paper for head in all_heads}) > 1 else said


class Interval(NamedTuple):
    """A mean difference over n common splits, and where it may lie; both ends infinite if n is below 2."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        if not self.n:
            return NOTHING
        return f"{self.mean:+.2f}" + (f" [{self.low:+.2f}, {self.high:+.2f}]" if self.n > 1 else " (1 split)")


@dataclass(frozen=True)
class Comparison:
    """Runs sorted into rows and columns; `runs[row, head]` has one record for each split."""

    rows: tuple[str, ...]
    columns: tuple[ColumnKey, ...]
    runs: dict[tuple[str, ColumnKey], list[Record]]
    reference: str

    def errors(self, row: str, head: ColumnKey, which: str = "error") -> list[float]:
        return [record[which] for record in self.runs.get((row, head), [])]

    def filled(self) -> Iterator[tuple[str, ColumnKey, list[Record]]]:
        """(row, column, runs) of every place that has runs, column by column."""
        for head in self.columns:
            for row in self.rows:
                if (row, head) in self.runs:
                    yield row, head, self.runs[row, head]

    def first_in_common(self, head: ColumnKey) -> dict[str, Record]:
        """For each row of a column its run on the first split that all of them have; empty if there is no such split."""
        runs = {row: {one["seed"]: one for one in held} for row, at, held in self.filled() if at == head}
        common = set.intersection(*(set(by_seed) for by_seed in runs.values())) if runs else set()
        return {row: by_seed[min(common)] for row, by_seed in runs.items()} if common else {}

    def difference(self, row: str, other: str, head: ColumnKey) -> Interval:
        """Error of `row` minus error of `other`, over the splits that both have."""
        ours, theirs = (
            {record["split"]["hash"]: record["error"] for record in self.runs.get((name, head), [])} for name in (row, other)
        )
        return interval([error - theirs[split] for split, error in ours.items() if split in theirs])

    def best(self, head: ColumnKey) -> str | None:
        """The row with the lowest mean, if it can be told from every other one."""
        there = [row for row in self.rows if self.runs.get((row, head))]
        if len(there) < 2:
            return None
        lowest = min(there, key=lambda row: fmean(self.errors(row, head)))
        apart = all(self.difference(row, lowest, head).excludes_zero for row in there if row != lowest)
        return lowest if apart else None

    @property
    def fewest(self) -> int:
        return min(len(runs) for runs in self.runs.values())


def interval(differences: Sequence[float]) -> Interval:
    """Mean of paired differences with its t interval."""
    n = len(differences)
    if n < 2:
        return Interval(differences[0] if n else math.nan, -math.inf, math.inf, n)
    from scipy.stats import t

    half = float(t.ppf((1 + LEVEL) / 2, n - 1)) * stdev(differences) / math.sqrt(n)
    mean = fmean(differences)
    return Interval(mean, mean - half, mean + half, n)


def compare_runs(records: Iterable[Record], reference: str = "") -> Comparison:
    """Sorts final runs; those on validation images, which only chose settings, are left out."""
    final = [record for record in records if "error" in record and record["judged_on"] != "validation"]
    if not final:
        raise DataError("no finished run among these. Run `samekind bench` first, or let it go on.")
    column_of_run = _columns_of(final)
    names = _names(final, column_of_run)
    runs: dict[tuple[str, ColumnKey], list[Record]] = {}
    for record, name, head in zip(final, names, column_of_run, strict=True):
        runs.setdefault((name, head), []).append(record)
    for held in runs.values():
        held.sort(key=lambda record: record["seed"])
    rows = tuple(dict.fromkeys(names))
    met = list(dict.fromkeys(head.data for _, head in runs))
    order = {head: (head.paper, met.index(head.data), head.labels, head.budget or 0.0) for _, head in runs}
    columns = tuple(sorted(order, key=order.__getitem__))
    if reference and reference not in rows:
        raise SettingError(f"no row is called {reference!r}; {did_you_mean(reference, rows)}")
    return Comparison(rows, columns, runs, reference or next((name for name in REFERENCES if name in rows), rows[0]))


# ---------------------------------------------------------------- tables


def error_table(found: Comparison) -> TextTable:
    """Mean ± standard deviation over splits, the paper's number where there is one, and the student's beside the average."""
    header, contents = ["method"], [list(found.rows)]
    bold: set[tuple[int, int]] = set()
    for head in found.columns:
        words = head.words(found.columns)
        best = found.best(head)
        if best is not None:
            bold.add((found.rows.index(best), len(header)))
        header.append(f"{words}: error %")
        contents.append([spread(found.errors(row, head)) for row in found.rows])
        if any(found.errors(row, head) != found.errors(row, head, "student_error") for row in found.rows):
            header.append("student")
            contents.append([spread(found.errors(row, head, "student_error")) for row in found.rows])
        render_comparison = [_published(found.runs.get((row, head), [])) for row in found.rows]
        if any(one != NOTHING for one in render_comparison):
            header.append("paper")
            contents.append(render_comparison)
    header.append("splits")
    contents.append([_range([len(found.errors(row, head)) for head in found.columns]) for row in found.rows])
    return TextTable(tuple(header), tuple(zip(*contents, strict=True)), frozenset(bold), frozenset(range(1, len(header))))


def difference_table(found: Comparison) -> TextTable:
    """For each row its error minus that of the reference, split by split, with the interval of the mean."""
    others = [row for row in found.rows if row != found.reference]
    header = (f"minus {found.reference}", *(head.words(found.columns) for head in found.columns))
    rows = tuple((row, *(str(found.difference(row, found.reference, head)) for head in found.columns)) for row in others)
    return TextTable(header, rows, numeric=frozenset(range(1, len(header))))


def cost_table(found: Comparison) -> TextTable:
    """What a run took, in the mean over splits."""
    header = ("method", "data", "TFLOP", "steps", "images seen", "CPU-s", "s", "peak MB")
    rows = []
    for row, head, runs in found.filled():
        rows.append((row, head.words(found.columns), *(write(_mean_cost(runs, name)) for name, write in COSTS.items())))
    return TextTable(header, tuple(rows), numeric=frozenset(range(2, len(header))))


def _mean_cost(runs: Sequence[Record], name: str) -> float:
    return fmean(record["cost"].get(name) or 0.0 for record in runs)


COSTS: dict[str, Callable[[float], str]] = {
    "flops": lambda flops: _tera(flops),
    "steps": lambda steps: f"{steps:.0f}",
    "rows": lambda rows: f"{rows:.0f}",
    "cpu_seconds": lambda seconds: f"{seconds:.1f}",
    "seconds": lambda seconds: f"{seconds:.1f}",
    "peak_memory_mb": lambda mb: f"{mb:.0f}",
}


def against_compute(found: Comparison) -> TextTable:
    """Error over operations: a line for each method and budget of each problem, the cheapest first."""
    rows = []
    for data, labels, row, points in curves(found):
        rows += [(f"{data}, {labels} labels", row, _tera(flops), spread(errors), str(len(errors))) for flops, errors in points]
    return TextTable(("data", "method", "TFLOP", "error %", "splits"), tuple(rows), numeric=frozenset({2, 3, 4}))


def curves(found: Comparison) -> list[tuple[str, int, str, list[tuple[float, list[float]]]]]:
    """(data, labels, row, [(operations, errors)...]) in rising order of operations, for rows that are trained by steps."""
    problems = list(dict.fromkeys((head.data, head.labels) for head in found.columns))
    lines = []
    for data, labels in problems:
        for row in found.rows:
            held = [found.runs.get((row, head), []) for head in found.columns if head[:2] == (data, labels)]
            points = [(fmean(r["cost"]["flops"] for r in runs), [r["error"] for r in runs]) for runs in held if runs]
            points = sorted((flops, errors) for flops, errors in points if flops > 0)
            if points:
                lines.append((data, labels, row, points))
    return lines


SIMILARITIES = {
    "precision_at_9": "precision@9 %: W",
    "precision_at_9_gaussian": "Gaussian kernel",
    "auc": "AUC: W",
    "auc_gaussian": "Gaussian kernel",
    "mse": "MSE: W",
    "mse_labels": "0/1 by given classes",
    "mse_balanced": "balanced MSE: W",
    "mse_labels_balanced": "0/1 by given classes",
}


def similarity_table(found: Comparison) -> TextTable | None:
    """How good W is, where runs have measured it."""
    rows = []
    digits = {name: 2 if name.startswith("precision") else 4 for name in SIMILARITIES}
    for row, head, runs in found.filled():
        held = [record["similarity"] for record in runs if "similarity" in record]
        if held:
            cells = [spread([one[name] for one in held], digits[name]) for name in SIMILARITIES]
            rows.append((row, head.words(found.columns), *cells))
    if not rows:
        return None
    header = ("method", "data", *SIMILARITIES.values())
    return TextTable(header, tuple(rows), numeric=frozenset(range(2, len(header))))


def tuned_settings_table(found: Comparison) -> TextTable | None:
    """What was chosen for rows that were tuned."""
    rows = []
    for row, head, runs in found.filled():
        tuned = next((record["chosen"] for record in runs if record.get("trials")), None)
        if tuned is not None:
            said = ", ".join(f"{name} {_short(value)}" for name, value in tuned.items()) or "the defaults"
            rows.append((row, head.words(found.columns), said))
    return TextTable(("method", "data", "chosen"), tuple(rows)) if rows else None


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def remarks(found: Comparison, failed: Iterable[Record] = ()) -> list[str]:
    """What a reader must know of these tables."""
    said = [
        f"Mean ± standard deviation over splits. Differences are paired over common splits, with a {LEVEL:.0%} t interval that "
        "is not corrected for the number of comparisons. Bold: lowest, and told apart from every other row by such an interval."
    ]
    if found.fewest < 2:
        said.append("Some rows have one split only: no spread and no interval can be given, and nothing is bold for them.")
    elif len(found.rows) > 1 and all(found.best(head) is None for head in found.columns):
        said.append("No row is bold: the lowest cannot be told apart from every other one with so many splits.")
    judged = {record["judged_on"] for runs in found.runs.values() for record in runs}
    if "unlabelled" in judged:
        said.append("Moons and circles are judged on the points without a label.")
    hashes = {record["code"]["hash"] for runs in found.runs.values() for record in runs}
    if len(hashes) > 1:
        said.append(f"These runs were made by {len(hashes)} versions of the code: {', '.join(sorted(hashes))}.")
    said += [f"{one['row']}, split {one['seed']} failed: {one['failed']}" for one in failed]
    return said


# ---------------------------------------------------------------- LaTeX and CSV


def latex(table: TextTable) -> str:
    """A tabular with the rules of booktabs."""
    align = "".join("r" if c in table.numeric else "l" for c in range(len(table.header)))

    def line(cells: Sequence[str], row: int) -> str:
        return " & ".join(rf"\textbf{{{_tex(cell)}}}" if (row, c) in table.bold else _tex(cell) for c, cell in enumerate(cells))

    body = [rf"{line(cells, r)} \\" for r, cells in enumerate(table.rows)]
    top, bottom = [rf"\begin{{tabular}}{{{align}}}", r"\toprule"], [r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*top, rf"{line(table.header, -1)} \\", r"\midrule", *body, *bottom]) + "\n"


TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "−": "$-$"}
TEX |= {special: f"\\{special}" for special in "&%$#_{}"}


def _tex(text: str) -> str:
    return "".join(TEX.get(letter, letter) for letter in text)


def as_csv(found: Comparison) -> str:
    """One line for each row and column, with all numbers: for spreadsheets and scripts."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    own = ["method", "data", "labels", "budget", "splits", "error", "std", "student_error", "student_std", "paper", "paper_std"]
    paired = ["reference", "difference", "low", "high", "common_splits", "bold"]
    writer.writerow([*own, *paired, *COSTS])
    best = {head: found.best(head) for head in found.columns}
    for row, head, runs in found.filled():
        numbers = [_number(one) for which in ("error", "student_error") for one in _moments(found, row, head, which)]
        paper = runs[0].get("published") or {}
        apart = found.difference(row, found.reference, head)
        writer.writerow(
            [row, head.data, head.labels, _number(head.budget), len(runs), *numbers]
            + [_number(paper.get(name)) for name in ("error", "spread")]
            + [found.reference, *(_number(one) for one in apart[:3]), apart.n, int(best[head] == row)]
            + [_number(_mean_cost(runs, name)) for name in COSTS]
        )
    return text.getvalue()


def _moments(found: Comparison, row: str, head: ColumnKey, which: str) -> tuple[float, float | None]:
    errors = found.errors(row, head, which)
    return fmean(errors), stdev(errors) if len(errors) > 1 else None


def _number(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:.6g}"


# ---------------------------------------------------------------- inside


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation; the mean alone if there is one value, and a dash if there is none."""
    if not values:
        return NOTHING
    said = f"{fmean(values):.{digits}f}"
    return said if len(values) == 1 else f"{said} ± {stdev(values):.{digits}f}"


def _names(records: Sequence[Record], columns: Sequence[ColumnKey]) -> list[str]:
    """What stands at the head of a row. Runs of one name and problem that differ in settings are told apart.

    Budgets share a row, or error against compute would join what differs; only what was tuned may differ between them.
    """
    seen: dict[tuple[str, ColumnKey], list[str]] = {}
    names = []
    for record, head in zip(records, columns, strict=True):
        tuned = record.get("trials")
        name = record["row"] + (f", tuned ({tuned} trials)" if tuned else "")
        kinds = seen.setdefault((name, head if tuned else head._replace(budget=None)), [])
        kind = repr([record.get(word) for word in ("method", "settings", "options", "preset", "width", "test")])
        if kind not in kinds:
            kinds.append(kind)
        place = kinds.index(kind)
        names.append(name if place == 0 else f"{name} #{place + 1}")
    return names


def _columns_of(records: Sequence[Record]) -> list[ColumnKey]:
    """The column of each run."""
    called = _place_names({str(record["data"]) for record in records})
    return [
        ColumnKey(called[str(record["data"])], record["labels"], record.get("budget"), bool(record.get("preset")))
        for record in records
    ]


def _place_names(places: Iterable[str]) -> dict[str, str]:
    """Each place by its last part, or by as many parts from the end as tell it from all others."""
    parts = {place: place.rstrip("/").split("/") for place in places}

    def end(place: str, n: int) -> str:
        return "/".join(parts[place][-n:])

    def told_apart(place: str) -> str:
        others = [other for other in parts if parts[other] != parts[place]]
        lengths = range(1, len(parts[place]) + 1)
        n = next((n for n in lengths if all(end(other, n) != end(place, n) for other in others)), len(parts[place]))
        return end(place, n)

    return {place: told_apart(place) for place in parts}


def _published(records: Sequence[Record]) -> str:
    published: dict[str, Any] = next((r["published"] for r in records if r.get("published")), {})
    if not published:
        return NOTHING
    return f"{published['error']:.2f}" + (f" ± {published['spread']:.2f}" if published.get("spread") is not None else "")


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _tera(flops: float | None) -> str:
    return NOTHING if flops is None else f"{flops / 1e12:.3g}"
