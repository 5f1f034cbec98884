"""Augmented maps: strong views of images that are the same in every run, and their stored feature maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from samekind.nets.encoders.efficientnet import efficientnet_lite
from samekind.nets.encoders.frozen_features import FeatureCache
from samekind.nets.encoders.trainable_blocks import FrozenBlocks
from samekind.preprocessing.augmented_maps import AugmentedImages, StoredViews, as_bytes, compute_maps, strong_view

SIDE = 32


def images(n: int = 70) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (n, SIDE, SIDE, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def frozen() -> FrozenBlocks:
    return FrozenBlocks(efficientnet_lite(side=SIDE), 11)


@pytest.mark.parametrize(("start", "stop"), [(0, 70), (5, 9), (31, 33), (64, 70), (32, 64)])
def test_a_view_is_the_same_whichever_images_are_read_together(start: int, stop: int) -> None:
    views = AugmentedImages(images(), strong_view(1, SIDE, flip=True), 3)
    assert np.array_equal(views[start:stop], views[0:70][start:stop])
    assert views[0:70].shape == (70, SIDE, SIDE, 3) and views[0:70].dtype == np.uint8


def test_other_seeds_and_other_numbers_give_other_views() -> None:
    drawn = [
        AugmentedImages(images(), strong_view(number, SIDE, flip=True), seed)[0:70] for number, seed in ((1, 1), (1, 2), (2, 1))
    ]
    for k, view in enumerate(drawn):
        assert not np.array_equal(view, images())
        assert not any(np.array_equal(view, other) for other in drawn[:k])


def test_floats_from_0_to_1_become_bytes() -> None:
    assert as_bytes(np.array([[0.0, 0.5, 1.0]])).tolist() == [[0, 128, 255]]
    assert as_bytes(images()).dtype == np.uint8


def test_each_sample_gets_one_of_its_stored_views() -> None:
    views = tuple(torch.full((4, 1, 1, 1), float(10 * k)) + torch.arange(4.0)[:, None, None, None] for k in (1, 2, 3))
    index = torch.tensor([3, 0, 2]).repeat(50)
    found = StoredViews(views)(torch.zeros(150, 1, 1, 1), index, torch.Generator().manual_seed(0)).flatten()
    assert torch.equal(found % 10, index.float())
    assert set((found // 10).tolist()) == {1.0, 2.0, 3.0}


def test_the_maps_of_the_images_and_of_each_view_have_the_shape_of_the_net(frozen: FrozenBlocks) -> None:
    maps = compute_maps(frozen, images(40), 2)
    assert [tuple(each.shape) for each in (maps.clean, *maps.strong)] == [(40, *frozen.map_shape())] * 3
    clean = frozen(torch.from_numpy(images(40)).permute(0, 3, 1, 2).float() / 255.0).view(40, *frozen.map_shape())
    torch.testing.assert_close(maps.clean, clean.detach(), atol=1e-3, rtol=0.0)


def test_maps_from_the_cache_are_the_same_bit_for_bit(frozen: FrozenBlocks, tmp_path: Path) -> None:
    without = compute_maps(frozen, images(40), 2)
    for _ in range(2):
        cached = compute_maps(frozen, images(40), 2, cache=FeatureCache(tmp_path))
        assert all(torch.equal(a, b) for a, b in zip(cached.strong, without.strong, strict=True))
    assert len(list(tmp_path.glob("features-*.npy"))) == 3


def test_progress_counts_the_images_of_all_views(frozen: FrozenBlocks) -> None:
    seen: list[tuple[int, int]] = []
    compute_maps(frozen, images(40), 2, on_samples=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (120, 120) and [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_views_that_are_missing_when_the_time_is_over_are_left_out_after_the_first(frozen: FrozenBlocks) -> None:
    whole = compute_maps(frozen, images(40), 3)
    late = compute_maps(frozen, images(40), 3, is_late=lambda: True)
    assert len(late.strong) == 1 and torch.equal(late.strong[0], whole.strong[0]) and torch.equal(late.clean, whole.clean)
