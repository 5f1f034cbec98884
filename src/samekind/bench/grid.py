"""Grids: which runs a table takes. A Bench is data, from a preset or a user's file; its cells are runs, each with a key.

    Bench("leaves", "My leaves", (Column("leaves/", 40, budget=2e12),), (line("supervised"), line("mean_teacher")))

At CPU scale a budget in floating-point operations is the same for every method: one whose step is dear makes fewer steps.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from samekind.bench.paper_preset import PaperPreset, PublishedError
from samekind.errors import SettingError, did_you_mean
from samekind.methods import METHODS, config_defaults

Place = tuple[str, str, int]  # row, data, labels
Scale = Literal["cpu", "paper"]
Measure = Literal["", "regions", "similarity"]
# what a row may tell the estimator, besides method and settings
OPTIONS = ("net", "views", "preset", "batch_size", "supervised_warmup", "optimizer", "learning_rate", "epochs", "encoder")
DECISIVE = ("data", "labels", "method", "seed")  # always in the key of a run
NOT_IN_FILES = {"columns", "published", "presets", "scale"}


@dataclass(frozen=True)
class GridRow:
    """A line of a table: a method with its settings, and what the estimator is told besides."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = config_defaults(self.method)  # an unknown method is refused here
        for setting in self.settings:
            if setting not in known:
                raise SettingError(f"{self.method} has no setting {setting!r}; {did_you_mean(setting, known)}")
        require_options(self.options)


def grid_row(method: str, settings: Mapping[str, Any] | None = None, name: str = "", **options: Any) -> GridRow:
    """A row called like its method, unless it gets a name of its own."""
    return GridRow(name or method, method, settings or {}, options)


@dataclass(frozen=True)
class GridColumn:
    """Data, by name or path, how many labels of it are shown, and how many floating-point operations a run may take.

    Without a budget a run is as long as the estimator finds right for the data, in steps, for every method alike.
    """

    data: str
    labels: int
    budget: float | None = None

    def __post_init__(self) -> None:
        if self.labels < 2:
            raise SettingError(f"labels is {self.labels}; expected 2 or more, one for each class at least")
        if self.budget is not None and not self.budget > 0:
            raise SettingError(f"budget is {self.budget}; expected floating-point operations of a run, such as 1e12")


@dataclass(frozen=True)
class Bench:
    """A table to be made. `published[row name, data, labels]` is what the paper has there.

    At paper scale `presets` names the preset of each cell in the same way, and there is no cell without one.
    """

    name: str
    title: str
    columns: tuple[GridColumn, ...]
    rows: tuple[GridRow, ...]
    splits: int = 3
    options: Mapping[str, Any] = field(default_factory=dict)  # for all rows
    published: Mapping[Place, PublishedError] = field(default_factory=dict)
    presets: Mapping[Place, str] = field(default_factory=dict)
    measure: Measure = ""  # what is kept of a run besides its errors
    test: float = 0.2  # share of own data that is kept for the test
    reference: str = ""  # row that the others are compared with
    scale: Scale = "cpu"
    first_seed: int = 0

    def __post_init__(self) -> None:
        require_options(self.options)
        for name, value in (("columns", self.columns), ("rows", self.rows)):
            if not value:
                raise SettingError(f"{self.name} has no {name}; expected one or more")
        names = [one.name for one in self.rows]
        if len(set(names)) < len(names):
            raise SettingError(f"two rows of {self.name} have one name ({', '.join(names)}). Give each its own.")
        if self.splits < 1 or self.first_seed < 0:
            raise SettingError(f"splits is {self.splits} and first_seed {self.first_seed}; expected 1 or more, and 0 or more")
        if not 0.0 < self.test < 1.0:
            raise SettingError(f"test is {self.test}; expected a share above 0 and below 1")

    def cells(self) -> list[RunSpec]:
        """One run for each split, column and row; all rows of a split before the next split."""
        seeds = range(self.first_seed, self.first_seed + self.splits)
        all_of_them = [self.cell(one, column, seed) for seed in seeds for column in self.columns for one in self.rows]
        cells = [cell for cell in all_of_them if self.scale == "cpu" or cell.preset]
        if not cells:
            raise SettingError(f"the paper has no cell of {self.name} with these labels; see docs/presets.md for those it has")
        return cells

    def cell(self, one: GridRow, column: GridColumn, seed: int) -> RunSpec:
        place = (one.name, column.data, column.labels)
        published = self.published.get(place)
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
            preset=self.presets.get(place, ""),
            measure=self.measure,
            test=self.test,
            published=None if published is None else asdict(published),
        )

    def only(
        self,
        methods: Sequence[str] = (),
        labels: Sequence[int] = (),
        data: Sequence[str] = (),
        budgets: Sequence[float] = (),
    ) -> Bench:
        """With these rows (by name, by method, or any other method), labels, data and budgets instead of its own."""
        rows = tuple(one for name in methods for one in self._rows_called(name)) if methods else self.rows
        columns = self.columns
        if data:
            columns = tuple(column for name in data for column in self._columns_of(name))
        if labels:
            columns = tuple(replace(column, labels=n) for column in columns for n in labels)
        if budgets:
            columns = tuple(replace(column, budget=budget) for column in columns for budget in budgets)
        return replace(self, rows=rows, columns=tuple(dict.fromkeys(columns)))

    def _columns_of(self, data: str) -> list[GridColumn]:
        """Its own columns of these data; if it has none, those of its last data, with the others in their place."""
        own = [column for column in self.columns if column.data == data]
        return own or [replace(column, data=data) for column in self.columns if column.data == self.columns[-1].data]

    def _rows_called(self, name: str) -> list[GridRow]:
        named = [one for one in self.rows if one.name == name] or [one for one in self.rows if one.method == name]
        known = [one.name for one in self.rows]
        if not named and self.scale == "cpu" and set(name.split("+")) <= set(METHODS):
            return [grid_row(name)]
        if not named:
            known += METHODS if self.scale == "cpu" else ()
            raise SettingError(f"{self.name} has no row {name!r}; {did_you_mean(name, known)}")
        return named


@dataclass(frozen=True)
class RunSpec:
    """One run: all that decides its result, and where it stands in a table."""

    bench: str
    row: str
    data: str
    labels: int
    method: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    budget: float | None = None
    preset: str = ""  # at paper scale, where settings, net and length are its own
    width: float = 1.0  # and a factor on the channels of that net; below 1 to see that all is well
    measure: Measure = ""
    test: float = 0.2
    validation: bool = False  # judged on images kept out of training, and not on the test set
    trials: int = 0  # settings that were tried on validation images before,
    chosen: Mapping[str, Any] = field(default_factory=dict)  # and what came of it; part of settings and options already
    published: Mapping[str, Any] | None = None

    @property
    def key(self) -> str:
        """16 hex digits of what decides the result; names and published numbers do not.

        What is as usual is left out, so that a field that is new one day changes no key of today.
        """
        said = {name: value for name, value in asdict(self).items() if name not in ("bench", "row", "published")}
        usual = asdict(RunSpec("", "", "", 0, "", 0))
        said = {name: value for name, value in said.items() if name in DECISIVE or value != usual[name]}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.key, **asdict(self)}


def grid_rows(*methods: str) -> tuple[GridRow, ...]:
    return tuple(grid_row(method) for method in methods)


def grid_columns(data: str, labels: Sequence[int], budget: float | None = None) -> tuple[GridColumn, ...]:
    return tuple(GridColumn(data, n, budget) for n in labels)


def published_errors(presets: Iterable[PaperPreset]) -> dict[Place, PublishedError]:
    """What the paper has in each cell, by row, data and labels."""
    return {(one.row, one.data, one.labels): one.published for one in presets if one.published is not None}


def paper_bench(name: str, title: str, presets: Sequence[PaperPreset], measure: Measure = "") -> Bench:
    """The bench that is made of these presets: every cell the paper fills, on 5 splits as there."""
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


def read_grid_file(path: Path) -> Bench:
    """The bench of a user's file, TOML or JSON; docs/bench.md has one. Paths of data are meant from where the file lies."""
    words = _read(path)
    known = {*(one.name for one in fields(Bench)), "data", "labels", "methods", "budget"} - NOT_IN_FILES
    for word in words:
        if word not in known:
            raise SettingError(f"{path} has {word!r}; {did_you_mean(word, known)}")
    data, labels = _several(words, "data", path), _several(words, "labels", path)
    places = [_place(str(name), path.parent) for name in data]
    budgets = _several(words, "budget", path) if "budget" in words else [None]
    columns = tuple(GridColumn(place, int(n), budget) for place in places for n in labels for budget in budgets)
    return Bench(
        name=str(words.get("name", path.stem)),
        title=str(words.get("title", path.stem)),
        columns=columns,
        rows=(*(grid_row(str(name)) for name in words.get("methods", [])), *(_row(one, path) for one in words.get("rows", []))),
        **{name: words[name] for name in ("splits", "options", "measure", "test", "reference", "first_seed") if name in words},
    )


def require_options(options: Iterable[str]) -> None:
    for option in options:
        if option not in OPTIONS:
            raise SettingError(f"{option!r} is nothing that a row can tell the estimator; {did_you_mean(option, OPTIONS)}")


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        words: Any = json.loads(text) if path.suffix == ".json" else _toml(text)
    except OSError as error:
        raise SettingError(f"{path} cannot be read ({error.strerror}). Expected a grid file, .toml or .json.") from error
    except ValueError as error:  # what both parsers raise
        raise SettingError(f"{path} is not {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from error
    if not isinstance(words, dict):
        raise SettingError(f"{path} holds no settings; expected data, labels and methods. docs/bench.md has an example.")
    return words


def _toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        import tomli as toml
    return toml.loads(text)


def _several(words: Mapping[str, Any], name: str, path: Path) -> list[Any]:
    if name not in words:
        raise SettingError(f"{path} does not say {name}; expected {name} = ... in it. docs/bench.md has an example.")
    return list(words[name]) if isinstance(words[name], list) else [words[name]]


def _place(data: str, folder: Path) -> str:
    """A path that is there from where the file lies, in full; else the word as it is, which may name a data set."""
    place = folder / data
    return str(place.resolve()) if place.exists() else data


def _row(words: Mapping[str, Any], path: Path) -> GridRow:
    known = {one.name for one in fields(GridRow)}
    for word in words:
        if word not in known:
            raise SettingError(f"a row of {path} has {word!r}; {did_you_mean(word, known)}")
    if "method" not in words:
        raise SettingError(f"a row of {path} does not say its method")
    return GridRow(**{"name": words["method"], **words})
