"""Engines: where and how a step is computed, by one process or many, in full or mixed precision, whole or in parts.

The loop calls three methods: `autocast` around the losses, `backward`, and `step`. Two engines provide them:

    LocalEngine       one process in float32, plain torch. Through accelerate a step would take 40 us more, with its
                      optimizer 180 us more, and the step of a small net takes 600 us.
    AccelerateEngine  everything else, built on accelerate: many processes and machines, float16 and bfloat16.

A batch is the same everywhere. Each process draws the whole batch from the same seed and takes its part.
`accumulation_steps` divides that part again to save memory. Gradients are averaged, so all processes take the same step.
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
SHORT = {"float32": "no", "float16": "fp16", "bfloat16": "bf16"}  # as accelerate calls them
CPU = torch.device("cpu")
STATISTICS = ("running_mean", "running_var")  # of batch norm: each process counts its own part


class Engine(Protocol):
    """What computes a step. The verbs after `step` are for many processes to agree; alone, they give back what they got."""

    @property
    def device(self) -> torch.device: ...

    @property
    def rank(self) -> int:
        """The number of this process; 0 writes files and shows progress."""

    @property
    def processes(self) -> int: ...

    @property
    def n_parts(self) -> int:
        """Into how many parts a batch falls, over all processes."""

    def parts(self, batch: Batch) -> Iterator[Batch]:
        """What this process takes of a batch, on its device, one part after the other."""

    def autocast(self) -> AbstractContextManager[Any]:
        """In here nets compute in the precision of the run."""

    def backward(self, loss: Tensor) -> None:
        """Adds the gradient of a part's loss to what the other parts gave."""

    def step(self, optimizer: Optimizer, method: Method) -> None:
        """One step along the average gradient of all processes."""

    def any(self, *wishes: bool) -> tuple[bool, ...]:
        """What at least one process wishes; who has come out of here knows that all others are in."""

    def mean(self, numbers: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Each number averaged over the processes."""

    def gather(self, row: Tensor) -> Tensor:
        """(processes, d) from the row (d,) of each."""

    def share(self, blob: bytes) -> bytes:
        """The bytes of the first process, for all."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class LocalEngine:
    """One process in float32."""

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

    def any(self, *wishes: bool) -> tuple[bool, ...]:
        return wishes

    def mean(self, numbers: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return numbers

    def gather(self, row: Tensor) -> Tensor:
        return row[None]

    def share(self, blob: bytes) -> bytes:
        return blob

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing is remembered."""


class AccelerateEngine:
    """Many processes, or mixed precision, or both.

    Methods are asked for `losses` and not for `forward`, which is all that DistributedDataParallel would watch. So gradients
    are averaged here, in one piece once all parts are done: the same numbers, and nothing to be switched off in between.
    """

    def __init__(self, device: torch.device, precision: str, accumulation_steps: int) -> None:
        from accelerate import Accelerator
        from accelerate.utils import GradientAccumulationPlugin

        # before the process group exists: functions in there have the group as a default argument and would keep it open
        import_module("torch.distributed.nn.functional")

        try:
            self._accelerator: Any = Accelerator(
                cpu=device.type == "cpu",
                mixed_precision=SHORT[precision],
                # as a plugin: the plain argument yields to what `accelerate launch` puts into the environment
                gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=accumulation_steps),
            )
        except ValueError as error:
            raise SettingError(f"precision {precision!r} cannot be had on {device} ({error}). Use 'float32'.") from error
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
            self._accelerator.scaler.step(optimizer)  # left out where float16 overflowed, on all processes alike
            self._accelerator.scaler.update()

    def any(self, *wishes: bool) -> tuple[bool, ...]:
        counted = self._reduced(torch.tensor(wishes, dtype=torch.float32, device=self.device), "sum")
        return tuple(count > 0 for count in counted.tolist())

    def mean(self, numbers: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self.processes == 1 or not numbers:
            return numbers
        flat = torch.cat([number.detach().flatten() for number in numbers.values()])
        pieces = torch.split(self._reduced(flat, "mean"), [number.numel() for number in numbers.values()])
        return {name: piece.view_as(numbers[name]) for name, piece in zip(numbers, pieces, strict=True)}

    def gather(self, row: Tensor) -> Tensor:
        with _everyone():
            rows: Tensor = self._accelerator.gather(row[None].to(self.device))
        return rows.cpu()

    def share(self, blob: bytes) -> bytes:
        from accelerate.utils import broadcast

        if self.processes == 1:
            return blob
        with _everyone():
            size = broadcast(torch.tensor([len(blob)], device=self.device))
            data = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
            if self.rank == 0 and blob:
                data.copy_(torch.frombuffer(bytearray(blob), dtype=torch.uint8))
            return broadcast(data).cpu().numpy().tobytes() if len(data) else b""

    def barrier(self) -> None:
        """Wait until all processes are here, so that none leaves while another still expects a message."""
        if self.processes > 1:
            with _everyone():
                self._accelerator.wait_for_everyone()

    def state_dict(self) -> dict[str, Any]:
        return {} if self._accelerator.scaler is None else dict(self._accelerator.scaler.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._accelerator.scaler is not None and state:
            self._accelerator.scaler.load_state_dict(dict(state))

    def _average(self, optimizer: Optimizer, method: Method) -> None:
        """Gradients and batch-norm statistics become their means over all processes; a gradient nobody has stays none."""
        weights: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
        statistics = [buffer for name, buffer in method.named_buffers() if name.endswith(STATISTICS)]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in weights]
        there = torch.tensor([float(p.grad is not None) for p in weights], device=self.device)
        pieces = [*gradients, *statistics, there]
        flat = self._reduced(torch.cat([piece.flatten() for piece in pieces]), "mean")
        *means, there = torch.split(flat, [piece.numel() for piece in pieces])
        for piece, mean in zip([*gradients, *statistics], means, strict=True):
            piece.copy_(mean.view_as(piece))
        for weight, gradient, share in zip(weights, gradients, there.tolist(), strict=True):
            weight.grad = gradient if share > 0 else None

    def _reduced(self, numbers: Tensor, how: str) -> Tensor:
        with _everyone():
            reduced: Tensor = self._accelerator.reduce(numbers, reduction=how)
        return reduced


@contextmanager
def open_engine(device: torch.device, precision: str = "float32", accumulation_steps: int = 1) -> Iterator[Engine]:
    """The engine of one run. In here accelerate belongs to it; afterwards it is again as whoever else uses it had left it."""
    require_parameter("accumulation_steps", accumulation_steps)
    precision = _precision_for(precision, device)
    if processes() == 1 and precision == "float32":
        yield LocalEngine(device, accumulation_steps)
        return
    with _accelerate_to_itself():
        engine = AccelerateEngine(device, precision, accumulation_steps)
        yield engine
        engine.barrier()


def processes() -> int:
    """How many processes a launcher (torchrun, accelerate launch) has started; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def is_main_process() -> bool:
    """Whether this process is the one to write files and talk to people."""
    return processes() == 1 or os.environ.get("RANK", "0") == "0"


def round_batch_size(n: int, n_parts: int, most: int | None = None) -> int:
    """A batch of n rows made to fall into equal parts of whole pairs: n rounded up, or down where `most` is all there are."""
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


def _precision_for(wanted: str, device: torch.device) -> str:
    """What was asked for; "auto" is what `accelerate launch --mixed_precision` says, and float32 without it."""
    if wanted == "auto":
        launched = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        wanted = next((name for name, short in SHORT.items() if short == launched), launched)
    require_parameter("precision", wanted)
    if wanted == "float16" and device.type == "cpu":
        raise SettingError("precision is 'float16', in which a CPU cannot train. Use 'bfloat16' or 'float32'.")
    if wanted == "bfloat16" and device.type == "cpu" and not bfloat16_works():
        raise SettingError(
            "precision is 'bfloat16', and this processor ends a program that uses the AMX it lists. Use 'float32', or set "
            "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts."
        )
    return wanted


@contextmanager
def _accelerate_to_itself() -> Iterator[None]:
    """Accelerate keeps one state for the whole program, and a run with another precision would be refused; so put it by."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    # the group of processes is there once and for all
    states = [AcceleratorState, GradientState] if processes() > 1 else [AcceleratorState, GradientState, PartialState]
    before = [dict(state._shared_state) for state in states]
    for state in states:
        state._shared_state.clear()
    try:
        yield
    finally:
        for state, its_own in zip(states, before, strict=True):
            state._shared_state.clear()
            state._shared_state.update(its_own)


@lru_cache(maxsize=1)
def _destroy_process_group_at_exit() -> None:
    # threads of an open group outlive the interpreter, and then the process aborts
    atexit.register(_destroy_process_group)


def _destroy_process_group() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextmanager
def _everyone() -> Iterator[None]:
    """Says what it means when a message to the other processes fails."""
    try:
        yield
    except RuntimeError as error:
        reason = re.sub(r"^\[\S*\]\s*", "", str(error)).split(". ")[0]  # without the place in somebody's source code
        raise WorkerLostError(
            f"another process of this run is gone ({reason}). Look for its own message; then start the same command again, and "
            "it goes on from the last checkpoint."
        ) from error
