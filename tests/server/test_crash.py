"""The server as a process: a link on stdout, one writer, and no acknowledged label lost when it is killed."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest
from tests.server.conftest import N
from typer.testing import CliRunner

from samekind.cli import app
from samekind.server.session import Session
from samekind.server.store.label_store import LabelStore
from samekind.server.store.verify import verify

EVENTS, KILLS = 500, 3
AT_ONCE = 15  # seconds, on a busy machine


@contextmanager
def served(run: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], httpx2.Client]]:
    """Start a server in a process of its own; yield it and a client with its token."""
    command = [sys.executable, "-m", "samekind", "serve", str(run), "--no-browser", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address, _, token = server.stdout.readline().strip().partition("#token=")
        with httpx2.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
            yield server, client
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def test_no_acknowledged_label_is_lost_when_the_server_is_killed(run: Path) -> None:
    rng = random.Random(0)
    stops = [*sorted(rng.sample(range(20, EVENTS - 20), KILLS)), EVENTS]
    expected: dict[int, int] = {}
    sent, unacknowledged = 0, None
    for stop in stops:
        with served(run) as (server, client):
            killer = None
            while sent < EVENTS:
                item, kind = unacknowledged or (rng.randrange(6, N), 0)
                kind = kind if unacknowledged else 1 - expected.get(item, 1)
                if sent == stop and killer is None:  # while the next requests are on their way
                    killer = subprocess.Popen(["sh", "-c", f"sleep {rng.random() / 50:.4f}; kill -9 {server.pid}"])
                body = {"op": "set", "ids": [item], "class_id": kind, "request_id": f"number {sent}"}
                try:
                    response = client.post("/api/labels", json=body)
                except httpx2.TransportError:
                    unacknowledged = (item, kind)  # perhaps written, perhaps not: it is sent again under the same name
                    break
                assert response.status_code == 200, response.text
                expected[item], unacknowledged, sent = kind, None, sent + 1
            if killer is not None:
                killer.wait()
                server.wait()
    store = LabelStore(run / "serve" / "labels.sqlite")
    assert sent == EVENTS and {i: int(store.states.class_id[i]) for i in expected} == expected
    assert store.last_seq == 6 + EVENTS  # each once: what was sent again was not written twice
    assert verify(store.path) == []
    assert store.undo().changed == 1


def test_a_second_server_is_refused_but_may_read(run: Path) -> None:
    with served(run) as (_, client):
        assert client.get("/api/run").json()["read_only"] is False
        command = [sys.executable, "-m", "samekind", "serve", str(run), "--no-browser"]
        second = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert second.returncode == 2 and "--read-only" in second.stderr
        with served(run, "--read-only") as (_, reader):
            assert reader.get("/api/run").json()["read_only"] is True


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_it_ends_on_a_signal_and_leaves_a_current_csv(run: Path, tmp_path: Path, name: str) -> None:
    with served(run, "--token-file", str(tmp_path / "token")) as (server, client):
        assert (tmp_path / "token").read_text() == client.headers["authorization"].removeprefix("Bearer ")
        assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
        client.post("/api/labels", json={"op": "set", "ids": [30], "class_id": 1})
        server.send_signal(getattr(signal, name))
        assert server.wait(AT_ONCE) in (-signal.SIGINT, 128 + getattr(signal, name))
    assert "roll1/30.png,down,labelled,page," in (run / "serve" / "labels.csv").read_text()


def run_command(*arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and its output."""
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


def test_the_labels_can_be_verified_from_the_command_line(run: Path) -> None:
    code, output = run_command("labels", "verify", str(run))
    assert code == 0 and "6 events were replayed" in output
    with closing(sqlite3.connect(run / "serve" / "labels.sqlite")) as db, db:
        db.execute("UPDATE state SET class_id = 1 WHERE image_id = 0")
    code, output = run_command("labels", "verify", str(run))
    assert code == 2 and "is damaged" in output


def test_the_cache_can_be_cleared_from_the_command_line(run: Path) -> None:
    with closing(Session(run)) as session:
        session.thumbnails.get(session.image_source(0), 128)
    assert [path for path in (run / "serve" / "thumbs").rglob("*") if path.is_file()]
    assert run_command("cache", "clear", str(run))[0] == 0
    assert not [path for path in (run / "serve" / "thumbs").rglob("*") if path.is_file()]
