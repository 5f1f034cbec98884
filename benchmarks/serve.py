"""Latency of the server with 100,000 images.

    python benchmarks/serve.py [--items 100000] [--folder runs/large]

Fits a small net on a few hundred generated images, then serves a folder of as many files as requested, whose predictions are
those of the small net with noise added. All requests go over HTTP to a server in a process of its own. The CPU time of the
server, which depends less on other load, is printed beside the latency. Compare latencies with those of the same run for an
empty request and for a bare commit of SQLite on the same disk.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
from PIL import Image

from samekind.project.fit import FitConfig, fit
from samekind.server.inference.predictions import write_predictions

SMALL, SIDE, VISIBLE = 300, 48, 60


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--items", type=int, default=100_000)
    arguments.add_argument("--folder", type=Path, help="keep the run in this folder; else a temporary one")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        run = large_run(folder, options.items)
        print(f"{options.items} items, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start")
        print(f"{'':40s} {'latency':>13s} {'CPU of server':>15s}")
        if not (run / "serve" / "labels.sqlite").exists():
            with served(run) as server:
                line("first start, to the link", *server.start, "once for a run")
        with served(run) as server:
            line("later start, to the link", *server.start, "target 2 s")
            measure(server, folder, options.items)


class Server:
    """A server in a process of its own, and a client with its token."""

    def __init__(self, process: psutil.Process, client: httpx2.Client, began: float) -> None:
        self.process, self.client = process, client
        self.start = time.perf_counter() - began, self.cpu()

    def cpu(self) -> float:
        """Return the CPU time of the server so far, in seconds."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def timed(self, work: Callable[[], Any], times: int = 1) -> tuple[float, float]:
        """Return the median seconds that `work` takes, and the mean CPU seconds that the server spends on it."""
        before = self.cpu()
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds), (self.cpu() - before) / times


def measure(server: Server, folder: Path, n: int) -> None:
    """Print the latency of every request that a person waits for."""
    client, timed = server.client, server.timed

    def page() -> None:
        client.get("/api/run").raise_for_status()
        ids = np.frombuffer(client.get("/api/order", params={"sort": "margin"}).content, "<u4")
        client.post("/api/items", json={"ids": ids[:200].tolist()}).raise_for_status()

    line("first page: run, order, 200 items", *timed(page), "target 1 s")
    line("an empty request", *timed(lambda: client.get("/static/index.html"), 50), "what HTTP costs here")
    for query in ({"sort": "entropy"}, {"sort": "path"}, {"sort": "diverse"}, {"status": "unlabelled"}, {"q": "99"}):
        name = " ".join(f"{key}={value}" for key, value in query.items())
        found = timed(partial(order, client, query), 10)
        line(f"order, {name}", *found, "target 0.3 s")
    middle = np.arange(n // 2, n // 2 + VISIBLE).tolist()
    line(f"{VISIBLE} thumbnails, cold", *timed(lambda: thumbs(client, middle)), "target 1.5 s")
    line(f"{VISIBLE} thumbnails, warm", *timed(lambda: thumbs(client, middle), 3), "target 0.3 s")
    rng = np.random.default_rng(0)
    one = timed(lambda: label(client, [int(rng.integers(n))]), 50)
    line("one label", *one, f"target 0.1 s; a bare commit waits {1e3 * bare_commit(folder):.2f} ms")
    line("1,000 labels in a batch", *timed(lambda: label(client, list(range(20_000, 21_000)))), "")
    line("undo of it", *timed(lambda: client.post("/api/undo", json={}).raise_for_status()), "")
    search = partial(client.post, "/api/similar", json={"ids": [5], "k": 60})
    line("60 most similar, first request", *timed(search), "loads torch and builds the index")
    line("60 most similar", *timed(search, 10), "target 0.15 s")
    line("map of all items", *timed(lambda: client.get("/api/map").raise_for_status(), 2), "")
    everything = partial(client.get, "/api/export", params={"what": "both"})
    line("export of everything as CSV", *timed(everything), "")


def line(what: str, seconds: float, cpu: float, note: str) -> None:
    print(f"{what:40s} {1e3 * seconds:10.1f} ms {1e3 * cpu:12.1f} ms   {note}", flush=True)


def order(client: httpx2.Client, query: dict[str, str]) -> None:
    client.get("/api/order", params=query).raise_for_status()


def thumbs(client: httpx2.Client, ids: list[int]) -> None:
    """Request thumbnails as a browser does: six at a time."""
    with ThreadPoolExecutor(6) as executor:
        for response in executor.map(lambda i: client.get(f"/img/{i}/thumb", params={"size": 128}), ids):
            response.raise_for_status()


def label(client: httpx2.Client, ids: list[int]) -> None:
    client.post("/api/labels", json={"op": "set", "ids": ids, "class_id": int(time.perf_counter_ns() % 2)}).raise_for_status()


def bare_commit(folder: Path) -> float:
    """Return the seconds that the disk takes for one durable transaction."""
    db = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS t(x)")
    seconds = []
    for _ in range(50):
        start = time.perf_counter()
        db.execute("INSERT INTO t VALUES (1)")
        seconds.append(time.perf_counter() - start)
    db.close()
    return statistics.median(seconds)


@contextmanager
def served(run: Path) -> Iterator[Server]:
    """Serve the run until the end of the block."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "samekind", "serve", str(run), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        address, _, token = process.stdout.readline().strip().partition("#token=")
        with httpx2.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=600) as client:
            client.get("/").raise_for_status()
            yield Server(psutil.Process(process.pid), client, began)
    finally:
        process.terminate()
        process.wait()


# ---------------------------------------------------------------- the run


def large_run(folder: Path, n: int) -> Path:
    """Create a run on `n` files, which are hard links to a few hundred images; return its folder."""
    images, small, run = folder / "photos", folder / "small", folder / "run"
    if run.exists():
        return run
    few = generate_images(small)
    fit(FitConfig(str(small), net="small_conv", encoder=None, epochs=4), run)
    manifest = json.loads((run / "run.json").read_text())
    f, z = small_predictions(run)
    names = [f"{k // 1000:03d}/{k:06d}.png" for k in range(n)]
    for k, name in enumerate(names):
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(few[k % SMALL], images / name)
    with (run / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "confidence", "given"])
        writer.writerows([name, "down" if k % 2 else "across", "1.0", "yes" if k < 50 else ""] for k, name in enumerate(names))
    manifest["config"]["data"], manifest["result"]["n_items"] = str(images.resolve()), n
    (run / "run.json").write_text(json.dumps(manifest))
    rng = np.random.default_rng(0)
    at = np.arange(n) % SMALL
    doubt = rng.random((n, 1)).astype(np.float32) / 2
    model = json.loads((run / "model" / "model.json").read_text())
    metadata = {"weights": model["weights"], "class_ids": [0, 1], "labels_seq": 0}
    noisy = z[at] + 0.1 * z.std() * rng.normal(size=(n, z.shape[1])).astype(np.float32)
    (run / "serve").mkdir(mode=0o700)
    write_predictions(run / "serve" / "model-1", (1 - doubt) * f[at] + doubt / f.shape[1], noisy, metadata)
    shutil.rmtree(run / "cache")
    return run


def generate_images(folder: Path) -> list[Path]:
    """Write images with horizontal or vertical stripes and noise, and a few labels; return their paths."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    stripes = 200 * (np.arange(SIDE) // 4 % 2)
    paths = []
    for k in range(SMALL):
        image = np.tile(stripes, (SIDE, 1)) if k % 2 else np.tile(stripes[:, None], (1, SIDE))
        noise = rng.integers(0, 55, (SIDE, SIDE, 3))
        paths.append(folder / f"{k:03d}.png")
        Image.fromarray((image[:, :, None] + noise).astype(np.uint8)).save(paths[-1])
    rows = "".join(f"{k:03d}.png,{'down' if k % 2 else 'across'}\n" for k in range(20))
    (folder / "labels.csv").write_text(f"path,label\n{rows}")
    return paths


def small_predictions(run: Path) -> tuple[Any, Any]:
    from samekind import SemiSupervisedClassifier

    model = SemiSupervisedClassifier.load(run / "model")
    return model.fitted_proba(), model.fitted_features()


if __name__ == "__main__":
    main()
