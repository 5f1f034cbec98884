"""Triplets on the unit circle, where squared distances are 0, 2 and 4."""

from __future__ import annotations

import pytest
import torch

from samekind.losses.triplet import sample_triplets, triplet_loss

Z = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [5.0, 0.0]])


def indices(*which: int) -> torch.Tensor:
    return torch.tensor(which)


def test_a_triplet_costs_the_part_of_the_margin_that_is_missing() -> None:
    # ||0 - 1||^2 = 2, ||0 - 2||^2 = 4, ||0 - 3||^2 = 0
    assert triplet_loss(Z, indices(0), indices(1), indices(2), margin=0.2).item() == 0.0
    assert triplet_loss(Z, indices(0), indices(1), indices(3), margin=0.2).item() == pytest.approx(2.2)
    assert triplet_loss(Z, indices(0, 0), indices(1, 1), indices(2, 3), margin=0.2).item() == pytest.approx(1.1)


def test_triplets_have_a_positive_of_the_same_class_and_a_negative_of_another() -> None:
    classes = torch.tensor([0, 0, 1, 1, -1, 0])
    for seed in range(20):
        torch.manual_seed(seed)
        a, p, n = sample_triplets(classes)
        assert a.tolist() == [0, 1, 2, 3, 5]
        assert (classes[a] == classes[p]).all() and (a != p).all()
        assert (classes[a] != classes[n]).all() and (classes[n] >= 0).all()


@pytest.mark.parametrize("classes", [[-1, -1, -1], [0, 0, 0], [0, 1, 2], [0, 0, -1]])
def test_without_positives_or_negatives_there_is_no_triplet(classes: list[int]) -> None:
    assert [len(ends) for ends in sample_triplets(torch.tensor(classes))] == [0, 0, 0]
