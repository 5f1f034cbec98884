"""One thread for every test: the tensors are tiny, and threads that wait for each other on a busy machine cost more."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from samekind.training.cpu_features import bfloat16_works

torch.set_num_threads(1)

if not bfloat16_works():  # said before oneDNN is first used, it computes without what would end the tests
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    bfloat16_works.cache_clear()


@pytest.fixture(autouse=True, scope="session")
def heard_signals() -> None:
    """A shell that starts the tests in the background lets them ignore Ctrl-C, which some of them send to themselves."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
