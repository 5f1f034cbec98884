"""Setup of all tests: one thread each, because the tensors are tiny and the tests run in parallel."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from samekind.training.cpu_features import bfloat16_works

torch.set_num_threads(1)

if not bfloat16_works():  # set before the first use of oneDNN, which would otherwise crash on this CPU
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    bfloat16_works.cache_clear()


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """Restore the handler of Ctrl-C, which a shell disables for background jobs and which some tests send to themselves."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
