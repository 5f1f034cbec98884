"""Read model files, runs and checkpoints that were changed at random, and count what ends in an exception of another library.

    python benchmarks/attack_files.py [--cases 2000] [--seed 0] [--only model.json] [--verbose]

Small models of each kind are fitted and saved. Each case copies one, changes one file and uses it: a model is loaded, predicts,
searches and is saved again; a run predicts and is fitted again; a checkpoint is resumed. A change is a flipped, missing or
repeated piece of the bytes, or another value in the JSON or in the header of the tensors. A file name that holds a hash then
mostly gets the new hash, because a hash protects against accidents only. A file may also become a pipe, a folder or a link to
itself. A case must end in a result or in one sentence of a SamekindError, within SECONDS and without GROWTH more memory, and
must not change a file outside the attacked folder. Cases run in forked children, twenty in each. The exit code is 1 if a case
fails.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from samekind import SemiSupervisedClassifier
from samekind.errors import SamekindError
from samekind.preprocessing.table_input import TablePreprocessor
from samekind.preprocessing.text_input import TextPreprocessor
from samekind.project.fit import FitConfig, fit
from samekind.project.predict import predict

from bench_tables import show

KINDS = ("model.json", "weights", "run.json", "checkpoint")
METHODS = ("learned_graph", "ensemble", "lgc", "laprls")
BATCH, SECONDS, GROWTH = 20, 20, 2**31
FORK = multiprocessing.get_context("fork")  # importing torch takes longer than a case
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, -(10**6), 0.5, 1e308, float("nan"), float("inf"), "", "x"),
    *("../../x", "a\0b", "\ud800", "cuda", "auto", "x" * 100_000, [], {}, [10**6, 1000], [[[]]], {"format": 4}, [0], ["a", 1]),
    *("<U99999999", "V8", "O", "U8", [1, 2, 3, 4, 5], [2**40, 2**40], {"a": {"b": None}}, -0.0, "-1"),
)


# ---------------------------------------------------------------- the files that are attacked


def samples(rng: np.random.Generator) -> tuple[Any, Any]:
    """Return 60 samples of three classes, of which 15 are labelled."""
    y = np.arange(60) % 3
    return rng.normal(size=(60, 4)) + 3.0 * y[:, None], np.where(np.arange(60) < 15, y, -1)


def texts(y: Any) -> list[str]:
    """Return a text for each label, made of words of three classes; an unlabelled sample gets words of all classes."""
    rng, vocabulary = np.random.default_rng(0), np.array("cat dog bird fish apple pear plum grape car bus train plane".split())
    return [" ".join(rng.choice(vocabulary if label < 0 else vocabulary[4 * label : 4 * label + 4], 6)) for label in y]


def table(x: Any) -> pd.DataFrame:
    """Return samples as a table with a column of numbers, one of truth values and one of categories."""
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1] > 0, "c": np.array(["red", "green", "blue"])[np.arange(len(x)) % 3]})


def make_originals(folder: Path) -> None:
    """Fit and save models of each method and of images, texts and a table, a run, and a checkpoint from the middle of a fit."""
    x, y = samples(np.random.default_rng(0))
    for method in METHODS:
        epochs: Any = 2 if method == "learned_graph" else "auto"
        SemiSupervisedClassifier(method, epochs=epochs, random_state=0).fit(x, y).save(folder / f"model-{method}")
    images = np.random.default_rng(1).random((40, 8, 8))
    SemiSupervisedClassifier(epochs=1, random_state=0).fit(images, y[:40]).save(folder / "model-images")
    model = SemiSupervisedClassifier("ensemble", encoder="tfidf", random_state=0)
    model.fit(texts(y), y).save(folder / "model-texts")
    SemiSupervisedClassifier("ensemble", random_state=0).fit(table(x), y).save(folder / "model-table")
    rows = "".join(f"{','.join(map(str, row))},{'' if label < 0 else f'c{label}'}\n" for row, label in zip(x, y, strict=True))
    (folder / "table.csv").write_text(f"a,b,c,d,label\n{rows}")
    fit(FitConfig(str(folder / "table.csv"), method="learned_graph", epochs=2.0), folder / "run")
    resumable(folder / "checkpoint").fit(x, y)
    *_, last = sorted((folder / "checkpoint").glob("step-*"))
    last.unlink()


def resumable(checkpoint: Path) -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier("mean_teacher", epochs=5, random_state=0, checkpoint=checkpoint, save_every=0)


def use_model(folder: Path, work: Path) -> None:
    model = SemiSupervisedClassifier.load(folder)
    x, y = samples(np.random.default_rng(0))
    if len(model.model_.shape) == 3:
        x, y = np.random.default_rng(1).random((40, 8, 8)), y[:40]
    elif isinstance(model.model_.preprocessor, TextPreprocessor):
        x = texts(y)
    elif isinstance(model.model_.preprocessor, TablePreprocessor):
        x = table(x)
    model.predict_proba(x)
    model.similarity(x[:3])
    model.kneighbors(x[:3], 2)
    model.save(work / "again")
    model.set_params(epochs=0.2, minutes=None).fit(x, y)


def use_run(folder: Path, work: Path) -> None:
    table = work.parent / "originals" / "table.csv"
    caught: list[SamekindError] = []
    for action in (
        lambda: predict(folder, table, work / "predictions.csv"),
        lambda: fit(FitConfig(str(table), method="learned_graph", epochs=2.0), folder),
    ):
        try:
            action()
        except SamekindError as error:
            caught.append(error)
    if caught:
        raise caught[0]


def use_checkpoint(folder: Path, work: Path) -> None:
    resumable(folder).fit(*samples(np.random.default_rng(0)))


# ---------------------------------------------------------------- changes


def change_bytes(blob: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat or insert a piece of the bytes."""
    content, at = bytearray(blob), rng.randrange(max(1, len(blob)))
    match rng.randrange(6):
        case 0:
            for _ in range(rng.randrange(1, 8)):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        case 1:
            del content[at:]
        case 2:
            del content[at : at + rng.randrange(1, 64)]
        case 3:
            content[at:at] = content[at : at + rng.randrange(1, 64)] * rng.randrange(1, 4)
        case 4:
            content[at:at] = rng.randbytes(rng.randrange(1, 16))
        case _:
            content[:8] = rng.randbytes(8) if rng.random() < 0.5 else rng.randrange(2**12).to_bytes(8, "little")
    return bytes(content)


def change_json(content: Any, rng: random.Random, canary: Path) -> Any:
    """Replace, delete or add a value at a random place of a JSON tree."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice((1, 1, 1, 2))):
        node = content
        while True:
            places = list(node) if isinstance(node, dict) else range(len(node))
            place = rng.choice(list(places)) if len(places) else None
            if place is None or not isinstance(node[place], dict | list) or not node[place] or rng.random() < 0.3:
                break
            node = node[place]
        value = rng.choice((*HOSTILE, str(canary), {"history": str(canary)}))
        number = node[place] if place is not None and isinstance(node[place], int | float) else None
        if place is None or rng.random() < 0.1:
            extra = rng.choice(("history", "checkpoint", "cache", "net", "tensorboard", "progress", "x"))
            if isinstance(node, list):
                node.append(value)
            else:
                node[extra] = rng.choice((value, str(canary)))
        elif rng.random() < 0.15:
            del node[place]
        else:
            node[place] = value if number is None or rng.random() < 0.6 else number + rng.choice((-1, 1, 7, 10**6, -(10**6)))
    return content


def change_tensors(blob: bytes, rng: random.Random, canary: Path) -> bytes:
    """Change the header of a tensor file, the metadata in it, or the values of its tensors."""
    size = int.from_bytes(blob[:8], "little")
    header, values = json.loads(blob[8 : 8 + size]), bytearray(blob[8 + size :])
    chosen = rng.random()
    if "__metadata__" in header and chosen < 0.4:
        metadata = change_json(json.loads(header["__metadata__"]["samekind"]), rng, canary)
        header["__metadata__"]["samekind"] = json.dumps(metadata)
    elif chosen < 0.7:
        header = change_json(header, rng, canary)
    else:
        at = rng.randrange(max(1, len(values) - 8))
        pieces = (b"\xff" * 8, b"\0" * 8, np.float64("nan").tobytes(), np.int64(2**62).tobytes(), rng.randbytes(8))
        values[at : at + 8] = rng.choice(pieces)
        if rng.random() < 0.3:
            values[:] = rng.choice((b"\xff", b"\0", b"\x7f")) * len(values)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(values)


def change_type(path: Path, rng: random.Random) -> None:
    """Make a file a pipe, a folder, a link to itself, or a huge sparse file."""
    path.unlink()
    match rng.randrange(4):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to(path)
        case _:
            with path.open("wb") as file:
                file.truncate(2**42)


def change_text_file(path: Path, rng: random.Random, canary: Path) -> None:
    blob = path.read_bytes()
    if rng.random() < 0.05:
        change_type(path, rng)
    elif rng.random() < 0.3:
        path.write_bytes(change_bytes(blob, rng))
    else:
        path.write_text(json.dumps(change_json(json.loads(blob), rng, canary)))


def change_tensor_file(path: Path, rng: random.Random, canary: Path) -> Path:
    """Change a tensor file; in four of five cases its name gets the new hash. Return its path."""
    blob = path.read_bytes()
    if rng.random() < 0.06:
        change_type(path, rng)
        return path
    changed = change_bytes(blob, rng) if rng.random() < 0.3 else change_tensors(blob, rng, canary)
    path.write_bytes(changed)
    if rng.random() < 0.2:
        return path
    prefix = path.name.rpartition("-")[0]
    return path.rename(path.with_name(f"{prefix}-{hashlib.sha256(changed).hexdigest()[:16]}.safetensors"))


def prepare(kind: str, originals: Path, work: Path, rng: random.Random, canary: Path) -> Callable[[], None]:
    """Copy the originals of this kind to `work`, change one file, and return the function that uses the copy."""
    if kind == "run.json":
        shutil.copytree(originals / "run", work / "run")
        if rng.random() < 0.3:
            content = json.loads((work / "run" / "run.json").read_text())
            (work / "run" / "run.json").write_text(json.dumps({**content, "finished": False}))
        change_text_file(work / "run" / "run.json", rng, canary)
        return lambda: use_run(work / "run", work)
    if kind == "checkpoint":
        shutil.copytree(originals / "checkpoint", work / "checkpoint")
        change_tensor_file(next((work / "checkpoint").glob("step-*")), rng, canary)
        return lambda: use_checkpoint(work / "checkpoint", work)
    model = work / "model"
    shutil.copytree(rng.choice(sorted(originals.glob("model-*"))), model)
    if kind == "model.json":
        change_text_file(model / "model.json", rng, canary)
    else:
        path = change_tensor_file(next(model.glob("weights-*")), rng, canary)
        content = json.loads((model / "model.json").read_text())
        (model / "model.json").write_text(json.dumps({**content, "weights": path.name}))
    return lambda: use_model(model, work)


# ---------------------------------------------------------------- cases in forked children


def run_case(number: int, args: argparse.Namespace, root: Path) -> str:
    """Run one case and return "accepted", "refused", or what went wrong."""
    kinds = [args.only] if args.only else KINDS
    rng, canary = random.Random(f"{args.seed}-{number}"), root / "canary"
    work = root / f"case-{number}"
    work.mkdir()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    action = prepare(kinds[number % len(kinds)], root / "originals", work, rng, canary)
    try:
        action()
        result = "accepted"
    except SamekindError as error:
        # the message on other columns has the lines of scikit-learn's message
        is_short = "\n" not in str(error) or str(error).startswith("The feature names should match")
        result = "refused" if is_short else f"more than one line: {error}"
        if args.verbose:
            print(number, error, file=sys.stderr)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)
        frames = [frame for frame in where if "samekind/" in frame.filename]
        result = f"foreign: {type(error).__name__}: {str(error)[:150]!r} at {frames[-1].filename}:{frames[-1].lineno}"
    if canary.read_bytes() != b"canary":
        canary.write_bytes(b"canary")
        result = "a file outside was changed"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    shutil.rmtree(work)
    return f"memory: {grown / 2**30:.1f} GB" if grown > GROWTH else result


def run_batch(numbers: list[int], args: argparse.Namespace, root: Path, results: Path) -> None:
    """Run cases in this process, a child, and write each result as a line. An alarm ends the process in a case that hangs."""
    warnings.simplefilter("ignore")
    with results.open("w") as file:
        for number in numbers:
            signal.alarm(SECONDS)
            print(number, run_case(number, args, root).replace("\n", " "), file=file, flush=True)
            signal.alarm(0)


def run_all(args: argparse.Namespace, root: Path) -> dict[int, str]:
    """Return the result of each case."""
    found: dict[int, str] = {}
    left = list(range(args.cases))
    while left:
        batch, results = left[:BATCH], root / "results"
        results.unlink(missing_ok=True)
        child = FORK.Process(target=run_batch, args=(batch, args, root, results))
        child.start()
        child.join()
        code = child.exitcode or 0
        lines = [line.split(" ", 1) for line in results.read_text().splitlines()]
        found |= {int(number): result for number, result in lines}
        if len(lines) < len(batch):
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            found[batch[len(lines)]] = "hang" if name == "SIGALRM" else f"died of {name}"
        left = [number for number in left if number not in found]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--verbose", action="store_true", help="print the sentence of each refusal")
    args = parser.parse_args()
    torch.set_num_threads(1)  # a process with threads cannot be forked safely
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "originals").mkdir()
        (root / "canary").write_bytes(b"canary")
        make_originals(root / "originals")
        began = time.monotonic()
        found = run_all(args, root)
    kinds = [args.only] if args.only else list(KINDS)
    columns = ("accepted", "refused", "foreign", "hang", "other")
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    for number, result in found.items():
        word = result.split(":")[0]
        counts[kinds[number % len(kinds)]][word if word in columns else "other"] += 1
    show(
        ["changed file", "cases", *columns],
        [[kind, str(sum(c.values())), *(str(c[one]) for one in columns)] for kind, c in counts.items()],
    )
    bad = {number: result for number, result in sorted(found.items()) if result not in ("accepted", "refused")}
    for number, result in bad.items():
        print(f"case {number} ({kinds[number % len(kinds)]}): {result}")
    print(f"\nseed {args.seed}: {len(bad)} of {len(found)} cases failed; {time.monotonic() - began:.0f} s")
    if bad:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
