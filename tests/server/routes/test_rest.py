"""The API for other programs: predictions, neighbours and similarities of items, images and vectors."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient
from tests.server.conftest import PORT, stranger, striped

from samekind.model import FittedModel
from samekind.project.fit import FitConfig, fit
from samekind.server.app_state import AppState
from samekind.server.routes import rest
from samekind.server.security import Credentials
from samekind.server.session import Session


@pytest.fixture
def program(state: AppState) -> TestClient:
    client = stranger(state)
    client.headers["authorization"] = f"Bearer {state.credentials.token}"
    return client


def sent(image: Image.Image) -> dict[str, str]:
    blob = io.BytesIO()
    image.save(blob, "PNG")
    return {"image": base64.b64encode(blob.getvalue()).decode()}


def ask(client: TestClient, verb: str, body: Any) -> Any:
    response = client.post(f"/api/v1/{verb}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_model_describes_its_input(program: TestClient) -> None:
    about = program.get("/api/v1/model").json()
    assert about["input"] == "image" and about["classes"] == ["across", "down"] and about["shape"] == [12, 12, 1]


def test_an_uploaded_image_gets_the_prediction_of_the_same_item(program: TestClient) -> None:
    item, new = ask(program, "predict", {"samples": [{"id": 21}, sent(striped(1, 21))]})["results"]
    assert item["label"] == new["label"] == "down"
    assert abs(sum(new["probabilities"].values()) - 1.0) < 1e-3


def test_an_uploaded_image_takes_one_forward_pass(
    state: AppState, program: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, features = [], FittedModel.features

    def counted(model: FittedModel, X: Any) -> Any:
        batches.append(len(X))
        return features(model, X)

    monkeypatch.setattr(FittedModel, "features", counted)
    ask(program, "predict", {"samples": [sent(striped(1, 21)), {"id": 3}, sent(striped(0, 22))]})
    assert batches == [2]


def test_neighbours_of_an_uploaded_image_begin_with_itself(program: TestClient) -> None:
    (found,) = ask(program, "neighbors", {"samples": [sent(striped(0, 24))], "k": 4})["results"]
    assert found[0]["path"] == "roll1/24.png" and all(one["pred"] == "across" for one in found)
    (others,) = ask(program, "neighbors", {"samples": [{"id": 24}], "k": 4})["results"]
    assert 24 not in [one["id"] for one in others]


def test_items_and_uploads_can_be_compared(program: TestClient) -> None:
    W = np.array(
        ask(program, "similarity", {"a": [{"id": 20}, sent(striped(1, 21))], "b": [{"id": 22}, {"id": 23}]})["similarity"]
    )
    assert W.shape == (2, 2) and W[0, 0] > W[0, 1] and W[1, 1] > W[1, 0]
    assert np.shape(ask(program, "similarity", {"a": [{"id": 1}, {"id": 2}, {"id": 3}]})["similarity"]) == (3, 3)


def test_a_response_is_of_one_model_also_if_another_is_activated_meanwhile(
    state: AppState, program: TestClient, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = run / "serve" / "model-2"  # the same model, with the names of its classes exchanged
    shutil.copytree(run / "serve" / "model-1", second)
    shutil.copytree(run / "model", second, dirs_exist_ok=True)
    metadata = json.loads((second / "predictions.json").read_text())
    (second / "predictions.json").write_text(json.dumps({**metadata, "class_ids": metadata["class_ids"][::-1]}))
    decode = rest.decode_upload

    def while_a_refit_ends(session: Session, text: str) -> Any:
        session.activate(2)
        return decode(session, text)

    monkeypatch.setattr(rest, "decode_upload", while_a_refit_ends)
    for version, label in ((1, "down"), (2, "across")):
        response = ask(program, "predict", {"samples": [{"id": 21}, sent(striped(1, 21))]})
        assert response["model_version"] == version and [one["label"] for one in response["results"]] == [label, label]


@pytest.mark.parametrize(
    "sample",
    [
        {"id": 10**6},
        {"id": 1, "vector": [1.0]},
        {},
        {"image": "no base64!"},
        {"image": base64.b64encode(b"no image").decode()},
        {"vector": [1.0, 2.0]},
        {"path": "/etc/passwd"},
        {"image": 5},
    ],
    ids=str,
)
def test_an_invalid_sample_is_refused_with_a_sentence(program: TestClient, sample: dict[str, Any]) -> None:
    response = program.post("/api/v1/predict", json={"samples": [sample]})
    assert response.status_code == 422 and response.json()["detail"]


def test_too_large_images_and_too_many_are_refused(program: TestClient) -> None:
    huge = sent(Image.new("1", (10_000, 6_000)))
    response = program.post("/api/v1/predict", json={"samples": [huge]})
    assert response.status_code == 422 and "pixels" in response.json()["detail"]
    assert program.post("/api/v1/predict", json={"samples": [{"id": 1}] * 65}).status_code == 422


# ---------------------------------------------------------------- a run on rows of numbers


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Yield a client of a run on vectors of two classes, with names that repeat."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 1, (15, 6)), rng.normal(6, 1, (15, 6))])
    names = np.array([f"sample {k % 28}" for k in range(30)])
    y = np.array(["low"] * 2 + [""] * 13 + ["high"] * 2 + [""] * 13)
    np.savez(folder / "data.npz", x=x, y=y, names=names)
    fit(FitConfig(str(folder / "data.npz"), method="label_propagation"), folder / "run")
    state = AppState(Session(folder / "run"), Credentials(PORT))
    client = stranger(state)
    client.headers["authorization"] = f"Bearer {state.credentials.token}"
    yield client
    state.close()


def test_vectors_are_served_as_line_plots(rows: TestClient) -> None:
    assert rows.get("/api/run").json()["kind"] == "rows"
    low, high = (rows.get(f"/img/{i}/thumb").content for i in (3, 20))
    assert low != high and Image.open(io.BytesIO(low)).size == (128, 128)


def test_the_image_of_a_row_can_be_requested_by_its_key(rows: TestClient) -> None:
    (one,) = rows.post("/api/items", json={"ids": [3]}).json()["items"]
    thumb = rows.get(f"/img/3/thumb?key={quote(one['image_key'])}")
    assert thumb.status_code == 200 and "immutable" in thumb.headers["cache-control"]


def test_a_row_has_the_values_of_its_columns_and_their_ranks(rows: TestClient) -> None:
    (one,) = rows.post("/api/items", json={"ids": [20]}).json()["items"]
    assert one["n_fields"] == 6 and [field["name"] for field in one["fields"]] == list("012345")
    assert all(float(field["value"]) > 2 and field["rank"] > 0.5 for field in one["fields"])
    assert rows.get("/api/items/20").json()["all_fields"] == one["fields"]


def test_repeated_names_are_made_unique(rows: TestClient) -> None:
    paths = [one["path"] for one in rows.post("/api/items", json={"ids": [0, 28]}).json()["items"]]
    assert paths == ["sample 0", "sample 0#28"]


def test_vectors_are_predicted(rows: TestClient) -> None:
    results = ask(rows, "predict", {"samples": [{"vector": [0.0] * 6}, {"vector": [6.0] * 6}]})["results"]
    assert [one["label"] for one in results] == ["low", "high"]
    assert rows.post("/api/v1/predict", json={"samples": [{"vector": [0.0] * 5}]}).status_code == 422
    assert rows.post("/api/v1/predict", json={"samples": [sent(striped(0, 0))]}).status_code == 422
    assert (
        rows.post(
            "/api/v1/predict",
            content=json.dumps({"samples": [{"vector": [float("nan")] * 6}]}),
            headers={"content-type": "application/json"},
        ).status_code
        == 422
    )


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    from samekind.errors import ModelFileError

    with pytest.raises(ModelFileError, match="samekind fit"):
        Session(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 2, "finished": false, "config": {}}')
    with pytest.raises(ModelFileError, match="not finished"):
        Session(tmp_path)
