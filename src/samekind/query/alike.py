"""All similarities, and the most alike, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Similarity = Callable[[Tensor, Tensor], Tensor]  # (n_a, d), (n_b, d) -> W (n_a, n_b)
PAIRS = 2**17  # pairs in the air at a time


def all_pairs(similarity: Similarity, z_a: Tensor, z_b: Tensor) -> Tensor:
    """W (n_a, n_b)."""
    W = z_a.new_empty((len(z_a), len(z_b)))
    for rows, columns, block in _blocks(similarity, z_a, z_b):
        W[rows, columns] = block
    return W


def most_alike(similarity: Similarity, z_a: Tensor, z_b: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(W, indices), both (n_a, k): for each row of z_a the rows of z_b most alike, most alike first."""
    best_W = z_a.new_empty((len(z_a), k))
    best = torch.empty((len(z_a), k), dtype=torch.long, device=z_a.device)
    held = 0
    for rows, columns, block in _blocks(similarity, z_a, z_b):
        held = 0 if columns.start == 0 else held
        here = torch.arange(columns.start, columns.stop, device=z_a.device).expand(len(block), -1)
        W = torch.cat([best_W[rows, :held], block], dim=1)
        indices = torch.cat([best[rows, :held], here], dim=1)
        held = min(k, W.shape[1])
        W, at = W.sort(dim=1, descending=True, stable=True)
        best_W[rows, :held] = W[:, :held]
        best[rows, :held] = indices.gather(1, at[:, :held])
    return best_W, best


def _blocks(similarity: Similarity, z_a: Tensor, z_b: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    wide = max(1, min(len(z_b), 2048))
    tall = max(1, PAIRS // wide)
    for top in range(0, len(z_a), tall):
        rows = slice(top, min(top + tall, len(z_a)))
        for start in range(0, len(z_b), wide):
            columns = slice(start, min(start + wide, len(z_b)))
            yield rows, columns, similarity(z_a[rows], z_b[columns])
