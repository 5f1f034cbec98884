"""A server in a process of its own, and labelling over HTTP while it is killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2

from samekind.server.store.label_store import LabelStore

FIRST_ITEM, N_ITEMS = 6, 40  # the items before have labels of the fit


LONGEST_START = 120.0  # seconds


class KilledServers(NamedTuple):
    """Kills, labels that the servers acknowledged, and those of them that the store does not have."""

    kills: int
    acknowledged: int
    missing: int


@contextmanager
def served(run: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], httpx2.Client]]:
    """Start a server in a process of its own; yield it and a client with its token."""
    command = [sys.executable, "-m", "samekind", "serve", str(run), "--no-browser", *options]
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a test under nohup ignores it, and a child would inherit that
    try:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGHUP, hangup)
    try:
        assert server.stdout is not None
        watchdog = threading.Timer(LONGEST_START, server.kill)  # a server that does not start ends the test, not the whole run
        watchdog.start()
        address, _, token = server.stdout.readline().strip().partition("#token=")
        watchdog.cancel()
        with httpx2.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
            yield server, client
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def label_and_kill(run: Path, n: int, kills: int, seed: int) -> KilledServers:
    """Label items over HTTP until n labels are acknowledged; meanwhile kill the server, and start it again each time."""
    rng = random.Random(seed)
    stops = [*sorted(rng.sample(range(n // 25, n - n // 25), kills)), n]
    expected: dict[int, int] = {}
    sent, done, unacknowledged = 0, 0, None
    for stop in stops:
        with served(run) as (server, client):
            killer = None
            while sent < n:
                item, kind = unacknowledged or (rng.randrange(FIRST_ITEM, N_ITEMS), 0)
                kind = kind if unacknowledged else 1 - expected.get(item, 1)
                if sent >= stop and killer is None:  # while the next requests are on their way
                    killer = subprocess.Popen(["sh", "-c", f"sleep {rng.random() / 50:.4f}; kill -9 {server.pid}"])
                body = {"op": "set", "ids": [item], "class_id": kind, "request_id": f"number {sent}"}
                try:
                    response = client.post("/api/labels", json=body)
                except httpx2.TransportError:
                    unacknowledged = (item, kind)  # perhaps written, perhaps not: it is sent again under the same name
                    break
                if response.status_code != 200:
                    raise RuntimeError(response.text)
                expected[item], unacknowledged, sent = kind, None, sent + 1
            if killer is not None:
                killer.wait()
                server.wait()
                done += 1
    with closing(LabelStore(run / "serve" / "labels.sqlite")) as store:
        kept = store.last_seq - store.last_event_of_fit()  # each label changes something, and so is one event
        wrong = sum(int(store.states.class_id[item]) != kind for item, kind in expected.items())
    return KilledServers(done, sent, max(sent - kept, wrong))
