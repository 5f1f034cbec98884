"""Frozen features compared with networks trained from scratch: CIFAR-10 with 100 labels.

    python benchmarks/encoder.py --draws 3

2,000 training images with 10 random labels per class, the rest unlabelled; 1,000 test images. The methods are learned_graph and
supervised training, both on features of EfficientNet-lite0, which is pretrained on ImageNet, and both with the default network
for images from random weights. Needs CIFAR-10 in $SAMEKIND_DATA and the extra `encoders`. Features are computed once and stored
in --cache. Each fit is recorded in --out when it ends, and recorded fits are not repeated.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from samekind import SemiSupervisedClassifier
from samekind.data.hub.loaders import load_dataset
from samekind.data.splits import hide_labels
from samekind.evaluation.metrics import error_rate
from samekind.nets.encoders.frozen_features import FeatureCache, extract_features
from samekind.preprocessing import build_encoder

from tables import mean_and_spread, read_runs, record_runs, show

ENCODER = "efficientnet_lite0"
ROWS = {
    f"learned_graph on {ENCODER}": ("learned_graph", ENCODER),
    f"supervised on {ENCODER}": ("supervised", ENCODER),
    "learned_graph from scratch": ("learned_graph", None),
    "supervised from scratch": ("supervised", None),
}
Data = tuple[Any, Any, Any, Any]


def cifar10(n_train: int, n_test: int) -> Data:
    """Return the first training and test images; their order in the files is random."""
    data = load_dataset("cifar10")
    return data.x[:n_train], data.y[:n_train].astype(np.int64), data.x_test[:n_test], data.y_test[:n_test].astype(np.int64)


def one_fit(data: Data, name: str, seed: int, cache: Path) -> dict[str, Any]:
    """Return the error on unlabelled images, the error on test images, and the seconds of a fit."""
    x, y, x_test, y_test = data
    method, encoder = ROWS[name]
    shown = hide_labels(y, 10, seed)
    hidden = shown == -1
    began = time.perf_counter()
    model = SemiSupervisedClassifier(method, encoder=encoder, cache=cache, random_state=seed).fit(x, shown)
    seconds = round(time.perf_counter() - began, 1)
    unlabelled, test = error_rate(model.transduction_[hidden], y[hidden]), error_rate(model.predict(x_test), y_test)
    sizes = {"train": len(x), "test": len(x_test)}
    return {"row": name, "seed": seed, **sizes, "unlabelled_error": unlabelled, "test_error": test, "seconds": seconds}


def encode_ahead(data: Data, cache: Path) -> None:
    """Encode all images once, so that no fit includes this time, and print the seconds."""
    encoder, began = build_encoder(ENCODER), time.perf_counter()
    for images in (data[0], data[2]):
        extract_features(encoder, images, cache=FeatureCache(cache))
    print(f"{len(data[0]) + len(data[2])} images encoded in {time.perf_counter() - began:.0f} s", flush=True)


def table(records: list[dict[str, Any]]) -> None:
    rows = []
    for name in ROWS:
        some = [record for record in records if record["row"] == name]
        if some:
            errors = [mean_and_spread([record[key] for record in some]) for key in ("unlabelled_error", "test_error")]
            rows.append([name, *errors, str(len(some)), f"{np.mean([record['seconds'] for record in some]):.0f}"])
    show(["method", "error on unlabelled %", "error on test %", "draws", "s/fit"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--cache", type=Path, default=Path("runs/encoder"))
    parser.add_argument("--out", type=Path, default=Path("results/encoder.jsonl"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    data = cifar10(args.train, args.test)
    encode_ahead(data, args.cache)
    for name, seed in [(name, seed) for name in ROWS for seed in range(args.draws)]:
        key = (name, seed, args.train, args.test)
        if key not in [(r["row"], r["seed"], r["train"], r["test"]) for r in read_runs(args.out)]:
            record = one_fit(data, name, seed, args.cache)
            print(record, flush=True)
            record_runs(args.out, record)
    print()
    table([r for r in read_runs(args.out) if (r["train"], r["test"]) == (args.train, args.test) and r["seed"] < args.draws])


if __name__ == "__main__":
    main()
