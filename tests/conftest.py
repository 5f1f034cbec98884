"""One thread for every test: the tensors are tiny, and threads that wait for each other on a busy machine cost more."""

from __future__ import annotations

import signal

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def heard_signals() -> None:
    """A shell that starts the tests in the background lets them ignore Ctrl-C, which some of them send to themselves."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
