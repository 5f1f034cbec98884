"""Classes on the page, the evidence for a prediction, and the names and colors on the map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.page.served import saved, serious_faults, wait_for_message

Open = Callable[..., Any]


def test_names_with_commas_become_several_classes_and_can_be_deleted(opened: Open) -> None:
    page = opened()
    page.get_by_role("button", name="new classes").click()
    page.locator("dialog input").fill('crocodile, crocodile_head, "a, b", across')
    page.keyboard.press("Enter")
    wait_for_message(page, "New classes crocodile, crocodile_head and a, b.")
    letters = page.evaluate("[...samekind.state.classes.values()].map(one => one.letter)")
    assert len(set(letters)) == 6
    page.get_by_title("Change class a, b").click()
    page.get_by_role("button", name="Delete …").click()
    page.locator("dialog").get_by_role("button", name="Delete", exact=True).click()
    wait_for_message(page, "Class a, b is deleted. Undo")
    assert page.locator(".class-row", has_text="a, b").count() == 0


def test_several_names_in_the_palette_become_classes_and_label_nothing(opened: Open) -> None:
    page = opened()
    page.locator("#grid").press("l")
    page.get_by_role("combobox", name="Class name").fill("ant, down, crab")
    page.get_by_role("option", name="new classes “ant”, “crab”").click()
    wait_for_message(page, "New classes ant and crab.")
    assert page.evaluate("samekind.state.run.n_labelled") == 12


def test_a_deleted_class_leaves_the_predictions_and_comes_back_with_its_labels(opened: Open) -> None:
    page = opened()
    page.get_by_title("Change class down").click()
    page.get_by_role("button", name="Delete …").click()
    assert "4 images labelled down" in page.locator("dialog").inner_text()
    page.locator("dialog").get_by_role("button", name="Delete", exact=True).click()
    wait_for_message(page, "Class down is deleted")
    page.wait_for_function("() => samekind.state.run.n_labelled === 8 && samekind.state.items.size > 10")
    assert page.evaluate("[...samekind.state.items.values()].some(item => item.pred === 2)") is False
    page.locator("#grid").press("Control+z")
    wait_for_message(page, "4 images undone")
    saved(page)
    page.wait_for_selector(".class-row:has-text('down')")
    page.wait_for_function("() => samekind.state.run.n_labelled === 12")
    page.wait_for_function("() => [...samekind.state.items.values()].some(item => item.pred === 2)")


def test_a_name_is_cut_where_it_differs_from_no_other(opened: Open) -> None:
    page = opened()
    cut = """names => import('/static/state.js').then(({ shortName, state }) => {
        state.classes = new Map(names.map((name, id) => [id, { id, name }]));
        return [...state.classes.values()].map(one => shortName(one, 8));
    })"""
    assert page.evaluate(cut, ["ant", "crocodile", "crocodile_head", "hippopotamus"]) == [
        "ant",
        "cr…odile",
        "cr…_head",
        "hippopo…",
    ]


@pytest.mark.parametrize("width", [1280, 400])
def test_the_map_names_the_classes_and_can_be_colored_by_confidence(opened: Open, width: int) -> None:
    page = opened(width)
    page.locator("#grid").press("m")
    page.wait_for_selector("#map-legend li:has-text('across')")
    page.locator("#color-by").select_option("confidence")
    page.wait_for_selector("#map-legend li:has-text('83 – 100 %')")
    page.locator("#color-by").select_option("label")
    page.wait_for_selector("#map-legend li:has-text('down 4')")
    assert page.evaluate("document.documentElement.scrollWidth") <= width and serious_faults(page) == []


def test_labelled_images_that_contradict_the_prediction_are_shown_as_evidence_against_it(opened: Open) -> None:
    page = opened()
    near = {"id": 1, "label": 1, "path": "a", "image_key": "", "similarity": 0.06, "log_odds": -2.75}
    evidence: dict[str, Any] = {"nearest": [near], "supporting": [], "contrary": []}

    def replace_evidence(route: Any) -> None:
        response = route.fetch()
        route.fulfill(response=response, json={**response.json(), **evidence})

    page.route("**/api/items/*", replace_evidence)
    page.locator("#grid").press("ArrowRight")
    page.locator("#inspector").get_by_text("No labelled image is like this").wait_for()
    evidence["contrary"] = [{**near, "similarity": 1.0, "log_odds": 18.2}]
    page.locator("#grid").press("ArrowRight")
    page.locator("#inspector").get_by_text("Against it, similar images with another label").wait_for()
    assert page.locator("#inspector").get_by_text("+18.2").count() == 1


def test_a_similarity_below_the_limit_is_not_shown_as_the_limit(opened: Open) -> None:
    page = opened()
    page.route("**/api/similar", lambda route: route.fulfill(json={
        "results": [{"id": 5, "similarity": 0.498, "log_odds": -0.01}], "model_version": 1, "exact": True, "metric": "",
    }))  # fmt: skip
    page.locator("#grid").press("ArrowRight")
    page.locator("#similar-count").get_by_text("the most similar one has 0.498").wait_for()
