"""Export, import and audit."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.server.conftest import N
from tests.server.routes.test_items import ids, item, put

from samekind.errors import DataError, SettingError
from samekind.server.app_state import AppState
from samekind.server.inference.audit import wilson_interval
from samekind.server.transfer.exporters import copy_images, escape_formula, write_file

AWKWARD = ["=cmd|' /C calc'!A0", "-1 degrees", 'a, "quoted" one', "two  words", "🦆", "@home", "+1"]


def exported(browser: TestClient, **query: str) -> Any:
    response = browser.get("/api/export", params=query)
    assert response.status_code == 200 and "attachment" in response.headers["content-disposition"]
    return response.content


def table(blob: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(blob.decode("utf-8-sig"), newline="")))


def imported(browser: TestClient, blob: bytes, **query: Any) -> Any:
    kind = {"jsonl": "application/x-ndjson", "labelstudio": "application/json"}.get(query.get("format", ""), "text/csv")
    return browser.post("/api/import", content=blob, params=query, headers={"content-type": kind})


def label_awkwardly(browser: TestClient) -> dict[int, str]:
    """Label seven items with class names that break careless programs; return {item: name}."""
    for k, name in enumerate(AWKWARD):
        number = browser.post("/api/classes", json={"name": name}).json()["id"]
        put(browser, [20 + k], number)
    browser.post("/api/labels", json={"op": "skip", "ids": [30]})
    return {20 + k: name for k, name in enumerate(AWKWARD)}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "labelstudio"])
def test_exported_labels_can_be_imported_again(browser: TestClient, kind: str) -> None:
    labels = label_awkwardly(browser)
    blob = exported(browser, format=kind, what="both")
    browser.post("/api/labels", json={"op": "clear", "ids": [*labels, 0, 30]})
    report = imported(browser, blob, format=kind).json()
    assert report["outcome"]["changed"] == len(labels) + 2 and report["n_unmatched"] == 0
    names = {one["id"]: one["name"] for one in browser.get("/api/run").json()["classes"]}
    assert {i: names[item(browser, i)["label"]] for i in labels} == labels
    assert item(browser, 30)["status"] == "skipped"


def test_a_csv_has_a_line_for_every_item_and_the_requested_columns(browser: TestClient) -> None:
    both = table(exported(browser, format="csv", what="both"))
    assert len(both) == N and both[0]["path"] == "roll0/00.png" and both[0]["label"] == "across" and both[9]["label"] == ""
    assert set(both[0]) == set("path label status source labelled_at pred confidence margin model".split())
    assert set(table(exported(browser, what="predictions"))[0]) == set("path pred confidence margin model".split())
    assert len(table(exported(browser, scope="labelled"))) == 6


def test_a_spreadsheet_evaluates_no_cell(browser: TestClient) -> None:
    label_awkwardly(browser)
    rows = table(exported(browser, format="csv-spreadsheet"))
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows for cell in row.values())
    assert escape_formula("=1") == "'=1" and escape_formula("a=1") == "a=1"


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("\n=1", "'\n'=1"),
        (" =1", "' =1"),
        ("\u200b@a", "'\u200b@a"),
        ("\uff1d1", "'\uff1d1"),
        ("\u3000\uff0d1", "'\u3000\uff0d1"),
        (";=1", ";'=1"),
        ("a; +1", "a;' +1"),
        ('a",=1', "a\",'=1"),
        ("\tx", "'\tx"),
        ("a-b, c; d", "a-b, c; d"),
    ],
)
def test_a_formula_is_marked_behind_blanks_in_wide_letters_and_where_a_cell_may_be_split(cell: str, written: str) -> None:
    assert escape_formula(cell) == written


def test_an_image_folder_names_files_and_fiftyone_names_them_without_ending(browser: TestClient) -> None:
    assert table(exported(browser, format="imagefolder"))[1]["file_name"] == "roll0/01.png"
    content = json.loads(exported(browser, format="fiftyone"))
    assert content["classes"] == ["across", "down"]
    assert content["labels"]["roll0/00"] == {"label": "across"} and content["labels"]["roll1/39"] is None
    predicted = json.loads(exported(browser, format="fiftyone", what="both"))["labels"]
    assert "confidence" in predicted["roll1/39"] and "confidence" not in predicted["roll0/00"]


def test_files_that_differ_in_their_ending_only_are_refused_for_fiftyone(state: AppState, browser: TestClient) -> None:
    state.session.store.names[1] = "roll0/00.jpg"
    response = browser.get("/api/export?format=fiftyone")
    assert response.status_code == 409 and "roll0/00" in response.json()["detail"]


def test_label_studio_gets_annotations_and_predictions(browser: TestClient) -> None:
    tasks = json.loads(exported(browser, format="labelstudio", what="both", url_prefix="/data/local-files/?d=photos/"))
    assert tasks[0]["data"]["image"] == "/data/local-files/?d=photos/roll0/00.png"
    assert tasks[0]["annotations"][0]["result"][0]["value"] == {"choices": ["across"]}
    assert tasks[0]["predictions"][0]["model_version"] == "samekind-1" and "annotations" not in tasks[9]


def test_a_dry_run_reports_and_changes_nothing(state: AppState, browser: TestClient) -> None:
    blob = b"path,label\nroll0/00.png,down\nroll0/01.png,down\nroll0/10.png,round\nnowhere.png,down\n./roll0\\11.png,down\n"
    report = imported(browser, blob, dry_run=1).json()
    assert (report["matched"], report["unchanged"], report["to_change"]) == (4, 1, 2)
    assert report["unmatched"] == ["nowhere.png"] and report["new_classes"] == ["round"]
    assert [(one["path"], one["current"], one["imported"]) for one in report["conflicts"]] == [
        ("roll0/00.png", "across", "down")
    ]
    assert state.session.store.last_seq == 6 and len(browser.get("/api/run").json()["classes"]) == 2


def test_existing_labels_stay_without_overwrite_and_an_import_is_one_undo(browser: TestClient) -> None:
    blob = b"path,label\nroll0/00.png,down\nroll0/10.png,down\n"
    assert imported(browser, blob).json()["outcome"]["changed"] == 1 and item(browser, 0)["label"] == 0
    assert imported(browser, blob, overwrite=1).json()["outcome"]["changed"] == 1 and item(browser, 0)["label"] == 1
    browser.post("/api/undo", json={})
    browser.post("/api/undo", json={})
    assert (item(browser, 0)["label"], item(browser, 10)["label"]) == (0, None)


def test_names_that_are_not_utf8_are_reported_or_refused(state: AppState, browser: TestClient) -> None:
    report = imported(browser, b"path,label\ncaf\xe9.png,down\n", dry_run=1).json()
    assert report["unmatched"] == ["caf\\xe9.png"]
    assert imported(browser, b"path,label\nroll0/10.png,caf\xe9\n").status_code == 422
    state.session.store.rename_items({10: b"caf\xe9.png".decode("utf-8", "surrogateescape")})
    assert item(browser, 10)["path"] == "caf\\xe9.png"
    assert b"caf\xe9.png" in exported(browser, format="csv") and b"caf" in exported(browser, format="jsonl")
    assert imported(browser, b"path,label\ncaf\xe9.png,down\n").json()["outcome"]["changed"] == 1


def test_predictions_of_a_fit_are_not_imported_as_labels(browser: TestClient, run: Path) -> None:
    report = imported(browser, (run / "labels.csv").read_bytes(), dry_run=1).json()
    assert report["matched"] == 6 and report["to_change"] == 0


@pytest.mark.parametrize(
    ("kind", "blob"),
    [
        ("csv", b""),
        ("csv", b"a,b\n1,2\n"),
        ("csv", b'path,label\n"' + b"x" * 200_000 + b'",cat\n'),
        ("csv", b"path,label\nroll0/00.png,cat\nroll0/00.png,dog\n"),
        ("csv", b"path,label\nroll0/00.png," + b"x" * 300),
        ("jsonl", b"{"),
        ("jsonl", b"[]"),
        ("jsonl", b'{"label": "cat"}'),
        ("labelstudio", b"[" * 100_000),
        ("labelstudio", b"{}x"),
        ("labelstudio", b'[{"data": 5}]'),
        ("labelstudio", b'[{"data": {}}]'),
        ("labelstudio", b'[{"data": {"path": ["?d="]}, "annotations": [{"was_cancelled": true}]}]'),
        ("labelstudio", b'[{"data": {"path": {"a": 1}}}]'),
        ("labelstudio", b'[{"data": {"path": "\\ud800"}, "annotations": [{"was_cancelled": true}]}]'),
        (
            "labelstudio",
            b'[{"data": {"path": "a"}, "annotations": [{"result": [{"type": "choices", "value": {"choices": [[1]]}}]}]}]',
        ),
        ("jsonl", b'{"path": "\\ud800", "label": "cat"}'),
        ("jsonl", b'{"path": ["a"], "label": {"b": 1}}'),
    ],
)
def test_an_invalid_import_changes_nothing(state: AppState, browser: TestClient, kind: str, blob: bytes) -> None:
    assert imported(browser, blob, format=kind).status_code == 422
    assert state.session.store.last_seq == 6


# ---------------------------------------------------------------- from the command line


def test_class_folders_keep_the_paths_of_their_images(state: AppState, browser: TestClient, run: Path, tmp_path: Path) -> None:
    browser.patch("/api/classes/1", json={"name": "up/down"})
    assert copy_images(run, tmp_path / "tree", "labels") == 6
    assert (tmp_path / "tree" / "across" / "roll0" / "00.png").read_bytes() == (run.parent / "photos/roll0/00.png").read_bytes()
    assert (tmp_path / "tree" / "up_down" / "roll0" / "01.png").is_file()
    assert copy_images(run, tmp_path / "links", "both", link=True) == N
    with pytest.raises(DataError, match="not empty"):
        copy_images(run, tmp_path / "tree", "labels")


def test_an_import_that_is_sent_twice_is_done_once_and_has_the_same_response(browser: TestClient) -> None:
    blob = b"path,label\nroll0/10.png,down\n"
    first = imported(browser, blob, request_id="r")
    again = imported(browser, blob, request_id="r")
    assert again.status_code == 200 and again.json()["outcome"] == first.json()["outcome"]
    assert imported(browser, blob + b"roll0/11.png,down\n", request_id="r").status_code == 409


def test_composed_and_decomposed_letters_are_one_class(state: AppState, browser: TestClient) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    made = browser.post("/api/classes", json={"name": decomposed}).json()
    assert made["name"] == composed and browser.post("/api/classes", json={"name": composed}).status_code == 409
    report = imported(browser, f"path,label\nroll0/10.png,{decomposed}\nroll0/11.png,{composed}\n".encode()).json()
    assert report["new_classes"] == [] and item(browser, 10)["label"] == item(browser, 11)["label"] == made["id"]
    assert browser.patch("/api/classes/0", json={"name": decomposed}).status_code == 409


def test_copying_names_the_missing_files_and_copies_the_others(browser: TestClient, run: Path, tmp_path: Path) -> None:
    for name in ("00.png", "03.png"):
        (run.parent / "photos" / "roll0" / name).unlink()
    for link in (False, True):
        out = tmp_path / f"tree{link}"
        with pytest.raises(DataError, match=r"2 of 6 files .*: roll0/00\.png, roll0/03\.png\. The other 4 are in"):
            copy_images(run, out, "labels", link=link)
        assert len([path for path in out.rglob("*.png") if path.is_file()]) == 4


def test_an_export_can_be_written_while_the_page_is_open(browser: TestClient, run: Path, tmp_path: Path) -> None:
    put(browser, [30], 1)
    write_file(run, tmp_path / "out.csv", "csv", "labels", "labelled", "")
    assert len(table((tmp_path / "out.csv").read_bytes())) == 7
    with pytest.raises(SettingError, match="fiftyone"):
        write_file(run, tmp_path / "out.csv", "fiftyon", "labels", "all", "")


# ---------------------------------------------------------------- the audit


def test_the_interval_is_wilsons() -> None:
    low, high = wilson_interval(8, 10)
    assert (round(low, 3), round(high, 3)) == (0.490, 0.943)  # as in published tables
    assert wilson_interval(10, 10)[1] > 0.999999 and wilson_interval(0, 10)[0] < 1e-6


def test_the_audit_is_random_leaves_out_other_labels_and_counts_correct_predictions(
    state: AppState, browser: TestClient
) -> None:
    drawn = ids(browser, sort="audit", seed=5)
    assert len(drawn) == N - 6 and drawn != sorted(drawn)
    pred = state.session.predictions.pred
    for i in drawn[:9]:
        put(browser, [i], int(pred[i]), source="audit")
    put(browser, [drawn[9]], 1 - int(pred[drawn[9]]), source="audit")
    audit = browser.get("/api/run").json()["audit"]
    assert (audit["n"], audit["correct"], audit["accuracy"]) == (10, 9, 0.9)
    assert audit["low"] < 0.9 < audit["high"] and not audit["in_training"]
    assert ids(browser, sort="audit", seed=5) == drawn  # audited items stay in their place


def test_audited_labels_make_the_model_stale_only_when_a_fit_may_use_them(browser: TestClient) -> None:
    def stale() -> int:
        return int(browser.get("/api/run").json()["model"]["stale_by"])

    put(browser, [30, 31], 1, source="audit")
    assert stale() == 0
    put(browser, [32], 1)
    assert stale() == 1
    browser.post("/api/audit", json={"use_for_training": True})
    assert stale() == 3


def test_audited_labels_are_used_for_training_only_when_allowed(state: AppState, browser: TestClient) -> None:
    put(browser, [30], 1, source="audit")
    assert "roll1/30.png" not in state.refits.request("quick")["labels"]
    assert browser.post("/api/audit", json={"use_for_training": True}).json()["in_training"]
    request = state.refits.request("quick")
    assert request["labels"]["roll1/30.png"] == "down" and request["metadata"]["audit_used"]
