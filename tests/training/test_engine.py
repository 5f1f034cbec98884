"""The engine: a batch in parts gives the gradient of the whole, precision goes by name, and accelerate is left as it was."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.training import tiny
from torch import Tensor, nn

from samekind.errors import SettingError, WorkerLostError
from samekind.nets.classifier import Classifier
from samekind.nets.mlp import vector_classifier
from samekind.nets.similarity_net import SimilarityNet
from samekind.training.engine import (
    AccelerateEngine,
    LocalEngine,
    _collective,
    is_main_process,
    open_engine,
    processes,
    round_batch_size,
)
from samekind.training.trainer import train

CPU = torch.device("cpu")


# ---------------------------------------------------------------- parts


@pytest.mark.parametrize("name", tiny.METHODS)
@pytest.mark.parametrize("accumulation_steps", [2, 4])
def test_a_batch_in_parts_gives_the_gradient_of_the_whole(name: str, accumulation_steps: int) -> None:
    torch.testing.assert_close(
        torch.tensor(tiny.gradients(name, LocalEngine(accumulation_steps=accumulation_steps))),
        torch.tensor(tiny.gradients(name, LocalEngine())),
        atol=1e-6,
        rtol=1e-5,
    )


def test_accelerate_cuts_a_batch_into_the_same_parts() -> None:
    with open_engine(CPU, "bfloat16", accumulation_steps=2) as engine:
        assert isinstance(engine, AccelerateEngine)
        found = torch.tensor(tiny.gradients("mean_teacher", engine))  # without autocast: in full precision
    torch.testing.assert_close(found, torch.tensor(tiny.gradients("mean_teacher", LocalEngine())), atol=1e-6, rtol=1e-5)


@given(n=st.integers(1, 200), parts=st.integers(2, 16), spare=st.integers(0, 50))
def test_an_even_batch_falls_into_parts_of_whole_pairs_and_is_never_more_than_there_is(n: int, parts: int, spare: int) -> None:
    assert round_batch_size(n, parts) % (2 * parts) == 0
    assert n <= round_batch_size(n, parts) < n + 2 * parts
    if n + spare >= 2 * parts:
        assert round_batch_size(n, parts, most=n + spare) <= n + spare
    else:
        with pytest.raises(SettingError, match=r"cannot be divided into .* parts of at least two"):
            round_batch_size(n, parts, most=n + spare)


def test_a_batch_in_one_part_may_have_any_size() -> None:
    assert [round_batch_size(n, 1) for n in (1, 7, 20)] == [1, 7, 20]


def test_a_batch_that_does_not_fall_into_equal_parts_is_refused_with_one_that_does() -> None:
    with pytest.raises(
        SettingError,
        match=r"a batch of 8 samples cannot be divided into 3 equal parts, each with an even number of .* Use a batch of 12",
    ):
        train(tiny.method(), tiny.dataset(), tiny.views(), tiny.plan(None), LocalEngine(accumulation_steps=3))


# ---------------------------------------------------------------- which engine


@pytest.mark.parametrize("precision", ["auto", "float32"])
def test_one_process_in_full_precision_is_alone(precision: str) -> None:
    with open_engine(CPU, precision, 2) as engine:
        assert engine == LocalEngine(CPU, 2)
        assert (engine.rank, engine.processes, engine.n_parts) == (0, 1, 2)


def test_auto_is_the_precision_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    with open_engine(CPU, "auto") as engine:
        assert isinstance(engine, AccelerateEngine)
    with open_engine(CPU, "float32") as engine:
        assert isinstance(engine, LocalEngine)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "bflot16"}, r"precision is 'bflot16'; expected .* \(did you mean 'bfloat16'\?\)"),
        ({"precision": "float16"}, r"precision is 'float16', which is not supported on a CPU\. Use 'bfloat16' or 'float32'"),
        ({"accumulation_steps": 0}, "accumulation_steps is 0; expected a whole number, 1 or more"),
        ({"accumulation_steps": 1.5}, "accumulation_steps is 1.5"),
    ],
)
def test_options_that_are_not_available_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message), open_engine(CPU, **options):
        pass


def test_without_a_launcher_there_is_one_process_and_it_is_the_first() -> None:
    assert processes() == 1
    assert is_main_process()


# ---------------------------------------------------------------- mixed precision


def test_in_bfloat16_nets_compute_in_half_and_losses_in_full() -> None:
    net, phi = vector_classifier(4, 3, (8,)), SimilarityNet(8, (8,), dropout=0.0)
    seen: list[torch.dtype] = []
    net.head.register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    with open_engine(CPU, "bfloat16") as engine, engine.autocast():
        z, logits = net(torch.randn(5, 4))
        pair_logits = phi(z, z)
    assert seen == [torch.bfloat16]
    assert z.dtype == logits.dtype == pair_logits.dtype == torch.float32


def test_in_double_precision_nets_predict_in_double() -> None:
    net = Classifier(nn.Linear(4, 8), 8, 3).double()
    assert net(torch.randn(5, 4, dtype=torch.float64)).logits.dtype == torch.float64


@pytest.mark.parametrize("name", tiny.METHODS)
def test_a_run_in_bfloat16_is_close_to_one_in_full_precision(name: str) -> None:
    ends: list[Tensor] = []
    for precision in ("float32", "bfloat16"):
        method = tiny.method(name, dropout=0.0)
        with open_engine(CPU, precision) as engine:
            train(method, tiny.dataset(), tiny.views(), tiny.plan(None), engine)
        ends.append(torch.cat([p.flatten() for p in method.parameters()]))
    assert ends[0].dtype == ends[1].dtype == torch.float32
    assert not torch.equal(*ends)
    assert (ends[0] - ends[1]).norm() < 0.05 * ends[0].norm()


def test_accelerate_is_afterwards_as_somebody_else_had_left_it() -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState, PartialState

    try:
        theirs = Accelerator(mixed_precision="no", cpu=True, gradient_accumulation_steps=3)
        for _ in range(2):  # a second run with the same precision, and one with another
            with open_engine(CPU, "bfloat16", accumulation_steps=2):
                pass
        assert (theirs.mixed_precision, theirs.gradient_accumulation_steps) == ("no", 3)
    finally:
        for state in (AcceleratorState, GradientState, PartialState):
            state._shared_state.clear()


# ---------------------------------------------------------------- alone, there is nothing to agree on


def test_with_one_process_collectives_return_their_arguments() -> None:
    engine = LocalEngine()
    assert engine.any(True, False) == (True, False)
    assert engine.share(b"abc") == b"abc"
    assert torch.equal(engine.gather(torch.arange(3)), torch.tensor([[0, 1, 2]]))
    assert engine.mean(numbers := {"a": torch.tensor(1.0)}) is numbers


def test_a_failed_message_to_the_others_is_explained() -> None:
    message = r"is gone \(Connection closed by peer\)\. .*resume from the last checkpoint"
    with pytest.raises(WorkerLostError, match=message), _collective():
        raise RuntimeError("[/a/b/pair.cc:553] Connection closed by peer. This is typical.")


def test_a_small_fit_on_one_cpu_never_loads_accelerate() -> None:
    script = """
import sys, numpy as np
from samekind import SemiSupervisedClassifier
SemiSupervisedClassifier(epochs=1, views="noise").fit(np.random.rand(30, 2), [0, 1, -1] * 10)
print([name for name in ("accelerate", "tensorboard", "rich", "torch.utils.tensorboard") if name in sys.modules])
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
