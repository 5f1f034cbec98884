"""Unlabelled projects: creation, requests before the first model, and the first model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.server.conftest import PORT, signed_in, striped
from tests.server.routes.test_items import ids, item, put
from typer.testing import CliRunner

from samekind.cli import app
from samekind.errors import DataError, ModelFileError, SamekindError, SettingError
from samekind.project.fit import FitConfig, fit
from samekind.project.run_folder import open_run
from samekind.server.app_state import AppState
from samekind.server.jobs.background import analyze
from samekind.server.security import Credentials
from samekind.server.session import Session
from samekind.server.transfer.exporters import copy_images, write_file
from samekind.server.unlabelled_project import default_folder, resolve_run

N = 24


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an unlabelled project; return the folder of its `photos` and `run`."""
    folder = tmp_path_factory.mktemp("unlabelled")
    for k in range(N):
        place = folder / "photos" / f"roll{k // 12}"
        place.mkdir(parents=True, exist_ok=True)
        striped(k % 2, k).save(place / f"{k:02d}.png")
    resolve_run(folder / "photos", folder / "run")
    return folder


@pytest.fixture
def project(begun: Path, tmp_path: Path) -> Path:
    """Return a copy of the project that a test may change."""
    shutil.copytree(begun, tmp_path / "copy")
    manifest = tmp_path / "copy" / "run" / "run.json"
    manifest.write_text(manifest.read_text().replace(str(begun / "photos"), str(tmp_path / "copy" / "photos")))
    return tmp_path / "copy" / "run"


@pytest.fixture
def run(project: Path) -> Path:
    """Return the run that the fixtures `state` and `browser` serve."""
    return project


def two_classes(browser: TestClient) -> None:
    for name in ("across", "down"):
        assert browser.post("/api/classes", json={"name": name}).status_code == 201


# ---------------------------------------------------------------- beginning


def test_a_folder_becomes_a_run_beside_it_and_nothing_is_written_among_the_images(begun: Path) -> None:
    manifest = json.loads((begun / "run" / "run.json").read_text())
    assert manifest["unlabelled"] and not manifest["finished"] and manifest["result"]["n_items"] == N
    assert len(list((begun / "photos").rglob("*"))) == N + 2
    assert (begun / "run" / "items.csv").read_text().splitlines()[:2] == ["path,label,given", "roll0/00.png,,"]


def test_colour_images_have_the_features_of_an_encoder_before_the_first_model(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for k in range(12):
        striped(k % 2, k).convert("RGB").resize((24, 24)).save(tmp_path / "photos" / f"{k:02d}.png")
    run = resolve_run(tmp_path / "photos", tmp_path / "run")
    (cached,) = (run / "cache").glob("features-*.npy")
    features = np.load(run / "serve" / "model-0" / "z.npy")
    assert np.load(cached).shape == (12, 1280) and len(features) == 12
    assert np.allclose(np.linalg.norm(features.astype(float), axis=1), 1.0, atol=1e-2)


def test_another_encoder_than_that_of_the_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for k in range(6):
        striped(k % 2, k).convert("RGB").resize((24, 24)).save(tmp_path / "images" / f"{k}.png")
    run = resolve_run(tmp_path / "images", tmp_path / "run", encoder="lite0@32")
    before = json.loads((run / "run.json").read_text())
    assert before["config"]["encoder"] == "lite0@32"
    for other, name in (("lite2", "lite2"), (None, "none")):
        with pytest.raises(SettingError, match=rf"made with the encoder 'lite0@32', but '{name}' was requested"):
            resolve_run(run, None, encoder=other)
        with pytest.raises(SettingError, match="Leave --encoder out, or choose another folder"):
            resolve_run(tmp_path / "images", run, encoder=other)
    assert resolve_run(run, None) == resolve_run(tmp_path / "images", run, encoder="lite0@32") == run
    assert json.loads((run / "run.json").read_text()) == before


def test_the_same_command_opens_the_same_labels_again(project: Path) -> None:
    images = project.parent / "photos"
    state = AppState(Session(resolve_run(images, project)), Credentials(PORT))
    browser = signed_in(state)
    two_classes(browser)
    put(browser, [3], 1)
    state.close()
    assert resolve_run(images, project) == project == resolve_run(project, None)
    again = Session(project)
    assert again.states.class_id[3] == 1
    again.close()


def test_without_out_the_run_has_the_name_of_the_data(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_folder(begun / "photos") == Path("runs/photos")
    assert default_folder(begun / "numbers.csv") == Path("runs/numbers")
    monkeypatch.chdir(begun / "photos" / "roll0")  # the working directory is inside the data
    assert default_folder(begun / "photos") == begun / "runs" / "photos" == default_folder(Path(".."))


def test_an_interrupted_creation_is_repeated(project: Path) -> None:
    manifest = json.loads((project / "run.json").read_text())
    del manifest["result"]
    (project / "run.json").write_text(json.dumps(manifest))
    (project / "items.csv").unlink()
    shutil.rmtree(project / "serve")
    with pytest.raises(SettingError, match="incomplete"):
        resolve_run(project, None, read_only=True)
    Session(resolve_run(project, None)).close()
    assert "result" in json.loads((project / "run.json").read_text())


def test_data_that_cannot_be_served_is_refused_with_a_sentence_and_leaves_no_files(begun: Path, tmp_path: Path) -> None:
    images, other, empty = begun / "photos", tmp_path / "other", tmp_path / "empty"
    for folder in (other, empty):
        folder.mkdir()
    striped(0, 0).save(other / "1.png")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").write_text("mine")
    (tmp_path / "note.txt").write_text("no data")
    cases: list[tuple[Path, Path | None, type[SamekindError], str]] = [
        (tmp_path / "nowhere", None, DataError, "does not exist"),
        (empty, tmp_path / "new", DataError, "not a run .* no (image|image)"),
        (tmp_path / "note.txt", tmp_path / "new", DataError, "cannot be read"),
        (other, begun / "run", SettingError, "is a run of .*photos"),
        (images, images / "run", SettingError, "inside"),
        (images, tmp_path / "taken", SettingError, "holds no run"),
        (begun / "run", tmp_path / "new", SettingError, "is a run already"),
        (begun, None, SettingError, "holds runs"),
    ]
    for path, out, kind, manifest in cases:
        with pytest.raises(kind, match=manifest):
            resolve_run(path, out)
    with pytest.raises(SettingError, match="without --read-only"):
        resolve_run(other, tmp_path / "new", read_only=True)
    assert not (tmp_path / "new").exists() and not (images / "run").exists()


def test_the_command_ends_with_code_2_and_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for path in ("empty", "nowhere"):
        result = CliRunner().invoke(app, ["serve", path, "--no-browser"])
        assert result.exit_code == 2 and result.stderr.startswith("samekind: ") and "Traceback" not in result.stderr
    assert not (tmp_path / "runs" / "empty").exists()


def test_labels_in_a_file_are_imported_and_zero_is_a_label(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", x=rng.normal(size=(20, 3)), y=np.array([0, 0, 1] + [-1] * 17))
    session = Session(resolve_run(tmp_path / "rows.npz", tmp_path / "run"))
    assert session.states.counts(2).tolist() == [2, 1] and session.store.undo_log.last() is None
    assert [kind["name"] for kind in session.store.rows("SELECT name FROM class")] == ["0", "1"]
    session.close()


def test_a_table_can_be_served_without_labels(tmp_path: Path) -> None:
    rows = "".join(f"{k},{k % 3},{k * k}\n" for k in range(12))
    (tmp_path / "table.csv").write_text("a,b,c\n" + rows)
    session = Session(resolve_run(tmp_path / "table.csv", tmp_path / "run"))
    assert len(session) == 12 and session.predictions.z.shape == (12, 4) and not session.predictions.trained
    session.close()


def test_a_fit_does_not_write_into_an_unlabelled_project_which_has_no_model(project: Path) -> None:
    with pytest.raises(SettingError, match="an unlabelled project of `samekind serve`"):
        fit(FitConfig(str(project.parent / "photos")), project)
    with pytest.raises(ModelFileError, match="no model yet"):
        open_run(project)


# ---------------------------------------------------------------- before the first model


def test_before_the_first_model_there_are_no_predictions(browser: TestClient) -> None:
    about = browser.get("/api/run").json()
    assert about["model"]["version"] == 0 and about["n_labelled"] == 0 and about["classes"] == []
    assert about["sorts"] == ["diverse", "path", "random", "newest"]
    one = item(browser, 3)
    assert [one[name] for name in ("pred", "conf", "margin", "entropy", "top3")] == [None, None, None, None, []]
    whole = browser.get("/api/items/3").json()
    assert (whole["top5"], whole["nearest"], whole["previous"]) == ([], [], None)
    two_classes(browser)
    assert [one["n_predicted"] for one in browser.get("/api/run").json()["classes"]] == [0, 0]
    colours = np.frombuffer(browser.get("/api/colors").content, dtype="<i2").reshape(-1, 3)
    assert (colours == -1).all()
    put(browser, [3], 0)
    assert browser.get("/api/items/3").json()["events"][0]["pred_class"] is None
    assert ids(browser, status="differs") == ids(browser, status="changed") == []


def test_the_default_order_is_diverse_and_sorts_that_need_a_model_are_refused(browser: TestClient) -> None:
    first = ids(browser)
    assert sorted(first) == list(range(N)) and first == ids(browser, sort="diverse")
    assert {i % 2 for i in first[:2]} == {0, 1}  # the second is as different from the first as can be
    assert ids(browser, sort="path") == list(range(N))
    for sort in ("margin", "entropy", "confidence", "disagreement", "differs", "audit"):
        response = browser.get(f"/api/order?sort={sort}")
        assert response.status_code == 409 and "no model yet" in response.json()["detail"]


def test_similarity_search_uses_the_cosine_and_names_it(state: AppState, browser: TestClient) -> None:
    response = browser.post("/api/similar", json={"ids": [4], "k": 5}).json()
    assert response["metric"] == "cosine of baseline features" and response["exact"] and response["model_version"] == 0
    assert all(one["id"] % 2 == 0 and one["id"] != 4 for one in response["results"])
    assert len(browser.post("/api/similar", json={"ids": [4], "k": 100}).json()["results"]) == N - 1
    sure = browser.post("/api/similar", json={"ids": [4], "k": 100, "min_similarity": 0.2}).json()["results"]
    assert all(one["similarity"] >= 0.2 for one in sure) and 0 < len(sure) < N - 1
    z = state.session.predictions.z
    both = browser.post("/api/similar", json={"ids": [4, 8], "not_ids": [6], "k": N}).json()["results"]
    assert {one["id"] for one in both} == set(range(N)) - {4, 6, 8}
    assert all(abs(one["similarity"] - z[one["id"]] @ (z[4] / 2 + z[8] / 2 - z[6])) < 1e-4 for one in both)


def test_there_is_a_map_and_no_disagreement(state: AppState, browser: TestClient) -> None:
    first = browser.get("/api/map")
    assert first.headers["x-layout"] == "components" and len(first.content) == 8 * N
    analyze(state.session.folder / "model-0")
    assert browser.get("/api/map").headers["x-layout"] == "neighbors"
    assert not (state.session.folder / "model-0" / "disagreement.npy").exists()


def test_requests_that_need_a_model_are_refused_with_a_sentence(browser: TestClient) -> None:
    samples = [{"id": 0}, {"id": 1}]
    predictions = [
        browser.post("/api/v1/predict", json={"samples": samples}),
        browser.post("/api/v1/neighbors", json={"samples": samples}),
        browser.post("/api/v1/similarity", json={"a": samples}),
        browser.post("/api/labels", json={"op": "accept", "ids": [0]}),
        browser.get("/api/export?what=predictions"),
    ]
    assert {(one.status_code, one.json()["detail"][:26]) for one in predictions} == {(409, "There is no model yet. Lab")}
    about = browser.get("/api/v1/model").json()
    assert about["model_version"] is None and about["classes"] == []
    assert browser.get("/api/models").json() == {"models": []}
    assert browser.post("/api/models/0/activate", json={}).status_code == 404


@pytest.mark.parametrize("kind", ["csv", "csv-spreadsheet", "jsonl", "imagefolder", "labelstudio", "fiftyone"])
def test_labels_are_exported_without_predictions(state: AppState, browser: TestClient, tmp_path: Path, kind: str) -> None:
    two_classes(browser)
    put(browser, [0, 5], 0)
    response = browser.get(f"/api/export?format={kind}&what=both")
    assert response.status_code == 200 and "across" in response.text and "nan" not in response.text.lower()
    if kind == "csv":
        rows = [line.split(",") for line in response.text.splitlines()]
        assert rows[1][:3] == ["roll0/00.png", "across", "labelled"] and rows[1][5:] == ["", "", "", ""]
        back = browser.post("/api/import?dry_run=1", content=response.content, headers={"content-type": "text/csv"}).json()
        assert back["unchanged"] == 2 and back["to_change"] == 0
    if kind == "jsonl":
        assert json.loads(response.text.splitlines()[1])["pred"] is None
    write_file(state.session.run, tmp_path / "out", kind, "both", "all", "")
    assert copy_images(state.session.run, tmp_path / "sorted", "both") == 2
    with pytest.raises(DataError, match="no model yet"):
        copy_images(state.session.run, tmp_path / "predicted", "predictions")
    with pytest.raises(DataError, match="no model yet"):
        write_file(state.session.run, tmp_path / "out", kind, "predictions", "all", "")


def test_an_audit_waits_for_a_model(browser: TestClient) -> None:
    two_classes(browser)
    browser.post("/api/labels", json={"op": "set", "ids": [1, 2, 3], "class_id": 0, "source": "audit"})
    found = browser.get("/api/run").json()["audit"]
    assert found["n"] == 3 and found["accuracy"] is None and "no model" in found["reason"]


def test_removed_baseline_features_are_computed_again(project: Path) -> None:
    before = np.load(project / "serve" / "model-0" / "z.npy")
    for gone in (False, True):
        shutil.rmtree(project / "serve" / "model-0")
        if gone:
            (project.parent / "photos" / "roll0" / "03.png").unlink()
        session = Session(project)
        z = np.asarray(session.predictions.z)
        session.close()
        assert gone or np.allclose(z, before, atol=1e-5)
    assert len(z) == N and not z[3].any() and np.delete(z, 3, 0).any(axis=1).all()


def test_an_unlabelled_project_can_be_served_read_only(project: Path) -> None:
    Session(project).close()
    state = AppState(Session(project, read_only=True), Credentials(PORT))
    assert len(ids(signed_in(state))) == N
    state.close()


# ---------------------------------------------------------------- the first model


def refusal(browser: TestClient) -> str:
    response = browser.post("/api/fit", json={})
    assert response.status_code == 409 and response.json()["detail"] == browser.get("/api/run").json()["missing"]
    return str(response.json()["detail"])


def test_a_fit_names_the_missing_labels(browser: TestClient) -> None:
    assert refusal(browser) == "Name at least 2 classes, then label at least 2 items of each."
    browser.post("/api/classes", json={"name": "across"})
    assert refusal(browser) == "Name at least 2 classes, then label at least 2 items of each."
    browser.post("/api/classes", json={"name": "down"})
    assert refusal(browser) == "Label at least 2 items of each of 2 classes: 2 more of 'across' and 2 more of 'down'."
    put(browser, [1, 3], 1)
    assert refusal(browser) == "Label at least 2 items of each of 2 classes: 2 more of 'across'."
    put(browser, [0], 0)
    browser.post(
        "/api/labels", json={"op": "set", "ids": [2], "class_id": 0, "source": "audit"}
    )  # audited labels are not used for training
    assert refusal(browser) == "Label at least 2 items of each of 2 classes: 1 more of 'across'."
    put(browser, [4], 0)
    assert browser.get("/api/run").json()["missing"] is None


def test_after_the_first_model_everything_has_predictions(state: AppState, browser: TestClient, project: Path) -> None:
    two_classes(browser)
    put(browser, [0, 2], 0)
    put(browser, [1, 3], 1)
    striped(1, 99).save(project.parent / "photos" / "late.png")
    manifest = json.loads((project / "run.json").read_text())
    manifest["config"]["method"] = "label_propagation"  # fast
    (project / "run.json").write_text(json.dumps(manifest))
    begun = browser.post("/api/fit", json={})
    assert begun.status_code == 202 and begun.json()["version"] == 1
    state.refits.wait(200)
    job: dict[str, Any] = browser.get("/api/job").json()
    assert job["state"] == "done" and job["changed"] is None, job
    about = browser.get("/api/run").json()
    assert about["model"]["version"] == 1 and about["missing"] is None and "margin" in about["sorts"]
    found = [item(browser, i)["pred"] for i in range(N)]
    assert np.mean([pred == i % 2 for i, pred in enumerate(found)]) > 0.9
    assert item(browser, N)["path"] == "late.png" and sorted(ids(browser, sort="margin")) == list(range(N + 1))
    assert browser.post("/api/similar", json={"ids": [4]}).json()["metric"] == "learned similarity"
    assert browser.post("/api/v1/predict", json={"samples": [{"id": 8}]}).json()["results"][0]["label"] == "across"
    assert browser.get("/api/items/8").json()["nearest"] and browser.get("/api/items/8").json()["previous"] is None
    assert [one["version"] for one in browser.get("/api/models").json()["models"]] == [1]
    state.close()
    names, labels, _ = open_run(project).predictions()  # the command line uses it too
    assert names[0] == "late.png" and labels[1:3] == ["across", "down"]
    again = Session(project)
    active_model = again.active_model
    assert (
        active_model.predictions.version == 1
        and active_model.previous is None
        and active_model.fitted.classes.tolist() == ["across", "down"]
    )
    again.close()
