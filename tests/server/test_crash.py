"""The server as a process: a link on stdout, one writer, and no acknowledged label lost when it is killed."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2
import pytest
from tests.server.kill_server import label_and_kill, served
from typer.testing import CliRunner

from samekind.cli import app
from samekind.server.session import Session
from samekind.server.store.label_store import LabelStore
from samekind.server.store.verify import verify

EVENTS, KILLS = 500, 3
AT_ONCE = 15  # seconds, on a busy machine
SLOW_TORCH = "import time; time.sleep(600)"  # in place of torch on a slow disk


def test_no_acknowledged_label_is_lost_when_the_server_is_killed(run: Path) -> None:
    killed = label_and_kill(run, EVENTS, KILLS, seed=0)
    assert killed.acknowledged == EVENTS and killed.missing == 0
    store = LabelStore(run / "serve" / "labels.sqlite")
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


def test_it_ends_while_requests_are_half_sent_and_one_waits_for_torch(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow" / "torch").mkdir(parents=True)
    (tmp_path / "slow" / "torch" / "__init__.py").write_text(SLOW_TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "slow"), prepend=os.pathsep)
    image = run.parent / "photos" / "roll1" / "30.png"
    image.unlink()
    os.mkfifo(image)
    with served(run) as (server, client), ExitStack() as opened:
        client.post("/api/labels", json={"op": "set", "ids": [30], "class_id": 1})
        for body in (b'{"ids": [0], "k": 3}', b'{"ids"', b""):
            one = opened.enter_context(socket.create_connection((client.base_url.host, client.base_url.port)))
            one.sendall(post_head(client, "/api/similar", 20) + body)
        assert client.get("/api/run").status_code == 200
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 128 + signal.SIGINT
    assert "roll1/30.png,down,labelled,page," in (run / "serve" / "labels.csv").read_text()


def post_head(client: httpx2.Client, path: str, length: int) -> bytes:
    """Return the head of a request with a JSON body."""
    token, port = client.headers["authorization"], client.base_url.port
    headers = f"Host: 127.0.0.1:{port}\r\nAuthorization: {token}\r\nContent-Type: application/json\r\nContent-Length: {length}"
    return f"POST {path} HTTP/1.1\r\n{headers}\r\n\r\n".encode()


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
