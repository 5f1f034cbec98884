"""Engines: how one training step is computed, by one process or many, in full or mixed precision, in one or several parts.

The training loop calls three methods: `autocast` around the losses, `backward`, and `step`. Two engines provide them:

    LocalEngine       one process in float32, plain torch. A step of a small net takes 600 us; accelerate would add 40 us to
                      it, or 180 us with accelerate's optimizer.
    AccelerateEngine  everything else, built on accelerate: many processes and machines, float16 and bfloat16.

All processes draw the same whole batch, because they use the same seed. Each computes its own part of the batch. With
`accumulation_steps` above 1, a process divides its part again and adds up the gradients, to save memory. The gradients are then
averaged over the processes, so that all processes take the same step.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from samekind.data.dataset import Batch
from samekind.errors import SettingError, WorkerLostError
from samekind.methods.base import Method
from samekind.parameters import require_parameter
from samekind.training.cpu_features import bfloat16_works

Precision = Literal["auto", "float32", "float16", "bfloat16"]
ACCELERATE_NAMES = {"float32": "no", "float16": "fp16", "bfloat16": "bf16"}
CPU = torch.device("cpu")
# attribute of accelerate's state classes; accelerate has no public function to save and restore it
SHARED_STATE = "_shared_state"
STATISTICS = ("running_mean", "running_var")  # batch-norm buffers, which each process updates with its own part of a batch


class Engine(Protocol):
    """Computes training steps. With one process, the methods listed after `step` return their arguments."""

    @property
    def device(self) -> torch.device: ...

    @property
    def rank(self) -> int:
        """Return the number of this process, from 0; process 0 writes files and shows progress."""

    @property
    def processes(self) -> int: ...

    @property
    def n_parts(self) -> int:
        """Return into how many parts a batch is divided, over all processes."""

    def parts(self, batch: Batch) -> Iterator[Batch]:
        """Yield the parts of a batch that this process computes, moved to its device."""

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context in which torch computes in the precision of this run, for example bfloat16."""

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the loss of one part to the gradients of the parts before it."""

    def step(self, optimizer: Optimizer, method: Method) -> None:
        """Take an optimizer step with the average gradient of all processes."""

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return, for each flag, whether the flag is True in at least one process.

        All processes must call this together, and each waits for the others.
        """

    def mean(self, numbers: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return each named tensor, averaged over the processes."""

    def gather(self, row: Tensor) -> Tensor:
        """Return the tensors (d,) of all processes, stacked to (processes, d)."""

    def share(self, blob: bytes) -> bytes:
        """Return in every process the bytes that process 0 passed."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class LocalEngine:
    """Engine of one process in float32."""

    device: torch.device = CPU
    accumulation_steps: int = 1
    rank: int = 0
    processes: int = 1

    @property
    def n_parts(self) -> int:
        return self.accumulation_steps

    def parts(self, batch: Batch) -> Iterator[Batch]:
        return (batch.part(k, self.accumulation_steps).to(self.device) for k in range(self.accumulation_steps))

    def autocast(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        torch.autograd.backward(loss if self.accumulation_steps == 1 else loss / self.accumulation_steps)

    def step(self, optimizer: Optimizer, method: Method) -> None:
        optimizer.step()

    def any(self, *flags: bool) -> tuple[bool, ...]:
        return flags

    def mean(self, numbers: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return numbers

    def gather(self, row: Tensor) -> Tensor:
        return row[None]

    def share(self, blob: bytes) -> bytes:
        return blob

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Ignore the state: this engine has none."""


class AccelerateEngine:
    """Engine for several processes, for mixed precision, or for both.

    Torch's DistributedDataParallel averages gradients only for calls of `forward`, but training calls the `losses` of a method.
    So this engine averages the gradients itself, in one message after all parts of the batch are done.
    """

    def __init__(self, device: torch.device, precision: str, accumulation_steps: int) -> None:
        from accelerate import Accelerator
        from accelerate.utils import GradientAccumulationPlugin

        # Import this module before the process group exists. Its functions store the group as a default argument; imported
        # later, they would keep the group open.
        import_module("torch.distributed.nn.functional")

        try:
            self._accelerator: Any = Accelerator(
                cpu=device.type == "cpu",
                mixed_precision=ACCELERATE_NAMES[precision],
                # Set by a plugin, because the environment variables of `accelerate launch` override the plain argument.
                gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=accumulation_steps),
            )
        except ValueError as error:
            raise SettingError(f"precision {precision!r} is not available on {device} ({error}). Use 'float32'.") from error
        _destroy_process_group_at_exit()
        self.rank: int = self._accelerator.process_index
        self.processes: int = self._accelerator.num_processes
        self.accumulation_steps = accumulation_steps
        self.device: torch.device = self._accelerator.device if self.processes > 1 else device

    @property
    def n_parts(self) -> int:
        return self.processes * self.accumulation_steps

    def parts(self, batch: Batch) -> Iterator[Batch]:
        first = self.rank * self.accumulation_steps
        return (batch.part(k, self.n_parts).to(self.device) for k in range(first, first + self.accumulation_steps))

    def autocast(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._accelerator.autocast()
        return context

    def backward(self, loss: Tensor) -> None:
        self._accelerator.backward(loss)

    def step(self, optimizer: Optimizer, method: Method) -> None:
        if self.processes > 1:
            self._average(optimizer, method)
        if self._accelerator.scaler is None:
            optimizer.step()
        else:
            self._accelerator.scaler.step(optimizer)  # skips the step if a gradient overflowed float16 in any process
            self._accelerator.scaler.update()

    def any(self, *flags: bool) -> tuple[bool, ...]:
        counted = self._reduced(torch.tensor(flags, dtype=torch.float32, device=self.device), "sum")
        return tuple(count > 0 for count in counted.tolist())

    def mean(self, numbers: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self.processes == 1 or not numbers:
            return numbers
        flat = torch.cat([number.detach().flatten() for number in numbers.values()])
        pieces = torch.split(self._reduced(flat, "mean"), [number.numel() for number in numbers.values()])
        return {name: piece.view_as(numbers[name]) for name, piece in zip(numbers, pieces, strict=True)}

    def gather(self, row: Tensor) -> Tensor:
        with _collective():
            rows: Tensor = self._accelerator.gather(row[None].to(self.device))
        return rows.cpu()

    def share(self, blob: bytes) -> bytes:
        from accelerate.utils import broadcast

        if self.processes == 1:
            return blob
        with _collective():
            size = broadcast(torch.tensor([len(blob)], device=self.device))
            data = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
            if self.rank == 0 and blob:
                data.copy_(torch.frombuffer(bytearray(blob), dtype=torch.uint8))
            return broadcast(data).cpu().numpy().tobytes() if len(data) else b""

    def barrier(self) -> None:
        """Wait until all processes have called this, so that no process ends while another still expects a message from it."""
        if self.processes > 1:
            with _collective():
                self._accelerator.wait_for_everyone()

    def state_dict(self) -> dict[str, Any]:
        return {} if self._accelerator.scaler is None else dict(self._accelerator.scaler.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._accelerator.scaler is not None and state:
            self._accelerator.scaler.load_state_dict(dict(state))

    def _average(self, optimizer: Optimizer, method: Method) -> None:
        """Average gradients and batch-norm statistics over the processes.

        A gradient that is None in every process stays None; a process without a gradient counts as zero.
        """
        weights: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
        statistics = [buffer for name, buffer in method.named_buffers() if name.endswith(STATISTICS)]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in weights]
        present = torch.tensor([float(p.grad is not None) for p in weights], device=self.device)
        pieces = [*gradients, *statistics, present]
        flat = self._reduced(torch.cat([piece.flatten() for piece in pieces]), "mean")
        *means, present = torch.split(flat, [piece.numel() for piece in pieces])
        for piece, mean in zip([*gradients, *statistics], means, strict=True):
            piece.copy_(mean.view_as(piece))
        for weight, gradient, fraction in zip(weights, gradients, present.tolist(), strict=True):
            weight.grad = gradient if fraction > 0 else None

    def _reduced(self, numbers: Tensor, how: str) -> Tensor:
        with _collective():
            reduced: Tensor = self._accelerator.reduce(numbers, reduction=how)
        return reduced


@contextmanager
def open_engine(device: torch.device, precision: str = "float32", accumulation_steps: int = 1) -> Iterator[Engine]:
    """Yield the engine of one run. The run gets its own global state of accelerate; the state before is restored afterwards."""
    require_parameter("accumulation_steps", accumulation_steps)
    precision = _precision_for(precision, device)
    if processes() == 1 and precision == "float32":
        yield LocalEngine(device, accumulation_steps)
        return
    with _own_accelerate_state():
        engine = AccelerateEngine(device, precision, accumulation_steps)
        yield engine
        engine.barrier()


def processes() -> int:
    """Return the number of processes that a launcher (torchrun, accelerate launch) has started; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def is_main_process() -> bool:
    """Return whether this process is the one that writes files and messages."""
    return processes() == 1 or os.environ.get("RANK", "0") == "0"


def round_batch_size(n: int, n_parts: int, most: int | None = None) -> int:
    """Return the batch size n, rounded so that `n_parts` parts are equal and each has an even number of samples.

    The size is rounded up, or down if rounding up would exceed `most`. With one part, n itself is returned.
    """
    if n_parts == 1:
        return n
    pair = 2 * n_parts
    rounded = -(-n // pair) * pair
    if most is not None and rounded > most:
        rounded = most // pair * pair
    if rounded == 0:
        raise SettingError(
            f"{most} samples cannot be divided into {n_parts} parts of at least two. Use fewer processes, or a smaller "
            "accumulation_steps."
        )
    return rounded


def _precision_for(precision: str, device: torch.device) -> str:
    """Return the precision to compute in; raise SettingError if the device does not support it.

    "auto" is the precision given to `accelerate launch --mixed_precision`, or float32 if none was given.
    """
    if precision == "auto":
        launched = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        precision = next((name for name, short in ACCELERATE_NAMES.items() if short == launched), launched)
    require_parameter("precision", precision)
    if precision == "float16" and device.type == "cpu":
        raise SettingError("precision is 'float16', which is not supported on a CPU. Use 'bfloat16' or 'float32'.")
    if precision == "bfloat16" and device.type == "cpu" and not bfloat16_works():
        raise SettingError(
            "precision is 'bfloat16', but this processor stops programs that use its AMX instructions. Use "
            "'float32', or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts."
        )
    return precision


@contextmanager
def _own_accelerate_state() -> Iterator[None]:
    """Give a run its own state of accelerate, and restore the state before it when the block ends.

    The state is global: with a shared one, accelerate would refuse a second run of another precision in the same program.
    """
    from accelerate.state import AcceleratorState, GradientState, PartialState

    # with several processes keep PartialState, because the process group exists once per program
    states = [AcceleratorState, GradientState] if processes() > 1 else [AcceleratorState, GradientState, PartialState]
    shared: list[dict[str, Any]] = [getattr(state, SHARED_STATE) for state in states]
    before = [dict(values) for values in shared]
    for values in shared:
        values.clear()
    try:
        yield
    finally:
        for values, saved in zip(shared, before, strict=True):
            values.clear()
            values.update(saved)


@lru_cache(maxsize=1)
def _destroy_process_group_at_exit() -> None:
    # Without this, threads of the process group outlive the interpreter, and the process aborts at its end.
    atexit.register(_destroy_process_group)


def _destroy_process_group() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextmanager
def _collective() -> Iterator[None]:
    """Raise WorkerLostError if the communication with the other processes fails inside the block."""
    try:
        yield
    except RuntimeError as error:
        # drop the position in the source of gloo, torch's communication library
        reason = re.sub(r"^\[\S*\]\s*", "", str(error)).split(". ")[0]
        raise WorkerLostError(
            f"another process of this run is gone ({reason}). Look for its own message; then run the same command again to "
            "resume from the last checkpoint."
        ) from error
