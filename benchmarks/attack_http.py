"""Attack on the labelling page: hostile requests, a file that is swapped while it is served, and connections that never end.

    python benchmarks/attack_http.py [--requests 1000] [--swaps 2000] [--seed 0]

Makes a small run in a temporary folder and serves it in a process of its own. Prints the statuses of the responses and why
there was none, the files that were served from outside the data folder, the open descriptors of the server, and the seconds
that it needs to stop while requests are half sent, a labelled file is a FIFO, and one request loads torch. The exit code is 1
unless there are no 5xx, no files from outside, only expected connections without a response, and a stop in time, and unless
the file was in place and swapped by turns.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from PIL import Image

N_IMAGES, OUTSIDE_COLOR, MARK = 24, (255, 0, 0), b"a secret of another folder"
ADDRESSES = ["/img/0/full", "/img/0/thumb?size=128"]
HOLD = [0.0, 0.0002, 0.002]  # seconds that the link or the file stays in place
IDLE, HALF_SENT, STOP_LIMIT = 300, 20, 10.0  # connections of each kind; seconds
# The attack itself ends half a request. A connection that is closed before a large request was read may lose its response.
EXPECTED_SILENCE = {"none (half_sent, waiting)", "none (too_large, closed)", "none (odd_head, closed)"}
METHODS = ["GET", "POST", "PATCH", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "get", "X" * 300]
READ_PATHS = [
    *["/", "/api/run", "/api/order", "/api/map", "/api/items/0", "/api/models", "/api/job", "/api/openapi.json"],
    *["/img/0/thumb?size=128", "/img/0/full", "/api/export?format=csv-spreadsheet", "/api/events?since=0"],
]
WRITE_PATHS = [
    *["/api/login", "/api/labels", "/api/undo", "/api/redo", "/api/classes", "/api/classes/0", "/api/items", "/api/similar"],
    *["/api/audit", "/api/models/1/activate", "/api/v1/predict", "/api/v1/neighbors", "/api/v1/similarity"],
    *["/api/import?format=csv", "/api/import?format=jsonl", "/api/import?format=labelstudio", "/api/import?dry_run=1"],
]
OUTSIDE_PATHS = [
    "{}",
    "/static/{}",
    "/img/{}/full",
    "/img/..%2f{}/thumb",
    "/static/..%2f..{}",
    "/s-x/img/{}",
    "//{}",
    "/%2e%2e{}",
]
VALUES: list[Any] = [
    *[None, True, -1, 0, 1, 7, 2**31, 2**63, 10**400, 1e308, 0.5, "", "cat", "\0", "\ud800", "x" * 5000, "=cmd|' /C calc'!A0"],
    *[
        [],
        [0],
        [-1],
        [2**40],
        ["a"],
        [[0]],
        list(range(600)),
        {},
        {"path": ["a"]},
        {"a": {"b": []}},
        "../../etc/passwd",
        "e\u0301",
    ],
]
FIELDS = [
    *"op ids class_id source request_id token name key color archived merge_into batch seen k".split(),
    *"samples a b not_ids use_for_training".split(),
]
TASKS = [
    *[{"data": value} for value in ({}, 5, {"path": 5}, {"path": ["?d="]}, {"image": "\ud800"}, {"image": "roll/00.png"})],
    {"data": {"path": "00.png"}, "annotations": [{"was_cancelled": True}]},
    {"data": {"path": "00.png"}, "annotations": [{"result": [{"type": "choices", "value": {"choices": [{}]}}]}]},
    {"path": "\ud800", "label": "cat"},
    {"path": {"a": 1}, "label": []},
]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--requests", type=int, default=1000)
    arguments.add_argument("--swaps", type=int, default=2000)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = make_run(Path(temporary))
        with served(run) as server:
            statuses, served_outside = hostile_requests(server, Path(temporary), options.requests, random.Random(options.seed))
            errors = sum(n for status, n in statuses.items() if isinstance(status, int) and status >= 500)
            silent = sum(
                n for status, n in statuses.items() if str(status).startswith("none") and status not in EXPECTED_SILENCE
            )
            print(f"{options.requests} hostile requests, seed {options.seed}: {table(statuses)}")
            print(f"  responses with 5xx: {errors}; with a file from outside: {served_outside}; unexpectedly none: {silent}")
            missed = 0
            for what in ("roll/00.png", "roll"):
                found = swap_race(server, run.parent, what, options.swaps // 2)
                served_outside += found["outside"]
                missed += not (found["inside"] and found["status 404"])
                print(f"  {options.swaps // 2} requests while {what} is swapped for a link: {table(found)}")
            seconds = stop_under_load(server, run)
    print(f"total: {errors} responses with 5xx, {served_outside} files from outside, stopped in {seconds:.1f} s")
    sys.exit(bool(errors or served_outside or silent or missed or seconds > STOP_LIMIT))


def table(counts: Counter[Any]) -> str:
    return ", ".join(f"{name}: {n}" for name, n in sorted(counts.items(), key=str))


class ServerResponse(NamedTuple):
    """What came back for a request; status 0 if nothing did."""

    status: int
    body: bytes
    end: str


class Server:
    """A server in a process of its own, its address and its token."""

    def __init__(self, process: subprocess.Popen[str], link: str) -> None:
        self.process = process
        address, _, self.token = link.partition("#token=")
        self.port = int(address.rstrip("/").rpartition(":")[2])

    def head(self, method: str, path: str, *more: str) -> bytes:
        """Return the head of an ordinary request with the token."""
        own = [f"Host: 127.0.0.1:{self.port}", f"Authorization: Bearer {self.token}", "Connection: close"]
        lines = [f"{method} {path} HTTP/1.1", *own, *more]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def send(self, blob: bytes, seconds: float = 30.0) -> ServerResponse:
        """Send bytes; return what came back until the server closed the connection or the time was over."""
        received, end = b"", "closed"
        with self.connect() as client:
            client.settimeout(seconds)
            try:
                client.sendall(blob)
                while part := client.recv(1 << 16):
                    received += part
            except TimeoutError:
                end = "waiting"  # the server still waits for the rest of the request
            except OSError:
                end = "closed"  # with a reset, because the server did not read everything
        head, _, body = received.partition(b"\r\n\r\n")
        found = re.match(rb"HTTP/1\.1 (\d{3})", head)
        return ServerResponse(int(found[1]) if found else 0, body, end)


@contextlib.contextmanager
def served(run: Path) -> Iterator[Server]:
    """Serve the run until the end of the block."""
    command = [sys.executable, "-m", "samekind", "serve", str(run), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield Server(process, process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()


def make_run(folder: Path) -> Path:
    """Fit a run on a few images; put a file with MARK and a red image beside the data."""
    from samekind.project.fit import FitConfig, fit  # not above: the process that swaps files starts without torch

    for name in ("photos", "outside"):
        (folder / name / "roll").mkdir(parents=True)
    Image.new("RGB", (16, 16), OUTSIDE_COLOR).save(folder / "outside" / "roll" / "00.png")
    (folder / "secret.txt").write_bytes(MARK)
    for k in range(N_IMAGES):
        Image.effect_noise((16, 16), 40).point(lambda v, k=k: v // 2 + 60 * (k % 2)).convert("RGB").save(
            folder / "photos" / "roll" / f"{k:02d}.png"
        )
    rows = "".join(f"roll/{k:02d}.png,{'bright' if k % 2 else 'dark'}\n" for k in range(6))
    (folder / "photos" / "labels.csv").write_text(f"path,label\n{rows}")
    fit(FitConfig(str(folder / "photos"), method="label_propagation"), folder / "run")
    return folder / "run"


# ---------------------------------------------------------------- hostile requests


def hostile_requests(server: Server, folder: Path, n: int, rng: random.Random) -> tuple[Counter[Any], int]:
    """Send n requests of all kinds; return how often each status came, and how many responses held a file from outside."""
    kinds: list[Callable[[Server, Path, random.Random], bytes]] = [
        odd_path,
        odd_head,
        odd_body,
        odd_import,
        half_sent,
        too_large,
    ]
    statuses: Counter[Any] = Counter()
    outside = 0
    sent = [(kinds[k % len(kinds)].__name__, kinds[k % len(kinds)](server, folder, rng)) for k in range(n)]
    with ThreadPoolExecutor(8) as executor:
        responses = executor.map(lambda one: server.send(one[1], 0.2 if one[0] == "half_sent" else 30.0), sent)
        for (kind, blob), response in zip(sent, responses, strict=True):
            statuses[response.status or f"none ({kind}, {response.end})"] += 1
            outside += MARK in response.body or b"root:" in response.body
            if response.status >= 500:
                print(f"  {kind}: {response.status} {response.body[:200]!r} to {blob[:300]!r}")
    status = server.send(server.head("GET", "/api/run")).status
    assert status == 200, f"after the requests the server responds with {status}"
    return statuses, outside


def odd_path(server: Server, folder: Path, rng: random.Random) -> bytes:
    """Return a request for a file outside the data, in many spellings."""
    target = rng.choice([str(folder / "secret.txt"), "/etc/passwd", "..%5c..%5csecret.txt", "%00", "-1", str(2**63), "1e3"])
    path = rng.choice(OUTSIDE_PATHS).format(rng.choice([target, target.replace("/", "%2f"), "../" * rng.randrange(9) + target]))
    return server.head(rng.choice(["GET", "HEAD"]), path.replace(" ", "%20"))


def odd_head(server: Server, folder: Path, rng: random.Random) -> bytes:
    """Return a request with a wrong method, host, token, cookie or origin, or with a broken header."""
    token = rng.choice(["", "x", server.token[:-1], server.token + "x", "\xe9" * 40, server.token])
    port = rng.choice([server.port, 1, ""])
    headers = [
        f"Host: {rng.choice(['127.0.0.1', 'localhost', 'evil.example', '[::1', 'a@localhost', ''])}:{port}",
        f"Authorization: {rng.choice(['Bearer', 'Basic', 'bearer  '])} {token}",
        rng.choice(["Cookie: a=b", f"Cookie: samekind_{server.port}={token}", "Cookie: ;;=;" + "a=b;" * 500, "X-Odd: 1"]),
        rng.choice(["Origin: null", "Origin: http://evil.example", f"Origin: http://127.0.0.1:{server.port}", "X: \x01"]),
        rng.choice(["If-None-Match: *", "Range: bytes=0-9999999999", "Expect: 100-continue", "Upgrade: websocket", "no colon"]),
        rng.choice(
            ["Content-Length: 0", "Content-Length: -1", "Content-Length: 1e9", "Transfer-Encoding: chunked", "Y" * 70_000]
        ),
    ]
    lines = [f"{rng.choice(METHODS)} {rng.choice(READ_PATHS + WRITE_PATHS)} HTTP/{rng.choice(['1.1', '1.0', '2', '9.9'])}"]
    return "\r\n".join([*lines, *rng.sample(headers, rng.randint(2, len(headers))), "Connection: close", "", ""]).encode(
        "latin-1"
    )


def with_body(server: Server, method: str, path: str, body: bytes, kind: str = "application/json") -> bytes:
    return server.head(method, path, f"Content-Type: {kind}", f"Content-Length: {len(body)}") + body


def odd_body(server: Server, folder: Path, rng: random.Random) -> bytes:
    """Return a write with wrong types and values, or with bytes that are no JSON."""
    body = json.dumps({rng.choice(FIELDS): rng.choice(VALUES) for _ in range(rng.randint(0, 4))}).encode()
    body = rng.choice([body, body, body, body[: len(body) // 2], b"\xff" * 9, b"[" * 50_000, b"NaN", b'{"ids": [1e999]}', b""])
    path = rng.choice(WRITE_PATHS)
    return with_body(server, "PATCH" if "classes/" in path else "POST", path, body)


def odd_import(server: Server, folder: Path, rng: random.Random) -> bytes:
    """Return an import with odd tasks, lines or cells."""
    format_ = rng.choice(["csv", "jsonl", "labelstudio"])
    cells = [str(rng.choice(VALUES))[:50].encode("utf-8", "replace") for _ in range(4)]
    rows = {
        "csv": b"path,label\n" + b"\n".join(b'roll/00.png,"' + cell + b'"' for cell in cells),
        "jsonl": b"\n".join(json.dumps(rng.choice([*TASKS, *VALUES])).encode() for _ in range(2)),
        "labelstudio": json.dumps([rng.choice([*TASKS, *VALUES])]).encode(),
    }
    kind = {"csv": "text/csv", "jsonl": "application/x-ndjson", "labelstudio": "application/json"}[format_]
    request_id = rng.choice(["", "&request_id=r", "&overwrite=1", "&dry_run=1", "&request_id=%00", "&overwrite=2"])
    return with_body(server, "POST", f"/api/import?format={format_}{request_id}", rows[format_], kind)


def half_sent(server: Server, folder: Path, rng: random.Random) -> bytes:
    """Return the beginning of a request."""
    whole = with_body(server, "POST", rng.choice(WRITE_PATHS), b'{"op": "clear", "ids": [0]}')
    chunked = server.head("POST", "/api/labels", "Content-Type: application/json", "Transfer-Encoding: chunked")
    return rng.choice([whole[: rng.randrange(1, len(whole))], chunked + b"fffffffff\r\n{}"])


def too_large(server: Server, folder: Path, rng: random.Random) -> bytes:
    """Return a request that is larger than the limits, or says so."""
    path = rng.choice(["/api/login", "/api/labels", "/api/items", "/api/classes"])
    return rng.choice(
        [
            with_body(server, "POST", path, b" " * (2 << 20) + b"{}"),
            server.head("POST", path, "Content-Type: application/json", "Content-Length: 99999999999999999999") + b"{}",
            server.head("GET", "/api/run?" + "q" * 70_000),
        ]
    )


# ---------------------------------------------------------------- a file that is swapped while it is served


def swap(path: Path, target: Path, ready: Any, over: Any) -> None:
    """Replace `path` by a link to `target` and back until `over` is set, at most ten minutes."""
    kept, link, end = path.with_name("kept"), path.with_name("link"), time.monotonic() + 600
    link.symlink_to(target)
    rng = random.Random(0)
    while not over.is_set() and time.monotonic() < end:
        path.rename(kept)
        link.rename(path)
        ready.set()
        time.sleep(rng.choice(HOLD))
        path.rename(link)
        kept.rename(path)
        time.sleep(rng.choice(HOLD))
    link.unlink()


def swap_race(server: Server, folder: Path, what: str, n: int) -> Counter[Any]:
    """Request an image n times, four at a time, while its file or folder is swapped; return what was shown."""
    context = multiprocessing.get_context("spawn")
    ready, over = context.Event(), context.Event()
    arguments = (folder / "photos" / what, folder / "outside" / what, ready, over)
    swapper = context.Process(target=swap, args=arguments)
    swapper.start()
    try:
        assert ready.wait(120), "the process that swaps files does not start"
        with ThreadPoolExecutor(4) as executor:
            return Counter(executor.map(lambda k: shown(server, ADDRESSES[k % len(ADDRESSES)]), range(n)))
    finally:
        over.set()
        swapper.join()


def shown(server: Server, address: str) -> str:
    """Return which image the server shows, or the status of its response."""
    response = server.send(server.head("GET", address))
    if response.status != 200:
        return f"status {response.status}"
    pixel = Image.open(io.BytesIO(response.body)).convert("RGB").getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return "outside" if pixel[0] > pixel[1] + 100 else "inside"  # images of the data are grey


# ---------------------------------------------------------------- connections that never end


def stop_under_load(server: Server, run: Path) -> float:
    """Open many connections without a token, half-send requests, put a FIFO in a file's place; return the seconds to stop."""
    labelled = run.parent / "photos" / "roll" / "01.png"
    labelled.unlink()
    os.mkfifo(labelled)
    body = json.dumps({"op": "set", "ids": [1], "class_id": 0}).encode()
    with contextlib.ExitStack() as opened:
        for _ in range(IDLE):
            opened.enter_context(server.connect())
        status = server.send(with_body(server, "POST", "/api/labels", body)).status
        n = psutil.Process(server.process.pid).num_fds()
        print(f"  a label beside {IDLE} idle connections: status {status}; {n} descriptors open in the server")
        full = with_body(server, "POST", "/api/labels", body)
        similar = with_body(server, "POST", "/api/similar", b'{"ids": [0], "k": 3}')  # loads torch, unless an import did
        for blob in [similar, *[full[:20], full[:-5], server.head("GET", "/img/1/full")] * HALF_SENT]:
            opened.enter_context(server.connect()).sendall(blob)
        time.sleep(3)  # the search for renamed files comes to the FIFO
        began = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(60)
        return time.monotonic() - began


if __name__ == "__main__":
    main()
