"""Dataset: samples as the net takes them, from floats or from uint8 images on disk; and batches in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samekind.data.dataset import Batch, Dataset, scaled_dataset
from samekind.data.inputs import read_inputs
from samekind.data.scaling import fit_scaler
from samekind.image_layout import as_floats, as_tensor, channel_statistics, channels_first, sample_shape

LABELS = torch.tensor([0, 1, -1, -1, -1, -1])


def images(n: int = 6, height: int = 4, width: int = 5, channels: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, (n, height, width, channels), dtype=np.uint8)


def on_disk(folder: Path, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    np.save(folder / "images.npy", array)
    mapped: np.ndarray[Any, Any] = np.load(folder / "images.npy", mmap_mode="r")
    return mapped


# ---------------------------------------------------------------- rows


def test_vectors_are_returned_unchanged() -> None:
    x = torch.arange(12.0).view(6, 2)
    dataset = Dataset(x, LABELS, 2)
    assert torch.equal(dataset.inputs(torch.tensor([4, 0])), x[[4, 0]])
    assert dataset.shape == (2,)


def test_uint8_images_become_scaled_floats_with_channels_first() -> None:
    raw = torch.from_numpy(images())
    dataset = scaled_dataset(raw, fit_scaler(raw), LABELS, 2)
    expected = fit_scaler(as_floats(raw))(as_floats(raw))
    torch.testing.assert_close(dataset.inputs(torch.tensor([5, 1])), expected[[5, 1]])
    torch.testing.assert_close(dataset.inputs(slice(2, 4)), expected[2:4])
    assert dataset.inputs(slice(1)).is_contiguous()
    assert dataset.shape == (3, 4, 5) == tuple(expected.shape[1:])


def test_without_a_scaler_uint8_images_stay_uint8() -> None:
    raw = torch.from_numpy(images())
    rows = Dataset(raw, LABELS, 2).inputs(torch.tensor([2]))
    assert rows.dtype == torch.uint8
    assert torch.equal(rows, raw[[2]].permute(0, 3, 1, 2))


def test_a_dataset_shares_the_memory_of_uint8_images_and_scales_floats_at_once(tmp_path: Path) -> None:
    mapped = as_tensor(read_inputs(on_disk(tmp_path, images())))
    dataset = scaled_dataset(mapped, fit_scaler(mapped), LABELS, 2)
    assert dataset.x.data_ptr() == mapped.data_ptr()
    floats = torch.from_numpy(read_inputs(images().astype(np.float32)))
    assert scaled_dataset(floats, fit_scaler(floats), LABELS, 2).x.mean().abs() < 1e-5


# ---------------------------------------------------------------- bytes


def test_a_memory_map_is_used_without_a_copy_and_without_a_warning(tmp_path: Path) -> None:
    mapped = on_disk(tmp_path, images())
    assert np.shares_memory(read_inputs(mapped), mapped)
    assert as_tensor(read_inputs(mapped)).dtype == torch.uint8


def test_grey_uint8_images_get_a_channel_axis_without_a_copy(tmp_path: Path) -> None:
    mapped = on_disk(tmp_path, images()[..., 0])
    rows = read_inputs(mapped)
    assert rows.shape == (6, 4, 5, 1)
    assert np.shares_memory(rows, mapped)


def test_uint8_images_with_negative_strides_are_copied() -> None:
    flipped = images()[:, :, ::-1]
    assert torch.equal(as_tensor(read_inputs(flipped)), torch.from_numpy(flipped.copy()))


def test_uint8_images_of_another_shape_than_at_fit_are_refused() -> None:
    assert read_inputs(images(), shape=(3, 4, 5)).shape == (6, 4, 5, 3)
    with pytest.raises(
        ValueError, match=r"samples of shape \(3, 4, 5\), but the model was fitted on samples of shape \(3, 5, 4\)"
    ):
        read_inputs(images(), shape=(3, 5, 4))


@pytest.mark.parametrize("x", [torch.zeros(2, 3, dtype=torch.uint8), torch.zeros(2, 3, 4, 5)])
def test_other_tensors_are_returned_unchanged(x: torch.Tensor) -> None:
    assert as_floats(x) is x
    assert channels_first(x) is x
    assert sample_shape(x) == tuple(x.shape[1:])


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 5), height=st.integers(1, 5), width=st.integers(1, 5), channels=st.integers(1, 4))
def test_channel_statistics_in_blocks_equal_those_of_all_pixels(n: int, height: int, width: int, channels: int) -> None:
    x = torch.from_numpy(images(n, height, width, channels))
    mean, std = channel_statistics(x)
    pixels = x.reshape(-1, channels).double()
    torch.testing.assert_close(mean, pixels.mean(0))
    torch.testing.assert_close(std, pixels.std(0, unbiased=False), atol=1e-6, rtol=1e-6)


def test_a_constant_uint8_channel_is_only_centred() -> None:
    x = torch.full((7, 3, 3, 2), 255, dtype=torch.uint8)
    assert fit_scaler(x).scale.tolist() == [1.0, 1.0]
    assert fit_scaler(x)(as_floats(x)).abs().max() == 0.0


# ---------------------------------------------------------------- parts of a batch


def batch(n_labelled: int, n_pool: int) -> Batch:
    rows, labelled = torch.arange(n_pool), torch.arange(n_labelled)
    return Batch((labelled[:, None], labelled[:, None] + 100), labelled % 3, (rows[:, None],), rows, labelled)


def test_a_batch_in_one_part_is_the_batch() -> None:
    whole = batch(5, 7)
    assert whole.part(0, 1) is whole


@pytest.mark.parametrize("of", [2, 3, 4])
def test_parts_hold_every_sample_once_and_pairs_stay_together(of: int) -> None:
    whole = batch(24, 48)
    parts = [whole.part(k, of) for k in range(of)]
    assert sorted(row for part in parts for row in part.index.tolist()) == list(range(48))
    for part in parts:
        half = len(part.index) // 2
        assert (part.index[half:] - part.index[:half]).tolist() == half * [24]  # by position, as in the whole batch
        assert torch.equal(part.y_l, part.x_l[0].flatten() % 3)
        assert torch.equal(part.x_l[1], part.x_l[0] + 100)
        assert part.labelled is not None
        assert torch.equal(part.labelled, part.x_l[0].flatten())
        assert torch.equal(part.x_u[0].flatten(), part.index)


def test_a_batch_without_unlabelled_samples_can_be_divided() -> None:
    empty = torch.zeros(0, dtype=torch.long)
    part = Batch((torch.arange(4)[:, None],), torch.arange(4), (), empty).part(1, 2)
    assert part.y_l.tolist() == [1, 3]
    assert len(part.index) == 0
    assert part.labelled is None
