"""Hyperparameter search: the same number of trials for each row and column, evaluated on validation samples.

The validation samples are taken from the training set. Trials are recorded like other runs, so an interrupted search resumes.
In a round, each search makes one trial, so that the next proposals do not depend on the order in which runs finish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from samekind.bench.bench_data import load_bench_data
from samekind.bench.grid import RunSpec
from samekind.defaults import is_color_image, optimizer_for
from samekind.errors import SettingError
from samekind.image_layout import sample_shape
from samekind.methods import is_iterative, method_search_space
from samekind.methods.spec import LogUniform, SearchSpace

if TYPE_CHECKING:
    from samekind.bench.benchmark import BenchSession

# Range of learning rates that are tried, by optimizer; it is the same for every method.
RATES: dict[str, dict[str, LogUniform]] = {"learning_rate": {"adam": LogUniform(0.001, 0.01), "sgd": LogUniform(0.05, 0.5)}}
SEED_OFFSET = 1000  # added to the first seed, so that the search uses a split that no final run has
FAILED_ERROR = 100.0  # error in percent that is reported to the sampler for a trial that failed


@dataclass
class SettingSearch:
    """Hyperparameter search for one row and column of a table. Its first trial has the settings of the row."""

    spec: RunSpec
    space: SearchSpace
    study: Any
    trials: list[tuple[RunSpec, Any]] = field(default_factory=list)

    def propose(self) -> RunSpec:
        """Return the run of the next trial, with the settings that the sampler proposes."""
        trial = self.study.ask()
        chosen = {name: _suggest(trial, name, values) for name, values in self.space.items()} if self.trials else {}
        spec = with_chosen(self.spec, chosen)
        self.trials.append((spec, trial))
        return spec

    def report(self, error: float | None) -> None:
        """Report the validation error of the last trial to the sampler, in percent; None if the trial failed."""
        self.study.tell(self.trials[-1][1], FAILED_ERROR if error is None else error)

    def best(self, errors: Mapping[str, float]) -> RunSpec:
        """Return the trial with the lowest validation error; of equal trials, the earliest."""
        return min((spec for spec, _ in self.trials), key=lambda spec: errors.get(spec.key, FAILED_ERROR))


def tune_runs(specs: Sequence[RunSpec], n_trials: int, session: BenchSession, first_seed: int = 0) -> list[RunSpec]:
    """Return the runs with those settings that have the lowest validation error, which are also stored in their `chosen`."""
    if n_trials < 1:
        raise SettingError(f"tune is {n_trials}; expected the number of trials per row, 1 or more")
    if any(spec.preset for spec in specs):
        raise SettingError(
            "--tune chooses settings, but at paper scale the settings are those of the paper. Leave out --tune or "
            "--scale paper."
        )
    cache = session.context.subfolder("cache")
    searches = {
        _table_cell(spec): SettingSearch(_on_validation_set(spec, first_seed), search_space(spec, cache), _study())
        for spec in {_table_cell(spec): spec for spec in specs}.values()
    }
    errors: dict[str, float] = {}
    for number in range(n_trials):
        proposed = [search.propose() for search in searches.values()]
        session.execute(proposed, f"trial {number + 1} of {n_trials}")
        errors |= {record["key"]: record["error"] for record in session.records_of(proposed)}
        for search in searches.values():
            search.report(errors.get(search.trials[-1][0].key))
    best = {key: search.best(errors) for key, search in searches.items()}
    return [_final(spec, best[_table_cell(spec)], n_trials) for spec in specs]


def with_chosen(spec: RunSpec, chosen: Mapping[str, Any]) -> RunSpec:
    """Return the run with these values among its settings, or among its options if they are arguments of the estimator."""
    options = {name: value for name, value in chosen.items() if name in RATES}
    settings = {name: value for name, value in chosen.items() if name not in RATES}
    return replace(
        spec, settings={**spec.settings, **settings}, options={**spec.options, **options}, chosen={**spec.chosen, **chosen}
    )


def _final(spec: RunSpec, best: RunSpec, n_trials: int) -> RunSpec:
    return replace(with_chosen(spec, best.chosen), trials=n_trials)


def _table_cell(spec: RunSpec) -> tuple[str, str, int, float | None]:
    return spec.row, spec.data, spec.labels, spec.budget


def _on_validation_set(spec: RunSpec, first_seed: int) -> RunSpec:
    return replace(spec, seed=first_seed + SEED_OFFSET, validation=True, measure="", published=None)


def search_space(spec: RunSpec, cache: Path | None) -> SearchSpace:
    """Return the ranges to search: the learning rate if the method has training steps, and the settings of the method."""
    return {**(_learning_rates(spec, cache) if is_iterative(spec.method) else {}), **method_search_space(spec.method)}


def _learning_rates(spec: RunSpec, cache: Path | None) -> SearchSpace:
    """Return the range of learning rates for the optimizer that this run uses."""
    x = torch.from_numpy(load_bench_data(spec.data, spec.test, cache).x[:1])
    requested, paper = spec.options.get("optimizer", "auto"), spec.options.get("preset") == "paper"
    return {
        "learning_rate": RATES["learning_rate"][optimizer_for(requested, color=is_color_image(sample_shape(x)), paper=paper)]
    }


def _suggest(trial: Any, name: str, values: Any) -> Any:
    if isinstance(values, LogUniform):
        return float(f"{trial.suggest_float(name, values.low, values.high, log=True):.3g}")
    return trial.suggest_categorical(name, list(values))


def _study() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise SettingError("optuna is not installed. Install samekind[tune], or leave --tune out.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=0))
