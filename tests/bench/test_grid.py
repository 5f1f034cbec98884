"""Grids: the runs of a table, their keys, grid files of users, and search spaces."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samekind.bench.bench_data import BenchData, require_data, validation_size
from samekind.bench.grid import Bench, GridColumn, RunSpec, grid_row, grid_rows
from samekind.bench.grid_file import read_grid_file
from samekind.bench.presets import lookup
from samekind.bench.presets.lookup import find_bench
from samekind.bench.running import tune
from samekind.bench.running.tune import RATES
from samekind.commands.bench_commands import BENCHES
from samekind.errors import DataError, SettingError
from samekind.methods import METHODS, config_defaults, is_iterative, method_search_space
from samekind.methods.spec import LogUniform

SPEC = RunSpec("mnist", "mean_teacher", "mnist", 100, "mean_teacher", 0, budget=1e12)
SMALL = Bench(
    "small",
    "Small",
    (GridColumn("digits", 20, 1e9), GridColumn("digits", 50, 1e9)),
    grid_rows("supervised", "pi_model"),
    splits=2,
)


def test_the_key_of_a_run_is_stable() -> None:
    assert SPEC.key == "1062d2685e3cd7ce"


def test_every_field_but_names_and_published_errors_changes_the_key() -> None:
    assert replace(SPEC, bench="other", row="MT", published={"error": 1.0}).key == SPEC.key
    changes: list[dict[str, Any]] = [{"seed": 1}, {"labels": 50}, {"budget": 2e12}, {"settings": {"w_max": 3.0}}, {"trials": 4}]
    changes += [{"data": "cifar10"}, {"method": "pi_model"}, {"options": {"net": "compact"}}, {"validation": True}]
    keys = {replace(SPEC, **change).key for change in changes}
    assert len(keys | {SPEC.key}) == len(changes) + 1


def test_a_grid_has_one_run_per_split_column_and_row() -> None:
    specs = SMALL.runs()
    assert len(specs) == len({spec.key for spec in specs}) == 2 * 2 * 2
    assert [spec.seed for spec in specs] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_selection_of_a_grid_keeps_its_keys() -> None:
    part = SMALL.select(methods=["pi_model"], labels=[50])
    assert {spec.key for spec in part.runs()} < {spec.key for spec in SMALL.runs()}
    assert [(spec.method, spec.labels) for spec in part.runs()] == [("pi_model", 50)] * 2


def test_other_methods_datasets_and_budgets_can_be_selected() -> None:
    other = SMALL.select(methods=["vat"], data=["mnist"], labels=[100], budgets=[1e9, 2e9])
    assert [(spec.method, spec.data, spec.labels, spec.budget) for spec in other.runs()[:2]] == [
        ("vat", "mnist", 100, 1e9),
        ("vat", "mnist", 100, 2e9),
    ]
    with pytest.raises(SettingError, match="did you mean 'mean_teacher'"):
        SMALL.select(methods=["mean_teachers"])


def test_a_new_dataset_replaces_the_last_one_and_a_known_dataset_keeps_its_budget() -> None:
    ablation = find_bench("ablation")
    assert ablation.select(data=["mnist"]).columns == ablation.columns[:1]
    assert ablation.select(data=["svhn"], labels=[1000]).columns == (replace(ablation.columns[-1], data="svhn", labels=1000),)


@pytest.mark.parametrize("name", lookup.CPU_BENCHES)
def test_every_bench_is_complete_and_listed_in_the_help(name: str) -> None:
    bench = find_bench(name)
    specs = bench.runs()
    assert bench.name == name and name in BENCHES.replace(",", "").split()
    assert len({spec.key for spec in specs}) == len(specs)
    assert bench.splits >= 3 and all(spec.budget or name == "toy" for spec in specs)
    assert not bench.reference or bench.reference in {row.name for row in bench.rows}


@pytest.mark.parametrize("name", [name for name in lookup.PAPER_BENCHES if name != "toy"])
def test_at_paper_scale_every_run_has_a_preset_of_its_dataset_and_labels(name: str) -> None:
    from samekind.bench.presets.lookup import find_preset

    for spec in find_bench(name, "paper").runs():
        preset = find_preset(spec.preset)
        assert (preset.data, preset.labels, preset.method) == (spec.data, spec.labels, spec.method)
        assert (spec.published is None) == (preset.published is None)


def test_the_error_for_an_unknown_bench_suggests_the_nearest() -> None:
    with pytest.raises(SettingError, match="did you mean 'cifar10'"):
        find_bench("cifar-10")
    with pytest.raises(SettingError, match="mnist is not a table of the paper"):
        find_bench("mnist", "paper")
    with pytest.raises(SettingError, match="expected 'cpu' or 'paper'"):
        find_bench("mnist", "gpu")
    with pytest.raises(SettingError, match="the paper reports no result of cifar10"):
        find_bench("cifar10", "paper").select(labels=[77]).runs()


TOML = """
data = "leaves"
labels = [20, 40]
methods = ["supervised"]
splits = 2
budget = 1e9
test = 0.5

[[rows]]
name = "strong"
method = "mean_teacher"
settings = {strong_view = true}
options = {batch_size = [10, 20]}
"""


def test_a_grid_file_is_read_and_its_paths_are_relative_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "leaves").mkdir()
    (tmp_path / "mine.toml").write_text(TOML)
    found = find_bench(str(tmp_path / "mine.toml"))
    assert [row.name for row in found.rows] == ["supervised", "strong"]
    assert {spec.data for spec in found.runs()} == {str((tmp_path / "leaves").resolve())}
    assert found.columns[0].labels == 20
    strong = found.runs()[1]
    assert (strong.settings, strong.options, strong.budget, strong.test) == (
        {"strong_view": True},
        {"batch_size": [10, 20]},
        1e9,
        0.5,
    )
    content = {"data": "digits", "labels": 20, "methods": ["lgc"]}
    (tmp_path / "mine.json").write_text(json.dumps(content))
    assert read_grid_file(tmp_path / "mine.json").runs()[0].data == "digits"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("labels = 3", "has no data"),
        ('data = "x"\nlabels = 3\nmethod = "lgc"', "did you mean 'methods'"),
        ('data = "x"\nlabels = 3\nmethods = ["lgcc"]', "did you mean 'lgc'"),
        ('data = "x"\nlabels = 3', "has no rows"),
        ('data = "x"\nlabels = 3\nrows = [{name = "a"}]', "names no method"),
        ('data = "x"\nlabels = 3\nrows = [{method = "vat", seting = 1}]', "a row of .* did you mean 'settings'"),
        ('data = "x"\nlabels = 3\nrows = [{method = "vat", settings = {epss = 1}}]', "vat has no setting 'epss'"),
        ('data = "x"\nlabels = 3\nmethods = ["lgc"]\noptions = {netz = "a"}', "did you mean 'net'"),
        ('data = "x"\nlabels = 3\nmethods = ["lgc", "lgc"]', "two rows of the benchmark mine have the same name"),
        ('data = "x"\nlabels = 1\nmethods = ["lgc"]', "labels is 1"),
        ('data = "x"\nlabels = 3\nbudget = -1.0\nmethods = ["lgc"]', "budget is -1"),
        ('data = "x"\nlabels = 3\nsplits = 0\nmethods = ["lgc"]', "splits is 0"),
        ('data = "x"\nlabels = 3\ntest = 1.5\nmethods = ["lgc"]', "test is 1.5"),
        ("data = ", "is not valid TOML"),
    ],
)
def test_a_wrong_grid_file_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(SettingError, match=message):
        read_grid_file(tmp_path / "mine.toml")


def test_a_missing_grid_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read"):
        find_bench(str(tmp_path / "none.toml"))


def test_the_error_for_a_missing_dataset_has_the_command_that_downloads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMEKIND_DATA", str(tmp_path))
    with pytest.raises(DataError, match="samekind data fetch svhn"):
        require_data("svhn")
    with pytest.raises(DataError, match="did you mean 'moons'"):
        require_data("moon")


def test_the_validation_set_has_the_size_of_the_paper() -> None:
    assert [validation_size(name, 50_000) for name in ("svhn", "cifar10", "cifar100", "mnist")] == [1000, 5000, 5000, 5000]
    assert validation_size("leaves", 600) == 60


@pytest.mark.parametrize("name", METHODS)
def test_a_search_space_has_settings_of_its_method(name: str) -> None:
    space = method_search_space(name)
    assert set(space) <= set(config_defaults(name)) and not set(space) & set(RATES)
    assert len(space) <= 3
    for kind in space.values():
        assert kind.low < kind.high if isinstance(kind, LogUniform) else len(set(kind)) == len(kind) > 1


@pytest.mark.parametrize(
    ("shape", "options", "kind"),
    [
        ((4, 32, 32, 3), {}, "sgd"),
        ((4, 32, 32, 3), {"optimizer": "adam"}, "adam"),
        ((4, 32, 32, 3), {"preset": "paper"}, "adam"),
        ((4, 28, 28), {}, "adam"),
        ((4, 7), {}, "adam"),
    ],
)
def test_the_learning_rates_of_the_search_are_those_of_the_optimizer(
    shape: tuple[int, ...], options: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.zeros(shape, dtype=np.uint8)
    monkeypatch.setattr(tune, "load_bench_data", lambda *_: BenchData(x, np.zeros(4, int), x, np.zeros(4, int), ("a", "b")))
    space = tune.search_space(replace(SPEC, options=options), None)
    assert space["learning_rate"] == RATES["learning_rate"][kind]
    assert "learning_rate" not in tune.search_space(replace(SPEC, method="lgc"), None)


def test_all_methods_of_the_mnist_bench_are_iterative() -> None:
    assert all(is_iterative(row.method) for row in find_bench("mnist").rows)


def test_a_row_may_have_its_own_name() -> None:
    assert grid_row("learned_graph", {"strong_view": True}, "ours", net="compact").name == "ours"
