"""How quick the page is with 100,000 pictures.

    python benchmarks/serve.py [--items 100000] [--folder /tmp/large]

Fits a small net on a few hundred generated pictures, then serves a tree of as many files as asked for, whose answers are those
of the small run with noise. Everything is asked over HTTP of a server in a process of its own. Beside each time stands what it
is compared with on the same machine in the same run: an empty request, a bare commit of SQLite, or the target.
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
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from PIL import Image

from samekind.runs import Wanted, fit
from samekind.serve.answers import write_answers

SMALL, SIDE, VISIBLE = 300, 48, 60


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--items", type=int, default=100_000)
    arguments.add_argument("--folder", type=Path, help="made and left behind; else a temporary one")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        folder = asked.folder or Path(passing)
        run = large_run(folder, asked.items)
        print(f"{asked.items} items, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start")
        with served(run) as (_, seconds):
            line("first start, to the link", seconds, "once for a run")
        with served(run) as (client, seconds):
            line("later start, to the link", seconds, "target 2 s")
            measure(client, folder, asked.items)


def measure(client: httpx2.Client, folder: Path, n: int) -> None:
    """Everything that a person waits for."""

    def page() -> None:
        client.get("/api/run").raise_for_status()
        ids = np.frombuffer(client.get("/api/order", params={"sort": "margin"}).content, "<u4")
        client.post("/api/items", json={"ids": ids[:200].tolist()}).raise_for_status()

    line("first page: run, order, 200 items", timed(page), "target 1 s")
    floor = median(lambda: client.get("/static/index.html"), 20)
    line("an empty request", floor, "what HTTP costs here")
    for query in (
        {"sort": "entropy"},
        {"sort": "path"},
        {"sort": "random"},
        {"sort": "diverse"},
        {"status": "unlabelled"},
        {"q": "99"},
    ):
        name = " ".join(f"{key}={value}" for key, value in query.items())
        seconds = median(lambda query=query: client.get("/api/order", params=query).raise_for_status(), 3)  # type: ignore[misc]
        line(f"order, {name}", seconds, f"target 0.3 s; {seconds / floor:.0f} empty requests")
    middle = np.arange(n // 2, n // 2 + VISIBLE).tolist()
    cold = timed(lambda: thumbs(client, middle))
    line(f"{VISIBLE} thumbnails, cold", cold, "target 1.5 s")
    warm = timed(lambda: thumbs(client, middle))
    line(f"{VISIBLE} thumbnails, warm", warm, f"target 0.3 s; {cold / warm:.1f} times as quick as cold")
    bare = bare_commit(folder)
    one = median(lambda: label(client, [int(np.random.default_rng().integers(n))]), 50)
    line("one label", one, f"target 0.1 s; a bare commit takes {1e3 * bare:.2f} ms")
    line("1,000 labels in a batch", timed(lambda: label(client, list(range(20_000, 21_000)))), "")
    line("undo of it", timed(lambda: client.post("/api/undo", json={}).raise_for_status()), "")
    similar = {"ids": [5], "k": 60}
    line(
        "60 most alike, first time",
        timed(lambda: client.post("/api/similar", json=similar).raise_for_status()),
        "loads the model",
    )
    line("60 most alike", median(lambda: client.post("/api/similar", json=similar).raise_for_status(), 5), "target 0.15 s")
    line("map of all items", median(lambda: client.get("/api/map").raise_for_status(), 2), "")
    line(
        "export of everything as CSV", timed(lambda: client.get("/api/export", params={"what": "both"}).raise_for_status()), ""
    )


def line(what: str, seconds: float, beside: str) -> None:
    print(f"{what:40s} {1e3 * seconds:10.1f} ms   {beside}", flush=True)


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median(work: Callable[[], Any], times: int) -> float:
    return statistics.median(timed(work) for _ in range(times))


def thumbs(client: httpx2.Client, ids: list[int]) -> None:
    """As a browser asks: six at a time."""
    with ThreadPoolExecutor(6) as pool:
        for answer in pool.map(lambda i: client.get(f"/img/{i}/thumb", params={"s": 128}), ids):
            answer.raise_for_status()


def label(client: httpx2.Client, ids: list[int]) -> None:
    client.post("/api/labels", json={"op": "set", "ids": ids, "class_id": int(time.perf_counter_ns() % 2)}).raise_for_status()


def bare_commit(folder: Path) -> float:
    """What the disk takes for one transaction that survives a power cut."""
    db = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS t(x)")
    seconds = median(lambda: db.execute("INSERT INTO t VALUES (1)"), 50)
    db.close()
    return seconds


@contextmanager
def served(run: Path) -> Iterator[tuple[httpx2.Client, float]]:
    """A server in its own process, a program with its token, and how long the start took."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "samekind", "serve", str(run), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        address, _, token = server.stdout.readline().strip().partition("#token=")
        with httpx2.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=600) as client:
            client.get("/").raise_for_status()
            yield client, time.perf_counter() - start
    finally:
        server.terminate()
        server.wait()


# ---------------------------------------------------------------- the run


def large_run(folder: Path, n: int) -> Path:
    """A run on `n` files. The pictures are links to a few hundred, under names and in folders of their own."""
    photos, small, run = folder / "photos", folder / "small", folder / "run"
    if run.exists():
        return run
    few = pictures(small)
    fit(Wanted(str(small), net="small_conv", epochs=4), run)
    words = json.loads((run / "run.json").read_text())
    f, z = small_answers(run)
    names = [f"{k // 1000:03d}/{k:06d}.png" for k in range(n)]
    for k, name in enumerate(names):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(few[k % SMALL], photos / name)
    with (run / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "confidence", "given"])
        writer.writerows([name, "down" if k % 2 else "across", "1.0", "yes" if k < 50 else ""] for k, name in enumerate(names))
    words["wanted"]["data"], words["result"]["n_items"] = str(photos.resolve()), n
    (run / "run.json").write_text(json.dumps(words))
    rng = np.random.default_rng(0)
    at = np.arange(n) % SMALL
    doubt = rng.random((n, 1)).astype(np.float32) / 2
    model = json.loads((run / "model" / "model.json").read_text())
    about = {"weights": model["weights"], "class_ids": [0, 1], "labels_seq": 50}
    noisy = z[at] + 0.1 * z.std() * rng.normal(size=(n, z.shape[1])).astype(np.float32)
    (run / "serve").mkdir(mode=0o700)
    write_answers(run / "serve" / "model-1", (1 - doubt) * f[at] + doubt / f.shape[1], noisy, about)
    shutil.rmtree(run / "cache")
    return run


def pictures(folder: Path) -> list[Path]:
    """Lines across or down, with noise, and a few labels."""
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


def small_answers(run: Path) -> tuple[Any, Any]:
    from samekind import SemiSupervisedClassifier

    model = SemiSupervisedClassifier.load(run / "model")
    return model.fitted_proba(), model.fitted_features()


if __name__ == "__main__":
    main()
