"""Batch sampler: each sample once per epoch, labels of labelled samples only, views as declared."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from samekind.data.augment.transforms import GaussianNoise, NormalizeAfter, Transform, identity
from samekind.data.dataset import UNLABELLED, Dataset, scaled_dataset
from samekind.data.sampler import BatchSampler
from samekind.data.scaling import fit_scaler
from samekind.errors import DataError, SamekindError, SettingError


def numbered(n: int, labelled: dict[int, int]) -> Dataset:
    """Return a dataset whose samples hold their own index."""
    y = torch.full((n,), UNLABELLED)
    for row, label in labelled.items():
        y[row] = label
    return Dataset(torch.arange(n, dtype=torch.float32)[:, None], y, max(labelled.values(), default=0) + 1)


def sampler(dataset: Dataset, *, seed: int = 0, **changes: Any) -> BatchSampler:
    views: dict[str, Transform] = {"weak": identity, "noisy": GaussianNoise(0.1)}
    options: dict[str, Any] = {
        "labelled_views": ("weak",),
        "unlabelled_views": ("weak", "weak"),
        "n_labelled": 4,
        "n_unlabelled": 3,
    }
    return BatchSampler(dataset, views, generator=torch.Generator().manual_seed(seed), **{**options, **changes})


def rows_of(x: Tensor) -> list[int]:
    return [int(value) for value in x.flatten()]


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Stop a test that would wait forever."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 30), size=st.integers(1, 30), seed=st.integers(0, 99))
def test_an_epoch_repeats_no_sample_and_drops_only_the_partial_batch(n: int, size: int, seed: int) -> None:
    size = min(size, n)
    source = sampler(numbered(n, {0: 0, 1: 1}), n_unlabelled=size, seed=seed)
    for _ in range(3):
        epoch = [row for batch in islice(source, n // size) for row in batch.index.tolist()]
        assert len(epoch) == len(set(epoch)) == n - n % size
        assert set(epoch) <= set(range(n))


def test_every_epoch_has_its_own_order_so_no_sample_is_always_dropped() -> None:
    source = sampler(numbered(10, {0: 0, 1: 1}), n_unlabelled=3)
    epochs = [tuple(row for batch in islice(source, 3) for row in batch.index.tolist()) for _ in range(60)]
    assert len(set(epochs)) == 60
    assert {row for epoch in epochs for row in set(range(10)) - set(epoch)} == set(range(10))


def test_a_dataset_smaller_than_a_batch_is_used_whole_in_every_step() -> None:
    for batch in islice(sampler(numbered(4, {0: 0, 3: 1}), n_unlabelled=100), 5):
        assert sorted(batch.index.tolist()) == [0, 1, 2, 3]


def test_unlabelled_samples_are_those_of_the_index() -> None:
    for batch in islice(sampler(numbered(10, {0: 0, 1: 1})), 6):
        assert rows_of(batch.x_u[0]) == rows_of(batch.x_u[1]) == batch.index.tolist()


@settings(max_examples=25, deadline=None)
@given(
    labelled=st.dictionaries(st.integers(0, 19), st.integers(0, 4), min_size=1),
    size=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_labelled_batches_hold_only_labelled_samples_with_their_labels(labelled: dict[int, int], size: int, seed: int) -> None:
    for batch in islice(sampler(numbered(20, labelled), n_labelled=size, seed=seed), 8):
        assert len(batch.y_l) == len(batch.x_l[0]) == size
        assert UNLABELLED not in batch.y_l.tolist()
        assert batch.y_l.tolist() == [labelled[row] for row in rows_of(batch.x_l[0])]


def test_a_batch_holds_the_positions_of_its_labelled_samples() -> None:
    labelled = [3, 8, 11]
    for batch in islice(sampler(numbered(20, dict.fromkeys(labelled, 0)), n_labelled=4), 5):
        assert batch.labelled is not None
        assert [labelled[k] for k in batch.labelled.tolist()] == rows_of(batch.x_l[0])


def test_all_labels_are_used_before_one_is_repeated() -> None:
    labelled = {row: row % 2 for row in range(6)}
    seen = [row for batch in islice(sampler(numbered(20, labelled), n_labelled=4), 30) for row in rows_of(batch.x_l[0])]
    for start in range(0, 120, 6):
        assert sorted(seen[start : start + 6]) == [0, 1, 2, 3, 4, 5]
    assert len({tuple(seen[start : start + 6]) for start in range(0, 120, 6)}) > 10


def test_each_half_of_a_paired_batch_uses_all_labels_before_one_is_repeated() -> None:
    labelled = {row: row % 2 for row in range(6)}
    seen = [rows_of(batch.x_l[0]) for batch in islice(sampler(numbered(20, labelled), n_labelled=4, paired=True), 30)]
    for half in (slice(0, 2), slice(2, 4)):
        endless = [row for rows in seen for row in rows[half]]
        for start in range(0, 60, 6):
            assert sorted(endless[start : start + 6]) == [0, 1, 2, 3, 4, 5]


def test_the_two_halves_are_independent_so_that_pairs_by_position_vary() -> None:
    labelled = {row: row % 2 for row in range(6)}
    pairs = {tuple(rows_of(batch.x_l[0])) for batch in islice(sampler(numbered(20, labelled), n_labelled=2, paired=True), 400)}
    assert pairs == {(i, j) for i in range(6) for j in range(6)}


def test_a_few_labels_fill_a_large_batch_evenly() -> None:
    batch = next(sampler(numbered(9, {2: 0, 5: 1}), n_labelled=20))
    assert [rows_of(batch.x_l[0]).count(row) for row in (2, 5)] == [10, 10]


def test_labelled_samples_are_part_of_the_unlabelled_set() -> None:
    source = sampler(numbered(6, {0: 0, 1: 1}), n_unlabelled=6)
    assert sorted(next(source).index.tolist()) == [0, 1, 2, 3, 4, 5]


def test_each_declared_view_is_drawn_anew() -> None:
    source = sampler(numbered(6, {0: 0, 1: 1}), labelled_views=("weak", "noisy", "noisy"), unlabelled_views=("noisy", "noisy"))
    batch = next(source)
    as_it_is, once, again = batch.x_l
    assert rows_of(as_it_is) == [round(value) for value in once.flatten().tolist()]
    assert not torch.equal(once, again)
    assert not torch.equal(*batch.x_u)


def test_without_unlabelled_views_no_unlabelled_sample_is_drawn() -> None:
    batch = next(sampler(numbered(6, {0: 0, 1: 1}), unlabelled_views=()))
    assert batch.x_u == ()
    assert len(batch.index) == 0


def test_the_same_seed_gives_the_same_batches_and_another_seed_others() -> None:
    dataset = numbered(20, {row: row % 2 for row in range(6)})
    one, same, other = (list(islice(sampler(dataset, seed=seed), 5)) for seed in (1, 1, 2))
    for part in (lambda b: b.index.tolist(), lambda b: rows_of(b.x_l[0][:2]), lambda b: rows_of(b.x_l[0][2:])):
        assert [part(b) for b in one] == [part(b) for b in same] != [part(b) for b in other]


@pytest.mark.parametrize("where", ["labelled_views", "unlabelled_views"])
def test_an_unknown_view_is_refused_with_the_nearest_one(where: str) -> None:
    misspelt: dict[str, Any] = {where: ("waek",)}
    with pytest.raises(
        SettingError, match=r"the method needs a view called 'waek', which is not in views; did you mean 'weak'\?"
    ):
        next(sampler(numbered(6, {0: 0}), **misspelt))


def test_a_dataset_without_labels_is_refused() -> None:
    with at_most(seconds=2.0), pytest.raises(SamekindError):
        next(sampler(numbered(6, {})))


# ---------------------------------------------------------------- left and taken up again


def seen(source: BatchSampler, n: int) -> list[tuple[list[int], list[float], list[float]]]:
    batches = islice(source, n)
    return [(b.index.tolist(), b.x_l[0].flatten().tolist(), b.x_u[0].flatten().tolist()) for b in batches]


@settings(max_examples=25, deadline=None)
@given(
    before=st.integers(0, 12),
    n_labelled=st.integers(1, 9),
    n_unlabelled=st.integers(1, 12),
    paired=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_sampler_resumes_from_its_state(before: int, n_labelled: int, n_unlabelled: int, paired: bool, seed: int) -> None:
    dataset = numbered(10, {0: 0, 1: 1, 2: 0})
    sizes: dict[str, Any] = {
        "n_labelled": n_labelled,
        "n_unlabelled": n_unlabelled,
        "unlabelled_views": ("noisy",),
        "paired": paired,
    }
    source, other = sampler(dataset, seed=seed, **sizes), sampler(dataset, seed=seed + 1, **sizes)
    seen(source, before)
    state = {name: tensor.clone() for name, tensor in source.state_dict().items()}
    expected = seen(source, 8)
    seen(other, 5)  # wherever it stands
    other.load_state_dict(state)
    assert seen(other, 8) == expected


def test_state_dict_changes_nothing() -> None:
    dataset = numbered(20, {0: 0, 1: 1})
    saved, unsaved = sampler(dataset), sampler(dataset)
    for _ in range(6):
        saved.state_dict()
        assert seen(saved, 1) == seen(unsaved, 1)


def test_the_state_is_small_for_any_size_of_dataset() -> None:
    source = sampler(numbered(50_000, {row: row % 2 for row in range(20_000)}))
    next(source)
    assert sum(tensor.numel() * tensor.element_size() for tensor in source.state_dict().values()) < 25_000


def test_a_dataset_of_uint8_images_gives_scaled_images() -> None:
    x = torch.randint(0, 256, (8, 4, 4, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    dataset = scaled_dataset(x, fit_scaler(x), torch.tensor([0, 1] + 6 * [UNLABELLED]), 2)
    batch = next(sampler(dataset))
    assert batch.x_u[0].shape == (3, 3, 4, 4)
    assert torch.equal(batch.x_u[0], dataset.inputs(batch.index))


def test_a_uint8_transform_gets_uint8_images_and_others_get_floats() -> None:
    images = torch.arange(6 * 2 * 2 * 3, dtype=torch.uint8).reshape(6, 2, 2, 3)
    y = torch.tensor([0, 1, -1, -1, -1, -1])
    scaler = fit_scaler(images)
    dataset = scaled_dataset(images, scaler, y, 2)
    views: dict[str, Transform] = {"weak": identity, "strong": NormalizeAfter(identity, lambda x: x)}
    source = BatchSampler(
        dataset,
        views,
        labelled_views=("weak", "strong"),
        unlabelled_views=("strong", "weak"),
        n_labelled=2,
        n_unlabelled=3,
        generator=torch.Generator().manual_seed(0),
    )
    batch = next(source)
    for strong, weak in (batch.x_u, batch.x_l[::-1]):
        assert strong.dtype == torch.uint8
        assert weak.dtype == torch.float32
        torch.testing.assert_close(scaler(strong.float()), weak)
    assert torch.equal(batch.x_u[0], images[batch.index].permute(0, 3, 1, 2))


def test_a_uint8_transform_of_a_float_dataset_is_refused() -> None:
    with pytest.raises(DataError, match=r"an augmentation needs uint8 images, but the dataset holds torch\.float32"):
        next(
            BatchSampler(
                numbered(6, {0: 0, 1: 1}),
                {"weak": NormalizeAfter(identity, lambda x: x)},
                labelled_views=("weak",),
                unlabelled_views=(),
                n_labelled=2,
                n_unlabelled=0,
                generator=torch.Generator(),
            )
        )
