"""The table of methods, which is computed and not written by hand."""

from __future__ import annotations

import pytest

from samekind.bench.method_overview import BATCH_LABELLED, BATCH_UNLABELLED, MethodSummary, summarize_methods
from samekind.methods import METHODS, is_iterative


@pytest.fixture(scope="module")
def summaries() -> dict[str, MethodSummary]:
    return {one.name: one for one in summarize_methods()}


def test_every_method_has_a_summary(summaries: dict[str, MethodSummary]) -> None:
    assert list(summaries) == list(METHODS)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "supervised"])
def test_every_method_names_its_paper(name: str) -> None:
    paper = METHODS[name].paper
    assert any(year in paper for year in map(str, range(2000, 2026))), paper


def test_the_paper_is_shown_with_authors_year_and_arxiv_number(summaries: dict[str, MethodSummary]) -> None:
    assert summaries["learned_graph"].paper == "Wang, Tu & Zhou 2020, arXiv:2002.09891"
    assert summaries["supervised"].paper == ""
    assert summaries["pseudo_label"].paper == "Lee 2013"  # not the paper of its threshold


def test_costs_are_relative_to_a_supervised_step_with_the_same_number_of_samples(summaries: dict[str, MethodSummary]) -> None:
    batch = BATCH_LABELLED + BATCH_UNLABELLED
    assert float(summaries["supervised"].cost) == pytest.approx(BATCH_LABELLED / batch, abs=0.01)
    # the Pi model trains on two views of unlabelled samples; Mean Teacher on one, and its teacher has no backward pass
    two_views = (batch + BATCH_UNLABELLED) / batch
    assert float(summaries["pi_model"].cost) == pytest.approx(two_views, abs=0.01)
    assert 1.2 < float(summaries["mean_teacher"].cost) < two_views
    assert all((one.cost == "no steps") != is_iterative(name) for name, one in summaries.items())


def test_requirements_are_those_of_the_method_with_its_defaults(summaries: dict[str, MethodSummary]) -> None:
    assert "strong augmentation" in summaries["remixmatch"].needs
    assert "images" in summaries["remixmatch"].needs
    assert summaries["lgc"].needs == "a fixed graph"
    assert summaries["learned_graph"].needs == "a base, alone on mean_teacher"
