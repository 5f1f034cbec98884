"""What the page does at the end of a list, when a label is replaced, in an audit, and after a refit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.page.served import saved, wait_for_message

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., Any]


def focused_label(page: Page) -> Any:
    page.wait_for_function("() => samekind.state.items.has(samekind.state.order[samekind.state.focus])")
    return page.evaluate("samekind.state.items.get(samekind.state.order[samekind.state.focus]).label")


def undone(page: Page) -> None:
    page.keyboard.press("Control+z")
    wait_for_message(page, "undone")
    saved(page)


def test_at_the_end_of_a_list_the_next_key_labels_nothing(opened: Open) -> None:
    page = opened()
    page.locator("#grid").press("End")
    page.keyboard.press("2")
    wait_for_message(page, "End of the list. Undo")
    page.keyboard.press("3")
    wait_for_message(page, "no image was changed")
    saved(page)
    assert focused_label(page) == 1 and page.locator(".tile.focused").count() == 0
    assert page.locator("#labelbar .what").inner_text() == "end of the list"
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#tile-59.focused")
    page.keyboard.press("3")
    wait_for_message(page, "It was labelled across before. End of the list. Undo")
    saved(page)
    undone(page)
    undone(page)
    page.wait_for_selector("#tile-59.focused")


def test_items_that_arrive_late_do_not_replace_a_newer_label(opened: Open) -> None:
    page = opened()
    page.evaluate("""() => Promise.all([import('/static/state.js'), import('/static/api.js')]).then(([all, { api }]) => {
        const fetched = api.items;
        window.late = new Promise(done => {
            api.items = async (...request) => {
                const response = await fetched(...request);
                await new Promise(go => { window.arrive = go; });
                queueMicrotask(done);
                return response;
            };
        });
        all.fetchItems([samekind.state.order[samekind.state.focus]]);
    })""")
    page.wait_for_function("() => window.arrive")
    page.keyboard.press("2")
    saved(page)
    label = "() => samekind.state.items.get(samekind.state.order[0]).label"
    assert page.evaluate(label) == 1
    page.evaluate("() => { window.arrive(); return window.late; }")
    page.wait_for_timeout(50)
    assert page.evaluate(label) == 1
    undone(page)


def test_labels_that_are_replaced_are_counted_and_come_back_with_one_button(opened: Open) -> None:
    page = opened()
    page.locator("#sort").select_option("path")
    page.locator("#search").fill("roll0")
    page.wait_for_function("() => samekind.state.order.length === 20")
    page.wait_for_function("() => [...samekind.state.order].every(id => samekind.state.items.has(id))")
    page.locator("#grid").press("Control+a")
    page.keyboard.press("2")
    wait_for_message(page, "20 images → across. 8 of 20 had another label. Undo")
    saved(page)
    page.locator("#offers").get_by_role("button", name="Undo").click()
    wait_for_message(page, "16 images undone")
    assert (
        page.evaluate("[...samekind.state.order].filter(id => samekind.state.items.get(id).status === 'labelled').length") == 12
    )
    assert page.locator("#offers button").count() == 0 or "Undo" not in page.locator("#offers").inner_text()


def test_an_audit_begins_with_an_unlabelled_image_that_was_not_in_focus_and_goes_round(opened: Open) -> None:
    page = opened()
    order = page.evaluate("""() => import('/static/api.js')
        .then(({ api }) => api.order({ sort: 'audit', status: 'unlabelled' })).then(found => [...found.values])""")
    page.evaluate("id => { samekind.state.focus = samekind.state.order.indexOf(id); samekind.emit('focus'); }", order[0])
    page.locator("#sort").select_option("audit")
    page.wait_for_function("() => samekind.state.view.sort === 'audit' && samekind.state.order.length === 48")
    page.wait_for_function("() => samekind.state.focus === 1")
    page.locator("#grid").press("End")
    stale = page.locator("#model").inner_text()
    page.keyboard.press("1")
    page.wait_for_function("() => samekind.state.focus === 0")
    saved(page)
    page.wait_for_function("() => samekind.state.run.audit?.n === 1")
    assert page.locator("#model").inner_text() == stale
    undone(page)


def test_what_a_refit_changed_is_shown_without_any_other_filter(opened: Open) -> None:
    page = opened()
    page.locator("#search").fill("roll1")
    page.wait_for_function("() => samekind.state.order.length === 20")
    assert page.locator("#shown").inner_text() == "20 of 60 shown"
    page.evaluate("""() => {
        Object.assign(samekind.state, { orderVersion: -1, job: { state: 'done', changed: { n: 5, by_pair: [] } } });
        samekind.emit('job');
    }""")
    page.get_by_role("button", name="Show what changed").click()
    page.wait_for_function("() => samekind.state.view.status === 'changed' && samekind.state.orderVersion > 0")
    assert page.evaluate("samekind.state.view.q") == "" and page.locator("#search").input_value() == ""
    wait_for_message(page, "whose prediction the refit changed")
    page.locator("[name=status][value=all]").check()
    page.wait_for_function("() => document.querySelector('#message').textContent === ''")
    assert page.locator("#shown").inner_text() == "60 shown"


def test_a_project_is_not_ready_with_one_label_of_each_class(opened: Open) -> None:
    page = opened()
    page.evaluate("""() => {
        const { state, emit } = samekind;
        state.run = { ...state.run, missing: null, model: { ...state.run.model, version: 0 } };
        [...state.classes.values()].forEach((one, i) => { one.n_labelled = i + 1; });
        emit('run');
    }""")
    page.wait_for_selector("#begin:not([hidden])")
    step = page.locator("#begin-step").inner_text()
    assert "fewer than 2 labels" in step and step.endswith(" 1.")
