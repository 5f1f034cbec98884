"""The number of threads with which images are encoded: one or all, whichever is faster now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from samekind.nets.encoders.encoding_threads import WORTH_TIMING
from samekind.nets.encoders.frozen_features import extract_features


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


class Recorder(nn.Module):
    """Encoder that takes a given time for each number of threads, and records the threads of each batch."""

    def __init__(self, seconds: dict[int, float]) -> None:
        super().__init__()
        self.seconds, self.used = seconds, list[tuple[int, int]]()

    def forward(self, x: Tensor) -> Tensor:
        n = torch.get_num_threads()
        self.used.append((n, len(x)))
        time.sleep(self.seconds[n])
        return x.flatten(1)


@pytest.mark.parametrize(("seconds", "chosen"), [({1: 0.01, 3: 0.3}, 1), ({1: 0.3, 3: 0.01}, 3)])
def test_images_are_encoded_with_the_faster_number_of_threads(seconds: dict[int, float], chosen: int) -> None:
    encoder, images = Recorder(seconds), np.zeros((WORTH_TIMING, 2, 2, 3), np.uint8)
    features: Any = extract_features(encoder, images, batch=50)
    assert features.shape == (WORTH_TIMING, 12)
    assert [use for use in encoder.used if use[1] == 50] == [(chosen, 50)] * 2
    assert torch.get_num_threads() == 3


def test_few_images_are_encoded_with_all_threads() -> None:
    encoder = Recorder({1: 0.0, 3: 0.0})
    extract_features(encoder, np.zeros((20, 2, 2, 3), np.uint8))
    assert encoder.used == [(3, 20)]
