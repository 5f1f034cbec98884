"""A run so small that a test can kill it twenty times, and scripts that train it in separate processes.

python tiny.py run FOLDER OUT [PAUSE]   train with a checkpoint after every step; write the result to OUT
python tiny.py kill FOLDER N            kill N runs at random moments until each is complete; print the results
torchrun tiny.py many OUT               write gradients, samples and weights of each process
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from samekind.data.augment.transforms import GaussianNoise, Views
from samekind.data.dataset import UNLABELLED, Dataset
from samekind.data.sampler import BatchSampler
from samekind.errors import SamekindError
from samekind.methods import build
from samekind.methods.base import Task
from samekind.nets.mlp import vector_classifier
from samekind.training.engine import Engine, open_engine
from samekind.training.schedules import Schedule
from samekind.training.trainer import TrainConfig, TrainResult, train

CPU = torch.device("cpu")
STEPS = 40
TASK = Task(n_classes=3, n_labelled=9, n_samples=48, steps=STEPS, batch_labelled=8, batch_unlabelled=16)
METHODS = ("supervised", "pi_model", "mean_teacher", "learned_graph")


@dataclass(frozen=True)
class Slow:
    """Noise with a pause."""

    pause: float

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        time.sleep(self.pause)
        return GaussianNoise(0.1)(x, rows, generator)


def dataset() -> Dataset:
    x = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
    return Dataset(x, torch.where(torch.arange(48) < 9, torch.arange(48) % 3, UNLABELLED), 3)


def method(name: str = "mean_teacher", *, dropout: float = 0.2) -> Any:
    torch.manual_seed(1)
    net = vector_classifier(4, 3, (8,), dropout=dropout)
    return build(name, net, TASK, {"layers": (8,), "dropout": dropout} if name == "learned_graph" else {})


def plan(folder: Path | None, **changes: Any) -> TrainConfig:
    options: dict[str, Any] = {"checkpoint": folder, "save_every": 0.0, "log_points": 10, **changes}
    return TrainConfig(STEPS, 8, 16, Schedule(lr_max=0.01), seed=2, **options)


def views(pause: float = 0.0) -> Views:
    return {"labelled_only": GaussianNoise(0.1), "weak": Slow(pause) if pause else GaussianNoise(0.1)}


def one_run(folder: Path | None, pause: float = 0.0, engine: Engine | None = None, **changes: Any) -> dict[str, Any]:
    """Train once; return a digest of the weights, the history and the cost."""
    trained, its = method(), {"engine": engine} if engine is not None else {}
    result: TrainResult = train(trained, dataset(), views(pause), plan(folder, **changes), **its)
    return {"weights": digest(trained.state_dict()), "history": result.history, "cost": result.cost}


def digest(state: dict[str, Tensor]) -> str:
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in state.values())).hexdigest()


@contextmanager
def full_disk(at: int = 512) -> Iterator[None]:
    """Limit the size of files to `at` bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (at, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# ---------------------------------------------------------------- killed


def in_a_child(function: Callable[[], Any]) -> int:
    """Run the function in a forked process, which need not import torch again; return its process id."""
    child = os.fork()
    if child == 0:
        try:
            function()
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    return child


def killed_until_through(folder: Path, out: Path, luck: random.Random, longest: float) -> tuple[int, int]:
    """Kill the run at random moments until it ends; return the kills, and those while a checkpoint was written."""
    kills = torn = 0
    while True:
        child = in_a_child(lambda: out.write_text(json.dumps(one_run(folder))))
        if kills < 2:
            time.sleep(luck.uniform(0.0, longest))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            kills, torn = kills + 1, torn + bool(list(folder.glob(".*.part")))
            continue
        assert os.WEXITSTATUS(status) == 0
        if kills:
            return kills, torn
        shutil.rmtree(folder)  # it was quicker than its killer: once more


def kill(folder: Path, n: int) -> dict[str, Any]:
    one_run(None)  # loads once, for all children, what torch loads when it is first used
    begun = time.monotonic()
    os.waitpid(in_a_child(lambda: (folder / "whole").write_text(json.dumps(one_run(folder / "uninterrupted")))), 0)
    longest = 0.8 * (time.monotonic() - begun)
    expected = json.loads((folder / "whole").read_text())
    same, counts, luck = 0, [], random.Random(0)
    for k in range(n):
        out = folder / f"out-{k}"
        counts.append(killed_until_through(folder / f"run-{k}", out, luck, longest))
        found = json.loads(out.read_text())
        same += found["weights"] == expected["weights"] and found["history"] == expected["history"]
    return {"runs": n, "same": same, "kills": [kills for kills, _ in counts], "torn": sum(torn for _, torn in counts)}


# ---------------------------------------------------------------- many processes


def gradients(name: str, engine: Engine) -> list[float]:
    """Return the gradients of all weights in two steps with learning rate 0."""
    trained = method(name, dropout=0.0)
    optimizer = torch.optim.SGD([p for p in trained.parameters() if p.requires_grad], lr=0.0)
    found: list[float] = []
    for batch in islice(stream(trained), 2):
        optimizer.zero_grad(set_to_none=True)
        for part in engine.parts(batch):
            engine.backward(torch.stack(list(trained.losses(part, 1.0).values())).sum())
        engine.step(optimizer, trained)
        found += [g for p in trained.parameters() if p.grad is not None for g in p.grad.flatten().tolist()]
    return found


def stream(trained: Any) -> BatchSampler:
    return BatchSampler(
        dataset(),
        views(),
        labelled_views=trained.labelled_views,
        unlabelled_views=trained.unlabelled_views,
        n_labelled=8,
        n_unlabelled=16,
        generator=torch.Generator().manual_seed(3),
    )


def rows_of_an_epoch(engine: Engine) -> list[list[int]]:
    batches = islice(stream(method()), 3)
    return [part.index.tolist() for batch in batches for part in engine.parts(batch)]


def many(out: Path) -> None:
    with open_engine(CPU) as engine:
        found: dict[str, Any] = {name: gradients(name, engine) for name in METHODS}
        found |= {"rows": rows_of_an_epoch(engine), "run": one_run(None, engine=engine), "parts": engine.n_parts}
        found["chance"] = torch.rand(1).item()
        torch.manual_seed(engine.rank)  # nets that differ at the start must not differ for long
        found["own"] = one_run_of_own_net(engine)
        found["drifting"] = error_of_a_drifting_method(engine)
        out.with_suffix(f".{engine.rank}").write_text(json.dumps(found))


def one_run_of_own_net(engine: Engine) -> str:
    net = vector_classifier(4, 3, (8,))
    net.features = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh())
    trained: Any = build("mean_teacher", net, TASK)
    train(trained, dataset(), views(), plan(None), engine)
    return digest(trained.state_dict())


def error_of_a_drifting_method(engine: Engine) -> str:
    """Train a method that stores its last sample, which differs between processes; return the error message."""
    trained = method("supervised")
    trained.register_buffer("last", torch.zeros(4))

    def keep(module: torch.nn.Module, given: tuple[Tensor, ...]) -> None:
        trained.last.copy_(given[0][-1])

    trained.student.register_forward_pre_hook(keep)
    try:
        train(trained, dataset(), views(), plan(None), engine)
    except SamekindError as error:
        return str(error)
    return ""


def main(what: str, *arguments: str) -> None:
    torch.set_num_threads(1)
    if what == "kill":
        sys.stdout.write(json.dumps(kill(Path(arguments[0]), int(arguments[1]))))
    elif what == "many":
        many(Path(arguments[0]))
    else:
        folder, out, pause = Path(arguments[0]), Path(arguments[1]), float(arguments[2] if len(arguments) > 2 else 0.0)
        out.with_suffix(f".pid{os.environ.get('RANK', '0')}").write_text(str(os.getpid()))
        with open_engine(CPU) as engine:
            result = one_run(folder, pause, engine)
        out.with_suffix(f".{engine.rank}").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
