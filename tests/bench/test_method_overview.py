"""The table of methods: nothing in it is written by hand."""

from __future__ import annotations

import pytest

from samekind.bench.method_overview import LABELLED, UNLABELLED_ROWS, overview, paper_of
from samekind.methods import METHODS, is_iterative


@pytest.fixture(scope="module")
def lines() -> dict[str, tuple[str, str, str]]:
    return {line.name: (line.paper, line.needs, line.cost) for line in overview()}


def test_every_method_has_a_line(lines: dict[str, tuple[str, str, str]]) -> None:
    assert list(lines) == list(METHODS)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "supervised"])
def test_every_method_names_its_paper(name: str) -> None:
    paper = paper_of(name)
    assert any(year in paper for year in map(str, range(2000, 2026))), paper


def test_the_paper_of_the_learned_graph_is_found() -> None:
    assert paper_of("learned_graph") == "Wang, Tu & Zhou 2020, arXiv:2002.09891"
    assert paper_of("supervised") == ""
    assert paper_of("pseudo_label") == "Lee 2013"  # not the paper that its threshold is from


def test_costs_are_multiples_of_learning_as_many_labelled_rows(lines: dict[str, tuple[str, str, str]]) -> None:
    """The Pi model looks twice at the pool, the Mean Teacher once, and its teacher forward only."""
    rows, pool = LABELLED + UNLABELLED_ROWS, UNLABELLED_ROWS
    assert float(lines["supervised"][2]) == pytest.approx(LABELLED / rows, abs=0.01)
    assert float(lines["pi_model"][2]) == pytest.approx((rows + pool) / rows, abs=0.01)
    assert 1.2 < float(lines["mean_teacher"][2]) < (rows + pool) / rows
    assert all((cost == "no steps") != is_iterative(name) for name, (_, _, cost) in lines.items())


def test_needs_are_those_of_the_method_as_it_is_run(lines: dict[str, tuple[str, str, str]]) -> None:
    assert "strong views" in lines["remixmatch"][1]
    assert "images" in lines["remixmatch"][1]
    assert lines["lgc"][1] == "a fixed graph"
    assert lines["learned_graph"][1] == "a base, alone on mean_teacher"
