"""Features of pretrained encoders, frozen and fine-tuned, compared with networks trained from scratch.

    python benchmarks/encoder.py --draws 3
    python benchmarks/encoder.py --images 2000 10000 --labels 1 4 10 40 --rows frozen finetuned
    python benchmarks/encoder.py --encoder efficientnet_lite2@224     # another encoder
    python benchmarks/encoder.py --folder photos --labels 5           # a folder with truth.csv: path,label
    python benchmarks/encoder.py --speed photos                       # images/s beside those of the network alone
    python benchmarks/encoder.py --neighbors photos                   # precision@9 without any label
    python benchmarks/encoder.py --memory 1000 5000                   # peak memory of encoding that many images
    python benchmarks/encoder.py --sizes photos --epochs 20           # training from scratch at several image sizes

Groups of rows: "frozen": logistic regression on standardized features, supervised training on features, and the ensemble, which
is the default; "finetuned": the last blocks or all blocks of the encoder are trained too, with and without the learned graph;
"scratch": networks trained from scratch. CIFAR-10 is read from $SAMEKIND_DATA. Features, and feature maps for fine-tuning, are
computed once and stored in --cache, and the seconds of a fit do not include that time. TFLOP counts it. Each fit is recorded in
--out when it ends, and recorded fits are not repeated.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from samekind.data.hub.loaders import load_dataset
from samekind.data.readers.path_list import LazyImages
from samekind.data.splits import hide_labels
from samekind.data.user_data import open_data
from samekind.evaluation.metrics import error_rate
from samekind.fitting.fit_model import fit_model
from samekind.fitting.fit_options import Finetune, FitOptions
from samekind.flops import count_flops
from samekind.nets.encoders.frozen_features import FeatureCache, extract_features
from samekind.nets.encoders.plan import plan_encoder
from samekind.preprocessing.baseline_features import compute_baseline_features, compute_encoder_features
from samekind.preprocessing.encoder_choice import encoder_without_labels
from samekind.preprocessing.preprocessor import build_encoder, decode_size

from bench_tables import mean_and_spread, read_runs, record_runs, show

ENCODER = "efficientnet_lite0"
LOGISTIC = "LogisticRegression"
METHODS = ("learned_graph", "supervised")
GROUPS = ("frozen", "graph", "finetuned", "finetuned_graph", "finetuned_all", "scratch")
N_TEST = 1000
SIZES = (32, 64, 96, 128)
Data = tuple[Any, Any, Any, Any]


class Row(NamedTuple):
    """What a row of the table measures: a method, on which features, and how the encoder is fine-tuned."""

    method: str
    on_features: bool = True
    finetune: Finetune = "none"
    finetuning_method: str = "ensemble_teacher"


def rows(encoder: str, groups: Sequence[str]) -> dict[str, Row]:
    """Return the rows of these groups, by name."""
    last, graph = f"ensemble on fine-tuned {encoder}", "ensemble_teacher+learned_graph"
    found = {
        "quick": {f"{name} on {encoder}": Row(name) for name in (LOGISTIC, "ensemble")},
        "frozen": {f"{name} on {encoder}": Row(name) for name in (LOGISTIC, "supervised", "ensemble")},
        "graph": {f"learned_graph on {encoder}": Row("learned_graph")},
        "finetuned": {f"{last}, last blocks": Row("ensemble", finetune="last")},
        "finetuned_graph": {f"{last}, last blocks, learned graph": Row("ensemble", True, "last", graph)},
        "finetuned_all": {f"{last}, all blocks": Row("ensemble", finetune="all")},
        "scratch": {f"{name} from scratch": Row(name, on_features=False) for name in METHODS},
    }
    return {name: row for group in groups for name, row in found[group].items()}


def cifar10(n_train: int) -> Data:
    """Return the first training and test images; their order in the files is random."""
    data = load_dataset("cifar10")
    return data.x[:n_train], data.y[:n_train].astype(np.int64), data.x_test[:N_TEST], data.y_test[:N_TEST].astype(np.int64)


def labelled_folder(folder: Path, cache: Path) -> tuple[Any, Any, list[Path]]:
    """Return the images, their classes and their files; truth.csv is never read as labels of a fit."""
    data = open_data(folder, labels=folder / "truth.csv", size=decode_size("auto"), cache=cache)
    classes = {name: code for code, name in enumerate(sorted(set(map(str, data.y))))}
    return data.x, np.array([classes[str(label)] for label in data.y]), [folder / name for name in data.names]


def one_fit(
    data: Data, name: str, row: Row, seed: int, n_labels: int, encoder: str, cache: Path, minutes: float | None
) -> dict[str, Any]:
    """Return the error on unlabelled images, the error on test images if there are any, the seconds and TFLOP of a fit."""
    x, y, x_test, y_test = data
    shown = hide_labels(y, n_labels, seed)
    hidden = shown == -1
    encoding = encoding_flops(encoder) * len(x) if row.on_features else 0.0
    began = time.perf_counter()
    flops = 0.0
    if row.method == LOGISTIC:
        z, z_test = (features(images, encoder, cache) for images in (x, x_test))
        began = time.perf_counter()
        model: Any = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(z[~hidden], y[~hidden])
        predicted = model.predict(z)
    else:
        used = encoder if row.on_features else None
        limit = minutes if row.finetune != "none" else None
        options = FitOptions(row.method, encoder=used, finetune=row.finetune, cache=cache, random_state=seed, minutes=limit)
        fitted = fit_model(x, shown, options, finetuning_method=row.finetuning_method)
        predicted, flops = fitted.model.train_labels, fitted.cost["flops"]
    seconds = round(time.perf_counter() - began, 1)
    test = None
    if len(x_test):
        tested = model.predict(z_test) if row.method == LOGISTIC else fitted.model.predict(x_test)
        test = error_rate(tested, y_test)
    record = {"row": name, "seed": seed, "train": len(x), "labels": n_labels, "encoder": encoder, "seconds": seconds}
    cost = {"tflop": round((flops + encoding) / 1e12, 3)}
    return {**record, **cost, "unlabelled_error": error_rate(predicted[hidden], y[hidden]), "test_error": test}


@cache
def encoding_flops(encoder: str) -> float:
    """Return the floating-point operations for encoding one image."""
    net: Any = build_encoder(encoder)
    with count_flops() as flops, torch.inference_mode():
        net(torch.zeros(1, 3, net.side, net.side))
    return float(flops())


def features(images: Any, encoder: str, cache: Path) -> Any:
    return np.array(extract_features(build_encoder(encoder), images, cache=FeatureCache(cache))) if len(images) else images


def encode_ahead(data: Data, encoder: str, cache: Path) -> None:
    """Encode all images once, so that no fit includes this time, and print the seconds."""
    began = time.perf_counter()
    for images in (data[0], data[2]):
        features(images, encoder, cache)
    n = len(data[0]) + len(data[2])
    print(f"{n} images encoded by {encoder} in {time.perf_counter() - began:.0f} s", flush=True)


def table(records: list[dict[str, Any]], names: Sequence[str], n_labels: int) -> None:
    """Print one line for each row that has records."""
    lines = []
    for name in names:
        some = [record for record in records if record["row"] == name]
        if some:
            tested = [record["test_error"] for record in some if record["test_error"] is not None]
            errors = [mean_and_spread([r["unlabelled_error"] for r in some]), mean_and_spread(tested) if tested else "-"]
            counted = [record["tflop"] for record in some if "tflop" in record]
            seconds, tflop = f"{np.mean([r['seconds'] for r in some]):.1f}", f"{np.mean(counted):.2f}" if counted else "-"
            lines.append([name, *errors, str(len(some)), seconds, tflop])
    print(f"\n{records[0]['train']} images, {n_labels} labels per class" if records else "")
    show(["method", "error on unlabelled %", "error on test %", "draws", "s/fit", "TFLOP"], lines)


def compare(data: Data, encoder: str, args: argparse.Namespace) -> None:
    """Run the fits that are not recorded, and print the tables."""
    named, n = rows(encoder, ["quick"] if args.quick else args.rows), len(data[0])
    names = tuple(named)
    if not args.table:
        encode_ahead(data, encoder, args.cache)
    for n_labels in args.labels:
        for seed, name in [(seed, name) for seed in range(0 if args.table else args.draws) for name in names]:
            if (name, seed) not in [(r["row"], r["seed"]) for r in recorded(args.out, n, n_labels)]:
                record = one_fit(data, name, named[name], seed, n_labels, encoder, args.cache, args.minutes)
                print(record, flush=True)
                record_runs(args.out, record)
        table([r for r in recorded(args.out, n, n_labels) if r["seed"] < args.draws], names, n_labels)


def recorded(path: Path, n: int, n_labels: int) -> list[dict[str, Any]]:
    """Return the recorded fits of n images; those without a number of labels had 10 per class."""
    return [r for r in read_runs(path) if (r["train"], r.get("labels", 10)) == (n, n_labels)]


def measure_speed(folder: Path, n: int) -> None:
    """Print images/s with decoding, those of the network alone on images in memory, and their ratio."""
    _, _, files = labelled_folder(folder, Path(tempfile.mkdtemp()))
    encoder: Any = build_encoder("efficientnet_lite0@224")
    lazy = LazyImages(files[:n], (224, 224, 3))
    x = torch.from_numpy(lazy[:32]).permute(0, 3, 1, 2).float() / 255.0
    ratios = []
    for _ in range(3):  # in turns, because the machine may have other work
        began = time.perf_counter()
        with torch.inference_mode():
            for _ in range(0, n, 32):
                encoder(x)
        alone = time.perf_counter() - began
        began = time.perf_counter()
        extract_features(encoder, lazy)
        whole = time.perf_counter() - began
        ratios.append(alone / whole)
        print(f"network alone {n / alone:.1f} images/s, with decoding {n / whole:.1f} images/s, {100 * alone / whole:.0f} %")
    print(f"median {100 * float(np.median(ratios)):.0f} %")


def precision_at_9(z: Any, y: Any) -> float:
    """Return how many of the nine nearest neighbours of an image have its class."""
    similarity = z @ z.T
    np.fill_diagonal(similarity, -np.inf)
    return float((y[np.argsort(-similarity, axis=1)[:, :9]] == y[:, None]).mean())


def compare_neighbors(folder: Path, n: int, cache: Path) -> None:
    """Print precision@9 of the features that an unlabelled project is shown by, untrained and encoded."""
    x, y, _ = labelled_folder(folder, cache)
    some = np.linspace(0, len(x) - 1, min(n, len(x))).astype(int)
    x, y = np.array(x[some]), y[some]
    name = encoder_without_labels(x) or ENCODER
    found = [compute_baseline_features(x), compute_encoder_features(x, build_encoder(name), FeatureCache(cache))]
    values = [f"{precision_at_9(z, y):.3f}" for z in found]
    show(["features", "precision@9"], [["baseline", values[0]], [name, values[1]]])


class GeneratedImages:
    """Images that differ from each other and are made when they are read."""

    def __init__(self, n: int, side: int) -> None:
        self.n, self.side = n, side

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, which: slice) -> Any:
        start, stop, _ = which.indices(self.n)
        rng = np.random.default_rng(start)
        return rng.integers(0, 256, (stop - start, self.side, self.side, 3), dtype=np.uint8)


def peak_memory(n: int) -> tuple[float, float]:
    """Return the peak memory in MB before and after encoding n images into a cache, in this process."""
    torch.set_num_threads(1)
    encoder = build_encoder("efficientnet_lite0@32")
    with tempfile.TemporaryDirectory() as folder:
        extract_features(encoder, GeneratedImages(256, 32), cache=FeatureCache(folder))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        extract_features(encoder, GeneratedImages(n, 32), cache=FeatureCache(folder))
    return before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_memory(counts: Sequence[int]) -> None:
    """Print the peak memory of a new process for each number of images."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as processes:
        for n in counts:
            before, after = processes.submit(peak_memory, n).result()
            print(f"{n} images: peak {after:.0f} MB, {after - before:.0f} MB above that of 256 images", flush=True)


def compare_sizes(folder: Path, args: argparse.Namespace) -> None:
    """Train from scratch on a folder of images decoded at several sizes, and print error, seconds and TFLOP of each size."""
    lines = []
    for side in SIZES:
        row = f"from scratch at {side}"
        for seed in range(args.draws):
            if (row, seed) not in [(r["row"], r["seed"]) for r in read_runs(args.out)]:
                data = open_data(folder, labels=folder / "truth.csv", size=side, cache=args.cache)
                y = np.unique(np.array(data.y, dtype=str), return_inverse=True)[1]
                shown = hide_labels(y, args.labels[0], seed)
                options = FitOptions("auto", encoder=None, epochs=args.epochs, random_state=seed)
                began = time.perf_counter()
                fitted = fit_model(np.array(data.x), shown, options)
                error = error_rate(fitted.model.train_labels[shown < 0], y[shown < 0])
                seconds, tflop = round(time.perf_counter() - began, 1), round(fitted.cost["flops"] / 1e12, 3)
                record = {"row": row, "seed": seed, "train": len(y), "labels": args.labels[0], "epochs": args.epochs}
                record_runs(args.out, {**record, "seconds": seconds, "tflop": tflop, "unlabelled_error": error})
        some = [r for r in read_runs(args.out) if r["row"] == row and r["seed"] < args.draws]
        cost = [f"{np.mean([r[name] for r in some]):.3g}" for name in ("seconds", "tflop")]
        lines.append([str(side), mean_and_spread([r["unlabelled_error"] for r in some]), str(len(some)), *cost])
        show(["side in pixels", "error on unlabelled %", "draws", "s/fit", "TFLOP"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--images", type=int, nargs="+", default=[2000])
    parser.add_argument("--labels", type=int, nargs="+", default=[10])
    parser.add_argument("--quick", action="store_true", help="only logistic regression and the ensemble")
    parser.add_argument("--rows", nargs="+", default=list(GROUPS), choices=GROUPS, help="groups of rows")
    parser.add_argument("--encoder", default=ENCODER)
    parser.add_argument("--minutes", type=float, help="time limit of a fit with a fine-tuned encoder")
    parser.add_argument("--table", action="store_true", help="only print the tables of recorded fits")
    parser.add_argument("--folder", type=Path, help="folder of images with truth.csv, in place of CIFAR-10")
    parser.add_argument("--speed", type=Path, help="folder of images with truth.csv")
    parser.add_argument("--neighbors", type=Path, help="folder of images with truth.csv")
    parser.add_argument("--memory", type=int, nargs="+")
    parser.add_argument("--sizes", type=Path, help="folder of images with truth.csv")
    parser.add_argument("--epochs", type=float, default=20, help="epochs of training with --sizes")
    parser.add_argument("--cache", type=Path, default=Path("runs/encoder"))
    parser.add_argument("--out", type=Path, default=Path("results/encoder.jsonl"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.memory:
        measure_memory(args.memory)
    elif args.speed:
        measure_speed(args.speed, 128)
    elif args.neighbors:
        compare_neighbors(args.neighbors, 500, args.cache)
    elif args.sizes:
        compare_sizes(args.sizes, args)
    elif args.folder:
        x, y, _ = labelled_folder(args.folder, args.cache)
        plan = plan_encoder(len(x), min(x.shape[1:3]))
        compare((x, y, x[:0], y[:0]), args.encoder if plan is None else plan.name, args)
    else:
        for n in args.images:
            compare(cifar10(n), args.encoder, args)


if __name__ == "__main__":
    main()
