"""Run wrong command lines, and check that each one ends with code 2 and one sentence, and leaves nothing behind.

    python benchmarks/attack_cli.py [--runs 400] [--seed 0]

Each command line is wrong in one place: a value out of range, a path that cannot be used, an unknown name or option. It runs in
a forked child with a limit of memory and time, as an ordinary user if the script runs as root. A case fails if it ends with a
traceback, another code than 2, without a sentence, at the time limit, or if it adds or changes a file.
The exit code is 1 if any case fails.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import random
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

import samekind
from samekind.cli import app
from samekind.project.fit import FitConfig, fit

MEMORY, SECONDS, NOBODY = 3 << 30, 60, 65534
INTEGERS = ["-1", "1.5", "x", "", "nan", "9" * 30, "9" * 5000, "--", "1e3", "0x10"]
NUMBERS = ["-1", "nan", "inf", "-inf", "1e400", "x", "", "1,5", "1e300"]
PATHS = ["taken/below", "taken/a/b", "a" * 256, "a" * 5000, "/".join(["a" * 200] * 30), "readonly/new", "nul\0name", ""]
NAMES = ["", "nosuch", "cuda", "mps", "meta", "xpu:9", "cpu:-1", "a" * 5000, "Cuda", "\u20ac", "con v13", "cuda:99", "🙂"]
SETTINGS = [
    "",
    "=",
    "lambda2",
    "lambda2={}",
    "lambda2=nan",
    "nosuch=1",
    "lambda2=-1",
    "lambda2=[]",
    "lambda2=1e999",
    "lambda2=true",
]
MISSING = [
    "nosuch",
    "nosuch.npy",
    "taken/x.npy",
    "a" * 300,
    "nul\0name",
    "empty.npy",
    "text.npy",
    "readonly",
    "page.html",
    "",
    "pipe.csv",
]
HERE = ["fit", "data.npz", "--out", "new", "--method", "learned_graph"]
# a command without its wrong part, and the wrong values of each option
COMMANDS: list[tuple[list[str], dict[str, list[str]]]] = [
    (
        HERE,
        {
            "--seed": INTEGERS,
            "--epochs": NUMBERS,
            "--minutes": NUMBERS,
            "--device": NAMES,
            "--method": NAMES,
            "--setting": SETTINGS,
            "--out": [*PATHS, "taken", "full", "run"],
            "--image-size": INTEGERS,
            "--net": NAMES,
            "--views": NAMES,
            "--encoder": NAMES,
            "--labels": MISSING,
            "--save-every": ["-1", "nan"],
        },
    ),
    (["predict", "run", "data.npy"], {"--out": [*PATHS, "full"]}),
    (
        ["query", "run", "--items", "1"],
        {
            "-k": [*INTEGERS, "2147483648", "0", "99999999"],
            "--items": ["-1", "x", "9" * 30, "9" * 5000],
            "--out": PATHS,
            "--against": MISSING,
        },
    ),
    (["serve", "run", "--no-browser"], {"--port": [*INTEGERS, "70000"], "--host": ["a" * 300, "a..b", "300.1.1.1", "\u20ac"]}),
    (["demo", "--quick"], {"--seed": INTEGERS, "--out": [*PATHS, "taken"]}),
    (
        ["bench", "toy"],
        {
            "--splits": INTEGERS,
            "--first-seed": INTEGERS,
            "--labels": ["x", "-1", "1.5"],
            "--methods": ["nosuch"],
            "--budget": NUMBERS[:7],
            "--device": NAMES,
            "--jobs": ["-1", "x"],
            "--scale": ["nosuch"],
            "--data": ["nosuch"],
            "--tune": ["-1", "x"],
            "--out": ["taken", "taken/below", "a" * 300],
        },
    ),
    (["table", "run"], {"--format": ["nosuch", ""], "--reference": ["nosuch"]}),
    (["labels", "export", "run", "--out", "new.csv"], {"--format": ["nosuch"], "--what": ["nosuch"], "--scope": ["nosuch"]}),
]
ARGUMENTS = [
    ["fit", "{}", "--out", "new"],
    ["predict", "{}", "data.npy"],
    ["predict", "run", "{}"],
    ["query", "{}", "--items", "1"],
    ["query", "run", "{}"],
    ["serve", "{}", "--no-browser"],
    ["table", "{}"],
    ["labels", "verify", "{}"],
    ["labels", "copy", "{}", "--out", "new"],
    ["labels", "export", "{}", "--out", "new"],
    ["bench", "{}"],
    ["data", "fetch", "{}"],
]
STRAYS = [["--nosuch"], ["extra", "words", "here"], ["--seed"]]


def wrong_lines(rng: random.Random) -> Iterator[list[str]]:
    """Yield wrong command lines for ever: every option and argument in turn, each with a random wrong value."""
    while True:
        for command, options in COMMANDS:
            for option, values in options.items():
                yield [*command, option, rng.choice(values)]
            yield [*command, *rng.choice(STRAYS[:1])]
        for command in ARGUMENTS:
            value = rng.choice(MISSING)
            yield [value if part == "{}" else part for part in command]
        yield [rng.choice(["", "fti", "labels nosuch", "-x"])]


def is_wrong(line: list[str]) -> bool:
    """Return whether a generated line is really wrong: an empty value stands for the default of some options."""
    last_two = ("", *line)[-2:]
    harmless = {("--methods", ""), ("--labels", ""), ("--budget", ""), ("--reference", ""), ("bench", "readonly")}
    is_device = last_two == ("--device", "cuda") and os.environ.get("CUDA_VISIBLE_DEVICES", "") != ""
    return last_two not in harmless and not is_device


def import_everything() -> None:
    """Import all of samekind now, because an ordinary user may not read the files of root's Python."""
    for module in pkgutil.walk_packages(samekind.__path__, "samekind."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("importlib.readers", "uvicorn", "webbrowser", "matplotlib.pyplot", "sqlite3"):
        importlib.import_module(name)


def prepare(folder: Path) -> None:
    """Make data, a fitted run, a file in the way, a folder with a file, and a folder without permission."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-3, 1, (30, 3)), rng.normal(3, 1, (30, 3))])
    np.savez(folder / "data.npz", X=X, y=np.where(np.arange(60) % 10 == 0, np.arange(60) // 30, -1))
    np.save(folder / "data.npy", X)
    for name, content in (("taken", "mine"), ("empty.npy", ""), ("text.npy", "text"), ("page.html", "<p>")):
        (folder / name).write_text(content)
    (folder / "full").mkdir()
    (folder / "full" / "mine").write_text("mine")
    os.mkfifo(folder / "pipe.csv")
    fit(FitConfig(str(folder / "data.npz"), method="supervised", epochs=2), folder / "run")
    (folder / "readonly").mkdir()
    for path in (folder, *folder.rglob("*")):
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
    (folder / "readonly").chmod(0o555)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and time of every file outside the caches."""
    files = [path for path in folder.rglob("*") if "cache" not in path.parts and not path.is_dir()]
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in files}


def in_child(folder: Path, line: list[str]) -> None:
    """Run a command line in this process, write its code and output to the file descriptor 3, and end the process."""
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY + _memory(), MEMORY + _memory()))
    signal.alarm(SECONDS)
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    result = CliRunner().invoke(app, line)
    trace = "" if result.exception is None else "".join(traceback.format_exception(result.exception))
    crashed = result.exception is not None and not isinstance(result.exception, SystemExit)
    os.write(
        3,
        f"{result.exit_code}\n{'Traceback' if crashed else ''}\n{trace[-300:] if crashed else result.stderr}".encode(
            "utf-8", "replace"
        ),
    )
    os._exit(0)


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def judge(folder: Path, line: list[str]) -> tuple[str, str]:
    """Return ("", message) if a wrong command line ended as it should, else the fault and what was printed."""
    before = snapshot(folder)
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 3)
            in_child(folder, line)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        code, _, rest = output.read().decode().partition("\n")
    crash, _, text = rest.partition("\n")
    left = sorted(set(snapshot(folder).items()) - set(before.items()))
    for name in {Path(one).relative_to(folder).parts[0] for one, _ in left} - {"run", "full", "taken"}:
        shutil.rmtree(folder / name, ignore_errors=True)
    if not code:
        return "killed at the limit of time or memory", f"status {status}"
    if crash:
        return "traceback", text
    if code != "2":
        return f"code {code}", text[-300:]
    if not any(part.startswith(("samekind: ", "Error: ")) for part in text.splitlines()):
        return "no sentence", text[-300:]
    return ("files left behind", ", ".join(one for one, _ in left[:3])) if left else ("", text)


def main() -> int:
    """Run the cases and print one line per fault and a summary; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    lines = filter(is_wrong, wrong_lines(random.Random(args.seed)))
    import_everything()
    started, faults = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "work"
        folder.mkdir()
        prepare(folder)
        for _ in range(args.runs):
            line = next(lines)
            fault, text = judge(folder, line)
            if fault:
                faults[fault] += 1
                print(
                    f"{fault}: samekind {shlex.join(part[:60] for part in line)}\n    {' '.join(text.split())[-250:]}",
                    flush=True,
                )
    print(
        f"{args.runs} wrong command lines in {time.monotonic() - started:.0f} s: {sum(faults.values())} faults {dict(faults)}"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
