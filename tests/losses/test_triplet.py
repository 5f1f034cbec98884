"""Triplets on the unit circle, where squared distances are 0, 2 and 4."""

from __future__ import annotations

import pytest
import torch

from samekind.losses.triplet import sample_triplets, triplet_loss

Z = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [5.0, 0.0]])


def rows(*which: int) -> torch.Tensor:
    return torch.tensor(which)


def test_a_triplet_counts_by_how_much_the_other_class_is_not_far_enough() -> None:
    """||0 - 1||^2 = 2, ||0 - 2||^2 = 4, ||0 - 3||^2 = 0."""
    assert triplet_loss(Z, rows(0), rows(1), rows(2), margin=0.2).item() == 0.0
    assert triplet_loss(Z, rows(0), rows(1), rows(3), margin=0.2).item() == pytest.approx(2.2)
    assert triplet_loss(Z, rows(0, 0), rows(1, 1), rows(2, 3), margin=0.2).item() == pytest.approx(1.1)


def test_partners_are_of_the_own_class_and_of_another_and_never_the_row_itself() -> None:
    kinds = torch.tensor([0, 0, 1, 1, -1, 0])
    for seed in range(20):
        torch.manual_seed(seed)
        a, p, n = sample_triplets(kinds)
        assert a.tolist() == [0, 1, 2, 3, 5]
        assert (kinds[a] == kinds[p]).all() and (a != p).all()
        assert (kinds[a] != kinds[n]).all() and (kinds[n] >= 0).all()


@pytest.mark.parametrize("kinds", [[-1, -1, -1], [0, 0, 0], [0, 1, 2], [0, 0, -1]])
def test_where_partners_are_missing_there_is_no_triplet(kinds: list[int]) -> None:
    assert [len(ends) for ends in sample_triplets(torch.tensor(kinds))] == [0, 0, 0]
