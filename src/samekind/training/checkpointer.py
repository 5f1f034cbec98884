"""When a run is saved, when it is taken up again, and how it stops."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from samekind.data.dataset import Dataset
from samekind.data.sampler import BatchSampler
from samekind.errors import CheckpointError, CheckpointWarning, Interrupted, SamekindError
from samekind.methods.base import Method
from samekind.training.checkpoint import Checkpoint, CheckpointDir, decode, digest_of, encode, newest, require_same_run
from samekind.training.determinism import random_state, set_random_state
from samekind.training.engine import Engine
from samekind.training.metering import Meter
from samekind.training.monitor import Monitor
from samekind.training.signals import SignalCatcher


@dataclass(frozen=True)
class TrainState:
    """All that moves in a run, and so all that a checkpoint holds."""

    method: Method
    optimizer: Optimizer
    stream: BatchSampler
    watch: Monitor
    meter: Meter
    engine: Engine

    def captured(self, step: int, words: Mapping[str, Any]) -> Checkpoint:
        """The run after `step` steps. Nothing is drawn and nothing changed. All processes ask together."""
        tensors: dict[str, Tensor] = {f"method.{name}": tensor for name, tensor in self.method.state_dict().items()}
        for place, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{place}.{name}": tensor for name, tensor in moments.items()}
        tensors |= {f"stream.{name}": tensor for name, tensor in self.stream.state_dict().items()}
        tensors["random"] = self.engine.gather(random_state(self.engine.device))
        own = {"watch": self.watch.state_dict(), "meter": self.meter.state_dict(), "engine": self.engine.state_dict()}
        return Checkpoint(step, tensors, {**words, **own})

    def restore(self, checkpoint: Checkpoint) -> None:
        """Everything as it was when it was captured."""
        self.method.load_state_dict(checkpoint.under("method"))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in checkpoint.under("optimizer").items():
            place, moment = name.split(".", 1)
            moments.setdefault(int(place), {})[moment] = tensor
        # rate and betas are the schedule's, which sets them before each step
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        self.stream.load_state_dict(checkpoint.under("stream"))
        states, rank = checkpoint.tensors["random"], self.engine.rank
        if rank < len(states):  # more processes than before: the new ones keep their own
            set_random_state(states[rank], self.engine.device)
        self.meter.load_state_dict(checkpoint.words["meter"])
        self.engine.load_state_dict(checkpoint.words["engine"])
        self.watch.load_state_dict(checkpoint.words["watch"])


class NullCheckpointer:
    """Keeps nothing."""

    def __enter__(self) -> NullCheckpointer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing to put away."""

    def found(self) -> Checkpoint | None:
        return None

    def after(self, step: int) -> None:
        """Nothing to do."""

    def finish(self, words: Mapping[str, Any]) -> None:
        """Nothing to do."""


class Checkpointer:
    """Saves a run every so many seconds, at its end, and when a signal asks it to stop.

    Only the first process has the folder; the others hear from it. A disk that is full stops nothing: the checkpoint before
    stays, and the next attempt comes in due time.
    """

    def __init__(self, folder: Path, moving: TrainState, *, steps: int, seconds: float, run: Mapping[str, Any]) -> None:
        self._folder, self._moving, self._engine = folder, moving, moving.engine
        self._steps, self._seconds, self._run = steps, seconds, run
        self._shelf = CheckpointDir(folder) if moving.engine.rank == 0 else None
        self._signals = SignalCatcher()
        self._saved_at = time.monotonic()
        self._inside = ExitStack()

    def __enter__(self) -> Checkpointer:
        if self._shelf is not None:
            self._inside.enter_context(self._shelf)
        self._inside.enter_context(self._signals)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._inside.close()

    def found(self) -> Checkpoint | None:
        """Where the run in the folder stands; None if it is to begin. The run of other settings or data is refused."""
        blob = self._engine.share((self._shelf.newest() or b"") if self._shelf is not None else b"")
        if not blob:
            return None
        checkpoint = decode(blob)
        require_same_run(checkpoint.words["run"], self._run, self._folder)
        return checkpoint

    def after(self, step: int) -> None:
        """Called when a step is done: saves if it is time to, and stops if somebody asked for it."""
        due = self._shelf is not None and time.monotonic() - self._saved_at >= self._seconds
        due, asked = self._engine.any(due, self._signals.caught is not None)
        if asked or (due and step < self._steps):
            problem = self._save(step, {})
            if asked:
                raise self._interrupted(step, problem)
            self._warn(problem, "Training goes on.")

    def finish(self, words: Mapping[str, Any]) -> None:
        """The last checkpoint. If it cannot be written the model is still there, so this is no reason to throw it away."""
        problem = self._save(self._steps, words)
        self._warn(problem, "Training is complete; should it be asked for again, it goes on from there.")
        if self._signals.caught is not None:
            raise self._interrupted(self._steps, problem)

    def _save(self, step: int, words: Mapping[str, Any]) -> str:
        """What went wrong, in words, or nothing."""
        checkpoint = self._moving.captured(step, {"run": self._run, **words})
        problem = ""
        if self._shelf is not None:
            try:
                self._shelf.put(step, encode(checkpoint))
            except CheckpointError as error:
                last = self._shelf.last_step
                stands = "There is no earlier one." if last is None else f"The one of step {last} stands."
                problem = f"the checkpoint of step {step} was not saved: {error} {stands} Make room in {self._folder}."
        self._saved_at = time.monotonic()
        return self._engine.share(problem.encode()).decode()  # so nobody leaves before the file is written

    def _warn(self, problem: str, consequence: str) -> None:
        if problem and self._shelf is not None:
            warnings.warn(f"{problem} {consequence}", CheckpointWarning, stacklevel=4)

    def _interrupted(self, step: int, problem: str) -> Interrupted:
        caught = self._signals.caught or signal.SIGTERM  # another process caught it
        saved = problem or f"All of it is saved in {self._folder}."
        return Interrupted(
            f"stopped by {caught.name} after step {step} of {self._steps}. {saved} Run the same again, and it goes on from "
            "there.",
            int(caught),
        )


def description(method: Method, pool: Dataset, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run this one and no other: its settings, its net, and its data by digest."""
    shapes = {name: list(tensor.shape) for name, tensor in method.state_dict().items()}
    configs: dict[str, Any] = {type(part).__name__: getattr(part, "config", None) for part in method.modules()}
    chosen = {name: asdict(config) for name, config in configs.items() if is_dataclass(config) and not isinstance(config, type)}
    return {**settings, "settings": chosen, "net": shapes, "X": digest_of(pool.x), "y": digest_of(pool.y)}


def checkpoint_seed(folder: Path) -> int | None:
    """The seed of the run that a folder holds, for those who gave none and want to go on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)  # it will be given when the run is taken up
        blob = newest(folder)
    return None if blob is None else int(decode(blob).words["run"]["seed"])


def broadcast_method_state(moving: TrainState) -> None:
    """All processes begin with the numbers of the first, whatever their own nets began with."""
    own = Checkpoint(0, {f"method.{name}": tensor for name, tensor in moving.method.state_dict().items()}, {})
    moving.method.load_state_dict(decode(moving.engine.share(encode(own))).under("method"))


def require_identical_state(moving: TrainState, step: int) -> None:
    """All processes must hold the same numbers; a method that keeps some of its own from each batch would drift apart."""
    state = moving.method.state_dict()
    own = "".join(digest_of(tensor.detach().cpu().reshape(-1)) for tensor in state.values()).encode()
    (different,) = moving.engine.any(moving.engine.share(own) != own)
    if different:
        raise SamekindError(
            f"after step {step} the processes of this run do not hold the same numbers: the method, or a net of your own, "
            "keeps something of each batch. Train it in one process."
        )
