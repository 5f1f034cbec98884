"""One thread for a while: torch gets back what it had, whatever happens in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from samekind.training.determinism import single_thread


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_torch_gets_its_threads_back() -> None:
    with single_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_also_after_an_error() -> None:
    with pytest.raises(KeyError), single_thread():
        raise KeyError
    assert torch.get_num_threads() == 3


def test_without_single_thread_the_number_of_threads_stays() -> None:
    with single_thread(False):
        assert torch.get_num_threads() == 3
