"""Grids of runs: a Bench describes the rows and columns of a table; for each cell of the table there is one run per split.

    Bench("leaves", "My leaves", (GridColumn("leaves/", 40, budget=2e12),), grid_rows("supervised", "mean_teacher"))

At CPU scale, every method gets the same budget of floating-point operations (FLOPs), so a method with more expensive steps
makes fewer of them. Only moons and circles have no budget: there, all methods make the same number of steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from samekind.bench.presets.paper_preset import PaperPreset, PublishedError
from samekind.errors import SettingError, did_you_mean
from samekind.methods import METHODS, config_defaults

TableKey = tuple[str, str, int]  # (name of the row, dataset, number of labels)
Scale = Literal["cpu", "paper"]
Measure = Literal["", "regions", "similarity"]
# Arguments of the estimator that a row may set, besides the method and the settings of the method.
OPTIONS = ("net", "views", "preset", "batch_size", "supervised_warmup", "optimizer", "learning_rate", "epochs", "encoder")
ALWAYS_IN_KEY = ("data", "labels", "method", "seed")


@dataclass(frozen=True)
class GridRow:
    """Row of a table: a method with its settings, and further arguments (options) of the estimator."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = config_defaults(self.method)  # raises an error for an unknown method
        for setting in self.settings:
            if setting not in known:
                raise SettingError(f"{self.method} has no setting {setting!r}; {did_you_mean(setting, known)}")
        require_options(self.options)


def grid_row(method: str, settings: Mapping[str, Any] | None = None, name: str = "", **options: Any) -> GridRow:
    """Return a row for this method. The row has the name of the method, unless another name is given."""
    return GridRow(name or method, method, settings or {}, options)


@dataclass(frozen=True)
class GridColumn:
    """Column of a table: a dataset (name or path), the number of labels, and the budget of a run in FLOPs.

    Without a budget, every method makes the estimator's default number of steps for the dataset.
    """

    data: str
    labels: int
    budget: float | None = None

    def __post_init__(self) -> None:
        if self.labels < 2:
            raise SettingError(
                f"labels is {self.labels}; expected the number of labelled samples, 2 or more, because each class needs "
                "at least one"
            )
        if self.budget is not None and not self.budget > 0:
            raise SettingError(
                f"budget is {self.budget}; expected the number of floating-point operations of a run, above 0, such as 1e12"
            )


@dataclass(frozen=True)
class Bench:
    """Table to compute: its rows, its columns, and the number of splits.

    `published[row name, dataset, labels]` is the error that the paper reports. At paper scale, `presets[row name, dataset,
    labels]` is the name of the preset with the paper's settings, and a cell without a preset is not computed.
    """

    name: str
    title: str
    columns: tuple[GridColumn, ...]
    rows: tuple[GridRow, ...]
    splits: int = 3
    options: Mapping[str, Any] = field(default_factory=dict)  # arguments of the estimator for all rows
    published: Mapping[TableKey, PublishedError] = field(default_factory=dict)
    presets: Mapping[TableKey, str] = field(default_factory=dict)
    measure: Measure = ""  # what is measured besides errors: decision regions, or the learned similarity
    test: float = 0.2  # fraction of user data that becomes the test set
    reference: str = ""  # name of the row with which all other rows are compared
    scale: Scale = "cpu"
    first_seed: int = 0

    def __post_init__(self) -> None:
        require_options(self.options)
        for name, value in (("columns", self.columns), ("rows", self.rows)):
            if not value:
                raise SettingError(f"the benchmark {self.name} has no {name}; expected at least one. Add {name} to it.")
        names = [one.name for one in self.rows]
        if len(set(names)) < len(names):
            raise SettingError(
                f"two rows of the benchmark {self.name} have the same name ({', '.join(names)}). Give each row its own name."
            )
        if self.splits < 1 or self.first_seed < 0:
            raise SettingError(
                f"splits is {self.splits} (expected 1 or more) and first_seed {self.first_seed} (expected 0 or more)"
            )
        if not 0.0 < self.test < 1.0:
            raise SettingError(f"test is {self.test}; expected a fraction above 0 and below 1")

    def runs(self) -> list[RunSpec]:
        """Return one run for each split, column and row; all runs of the first split come first."""
        seeds = range(self.first_seed, self.first_seed + self.splits)
        candidates = [self.run_spec(one, column, seed) for seed in seeds for column in self.columns for one in self.rows]
        specs = [spec for spec in candidates if self.scale == "cpu" or spec.preset]
        if not specs:
            raise SettingError(
                f"the paper reports no result of {self.name} for these numbers of labels. docs/presets.md lists the "
                "results that it reports."
            )
        return specs

    def run_spec(self, one: GridRow, column: GridColumn, seed: int) -> RunSpec:
        """Return the run of one row and one column, with this seed for its split."""
        key = (one.name, column.data, column.labels)
        published = self.published.get(key)
        return RunSpec(
            bench=self.name,
            row=one.name,
            data=column.data,
            labels=column.labels,
            method=one.method,
            seed=seed,
            settings=dict(one.settings),
            options={**self.options, **one.options},
            budget=column.budget,
            preset=self.presets.get(key, ""),
            measure=self.measure,
            test=self.test,
            published=None if published is None else asdict(published),
        )

    def select(
        self,
        methods: Sequence[str] = (),
        labels: Sequence[int] = (),
        data: Sequence[str] = (),
        budgets: Sequence[float] = (),
    ) -> Bench:
        """Return a bench with these rows, numbers of labels, datasets and budgets. An empty argument keeps those of this bench.

        An entry of `methods` is the name of a row, the method of one or more rows, or another method, for which a row is added.
        """
        rows = tuple(one for name in methods for one in self._find_rows(name)) if methods else self.rows
        columns = self.columns
        if data:
            columns = tuple(column for name in data for column in self._columns_of(name))
        if labels:
            columns = tuple(replace(column, labels=n) for column in columns for n in labels)
        if budgets:
            columns = tuple(replace(column, budget=budget) for column in columns for budget in budgets)
        return replace(self, rows=rows, columns=tuple(dict.fromkeys(columns)))

    def _columns_of(self, data: str) -> list[GridColumn]:
        """Return the columns of a dataset. If the bench has none, return copies of the columns of its last dataset."""
        own = [column for column in self.columns if column.data == data]
        return own or [replace(column, data=data) for column in self.columns if column.data == self.columns[-1].data]

    def _find_rows(self, name: str) -> list[GridRow]:
        named = [one for one in self.rows if one.name == name] or [one for one in self.rows if one.method == name]
        known = [one.name for one in self.rows]
        if not named and self.scale == "cpu" and set(name.split("+")) <= set(METHODS):
            return [grid_row(name)]
        if not named:
            known += METHODS if self.scale == "cpu" else ()
            raise SettingError(f"the benchmark {self.name} has no row {name!r}; {did_you_mean(name, known)}")
        return named


@dataclass(frozen=True)
class RunSpec:
    """One run: all that determines its result, and its row and column in the table."""

    bench: str
    row: str
    data: str
    labels: int
    method: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    budget: float | None = None
    preset: str = ""  # name of the preset, at paper scale; a preset has settings, network and number of steps
    width: float = 1.0  # factor on the number of channels of the preset's network; tests use small networks
    measure: Measure = ""
    test: float = 0.2
    validation: bool = False  # True: evaluate on samples held out of the training set, not on the test set
    trials: int = 0  # number of trials of the hyperparameter search that was made for this run
    # hyperparameters that a search has chosen; they are also in `settings` or `options`
    chosen: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] | None = None

    @property
    def key(self) -> str:
        """Return 16 hex digits that identify the run: a hash of all fields except names and the published error.

        Fields with their default value are left out of the hash, so that a field that is added later does not change existing
        keys.
        """
        values = {name: value for name, value in asdict(self).items() if name not in ("bench", "row", "published")}
        default = asdict(RunSpec("", "", "", 0, "", 0))
        hashed = {name: value for name, value in values.items() if name in ALWAYS_IN_KEY or value != default[name]}
        return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """Return the key and all fields as a dict, which becomes part of the run's record."""
        return {"key": self.key, **asdict(self)}


def grid_rows(*methods: str) -> tuple[GridRow, ...]:
    """Return one row with default settings for each of these methods."""
    return tuple(grid_row(method) for method in methods)


def grid_columns(data: str, labels: Sequence[int], budget: float | None = None) -> tuple[GridColumn, ...]:
    """Return one column for each number of labels."""
    return tuple(GridColumn(data, n, budget) for n in labels)


def published_errors(presets: Iterable[PaperPreset]) -> dict[TableKey, PublishedError]:
    """Return the errors that the paper reports, as {(row, dataset, labels): error}."""
    return {(one.row, one.data, one.labels): one.published for one in presets if one.published is not None}


def paper_bench(name: str, title: str, presets: Sequence[PaperPreset], measure: Measure = "") -> Bench:
    """Return the bench that computes these presets on 5 splits, as in the paper."""
    return Bench(
        name=name,
        title=title,
        columns=tuple(dict.fromkeys(GridColumn(one.data, one.labels) for one in presets)),
        rows=tuple({one.row: GridRow(one.row, one.method) for one in presets}.values()),
        splits=5,
        published=published_errors(presets),
        presets={(one.row, one.data, one.labels): one.name for one in presets},
        measure=measure,
        scale="paper",
    )


def require_options(options: Iterable[str]) -> None:
    """Raise SettingError unless all these options are among OPTIONS, the arguments of the estimator that a row may set."""
    for option in options:
        if option not in OPTIONS:
            raise SettingError(f"a row of a benchmark cannot set the option {option!r}; {did_you_mean(option, OPTIONS)}")
