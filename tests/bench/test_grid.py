"""Grids as data: which runs a table takes, what tells them apart, and a user's own file."""

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
from samekind.bench.spaces import RATES, SETTINGS, LogUniform, space_of
from samekind.cli import BENCHES
from samekind.errors import DataError, SettingError
from samekind.methods import METHODS, config_defaults, is_iterative

CELL = RunSpec("mnist", "mean_teacher", "mnist", 100, "mean_teacher", 0, budget=1e12)
SMALL = Bench(
    "small",
    "Small",
    (GridColumn("digits", 20, 1e9), GridColumn("digits", 50, 1e9)),
    grid_rows("supervised", "pi_model"),
    splits=2,
)


def test_the_key_of_a_run_is_the_same_tomorrow() -> None:
    assert CELL.key == "1062d2685e3cd7ce"


def test_names_and_published_numbers_do_not_change_a_key_and_all_else_does() -> None:
    assert replace(CELL, bench="other", row="MT", published={"error": 1.0}).key == CELL.key
    changes: list[dict[str, Any]] = [{"seed": 1}, {"labels": 50}, {"budget": 2e12}, {"settings": {"w_max": 3.0}}, {"trials": 4}]
    changes += [{"data": "cifar10"}, {"method": "pi_model"}, {"options": {"net": "compact"}}, {"validation": True}]
    keys = {replace(CELL, **change).key for change in changes}
    assert len(keys | {CELL.key}) == len(changes) + 1


def test_a_grid_has_a_run_for_each_split_column_and_row() -> None:
    cells = SMALL.runs()
    assert len(cells) == len({cell.key for cell in cells}) == 2 * 2 * 2
    assert [cell.seed for cell in cells] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_part_of_a_grid_keeps_the_keys_of_the_whole() -> None:
    part = SMALL.select(methods=["pi_model"], labels=[50])
    assert {cell.key for cell in part.runs()} < {cell.key for cell in SMALL.runs()}
    assert [(cell.method, cell.labels) for cell in part.runs()] == [("pi_model", 50)] * 2


def test_other_methods_data_and_budgets_can_be_asked_for() -> None:
    other = SMALL.select(methods=["vat"], data=["mnist"], labels=[100], budgets=[1e9, 2e9])
    assert [(cell.method, cell.data, cell.labels, cell.budget) for cell in other.runs()[:2]] == [
        ("vat", "mnist", 100, 1e9),
        ("vat", "mnist", 100, 2e9),
    ]
    with pytest.raises(SettingError, match="did you mean 'mean_teacher'"):
        SMALL.select(methods=["mean_teachers"])


def test_other_data_take_the_place_of_the_last_and_own_data_keep_their_budget() -> None:
    ablation = find_bench("ablation")
    assert ablation.select(data=["mnist"]).columns == ablation.columns[:1]
    assert ablation.select(data=["svhn"], labels=[1000]).columns == (replace(ablation.columns[-1], data="svhn", labels=1000),)


@pytest.mark.parametrize("name", lookup.CPU_BENCHES)
def test_every_bench_is_whole_and_known_to_the_command(name: str) -> None:
    bench = find_bench(name)
    cells = bench.runs()
    assert bench.name == name and name in BENCHES.replace(",", "").split()
    assert len({cell.key for cell in cells}) == len(cells)
    assert bench.splits >= 3 and all(cell.budget or name == "toy" for cell in cells)
    assert not bench.reference or bench.reference in {row.name for row in bench.rows}


@pytest.mark.parametrize("name", [name for name in lookup.PAPER_BENCHES if name != "toy"])
def test_at_paper_scale_every_cell_is_a_preset_of_its_own_data_and_labels(name: str) -> None:
    from samekind.bench.presets.lookup import find_preset

    for cell in find_bench(name, "paper").runs():
        chosen = find_preset(cell.preset)
        assert (chosen.data, chosen.labels, chosen.method) == (cell.data, cell.labels, cell.method)
        assert (cell.published is None) == (chosen.published is None)


def test_a_bench_that_is_not_there_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingError, match="did you mean 'cifar10'"):
        find_bench("cifar-10")
    with pytest.raises(SettingError, match="mnist is not a table of the paper"):
        find_bench("mnist", "paper")
    with pytest.raises(SettingError, match="expected 'cpu' or 'paper'"):
        find_bench("mnist", "gpu")
    with pytest.raises(SettingError, match="the paper has no result of cifar10"):
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
settings = {strong = true}
options = {batch_size = [10, 20]}
"""


def test_a_users_file_makes_a_bench_and_its_paths_begin_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "leaves").mkdir()
    (tmp_path / "mine.toml").write_text(TOML)
    found = find_bench(str(tmp_path / "mine.toml"))
    assert [row.name for row in found.rows] == ["supervised", "strong"]
    assert {cell.data for cell in found.runs()} == {str((tmp_path / "leaves").resolve())}
    assert found.columns[0].labels == 20
    strong = found.runs()[1]
    assert (strong.settings, strong.options, strong.budget, strong.test) == (
        {"strong": True},
        {"batch_size": [10, 20]},
        1e9,
        0.5,
    )
    words = {"data": "digits", "labels": 20, "methods": ["lgc"]}
    (tmp_path / "mine.json").write_text(json.dumps(words))
    assert read_grid_file(tmp_path / "mine.json").runs()[0].data == "digits"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("labels = 3", "has no data"),
        ('data = "x"\nlabels = 3\nmethod = "lgc"', "did you mean 'methods'"),
        ('data = "x"\nlabels = 3\nmethods = ["lgcc"]', "did you mean 'lgc'"),
        ('data = "x"\nlabels = 3', "has no rows"),
        ('data = "x"\nlabels = 3\nrows = [{name = "a"}]', "has no method"),
        ('data = "x"\nlabels = 3\nrows = [{method = "vat", seting = 1}]', "a row of .* did you mean 'settings'"),
        ('data = "x"\nlabels = 3\nrows = [{method = "vat", settings = {epss = 1}}]', "vat has no setting 'epss'"),
        ('data = "x"\nlabels = 3\nmethods = ["lgc"]\noptions = {netz = "a"}', "did you mean 'net'"),
        ('data = "x"\nlabels = 3\nmethods = ["lgc", "lgc"]', "two rows of mine have the same name"),
        ('data = "x"\nlabels = 1\nmethods = ["lgc"]', "labels is 1"),
        ('data = "x"\nlabels = 3\nbudget = -1.0\nmethods = ["lgc"]', "budget is -1"),
        ('data = "x"\nlabels = 3\nsplits = 0\nmethods = ["lgc"]', "splits is 0"),
        ('data = "x"\nlabels = 3\ntest = 1.5\nmethods = ["lgc"]', "test is 1.5"),
        ("data = ", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_in_a_sentence(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(SettingError, match=said):
        read_grid_file(tmp_path / "mine.toml")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read"):
        find_bench(str(tmp_path / "none.toml"))


def test_data_that_is_not_in_place_is_refused_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEKIND_DATA", str(tmp_path))
    with pytest.raises(DataError, match="samekind data fetch svhn"):
        require_data("svhn")
    with pytest.raises(DataError, match="did you mean 'moons'"):
        require_data("moon")


def test_as_many_validation_images_as_the_paper_has() -> None:
    assert [validation_size(name, 50_000) for name in ("svhn", "cifar10", "cifar100", "mnist")] == [1000, 5000, 5000, 5000]
    assert validation_size("leaves", 600) == 60


@pytest.mark.parametrize("name", METHODS)
def test_what_may_be_chosen_are_settings_of_the_method(name: str) -> None:
    space = space_of(name)
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
def test_learning_rates_are_those_of_the_optimiser_that_the_data_gets(
    shape: tuple[int, ...], options: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.zeros(shape, dtype=np.uint8)
    monkeypatch.setattr(tune, "load_bench_data", lambda *_: BenchData(x, np.zeros(4, int), x, np.zeros(4, int), ("a", "b")))
    space = tune._space(replace(CELL, options=options), None)
    assert space["learning_rate"] == RATES["learning_rate"][kind]
    assert "learning_rate" not in tune._space(replace(CELL, method="lgc"), None)


def test_no_space_is_for_a_method_that_is_not_there() -> None:
    assert set(SETTINGS) <= set(METHODS)


def test_all_rows_of_mnist_are_trained_by_steps() -> None:
    assert all(is_iterative(row.method) for row in find_bench("mnist").rows)


def test_a_row_may_have_a_name_of_its_own() -> None:
    assert grid_row("learned_graph", {"strong": True}, "ours", net="compact").name == "ours"
