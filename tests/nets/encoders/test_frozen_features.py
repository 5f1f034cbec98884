"""Frozen features: the inputs of an encoder, the cache on disk, and when features are computed again."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from samekind.errors import DataError, SamekindError, SettingError
from samekind.nets.encoders.frozen_features import FeatureCache, extract_features
from samekind.nets.encoders.names import resolve_encoder
from samekind.nets.mlp import vector_classifier

Array = npt.NDArray[Any]


class Killed(Exception):
    """Killed run."""


class Sums:
    """Encoder with two features, the sum and the number of pixels; counts the images it has encoded."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.n_encoded = 0
        self.fail_at = fail_at

    def __call__(self, images: Array) -> Array:
        if self.fail_at is not None and self.n_encoded >= self.fail_at:
            raise Killed
        self.n_encoded += len(images)
        return np.stack([[image.sum(dtype=float), image.size] for image in images])


class ChannelMeans(nn.Module):
    """Encoder module: the mean of each channel times a weight; records the inputs and modes of its calls."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.calls: list[tuple[tuple[int, ...], torch.dtype, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append((tuple(x.shape), x.dtype, self.training))
        return self.weight * x.mean(dim=(2, 3))


def random_images(n: int = 10) -> Array:
    return np.random.RandomState(0).randint(0, 256, (n, 4, 5, 3)).astype(np.uint8)


def expected(images: Array) -> Array:
    return Sums()(images).astype(np.float32)


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------- what an encoder is shown


def test_a_callable_gets_the_images_unchanged_in_batches() -> None:
    shapes: list[tuple[tuple[int, ...], Any]] = []

    def encoder(images: Array) -> Array:
        shapes.append((images.shape, images.dtype))
        return images.reshape(len(images), -1)

    features = extract_features(encoder, random_images(5), batch=2)
    assert shapes == [((2, 4, 5, 3), np.uint8), ((2, 4, 5, 3), np.uint8), ((1, 4, 5, 3), np.uint8)]
    assert features.dtype == np.float32
    assert np.array_equal(features, random_images(5).reshape(5, -1))


def test_a_module_gets_bytes_scaled_to_0_1_with_channels_first() -> None:
    module, images = ChannelMeans(), random_images(5)
    features = extract_features(module, images)
    assert module.calls == [((5, 3, 4, 5), torch.float32, False)]
    np.testing.assert_allclose(features, images.mean(axis=(1, 2)) / 255.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (np.zeros((2, 4, 5), np.uint8), (2, 1, 4, 5)),
        (np.zeros((2, 4, 5, 3), np.float64), (2, 3, 4, 5)),
        (torch.zeros(2, 3, 4, 5), (2, 3, 4, 5)),
        (torch.zeros(2, 4, 5, dtype=torch.uint8), (2, 1, 4, 5)),
        ([np.zeros((4, 5, 3)), np.zeros((4, 5, 3))], (2, 3, 4, 5)),
    ],
)
def test_arrays_are_channels_last_and_tensors_channels_first(images: Any, shape: tuple[int, ...]) -> None:
    module = ChannelMeans()
    extract_features(module, images)
    assert module.calls == [(shape, torch.float32, False)]


def test_floats_are_not_rescaled() -> None:
    assert extract_features(ChannelMeans(), np.full((1, 2, 2, 1), 200.0)).tolist() == [[200.0]]


def test_a_module_runs_in_eval_mode_and_its_modes_are_restored() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net[1].eval()
    features = extract_features(net, random_images())
    assert [module.training for module in net] == [True, False, True, True]
    assert np.array_equal(features, extract_features(net.eval(), random_images()))


def test_an_encoder_may_return_a_tensor_or_integers() -> None:
    images = random_images(3)
    as_tensor = extract_features(lambda batch: torch.from_numpy(batch).float().flatten(1).requires_grad_(), images)
    as_integers = extract_features(lambda batch: batch.reshape(len(batch), -1), images)
    assert np.array_equal(as_tensor, as_integers)
    assert as_tensor.dtype == as_integers.dtype == np.float32


def test_progress_is_reported_after_each_batch() -> None:
    reported: list[tuple[int, int]] = []
    extract_features(Sums(), random_images(5), batch=2, on_samples=lambda done, total: reported.append((done, total)))
    assert reported == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (np.zeros((2, 3, 4)), r"returned \(2, 3, 4\).*expected numbers \(2, d\).*pooling"),
        (np.zeros((1, 3)), r"returned \(1, 3\)"),
        (np.full((2, 3), "cat"), "of <U3"),
        (np.array([[1.0], [np.nan]]), "not finite"),
    ],
)
def test_an_output_that_is_not_a_feature_matrix_is_refused(output: Array, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        extract_features(lambda images: output, random_images(2))


def test_features_of_several_widths_are_refused(tmp_path: Path) -> None:
    def growing(images: Array) -> Array:
        return np.zeros((len(images), 1 + int(images.max() > 0)))

    images = np.concatenate([np.zeros((2, 4, 5), np.uint8), np.ones((2, 4, 5), np.uint8)])
    with pytest.raises(SettingError, match=r"different numbers of features for different images: \[1, 2\]"):
        extract_features(growing, images, batch=2)
    with pytest.raises(SettingError, match=r"different numbers of features for different images: \[1, 2\]"):
        extract_features(growing, images, cache=FeatureCache(tmp_path, key="growing", block=2))


def test_no_images_are_refused() -> None:
    with pytest.raises(DataError, match="no images"):
        extract_features(Sums(), np.zeros((0, 4, 5, 3)))


def test_file_names_instead_of_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"have the dtype <U5.*Read the files first"):
        extract_features(ChannelMeans(), ["a.png", "b.png"])
    with pytest.raises(DataError, match="have the dtype <U5"):
        extract_features(Sums(), ["a.png", "b.png"], cache=FeatureCache(tmp_path, key="sums"))


# ---------------------------------------------------------------- cache


def test_cached_features_are_computed_once(tmp_path: Path) -> None:
    images, cache = random_images(), FeatureCache(tmp_path / "new" / "folder", key="sums")
    first, again = Sums(), Sums()
    a, b = extract_features(first, images, cache=cache), extract_features(again, images, cache=cache)
    assert np.array_equal(a, expected(images)) and np.array_equal(b, a)
    assert (first.n_encoded, again.n_encoded) == (10, 0)


def test_the_cache_is_one_npy_file_opened_as_a_memory_map(tmp_path: Path) -> None:
    images = random_images()
    features = extract_features(Sums(), images, cache=FeatureCache(tmp_path, key="sums", block=3))
    (name,) = kept(tmp_path)
    assert isinstance(features, np.memmap)
    assert name.startswith("features-") and name.endswith(".npy")
    assert np.array_equal(np.load(tmp_path / name), expected(images))


@pytest.mark.parametrize("block", [1, 3, 10, 1000])
def test_the_block_size_does_not_change_the_features(tmp_path: Path, block: int) -> None:
    images = random_images()
    features = extract_features(Sums(), images, cache=FeatureCache(tmp_path, key="sums", block=block), batch=2)
    assert np.array_equal(features, expected(images))


def test_a_killed_run_resumes_with_the_next_block(tmp_path: Path) -> None:
    images, cache = random_images(), FeatureCache(tmp_path, key="sums", block=3)
    with pytest.raises(Killed):
        extract_features(Sums(fail_at=6), images, cache=cache, batch=3)
    rest = Sums()
    assert np.array_equal(extract_features(rest, images, cache=cache), expected(images))
    assert rest.n_encoded == 4
    assert len(kept(tmp_path)) == 1


def test_a_run_may_resume_with_another_block_size(tmp_path: Path) -> None:
    images = random_images()
    with pytest.raises(Killed):
        extract_features(Sums(fail_at=6), images, cache=FeatureCache(tmp_path, key="sums", block=3), batch=3)
    features = extract_features(Sums(), images, cache=FeatureCache(tmp_path, key="sums", block=4))
    assert np.array_equal(features, expected(images))


def test_a_damaged_block_is_computed_again(tmp_path: Path) -> None:
    images, cache = random_images(), FeatureCache(tmp_path, key="sums", block=5)
    with pytest.raises(Killed):
        extract_features(Sums(fail_at=5), images, cache=cache, batch=5)
    (block,) = tmp_path.glob("*.blocks/*.npy")
    block.write_bytes(block.read_bytes()[:-3])
    assert np.array_equal(extract_features(Sums(), images, cache=cache), expected(images))


def test_a_truncated_file_is_computed_again(tmp_path: Path) -> None:
    images, cache = random_images(), FeatureCache(tmp_path, key="sums")
    extract_features(Sums(), images, cache=cache)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-8])
    assert np.array_equal(extract_features(Sums(), images, cache=cache), expected(images))


def test_two_runs_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    images, cache = random_images(), FeatureCache(tmp_path, key="sums", block=5)

    class Overtaken(Sums):
        """Encoder during whose second block another run finishes and deletes the blocks."""

        def __call__(self, batch: Array) -> Array:
            if self.n_encoded == 5:
                extract_features(Sums(), images, cache=cache)
            return super().__call__(batch)

    assert np.array_equal(extract_features(Overtaken(), images, cache=cache, batch=5), expected(images))
    assert np.array_equal(extract_features(Sums(), images, cache=cache), expected(images))


def test_other_images_and_other_keys_have_their_own_cache_file(tmp_path: Path) -> None:
    images = random_images()
    changed = images.copy()
    changed[7, 0, 0, 0] ^= 1
    for shown in (images, changed, images[:5], images.astype(np.float32), images.reshape(10, 5, 4, 3)):
        assert np.array_equal(extract_features(Sums(), shown, cache=FeatureCache(tmp_path, key="sums")), expected(shown))
    extract_features(Sums(), images, cache=FeatureCache(tmp_path, key="other"))
    assert len(kept(tmp_path)) == 6


def test_a_module_is_identified_by_its_layers_and_weights(tmp_path: Path) -> None:
    images, cache = random_images(), FeatureCache(tmp_path)
    for module in (
        ChannelMeans(),
        ChannelMeans(2.0),
        nn.Sequential(ChannelMeans()),
        nn.Sequential(nn.AvgPool2d(4), nn.Flatten()),
    ):
        extract_features(module, images, cache=cache)
    same = ChannelMeans()
    extract_features(same, images, cache=cache)
    assert same.calls == []
    assert len(kept(tmp_path)) == 4


def test_an_array_and_a_tensor_of_the_same_numbers_have_different_cache_files(tmp_path: Path) -> None:
    images = np.random.RandomState(0).rand(2, 3, 3, 3)
    as_array = extract_features(ChannelMeans(), images, cache=FeatureCache(tmp_path))
    as_tensor = extract_features(ChannelMeans(), torch.from_numpy(images), cache=FeatureCache(tmp_path))
    assert not np.array_equal(as_array, as_tensor)


def test_a_callable_without_a_key_is_not_cached(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no weights to hash.*key="):
        extract_features(Sums(), random_images(), cache=FeatureCache(tmp_path))


def test_a_file_in_place_of_the_folder_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("words")
    with pytest.raises(SettingError, match="Choose another folder"):
        extract_features(Sums(), random_images(), cache=FeatureCache(tmp_path / "file", key="sums"))


def test_cached_features_with_pickled_code_are_not_loaded(tmp_path: Path) -> None:
    images, cache = random_images(), FeatureCache(tmp_path, key="sums")
    extract_features(Sums(), images, cache=cache)
    (file,) = tmp_path.iterdir()
    blob = io.BytesIO()
    np.save(blob, np.array([{"pickled": True}] * 10, dtype=object), allow_pickle=True)
    file.write_bytes(blob.getvalue())
    assert np.array_equal(extract_features(Sums(), images, cache=cache), expected(images))


def test_a_full_disk_raises_an_error_and_keeps_finished_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def no_room_for_the_whole(source: Path, target: Path) -> None:
        if source.name.startswith("joined"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    images, cache = random_images(), FeatureCache(tmp_path, key="sums", block=5)
    monkeypatch.setattr("os.replace", no_room_for_the_whole)
    with pytest.raises(SamekindError, match=r"No space left on device.*start again"):
        extract_features(Sums(), images, cache=cache)
    monkeypatch.undo()
    again = Sums()
    assert np.array_equal(extract_features(again, images, cache=cache), expected(images))
    assert again.n_encoded == 0 and len(kept(tmp_path)) == 1


# ---------------------------------------------------------------- by name, and with a net on top


def test_a_custom_encoder_is_used_unchanged() -> None:
    encoder = Sums()
    assert resolve_encoder(encoder) is encoder


def test_an_unknown_name_is_refused_with_the_closest_one() -> None:
    with pytest.raises(SettingError, match="did you mean 'efficientnet_lite2'"):
        resolve_encoder("efficient_lite2")


def test_a_small_net_learns_from_frozen_features(tmp_path: Path) -> None:
    torch.manual_seed(0)
    images = random_images(60)
    y = torch.arange(60) % 3
    images[np.arange(60), :, :, y.numpy()] //= 4  # each class lacks one color
    z = torch.from_numpy(extract_features(ChannelMeans(), images, cache=FeatureCache(tmp_path)).copy())
    classifier = vector_classifier(3, 3, (16,))
    optimizer = torch.optim.Adam(classifier.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(classifier(z).logits, y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (classifier(z).logits.argmax(1) == y).float().mean() > 0.95


def test_features_of_few_images_are_looked_up_but_not_stored(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    images = np.zeros((5, 2, 2), np.uint8)
    extract_features(net, images, cache=FeatureCache(tmp_path, min_samples=6))
    assert list(tmp_path.iterdir()) == []
    extract_features(net, images, cache=FeatureCache(tmp_path))
    assert isinstance(extract_features(net, images, cache=FeatureCache(tmp_path, min_samples=6)), np.memmap)


def test_an_encoder_that_is_not_callable_is_refused() -> None:
    with pytest.raises(SettingError, match="encoder is 3; expected a name, timm:NAME"):
        resolve_encoder(3)  # type: ignore[arg-type]


def test_a_memory_map_is_encoded_without_a_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.uint8).reshape(2, 2, 2))
    net = nn.Flatten()
    torch.set_warn_always(True)
    try:
        features = extract_features(net, np.load(tmp_path / "x.npy", mmap_mode="r"))
    finally:
        torch.set_warn_always(False)
    np.testing.assert_allclose(features, np.arange(8).reshape(2, 4) / 255.0, rtol=1e-6)
