"""Record what samekind computes in about a hundred small cases, and compare two recordings bit for bit.

    python benchmarks/behaviour_snapshot.py record OUT [--only CASE ...] [--names FILE]
    python benchmarks/behaviour_snapshot.py compare A B

Use it for changes of the code that must not change any result: record before the change, record after it, and compare. The
cases (behaviour_cases.py) use the public interfaces: the estimator, the command line and the HTTP API. Each case is a folder of
OUT, each output a file in it: arrays as .npy, everything else as .json. Arrays must have the same type, shape and bytes, JSON
the same values. Times, random ids and the working folder are replaced before JSON is written, and headers of tables are left
out. `compare` prints a line for each output; the exit code is 1 if any differs or is missing.

The cases use today's names. To record another version, set PYTHONPATH to its sources and give its names with --names where they
differ. behaviour_names_0.json has the names before the renaming that CHANGELOG.md lists. After another renaming, edit the cases
and add the earlier names to a file of names. `record` first prints the folder of the package that it records.

Make both recordings on the same machine with the same versions of numpy and torch; `compare` prints a note if they differ. All
computations use one thread. A recording takes one and a half to three minutes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import re
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from behaviour_cases import CASES, Workspace
from behaviour_client import PACKAGE, Array, Names

# ---------------------------------------------------------------- record


def record(out: Path, only: Sequence[str], names: Names) -> int:
    """Run the cases, write their outputs and return the number of cases that failed."""
    if out.exists() and any(out.iterdir()):
        raise SystemExit(f"{out} is not empty. Choose a folder that is empty or does not exist.")
    unknown = set(only) - set(CASES)
    if unknown:
        raise SystemExit(f"There is no case {sorted(unknown)[0]!r}. Cases: {', '.join(CASES)}.")
    out.mkdir(parents=True, exist_ok=True)
    (out / "environment.json").write_text(json.dumps(_prepare_environment(), indent=1) + "\n")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        work = Workspace(Path(folder).resolve(), names)
        for name in only or CASES:
            start = time.monotonic()
            work.start_case()
            try:
                outputs = CASES[name](work)
            except Exception:  # record the other cases all the same
                traceback.print_exc()
                failed += 1
                print(f"{name}: FAILED", flush=True)
                continue
            for output, value in outputs.items():
                _write(out / name, output, value)
            print(f"{name}: {len(outputs)} outputs, {time.monotonic() - start:.1f} s", flush=True)
    return failed


def _prepare_environment() -> dict[str, str]:
    """Use one thread and the imported package, here and in all commands, and return the versions."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
    import torch

    sources = str(Path(str(importlib.import_module(PACKAGE).__file__)).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sources, os.environ.get("PYTHONPATH")]))
    print(f"{PACKAGE} in {sources}", flush=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__, "machine": _machine()}


def _machine() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _write(folder: Path, name: str, value: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(value, np.ndarray):
        np.save(folder / f"{name}.npy", np.ascontiguousarray(value), allow_pickle=False)
    else:
        (folder / f"{name}.json").write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")


# ---------------------------------------------------------------- compare


def compare(one: Path, other: Path) -> int:
    """Print a line for each output and return the number of outputs that are not identical."""
    for folder in (one, other):
        if not (folder / "environment.json").is_file():
            raise SystemExit(f"{folder} is not a recording.")
    environments = [json.loads((folder / "environment.json").read_text()) for folder in (one, other)]
    if environments[0] != environments[1]:
        print(f"note: the recordings were made in different environments, {environments[0]} and {environments[1]}")
    outputs = sorted({path.relative_to(folder) for folder in (one, other) for path in folder.glob("*/*")})
    n_different = 0
    for output in outputs:
        missing = [str(folder) for folder in (one, other) if not (folder / output).exists()]
        difference = f"missing in {missing[0]}" if missing else describe(_read(one / output), _read(other / output))
        n_different += difference is not None
        print(f"{output.parent}: {output.name}: {difference or 'identical'}")
    print(f"{len(outputs)} outputs of {len({output.parent for output in outputs})} cases, {n_different} not identical")
    return n_different or not outputs


def _read(path: Path) -> Any:
    return np.load(path, allow_pickle=False) if path.suffix == ".npy" else json.loads(path.read_text(encoding="utf-8"))


def describe(one: Any, other: Any) -> str | None:
    """Describe how two outputs differ; return None if they are identical."""
    if isinstance(one, np.ndarray):
        return _describe_arrays(one, other)
    differences = list(_json_differences(one, other, ""))
    if not differences:
        return None
    distances = [abs(float(a) - float(b)) for _, a, b in differences if _is_number(a) and _is_number(b)]
    largest = f", max abs difference {max(distances):.3g}" if distances else ""
    where, a, b = differences[0]
    return f"differs in {len(differences)} places{largest}; first at {where or '/'}: {_shorten(a)} and {_shorten(b)}"


def _describe_arrays(one: Array, other: Array) -> str | None:
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"differs: {one.dtype} {one.shape} and {other.dtype} {other.shape}"
    if one.tobytes() == other.tobytes():
        return None
    if one.dtype.kind not in "fiub":
        return f"differs in {int((one != other).sum())} of {one.size} values"
    distances = np.abs(one.astype(np.float64) - other.astype(np.float64))
    largest = float(np.nanmax(distances)) if not np.isnan(distances).all() else float("nan")
    return f"differs (max abs difference {largest:.3g}) in {int((distances != 0).sum())} of {one.size} values"


def _json_differences(one: Any, other: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            yield from _json_differences(one.get(key, "<missing>"), other.get(key, "<missing>"), f"{where}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for position, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _json_differences(a, b, f"{where}/{position}")
    elif type(one) is not type(other) or one != other:
        yield where, one, other


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the cases and write their outputs")
    recording.add_argument("out", type=Path)
    recording.add_argument("--only", nargs="+", default=[], metavar="CASE", help="run only these cases")
    recording.add_argument("--names", type=Path, metavar="FILE", help="JSON of the names in the recorded version")
    comparing = commands.add_parser("compare", help="compare two recordings")
    comparing.add_argument("a", type=Path)
    comparing.add_argument("b", type=Path)
    args = parser.parse_args()
    if args.command == "record":
        failed = record(args.out, args.only, Names.read(args.names) if args.names else Names())
    else:
        failed = compare(args.a, args.b)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
