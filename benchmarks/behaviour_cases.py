"""The cases of behaviour_snapshot.py: small fits, commands and requests, and the data they use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from behaviour_client import Array, Client, Normalizer, Outputs, Server

MakeData = Callable[..., tuple[Array, Array]]  # returns samples and their classes
MTIME = 1_700_000_000  # modification time of all images
BENCH_KEYS = ("row", "seed", "labels", "split", "error", "student_error")  # compared keys of a record of `bench`
COST_KEYS = ("flops", "steps", "rows")  # compared keys of the cost in such a record
METHODS = (
    "supervised pseudo_label pi_model temporal_ensembling mean_teacher semi_supervised_embedding vat ict mixmatch remixmatch "
    "fixmatch flexmatch freematch softmatch simmatch comatch sntg fast_swa cclp lpdssl lpdssl+mean_teacher gscnn "
    "label_propagation harmonic lgc laprls mincut poisson learned_graph mean_teacher+sntg pi_model+learned_graph pi_model+sntg"
).split()
METHODS_ON_COLOR_IMAGES = "mean_teacher fixmatch mixmatch remixmatch lpdssl mean_teacher+sntg poisson supervised".split()
IMAGES_ONLY = ("remixmatch",)

# ---------------------------------------------------------------- data


def blobs(n: int = 120, seed: int = 0) -> tuple[Array, Array]:
    """Return vectors of five columns in three classes."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 3
    centers = np.array([[0, 0, 0, 0, 0], [2.5, 0, 2, 0, 0], [0, 2.5, 0, 2, 0]], dtype=float)
    return centers[classes] + rng.normal(0, 0.9, (n, 5)) * np.array([1, 1, 1, 1, 2.0]), classes


def stripes(n: int = 72, side: int = 12, seed: int = 1) -> tuple[Array, Array]:
    """Return gray images as bytes, with horizontal stripes, vertical stripes or both."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 3
    wave = 150 * (np.arange(side) // 2 % 2)
    patterns = [np.tile(wave, (side, 1)), np.tile(wave[:, None], (1, side)), np.maximum(wave, wave[:, None])]
    shifted = np.stack([np.roll(patterns[k], rng.integers(0, 4, 2), (0, 1)) for k in classes])
    return (shifted + rng.integers(0, 80, shifted.shape)).astype(np.uint8), classes


def patches(n: int = 56, side: int = 24, seed: int = 2) -> tuple[Array, Array]:
    """Return color images as bytes: a patch of one of two colors on a gradient."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 2
    images = np.empty((n, side, side, 3))
    for k, image in zip(classes, images, strict=True):
        gradient = np.linspace(0, 1, side)[:, None, None] * rng.uniform(20, 90, 3)
        image[:] = gradient + rng.integers(0, 60, (side, side, 3))
        top, left = rng.integers(2, side - 12, 2)
        image[top : top + 10, left : left + 10] += np.array([90, 10, 10] if k else [10, 40, 90])
    return np.clip(images, 0, 255).astype(np.uint8), classes


DATA: dict[str, tuple[MakeData, float]] = {"vectors": (blobs, 30), "gray": (stripes, 16), "color": (patches, 6)}  # and epochs


def some_labels(classes: Array, per_class: int = 6, names: Sequence[str] | None = None) -> Array:
    """Return the labels of the first samples of each class; all others are unlabelled."""
    known = np.zeros(len(classes), dtype=bool)
    for k in np.unique(classes):
        known[np.flatnonzero(classes == k)[:per_class]] = True
    if names is None:
        return np.where(known, classes, -1)
    return np.array([names[k] if labelled else None for k, labelled in zip(classes, known, strict=True)], dtype=object)


def save_images(folder: Path, images: Array, names: Sequence[str]) -> None:
    from PIL import Image

    for name, image in zip(names, images, strict=True):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
        os.utime(path, (MTIME, MTIME))


class Workspace(Client):
    """A client with the data and the runs that several cases use."""

    def start_case(self) -> None:
        self.normalizer = Normalizer(self.folder, self.names)  # ids are numbered in each case

    @cached_property
    def image_run(self) -> Path:
        """A finished run on 40 images of two classes and one file that is not an image."""
        images, classes = patches(40)
        names = [f"roll{k // 20}/{k:02d}.png" for k in range(40)]
        folder = self.folder / "images"
        save_images(folder, images, names)
        (folder / "roll0" / "broken.png").write_bytes(b"not an image")
        lines = [f"{names[k]},{'red' if classes[k] else 'blue'}\n" for k in range(12)]
        (folder / "labels.csv").write_text("path,label\n" + "".join(lines))
        self.run("fit", folder, *self.options(out=self.folder / "image_run", epochs=8, seed=3))
        return self.folder / "image_run"

    @cached_property
    def new_images(self) -> Path:
        folder = self.folder / "new_images"
        save_images(folder, patches(9, seed=12)[0], [f"new{k}.png" for k in range(9)])
        return folder

    @cached_property
    def vectors(self) -> Path:
        x, classes = blobs(150, seed=5)
        path = self.folder / "vectors.npz"
        np.savez(path, X=x, y=some_labels(classes, 5))
        return path


Case = Callable[[Workspace], Outputs]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


# ---------------------------------------------------------------- estimator


@case
def vectors(work: Workspace) -> Outputs:
    x, classes = blobs()
    return work.fit(work.classifier(epochs=25), x, some_labels(classes), blobs(20, seed=9)[0])


@case
def vectors_with_class_names(work: Workspace) -> Outputs:
    """Fit with class names, SGD, batch sizes and a supervised warm-up."""
    x, classes = blobs()
    model = work.classifier(epochs=20, batch_size=(8, 24), optimizer="sgd", learning_rate=0.05, supervised_warmup=0.3)
    return work.fit(model, x, some_labels(classes, names=("cat", "dog", "owl")), blobs(20, seed=9)[0])


@case
def vectors_noise(work: Workspace) -> Outputs:
    x, classes = blobs()
    return work.fit(work.classifier(epochs=15, views="noise"), x, some_labels(classes), blobs(20, seed=9)[0])


@case
def vectors_random_walk(work: Workspace) -> Outputs:
    x, classes = blobs()
    return work.fit(work.classifier(epochs=15, views="random_walk"), x, some_labels(classes), blobs(20, seed=9)[0])


@case
def vectors_with_random_labels(work: Workspace) -> Outputs:
    """Fit labels that are independent of the neighbourhoods."""
    x, classes = blobs(200)
    classes = np.random.default_rng(4).permutation(classes)
    return work.fit(work.classifier(epochs=10), x, some_labels(classes, 20), blobs(20, seed=9)[0])


@case
def vectors_wide(work: Workspace) -> Outputs:
    """Fit a few informative columns among many columns of noise."""
    x, classes = blobs(160)
    wide = np.concatenate([2 * x, np.random.default_rng(6).normal(0, 1, (len(x), 95))], axis=1)
    return work.fit(work.classifier(epochs=8), wide, some_labels(classes, 12), wide[:20] + 0.25)


@case
def vectors_quick(work: Workspace) -> Outputs:
    """Fit for the number of steps that is chosen from the data."""
    x, classes = blobs(60)
    return work.fit(work.classifier(epochs="quick"), x, some_labels(classes), blobs(20, seed=9)[0])


@case
def settings(work: Workspace) -> Outputs:
    """Fit the default method with settings that are not its defaults."""
    x, classes = stripes()
    chosen: dict[str, Any] = {"lambda1": 0.4, "lambda2": 0.2, "lambda3": 0.1, "similarity_distillation": 0.6, "dropout": 0.1}
    chosen |= {"graph_start": 0.2, "graph_rampup": 0.4, "rampup_steps": 10, "virtual_pair_weight": 0.1}
    chosen |= {"sharpen_temperature": 0.7, "strong_view": True, "layers": (16, 8)}
    return work.fit(work.classifier(settings=chosen, epochs=25), x, some_labels(classes), stripes(20, seed=9)[0])


@case
def settings_of_pairs(work: Workspace) -> Outputs:
    x, classes = blobs()
    chosen = {"pairs": "paper", "prior": (0.2, 0.3, 0.5), "labelled_pair_weight": 0.5, "second_view": "student"}
    return work.fit(work.classifier(settings=chosen, epochs=15), x, some_labels(classes), blobs(20, seed=9)[0])


@case
def gray_images(work: Workspace) -> Outputs:
    x, classes = stripes()
    return work.fit(work.classifier(epochs=25), x, some_labels(classes), stripes(20, seed=9)[0])


@case
def gray_images_shift(work: Workspace) -> Outputs:
    """Fit images of floats with another augmentation."""
    x, classes = stripes()
    new = stripes(20, seed=9)[0] / 255.0
    return work.fit(work.classifier(epochs=12, views="shift"), x / 255.0, some_labels(classes), new)


@case
def color_images(work: Workspace) -> Outputs:
    """Fit with the defaults for color images: compact network, SGD, flipped views, supervised warm-up."""
    x, classes = patches()
    return work.fit(work.classifier(epochs=8), x, some_labels(classes, 10, ("red", "blue")), patches(16, seed=9)[0])


@case
def color_images_warmup(work: Workspace) -> Outputs:
    x, classes = patches()
    model = work.classifier(epochs=6, supervised_warmup=0.5, net="compact_quick", batch_size=(8, 16))
    return work.fit(model, x, some_labels(classes, 10), patches(16, seed=9)[0])


@case
def color_images_small(work: Workspace) -> Outputs:
    """Fit images too small for the defaults of color images, with their augmentation and the paper's network."""
    x, classes = patches(32, side=16)
    model = work.classifier(epochs=1, net="conv13", views="shift_flip", batch_size=(4, 8))
    return work.fit(model, x, some_labels(classes, 8), patches(14, side=16, seed=9)[0])


@case
def encoder_by_name(work: Workspace) -> Outputs:
    """Fit frozen features of a pretrained network."""
    x, classes = patches()
    return work.fit(work.classifier(epochs=15, encoder="efficientnet_lite0"), x, some_labels(classes), patches(16, seed=9)[0])


@case
def encoder_function(work: Workspace) -> Outputs:
    x, classes = patches()
    model = work.classifier(epochs=15, encoder=lambda images: np.asarray(images, dtype=np.float64).mean(axis=(1, 2)))
    return work.fit(model, x, some_labels(classes), patches(16, seed=9)[0])


@case
def user_net(work: Workspace) -> Outputs:
    import torch
    from torch import nn

    x, classes = blobs()
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 8))
    return work.fit(work.classifier(epochs=15, net=net), x, some_labels(classes), blobs(20, seed=9)[0])


@case
def paper_vectors(work: Workspace) -> Outputs:
    x, classes = blobs()
    return work.fit(work.classifier(epochs=15, preset="paper"), x, some_labels(classes), blobs(20, seed=9)[0])


@case
def paper_gray_images(work: Workspace) -> Outputs:
    x, classes = stripes()
    return work.fit(work.classifier(epochs=12, preset="paper"), x, some_labels(classes), stripes(20, seed=9)[0])


@case
def paper_color_images(work: Workspace) -> Outputs:
    x, classes = patches()
    return work.fit(work.classifier(epochs=4, preset="paper"), x, some_labels(classes), patches(16, seed=9)[0])


def _method_case(method: str, data: str) -> Case:
    def run(work: Workspace) -> Outputs:
        make, epochs = DATA[data]
        x, classes = make()
        return work.fit(work.classifier(method, epochs=epochs), x, some_labels(classes), make(16, seed=9)[0])

    return run


for _method in METHODS:
    CASES[f"method {_method} gray"] = _method_case(_method, "gray")
    if _method not in IMAGES_ONLY:
        CASES[f"method {_method} vectors"] = _method_case(_method, "vectors")
for _method in METHODS_ON_COLOR_IMAGES:
    CASES[f"method {_method} color"] = _method_case(_method, "color")


@case
def save_and_load(work: Workspace) -> Outputs:
    """Save and load models of vectors, images and frozen features."""
    found: Outputs = {}
    makers: dict[str, MakeData] = {"vectors": blobs, "gray": stripes, "color": patches, "encoder": patches}
    for name, make in makers.items():
        x, classes = make()
        arguments: dict[str, Any] = {"encoder": "efficientnet_lite0"} if name == "encoder" else {}
        model = work.classifier(epochs=3, **arguments).fit(x, some_labels(classes, names=("one", "two", "three")))
        new = make(16, seed=9)[0]
        before = work.predictions(model, new)
        model.save(work.folder / f"saved {name}")
        after = work.predictions(work.load(work.folder / f"saved {name}"), new)
        found |= {f"{name} {output}": value for output, value in after.items()}
        found[f"{name} same as before saving"] = identical(before, after)
    return found


@case
def resume_after_kill(work: Workspace) -> Outputs:
    """Kill `fit` between two checkpoints and repeat the command."""
    new, options = blobs(20, seed=9)[0], {"epochs": 250, "seed": 5, "save_every": 0.05}
    whole, killed = work.folder / "whole", work.folder / "killed"
    work.run("fit", work.vectors, *work.options(out=whole, **options))
    _kill(work, work.command("fit", work.vectors, *work.options(out=killed, **options)), killed)
    work.run("fit", work.vectors, *work.options(out=killed, **options))
    expected, found = (work.predictions(work.load(work.file(run, "model")), new) for run in (whole, killed))
    expected["labels"], found["labels"] = (work.table(work.file(run, "labels.csv")) for run in (whole, killed))
    return {**found, "same as uninterrupted": identical(expected, found)}


def _kill(work: Workspace, command: list[str], run: Path) -> None:
    """Start a fit and kill it after its first checkpoint; raise an error if it ended earlier."""
    checkpoints = work.file(run, "checkpoints")
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(command, cwd=work.folder, stdout=output, stderr=output)
        try:
            while child.poll() is None:
                if checkpoints.is_dir() and any(not name.startswith(".") for name in os.listdir(checkpoints)):
                    time.sleep(0.2)
                    break
                time.sleep(0.002)
        finally:
            child.kill()
        if child.wait() != -signal.SIGKILL or work.file(run, "labels.csv").exists():
            output.seek(0)
            raise RuntimeError(f"the fit ended before it was killed: {output.read()[-2000:]}")


@case
def resume_in_process(work: Workspace) -> Outputs:
    """Stop a fit after its last step, and resume it from the checkpoint before that."""
    x, classes = patches()
    steps_done: list[int] = []

    def stop(title: str, step: int, steps: int) -> None:
        if step == steps:
            raise KeyboardInterrupt

    def note(title: str, step: int, steps: int) -> None:
        steps_done.append(step)

    new, same = patches(16, seed=9)[0], {"epochs": 6, "supervised_warmup": 0.0}
    kept: dict[str, Any] = {**same, "checkpoint": work.folder / "stopped", "save_every": 0.0}
    with suppress(KeyboardInterrupt):
        work.classifier(progress=stop, **kept).fit(x, some_labels(classes))
    found = work.fit(work.classifier(progress=note, **kept), x, some_labels(classes), new)
    expected = work.fit(work.classifier(None, None, **same), x, some_labels(classes), new)
    return {**found, "first step after resuming": steps_done[0], "same as uninterrupted": identical(expected, found)}


def identical(expected: Outputs, found: Outputs) -> bool:
    """Return whether all expected outputs were found, arrays with the same type, shape and bytes."""

    def key(value: Any) -> Any:
        return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value

    return all(key(found[name]) == key(value) for name, value in expected.items())


# ---------------------------------------------------------------- command line


@case
def command_fit(work: Workspace) -> Outputs:
    """Run `fit` on a folder of images."""
    run = work.image_run
    tables = {name: work.table(work.file(run, f"{name}.csv")) for name in ("labels", "skipped")}
    return {**tables, **work.predictions(work.load(work.file(run, "model")), patches(16, seed=9)[0])}


@case
def command_fit_table(work: Workspace) -> Outputs:
    """Run `fit` on a table with a text column, with a method and settings."""
    x, classes = blobs(80, seed=8)
    labels = some_labels(classes, 5, ("cat", "dog", "owl"))
    data, new, run = work.folder / "samples.csv", work.folder / "more_samples.csv", work.folder / "table_run"
    for path, rows in ((data, range(60)), (new, range(60, 80))):
        lines = [f"i{k},{','.join(f'{v:.3f}' for v in x[k])},{'round' if k % 5 else 'flat'},{labels[k] or ''}" for k in rows]
        path.write_text("id,a,b,c,d,e,form,kind\n" + "\n".join(lines) + "\n")
    names, method = work.names.settings, work.names.method("pi_model+learned_graph")
    setting = [f"{names.get(name, name)}={value}" for name, value in (("lambda2", "0.3"), ("layers", "[16, 8]"))]
    work.run("fit", data, *work.options(out=run, epochs=12, label_column="kind", method=method, setting=setting))
    work.run("predict", run, new, *work.options(out=run / "new.csv"))
    work.run("query", run, new, *work.options(k=4, out=run / "neighbors"))
    tables = {"labels": work.file(run, "labels.csv"), "predictions": run / "new.csv", "query": run / "neighbors.csv"}
    return {name: work.table(path) for name, path in tables.items()}


@case
def command_predict(work: Workspace) -> Outputs:
    found: Outputs = {}
    for name, data in (("folder", work.new_images), ("file", work.new_images / "new3.png")):
        out = work.folder / f"predicted {name}.csv"
        work.run("predict", work.image_run, data, *work.options(out=out))
        found[name] = work.table(out)
    return found


@case
def command_query(work: Workspace) -> Outputs:
    """Query with new images and with items of the run, symmetric, and against another folder: table and figure."""
    from PIL import Image

    run, folder = work.image_run, work.folder / "queries"
    queries: dict[str, list[Any]] = {
        "images": [work.new_images, *work.options(k=5)],
        "items": work.options(items="3,17", k=7, exact=True),
        "symmetric": [work.new_images / "new1.png", *work.options(k=4, symmetric=True)],
        "against": [work.folder / "images" / "roll0" / "04.png", *work.options(k=3, against=work.new_images)],
    }
    found: Outputs = {}
    for name, arguments in queries.items():
        work.run("query", run, *arguments, *work.options(out=folder / name))
        found[f"{name} table"] = work.table(folder / f"{name}.csv")
        with Image.open(folder / f"{name}.png") as figure:
            found[f"{name} figure"] = np.asarray(figure)
    return found


@case
def command_bench(work: Workspace) -> Outputs:
    """Run `bench` on a grid file."""
    x, classes = stripes(90)
    np.savez(work.folder / "bench.npz", X=x, y=classes)
    grid = {"title": "Small", "data": "bench.npz", "labels": 12, "splits": 2, "budget": 1e9, "test": 0.25}
    methods = [work.names.method(name) for name in ("supervised", "mean_teacher", "learned_graph", "label_propagation")]
    (work.folder / "grid.json").write_text(json.dumps({**grid, "methods": methods}))
    out = work.folder / "bench"
    work.run("bench", work.folder / "grid.json", *work.options(out=out, jobs=1))
    records = [work.normalizer.json(json.loads(line)) for line in work.file(out, "runs.jsonl").read_text().splitlines()]
    compared = [{key: one[key] for key in BENCH_KEYS} | {key: one["cost"][key] for key in COST_KEYS} for one in records]
    return {"records": sorted(compared, key=lambda one: json.dumps(one, sort_keys=True))}


# ---------------------------------------------------------------- HTTP API


@case
def server_with_images(work: Workspace) -> Outputs:
    """Serve a run of images: sort, label, undo, edit classes, audit, import, refit, export; and read the label store."""
    run = work.image_run
    found: Outputs = {}
    with work.serve(run) as server:
        server.get("/api/run")
        for sort in "margin entropy confidence differs path diverse random audit newest".split():
            found[f"order {sort}"] = server.array("/api/order", "<u4", sort=sort, seed=3)
        found["order descending"] = server.array("/api/order", "<u4", sort="margin", dir="desc", status="unlabelled")
        found["map"] = server.map()
        found["order disagreement"] = server.array("/api/order", "<u4", sort="disagreement")
        server.post("/api/items", ids=list(range(0, 40, 3)))
        _label(server)
        _edit_classes(server)
        server.post("/api/similar", ids=[20], k=12, only="unlabelled")
        server.post("/api/similar", ids=[20, 22], not_ids=[21], k=12)
        server.get("/api/items/21")
        _use_rest(server, {"id": 3}, {"id": 30})
        found["thumbnail"] = server.array("/img/21/thumb", "u1", size=128)
        found |= _exports(server, work.normalizer, "before refit")
        server.refit("quick")
        server.get("/api/models")
        server.get("/api/items/33")
        found["order changed"] = server.array("/api/order", "<u4", status="changed")
        found["order after refit"] = server.array("/api/order", "<u4", sort="margin")
        found["colors after refit"] = server.array("/api/colors", "<i2")
        found |= _exports(server, work.normalizer, "after refit")
        _use_rest(server, {"id": 3}, {"id": 30})
        server.post("/api/models/1/activate")
        server.post("/api/models/2/activate")
        server.get("/api/events", since=0)
        server.get("/api/run")
        found["store"] = work.store(run, hashed=(24, 25))
        found["log"] = server.log
    for kind in ("csv", "jsonl"):
        out = work.folder / f"exported.{kind}"
        work.run("labels export", run, *work.options(out=out, format=kind, what="both"))
        found[f"command {kind}"] = _parse_export(out.read_text(), kind, work.normalizer)
    work.run("labels verify", run)
    work.run("predict", run, work.new_images, *work.options(out=work.folder / "by_refit.csv"))
    found["predicted by the refit"] = work.table(work.folder / "by_refit.csv")
    return found


@case
def server_without_labels(work: Workspace) -> Outputs:
    """Serve unlabelled data up to its first model."""
    x, classes = blobs(60, seed=11)
    data, run = work.folder / "unlabelled.npy", work.folder / "unlabelled_run"
    np.save(data, x)
    found: Outputs = {}
    with work.serve(data, *work.options(out=run)) as server:
        server.get("/api/run")
        found["order"] = server.array("/api/order", "<u4")
        found["map"] = server.map()
        server.post("/api/similar", ids=[5], k=8)
        server.post("/api/labels", op="accept", ids=[1])
        for name in ("cat", "dog", "owl"):
            server.post("/api/classes", name=name)
        for k in range(3):
            server.post("/api/labels", op="set", ids=[int(i) for i in np.flatnonzero(classes == k)[:4]], class_id=k)
        server.get("/api/run")
        server.refit("quick")
        server.get("/api/run")
        found["order by the model"] = server.array("/api/order", "<u4")
        found["colors"] = server.array("/api/colors", "<i2")
        _use_rest(server, {"id": 3}, {"vector": [0.5, 1.0, 0.25, 0.0, -1.0]})
        found |= _exports(server, work.normalizer, "at the end")
        found["store"] = work.store(run)
        found["log"] = server.log
    work.run("query", run, *work.options(items="0,1", k=5, out=work.folder / "unlabelled_query"))
    found["query"] = work.table(work.folder / "unlabelled_query.csv")
    return found


def _label(server: Server) -> None:
    seen = server.get("/api/run")["last_seq"]
    server.post("/api/labels", op="set", ids=[24, 25, 26], class_id=0)
    server.post("/api/labels", op="set", ids=[25], class_id=1, request_id="one")
    server.post("/api/labels", op="set", ids=[25], class_id=1, request_id="one")
    server.post("/api/labels", op="accept", ids=[30, 31, 32], source="similar")
    server.post("/api/labels", op="skip", ids=[33])
    server.post("/api/labels", op="clear", ids=[2])
    server.post("/api/labels", op="set", ids=[34, 35, 36, 37], class_id=0, source="audit")
    server.post("/api/labels", op="set", ids=[26, 38], class_id=1, seen=seen)
    server.post("/api/labels", op="set", ids=[39], class_id=77)
    server.post("/api/labels", op="set", ids=[400], class_id=0)
    server.post("/api/undo")
    server.post("/api/undo")
    server.post("/api/redo")
    server.post("/api/undo", request_id="two")
    server.get("/api/events", since=seen)
    server.post("/api/labels", op="set", ids=[36, 37], class_id=1, source="audit")
    server.get("/api/run")


def _edit_classes(server: Server) -> None:
    server.post("/api/classes", name="green")
    server.post("/api/classes", name="green")
    server.request("PATCH", "/api/classes/0", {"name": "sky blue", "color": "#1234ab"})
    server.post("/api/labels", op="set", ids=[28, 29], class_id=2)
    server.request("PATCH", "/api/classes/2", {"merge_into": 1})
    server.post("/api/undo")
    server.post("/api/audit", use_for_training=False)
    table = b"path,label\nroll1/27.png,red\nroll1/28.png,red\nnowhere.png,red\nroll0/18.png,yellow\n"
    server.request("POST", "/api/import", table, format="csv", dry_run="true")
    server.request("POST", "/api/import", table, format="csv", overwrite="false")


def _use_rest(server: Server, *samples: Mapping[str, Any]) -> None:
    server.get("/api/v1/model")
    server.post("/api/v1/predict", samples=list(samples))
    server.post("/api/v1/neighbors", samples=list(samples), k=5)
    server.post("/api/v1/similarity", a=list(samples), b=[{"id": k} for k in range(6)])


def _exports(server: Server, normalizer: Normalizer, when: str) -> Outputs:
    found: Outputs = {}
    for kind in ("csv", "csv-spreadsheet", "jsonl", "imagefolder", "labelstudio", "fiftyone"):
        found[f"export {kind} {when}"] = _parse_export(server.export(format=kind, what="both"), kind, normalizer)
    for scope in ("labelled", "skipped"):
        found[f"export {scope} {when}"] = normalizer.table(server.export(format="csv", what="labels", scope=scope))
    return found


def _parse_export(text: str, kind: str, normalizer: Normalizer) -> Any:
    if kind == "jsonl":
        return [normalizer.json(json.loads(line)) for line in text.splitlines()]
    if kind in ("labelstudio", "fiftyone"):
        return normalizer.json(json.loads(text))
    return normalizer.table(text)
