"""One thread for every test: the tensors are tiny, and threads that wait for each other on a busy machine cost more."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
