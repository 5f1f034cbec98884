"""Checkpointing of a run: what a checkpoint contains, when it is saved, how a run resumes, and how a signal stops a run."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from samekind.data.dataset import Dataset
from samekind.data.sampler import BatchSampler
from samekind.errors import CheckpointError, CheckpointWarning, Interrupted, SamekindError
from samekind.files.io import shorten
from samekind.files.json_rules import ANYTHING, BOOLEAN, COUNT, NUMBER, TEXT, ListOf, MapOf, Record, number
from samekind.methods.base import Method
from samekind.training.checkpoint import (
    START_AGAIN,
    Checkpoint,
    CheckpointDir,
    decode,
    encode,
    newest,
    require_metadata,
    require_same_run,
    tensor_digest,
)
from samekind.training.determinism import random_state, set_random_state
from samekind.training.engine import Engine
from samekind.training.metering import Meter
from samekind.training.monitor import Monitor
from samekind.training.step_plan import StepPlan

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ADAM_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # the names that torch.optim.Adam gives its state of each weight
MOMENTS: dict[type[Optimizer], tuple[str, ...]] = {
    torch.optim.SGD: ("momentum_buffer",),
    torch.optim.Adam: ADAM_MOMENTS,
    torch.optim.AdamW: ADAM_MOMENTS,
}
RECORD = Record({"step": COUNT, "loss": MapOf(NUMBER)})
METER = Record(
    {
        **dict.fromkeys(("seconds", "cpu_seconds", "flops", "full_pass_flops", "step_flops"), number(0)),
        "peak_memory": COUNT,
        "terms": ListOf(TEXT),
        "count_next": BOOLEAN,
    }
)
COST = ("steps", "rows", "seconds", "cpu_seconds", "flops", "full_pass_flops", "peak_memory_mb")
RUN_METADATA = Record(
    {
        "run": Record({"seed": COUNT}),
        "monitor": Record({"records": ListOf(RECORD), "collapsed": COUNT}),
        "meter": METER,
        "engine": MapOf(ANYTHING),
        "plan": ListOf(ListOf(COUNT)),
    },
    {"cost": Record(dict.fromkeys(COST, number(0)))},
)


@dataclass(frozen=True)
class TrainState:
    """All objects that change during a run. A checkpoint contains the state of each of them."""

    method: Method
    optimizer: Optimizer
    sampler: BatchSampler
    monitor: Monitor
    meter: Meter
    engine: Engine
    plan: StepPlan

    def capture(self, step: int, metadata: Mapping[str, Any]) -> Checkpoint:
        """Return a checkpoint of the state after `step` steps. All processes must call this together.

        Capturing draws no random number, so that a run with checkpoints equals a run without.
        """
        tensors: dict[str, Tensor] = {f"method.{name}": tensor for name, tensor in self.method.state_dict().items()}
        for place, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{place}.{name}": tensor for name, tensor in moments.items()}
        tensors |= {f"sampler.{name}": tensor for name, tensor in self.sampler.state_dict().items()}
        tensors["random"] = self.engine.gather(random_state(self.engine.device))
        state = {"monitor": self.monitor.state_dict(), "meter": self.meter.state_dict(), "engine": self.engine.state_dict()}
        return Checkpoint(step, tensors, {**metadata, **state, "plan": self.plan.revisions})

    def restore(self, checkpoint: Checkpoint) -> None:
        """Set all objects to the state in the checkpoint; raise CheckpointError if the checkpoint does not fit this run."""
        try:
            self._require_shapes(checkpoint)
            self._restore(checkpoint)
        except (RuntimeError, ValueError, TypeError, LookupError, OverflowError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise CheckpointError(f"the checkpoint does not fit this run: {shorten(reason, 200)}. {START_AGAIN}") from error

    def _require_shapes(self, checkpoint: Checkpoint) -> None:
        """Raise ValueError unless the checkpoint has exactly the tensors of this run, with their shapes."""
        expected = {f"method.{name}": tensor.shape for name, tensor in self.method.state_dict().items()}
        expected |= {f"sampler.{name}": tensor.shape for name, tensor in self.sampler.state_dict().items()}
        weights = [p for group in self.optimizer.param_groups for p in group["params"]]
        for name, tensor in checkpoint.tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "optimizer":  # Adam's moments have the shape of their weight, and Adam's step counter has the shape ()
                place = int(rest.partition(".")[0])
                fits = 0 <= place < len(weights) and tensor.shape in (weights[place].shape, torch.Size())
            else:
                fits = name == "random" or tensor.shape == expected.get(name)
            if not fits:
                raise ValueError(f"the tensor {shorten(name)} has the shape {tuple(tensor.shape)}, which does not fit this run")
        places = {name.rpartition(".")[0] for name in checkpoint.tensors if name.startswith("optimizer.")}
        moments = [f"{place}.{moment}" for place in sorted(places) for moment in MOMENTS[type(self.optimizer)]]
        missing = next((name for name in ("random", *expected, *moments) if name not in checkpoint.tensors), None)
        if missing is not None:
            raise ValueError(f"the tensor {missing} is missing")

    def _restore(self, checkpoint: Checkpoint) -> None:
        self._restore_plan(checkpoint)
        self.method.load_state_dict(checkpoint.under("method"))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in checkpoint.under("optimizer").items():
            place, moment = name.split(".", 1)
            moments.setdefault(int(place), {})[moment] = tensor
        # the schedule sets learning rate and betas before each step, so they need not be restored
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        self.sampler.load_state_dict(checkpoint.under("sampler"))
        states, rank = checkpoint.tensors["random"], self.engine.rank
        if rank < len(states):  # if there are more processes than before, the additional ones keep their own random state
            set_random_state(states[rank], self.engine.device)
        self.meter.load_state_dict(checkpoint.metadata["meter"])
        self.engine.load_state_dict(checkpoint.metadata["engine"])
        self.monitor.load_state_dict(checkpoint.metadata["monitor"])

    def _restore_plan(self, checkpoint: Checkpoint) -> None:
        revisions = checkpoint.metadata["plan"]
        self.plan.load(revisions)
        if revisions and not revisions[-1][0] <= checkpoint.step <= self.plan.steps:
            raise ValueError(
                f"the step plan was last revised at step {revisions[-1][0]}, which does not fit a checkpoint of step "
                f"{checkpoint.step}"
            )
        if revisions:
            self.method.replan(self.plan.step_at)


class NullCheckpointer:
    """Checkpointer of a run without a checkpoint directory: all its methods do nothing."""

    def __enter__(self) -> NullCheckpointer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave the context; there is no file to close."""

    def load(self) -> Checkpoint | None:
        """Return None: there is no saved run to resume."""
        return None

    def after_step(self, step: int) -> None:
        """Skip saving: this run saves no checkpoints."""

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """Skip saving: this run saves no checkpoints."""


class Checkpointer:
    """Saves a run every `save_every` seconds, at its end, and when a signal asks the run to stop.

    Only process 0 reads and writes the directory; it sends the content of the checkpoint to the other processes. A full disk
    does not stop a run: the previous checkpoint stays, and the next one is tried `save_every` seconds later.
    """

    def __init__(self, folder: Path, state: TrainState, *, save_every: float, run: Mapping[str, Any]) -> None:
        self._folder, self._state, self._engine = folder, state, state.engine
        self._save_every, self._run = save_every, run
        self._directory = CheckpointDir(folder) if state.engine.rank == 0 else None
        self._signals = SignalCatcher()
        self._saved_at = time.monotonic()
        self._contexts = ExitStack()

    def __enter__(self) -> Checkpointer:
        if self._directory is not None:
            self._contexts.enter_context(self._directory)
        self._contexts.enter_context(self._signals)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._contexts.close()

    def load(self) -> Checkpoint | None:
        """Return the newest checkpoint; None if the directory has none.

        CheckpointError is raised if the checkpoint belongs to a run with other settings or data, or is
        of a later step than the last one of this run.
        """
        blob = self._engine.share((self._directory.newest() or b"") if self._directory is not None else b"")
        if not blob:
            return None
        checkpoint = decode(blob)
        require_metadata(RUN_METADATA, checkpoint.metadata)
        require_same_run(checkpoint.metadata["run"], self._run, self._folder)
        if checkpoint.step > self._state.plan.planned:
            steps = self._state.plan.planned
            raise CheckpointError(
                f"the checkpoint is of step {checkpoint.step}, and this run has only {steps} steps. {START_AGAIN}"
            )
        return checkpoint

    def after_step(self, step: int) -> None:
        """Save a checkpoint if the last one is `save_every` seconds old. After a signal, save one and raise `Interrupted`."""
        due = self._directory is not None and time.monotonic() - self._saved_at >= self._save_every
        due, stop = self._engine.any(due, self._signals.caught is not None)
        if stop or (due and step < self._state.plan.steps):
            problem = self._save(step, {})
            if stop:
                raise self._interrupted(step, problem)
            self._warn(problem, "Training continues.")

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """Save the last checkpoint. If that fails, only warn, because the trained model is still in memory."""
        problem = self._save(self._state.plan.steps, metadata)
        self._warn(problem, "Training is complete; if the run is repeated, it resumes from the last checkpoint that was saved.")
        if self._signals.caught is not None:
            raise self._interrupted(self._state.plan.steps, problem)

    def _save(self, step: int, metadata: Mapping[str, Any]) -> str:
        """Save a checkpoint. Return a description of what went wrong, or an empty string if the checkpoint was saved."""
        checkpoint = self._state.capture(step, {"run": self._run, **metadata})
        problem = ""
        if self._directory is not None:
            try:
                self._directory.put(step, encode(checkpoint))
            except CheckpointError as error:
                last = self._directory.last_step
                kept = "There is no earlier checkpoint." if last is None else f"The checkpoint of step {last} is kept."
                problem = f"the checkpoint of step {step} was not saved: {error} {kept} Make room in {self._folder}."
        self._saved_at = time.monotonic()
        return self._engine.share(problem.encode()).decode()  # also a barrier: no process ends before the file is written

    def _warn(self, problem: str, consequence: str) -> None:
        if problem and self._directory is not None:
            warnings.warn(f"{problem} {consequence}", CheckpointWarning, stacklevel=4)

    def _interrupted(self, step: int, problem: str) -> Interrupted:
        caught = self._signals.caught or signal.SIGTERM  # if this process caught no signal, another process of the run did
        saved = problem or f"The run is saved in {self._folder}."
        return Interrupted(
            f"stopped by {caught.name} after step {step} of {self._state.plan.steps}. {saved} Run the same command again to "
            "resume.",
            int(caught),
        )


class SignalCatcher:
    """Context that stores the first SIGINT or SIGTERM in `caught` instead of stopping; a second Ctrl-C stops at once.

    Python lets only the main thread handle signals, so in any other thread this context does nothing. The previous signal
    handlers are restored at the end of the block.
    """

    def __init__(self) -> None:
        self.caught: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> SignalCatcher:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # leave a signal ignored if it is ignored already, as SIGINT is in background jobs of a shell; None means that
                # the handler was not set by Python, and so cannot be restored
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for caught, handler in self._before.items():
            signal.signal(caught, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.caught is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught = self.caught or signal.Signals(number)


def describe_run(method: Method, dataset: Dataset, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies a run: its settings, the shapes of all its tensors, and hashes of X and y."""
    shapes = {name: list(tensor.shape) for name, tensor in method.state_dict().items()}
    configs: dict[str, Any] = {type(part).__name__: getattr(part, "config", None) for part in method.modules()}
    chosen = {name: asdict(config) for name, config in configs.items() if is_dataclass(config) and not isinstance(config, type)}
    return {**settings, "settings": chosen, "net": shapes, "X": tensor_digest(dataset.x), "y": tensor_digest(dataset.y)}


def checkpoint_seed(folder: Path) -> int | None:
    """Return the seed of the run that is saved in a directory; None if no run is saved there.

    A fit without `random_state` uses this seed, so that it resumes the saved run.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)  # damaged files are reported when the run resumes
        blob = newest(folder)
    if blob is None:
        return None
    metadata = decode(blob).metadata
    require_metadata(RUN_METADATA, metadata)
    return int(metadata["run"]["seed"])


def broadcast_method_state(state: TrainState) -> None:
    """Copy all tensors of the method from process 0 to the other processes."""
    own = Checkpoint(0, {f"method.{name}": tensor for name, tensor in state.method.state_dict().items()}, {})
    state.method.load_state_dict(decode(state.engine.share(encode(own))).under("method"))


def require_identical_state(state: TrainState, step: int) -> None:
    """Raise SamekindError if the weights or buffers of the method differ between the processes.

    They differ, for example, if a method stores values of the part of each batch that its process computes.
    """
    tensors = state.method.state_dict()
    own = "".join(tensor_digest(tensor.detach().cpu().reshape(-1)) for tensor in tensors.values()).encode()
    (different,) = state.engine.any(state.engine.share(own) != own)
    if different:
        raise SamekindError(
            f"after step {step} the processes of this run hold different weights or buffers: the method, or a net of your "
            "own, stores values of its part of each batch. Train it in one process."
        )
