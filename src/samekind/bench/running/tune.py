"""Choosing settings: as many trials for every row and column, judged on validation images taken from the training set.

Trials are runs like any other and stand in the same file, so a search that was stopped goes on. They are made in rounds, one
trial of every search in each, so that what is asked next does not depend on which run ended first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from samekind.bench.bench_data import load_bench_data
from samekind.bench.grid import RunSpec
from samekind.bench.spaces import RATES, LogUniform, Space, space_of
from samekind.data.image_layout import sample_shape
from samekind.defaults import is_photo, optimizer_for
from samekind.errors import SettingError
from samekind.methods import is_iterative

if TYPE_CHECKING:
    from samekind.bench.benchmark import BenchSession

SPLIT = 1000  # added to the first seed: labels are drawn anew for the search, and no final run has them
FAILED = 100.0  # per cent: what a trial that failed is told to have


@dataclass
class SettingSearch:
    """One row and column in search of its settings. The first trial is the cell as it is."""

    cell: RunSpec
    space: Space
    study: Any
    trials: list[tuple[RunSpec, Any]] = field(default_factory=list)

    def ask(self) -> RunSpec:
        trial = self.study.ask()
        chosen = {name: _suggested(trial, name, kind) for name, kind in self.space.items()} if self.trials else {}
        cell = with_chosen(self.cell, chosen)
        self.trials.append((cell, trial))
        return cell

    def tell(self, error: float | None) -> None:
        self.study.tell(self.trials[-1][1], FAILED if error is None else error)

    def best(self, errors: Mapping[str, float]) -> RunSpec:
        """The cell of the lowest validation error; the earlier one where two are alike."""
        return min((cell for cell, _ in self.trials), key=lambda cell: errors.get(cell.key, FAILED))


def tune_runs(cells: Sequence[RunSpec], n_trials: int, desk: BenchSession, first_seed: int = 0) -> list[RunSpec]:
    """The same cells with the settings that were best on validation images; `chosen` says which."""
    if n_trials < 1:
        raise SettingError(f"tune is {n_trials}; expected the number of settings to try for each row, 1 or more")
    if any(cell.preset for cell in cells):
        raise SettingError("at paper scale settings are the paper's. Leave --tune out, or --scale paper.")
    cache = desk.where.place("cache")
    searches = {
        _place(cell): SettingSearch(_judged_on_validation(cell, first_seed), _space(cell, cache), _study())
        for cell in {_place(cell): cell for cell in cells}.values()
    }
    errors: dict[str, float] = {}
    for number in range(n_trials):
        asked = [search.ask() for search in searches.values()]
        desk.complete(asked, f"trial {number + 1} of {n_trials}")
        errors |= {record["key"]: record["error"] for record in desk.of(asked)}
        for search in searches.values():
            search.tell(errors.get(search.trials[-1][0].key))
    best = {place: search.best(errors) for place, search in searches.items()}
    return [_final(cell, best[_place(cell)], n_trials) for cell in cells]


def with_chosen(cell: RunSpec, chosen: Mapping[str, Any]) -> RunSpec:
    """The cell with these values among its settings, or its options where they are the estimator's."""
    options = {name: value for name, value in chosen.items() if name in RATES}
    settings = {name: value for name, value in chosen.items() if name not in RATES}
    return replace(
        cell, settings={**cell.settings, **settings}, options={**cell.options, **options}, chosen={**cell.chosen, **chosen}
    )


def _final(cell: RunSpec, best: RunSpec, n_trials: int) -> RunSpec:
    return replace(with_chosen(cell, best.chosen), trials=n_trials)


def _place(cell: RunSpec) -> tuple[str, str, int, float | None]:
    return cell.row, cell.data, cell.labels, cell.budget


def _judged_on_validation(cell: RunSpec, first_seed: int) -> RunSpec:
    return replace(cell, seed=first_seed + SPLIT, validation=True, measure="", published=None)


def _space(cell: RunSpec, cache: Path | None) -> Space:
    return {**(_rates(cell, cache) if is_iterative(cell.method) else {}), **space_of(cell.method)}


def _rates(cell: RunSpec, cache: Path | None) -> Space:
    """Learning rates for the optimiser that the run will have."""
    x = torch.from_numpy(load_bench_data(cell.data, cell.test, cache).x[:1])
    wanted, paper = cell.options.get("optimizer", "auto"), cell.options.get("preset") == "paper"
    return {"learning_rate": RATES["learning_rate"][optimizer_for(wanted, photos=is_photo(sample_shape(x)), paper=paper)]}


def _suggested(trial: Any, name: str, kind: Any) -> Any:
    if isinstance(kind, LogUniform):
        return float(f"{trial.suggest_float(name, kind.low, kind.high, log=True):.3g}")
    return trial.suggest_categorical(name, list(kind))


def _study() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise SettingError("optuna is not installed. Install samekind[tune], or leave --tune out.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=0))
