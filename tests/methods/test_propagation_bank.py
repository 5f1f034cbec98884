"""Bank of features for label propagation: what it stores, what is replaced, and the graph over it."""

from __future__ import annotations

import torch
from torch import Tensor

from samekind.methods.propagation_bank import PropagationBank

E1, E2 = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])


def uniform(z: Tensor, neighbor_z: Tensor, cosines: Tensor) -> Tensor:
    return torch.ones_like(cosines)


def bank_with_samples() -> PropagationBank:
    """Return a bank with a label in each of two directions, and two unlabelled samples in each of them."""
    bank = PropagationBank(length=4, n_labelled=2, n_features=2, n_classes=2)
    bank.store_labelled(torch.tensor([0, 1]), torch.stack([E1, E2]), torch.tensor([1, 0]))
    bank.store_unlabelled(torch.stack([2 * E1, 3 * E1, 2 * E2, 3 * E2]))
    return bank


def test_new_samples_replace_the_oldest_ones() -> None:
    bank = PropagationBank(3, 1, 1, 2)
    numbers = torch.arange(9.0)[:, None]
    bank.store_unlabelled(numbers[:2])
    bank.store_unlabelled(numbers[2:4])
    assert bank.recent_z.flatten().tolist() == [3.0, 1.0, 2.0]
    bank.store_unlabelled(numbers[4:])  # five at once: the last three
    assert sorted(bank.recent_z.flatten().tolist()) == [6.0, 7.0, 8.0]


def test_the_labelled_samples_take_turns() -> None:
    bank, turns = PropagationBank(1, 5, 1, 2), []
    for _ in range(3):
        slots = bank.oldest_labelled(2)
        turns.append(slots.tolist())
        bank.store_labelled(slots, torch.zeros(2, 1), torch.zeros(2))
    assert turns == [[0, 1], [2, 3], [4, 0]]
    assert bank.oldest_labelled(9).tolist() == [1, 2, 3, 4, 0]


def test_labels_spread_to_the_samples_in_their_direction() -> None:
    bank = bank_with_samples()
    bank.propagate(2, 0.9, uniform)
    assert bank.graph_F.tolist() == [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]


def test_a_sample_is_not_its_own_neighbour() -> None:
    angles = torch.tensor([0.0, 0.1, 0.3])  # each sample is nearer to the one before it than to the next one
    bank = PropagationBank(2, 1, 2, 2)
    z = torch.stack([angles.cos(), angles.sin()], dim=1)
    bank.store_labelled(torch.tensor([0]), z[:1], torch.tensor([1]))
    bank.store_unlabelled(z[1:])
    bank.propagate(1, 0.9, uniform)
    assert bank.graph_F.tolist() == [[0.0, 1.0]] * 3


def test_an_edge_of_weight_zero_is_no_edge() -> None:
    bank = bank_with_samples()
    bank.propagate(2, 0.9, lambda z, neighbor_z, cosines: torch.zeros_like(cosines))
    assert bank.graph_F[2:].tolist() == [[0.5, 0.5]] * 4


def test_a_new_sample_gets_the_weighted_mean_of_its_neighbours() -> None:
    bank = bank_with_samples()
    bank.propagate(2, 0.9, uniform)
    bank.graph_F[[0, 2, 3]] = torch.tensor([0.9, 0.1])  # the samples in the direction of the query
    found = bank.neighbors(5 * E1[None], 4, lambda z, neighbor_z, cosines: cosines + 0.5)
    assert found is not None
    # the three samples in the direction of the query have the cosine 1, and the fourth neighbour has the cosine 0
    expected = (3 * 1.5 * torch.tensor([0.9, 0.1]) + 0.5 * torch.tensor([1.0, 0.0])) / 5.0
    torch.testing.assert_close(found.mean_F()[0], expected)


def test_edge_weights_get_the_features_of_both_samples() -> None:
    bank, seen = bank_with_samples(), []

    def note(z: Tensor, neighbor_z: Tensor, cosines: Tensor) -> Tensor:
        seen.append((z.shape, neighbor_z.shape, cosines.shape))
        return cosines

    bank.propagate(2, 0.9, note)
    bank.neighbors(torch.stack([E1, E2, E1]), 1, note)
    assert seen == [((6, 2), (6, 2, 2), (6, 2)), ((3, 2), (3, 1, 2), (3, 1))]


def test_without_a_label_or_with_too_few_samples_nothing_is_propagated() -> None:
    unlabelled, few = PropagationBank(4, 2, 2, 2), bank_with_samples()
    unlabelled.store_unlabelled(torch.stack([E1, E2, E1, E2]))
    unlabelled.propagate(2, 0.9, uniform)
    few.propagate(6, 0.9, uniform)
    for bank in (unlabelled, few):
        assert not bank.graph_size
        assert bank.neighbors(E1[None], 1, uniform) is None


def test_slots_that_are_not_filled_are_not_in_the_graph() -> None:
    bank = PropagationBank(10, 3, 2, 2)
    bank.store_labelled(torch.tensor([1]), E1[None], torch.tensor([1]))
    bank.store_unlabelled(torch.stack([E1, 2 * E1]))
    bank.propagate(1, 0.9, uniform)
    assert int(bank.graph_size) == 3
    assert bank.graph_F[:3].tolist() == [[0.0, 1.0]] * 3


def test_the_graph_is_a_copy_that_later_samples_do_not_change() -> None:
    bank = bank_with_samples()
    bank.propagate(2, 0.9, uniform)
    before = bank.graph_z.clone()
    bank.store_unlabelled(torch.full((4, 2), 7.0))
    torch.testing.assert_close(bank.graph_z, before)
    z, F = bank.random_samples(3, 2)
    assert z.shape == (3, 2, 2) and F.shape == (3, 2, 2)
    assert {tuple(row) for row in z.flatten(0, 1).tolist()} <= {tuple(row) for row in before.tolist()}
