"""A small fitted run, a copy of it for each test, and clients of its server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from samekind.project.fit import FitConfig, fit
from samekind.server.app import create_app
from samekind.server.app_state import AppState
from samekind.server.jobs.background import analyze
from samekind.server.security import Credentials
from samekind.server.session import Session

SIDE, N, PORT = 12, 40, 8000


def striped(vertical: int, seed: int) -> Image.Image:
    """Return an image with horizontal (0) or vertical (1) stripes and noise."""
    rng = np.random.default_rng(seed)
    stripes = 200 * (np.arange(SIDE) // 2 % 2)
    image = np.tile(stripes, (SIDE, 1)) if vertical else np.tile(stripes[:, None], (1, SIDE))
    return Image.fromarray(np.clip(image + rng.integers(0, 50, (SIDE, SIDE)), 0, 255).astype(np.uint8))


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fit a run for all tests; return the folder of `photos` and `run`."""
    folder = tmp_path_factory.mktemp("fitted")
    fit_striped(folder)
    Session(folder / "run").close()  # writes the predictions once for all tests
    analyze(folder / "run" / "serve" / "model-1")
    return folder


def fit_striped(folder: Path) -> None:
    """Fit `folder`/run on 40 images of two classes in `folder`/photos, with 3 labels of each."""
    images = folder / "photos"
    for k in range(N):
        place = images / f"roll{k // 20}"
        place.mkdir(parents=True, exist_ok=True)
        striped(k % 2, k).save(place / f"{k:02d}.png")
    rows = "".join(f"roll0/{k:02d}.png,{'down' if k % 2 else 'across'}\n" for k in range(6))
    (images / "labels.csv").write_text(f"path,label\n{rows}")
    fit(FitConfig(str(images), method="label_propagation"), folder / "run")


def copied(fitted: Path, to: Path) -> Path:
    """Copy the run with its images; return the copy."""
    shutil.copytree(fitted, to)
    manifest = to / "run" / "run.json"
    manifest.write_text(manifest.read_text().replace(str(fitted / "photos"), str(to / "photos")))
    return to / "run"


@pytest.fixture
def run(fitted: Path, tmp_path: Path) -> Path:
    """Return a copy of the run that a test may change."""
    return copied(fitted, tmp_path / "copy")


@pytest.fixture(scope="module")
def calm(fitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppState]:
    """Yield one server state for all tests of a module that do not disturb each other."""
    state = AppState(Session(copied(fitted, tmp_path_factory.mktemp("calm") / "copy")), Credentials(PORT))
    yield state
    state.close()


@pytest.fixture(scope="module")
def calm_browser(calm: AppState) -> TestClient:
    return signed_in(calm)


@pytest.fixture
def state(run: Path) -> Iterator[AppState]:
    state = AppState(Session(run), Credentials(PORT))
    yield state
    state.close()


@pytest.fixture
def browser(state: AppState) -> TestClient:
    """Return a client that is logged in like a browser."""
    return signed_in(state)


def stranger(state: AppState) -> TestClient:
    """Return a client without the token."""
    return TestClient(create_app(state), base_url=f"http://127.0.0.1:{PORT}", raise_server_exceptions=False)


def signed_in(state: AppState) -> TestClient:
    client = stranger(state)
    client.headers.update({"origin": f"http://127.0.0.1:{PORT}", "x-samekind": "1", "sec-fetch-site": "same-origin"})
    response = client.post("/api/login", json={"token": state.credentials.token})
    assert response.status_code == 204
    client.base_url = f"http://127.0.0.1:{PORT}{response.headers['location']}"
    return client
