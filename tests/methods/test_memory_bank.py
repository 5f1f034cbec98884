"""Memories of earlier steps: what they store, what is replaced, and that a saved state holds them."""

from __future__ import annotations

import torch

from samekind.methods.memory_bank import EMPTY, DistributionAlignment, FeatureQueue, LabelledMemoryBank

E1, E2 = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])


def test_predictions_are_aligned_by_the_last_batches_with_this_one_among_them() -> None:
    recent = DistributionAlignment(2, 2)
    q = torch.tensor([[0.75, 0.25]])
    torch.testing.assert_close(recent.align(q), torch.tensor([[0.5, 0.5]]))  # alone, it is even
    for other in ([[1.0, 0.0]], [[0.25, 0.75]]):
        recent.update(torch.tensor(other))
    # the mean of (1/4, 3/4) and (3/4, 1/4): the first batch has made room
    torch.testing.assert_close(recent.align(q), q)


def test_to_ask_for_alignment_changes_nothing() -> None:
    recent = DistributionAlignment(3, 2)
    recent.align(torch.tensor([[0.75, 0.25]]))
    assert int(recent.count) == 0
    assert not recent.means.any()


def test_only_filled_slots_are_returned() -> None:
    slots = LabelledMemoryBank(3, 2)
    slots.update(torch.tensor([1]), E1[None], torch.tensor([4]), decay=0.7)
    points, y = slots.filled()
    assert points.tolist() == [[1.0, 0.0]]  # nothing of the empty slot is kept
    assert y.tolist() == [4]
    assert slots.y.tolist() == [EMPTY, 4, EMPTY]


def test_a_slot_keeps_alpha_of_its_point_and_stays_on_the_sphere() -> None:
    slots = LabelledMemoryBank(1, 2)
    slots.update(torch.tensor([0]), E1[None], torch.tensor([0]), decay=0.7)
    slots.update(torch.tensor([0]), E2[None], torch.tensor([0]), decay=0.7)
    torch.testing.assert_close(slots.points, torch.tensor([[0.7, 0.3]]) / 0.58**0.5)


def test_a_sample_that_occurs_twice_in_a_batch_counts_as_its_mean() -> None:
    slots = LabelledMemoryBank(1, 2)
    slots.update(torch.tensor([0, 0]), torch.stack([E1, E2]), torch.tensor([3, 3]), decay=0.0)
    torch.testing.assert_close(slots.points, torch.full((1, 2), 0.5**0.5))


def test_the_oldest_samples_of_a_queue_make_room() -> None:
    queue = FeatureQueue(3, 1, 1)
    numbers = torch.arange(8.0)[:, None]
    queue.push(numbers[:2], numbers[:2])
    assert not queue.full
    queue.push(numbers[2:4], numbers[2:4])
    assert queue.full
    assert queue.points.flatten().tolist() == [3.0, 1.0, 2.0]
    queue.push(numbers[4:], numbers[4:])  # four at once: the last three
    assert sorted(queue.probabilities.flatten().tolist()) == [5.0, 6.0, 7.0]


def test_memory_is_part_of_a_saved_state() -> None:
    assert set(DistributionAlignment(2, 2).state_dict()) == {"means", "count"}
    assert set(LabelledMemoryBank(2, 2).state_dict()) == {"points", "y"}
    assert set(FeatureQueue(2, 2, 2).state_dict()) == {"points", "probabilities", "count"}
