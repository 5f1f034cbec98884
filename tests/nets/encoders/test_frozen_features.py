"""Frozen features: what an encoder is shown, what is kept on disk, and when it is asked again."""

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
from samekind.nets.encoders.frozen_features import FeatureCache, extract_features, resolve_encoder
from samekind.nets.mlp import vector_classifier

Array = npt.NDArray[Any]


class Stopped(Exception):
    """Stands for a run that was killed."""


class Sums:
    """Two features of an image, the sum and the number of its pixels; remembers how many it was shown."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.shown = 0
        self.stop_at = stop_at

    def __call__(self, images: Array) -> Array:
        if self.stop_at is not None and self.shown >= self.stop_at:
            raise Stopped
        self.shown += len(images)
        return np.stack([[image.sum(dtype=float), image.size] for image in images])


class Colours(nn.Module):
    """The mean of each channel, times a weight; remembers what it was shown and in which mode."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.calls: list[tuple[tuple[int, ...], torch.dtype, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append((tuple(x.shape), x.dtype, self.training))
        return self.weight * x.mean(dim=(2, 3))


def pictures(n: int = 10) -> Array:
    return np.random.RandomState(0).randint(0, 256, (n, 4, 5, 3)).astype(np.uint8)


def expected(images: Array) -> Array:
    return Sums()(images).astype(np.float32)


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------- what an encoder is shown


def test_a_callable_gets_the_images_as_they_are_a_batch_at_a_time() -> None:
    shapes: list[tuple[tuple[int, ...], Any]] = []

    def encoder(images: Array) -> Array:
        shapes.append((images.shape, images.dtype))
        return images.reshape(len(images), -1)

    features = extract_features(encoder, pictures(5), batch=2)
    assert shapes == [((2, 4, 5, 3), np.uint8), ((2, 4, 5, 3), np.uint8), ((1, 4, 5, 3), np.uint8)]
    assert features.dtype == np.float32
    assert np.array_equal(features, pictures(5).reshape(5, -1))


def test_a_module_gets_bytes_as_values_from_0_to_1_with_the_channels_first() -> None:
    module, images = Colours(), pictures(5)
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
def test_arrays_end_with_the_channels_and_tensors_begin_with_them(images: Any, shape: tuple[int, ...]) -> None:
    module = Colours()
    extract_features(module, images)
    assert module.calls == [(shape, torch.float32, False)]


def test_floats_are_left_on_their_scale() -> None:
    assert extract_features(Colours(), np.full((1, 2, 2, 1), 200.0)).tolist() == [[200.0]]


def test_a_module_is_asked_in_eval_mode_and_gets_its_modes_back() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net[1].eval()
    features = extract_features(net, pictures())
    assert [module.training for module in net] == [True, False, True, True]
    assert np.array_equal(features, extract_features(net.eval(), pictures()))


def test_an_encoder_may_give_a_tensor_or_whole_numbers() -> None:
    images = pictures(3)
    as_tensor = extract_features(lambda batch: torch.from_numpy(batch).float().flatten(1).requires_grad_(), images)
    as_integers = extract_features(lambda batch: batch.reshape(len(batch), -1), images)
    assert np.array_equal(as_tensor, as_integers)
    assert as_tensor.dtype == as_integers.dtype == np.float32


def test_whoever_asks_is_told_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    extract_features(Sums(), pictures(5), batch=2, on_samples=lambda done, total: told.append((done, total)))
    assert told == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros((2, 3, 4)), r"gave \(2, 3, 4\).*expected numbers \(2, d\).*pooling"),
        (np.zeros((1, 3)), r"gave \(1, 3\)"),
        (np.full((2, 3), "cat"), "of <U3"),
        (np.array([[1.0], [np.nan]]), "not finite"),
    ],
)
def test_an_answer_that_is_no_feature_vector_is_refused(answer: Array, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        extract_features(lambda images: answer, pictures(2))


def test_features_of_several_widths_are_refused(tmp_path: Path) -> None:
    def growing(images: Array) -> Array:
        return np.zeros((len(images), 1 + int(images.max() > 0)))

    images = np.concatenate([np.zeros((2, 4, 5), np.uint8), np.ones((2, 4, 5), np.uint8)])
    with pytest.raises(SettingError, match=r"several widths \[1, 2\]"):
        extract_features(growing, images, batch=2)
    with pytest.raises(SettingError, match=r"several widths \[1, 2\]"):
        extract_features(growing, images, cache=FeatureCache(tmp_path, key="growing", block=2))


def test_no_images_are_refused() -> None:
    with pytest.raises(DataError, match="no images"):
        extract_features(Sums(), np.zeros((0, 4, 5, 3)))


def test_names_of_files_are_refused_where_numbers_are_needed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"held as <U5.*Read the files first"):
        extract_features(Colours(), ["a.png", "b.png"])
    with pytest.raises(DataError, match="held as <U5"):
        extract_features(Sums(), ["a.png", "b.png"], cache=FeatureCache(tmp_path, key="sums"))


# ---------------------------------------------------------------- what is kept


def test_an_encoder_is_asked_once_and_then_never_again(tmp_path: Path) -> None:
    images, cache = pictures(), FeatureCache(tmp_path / "new" / "folder", key="sums")
    first, again = Sums(), Sums()
    a, b = extract_features(first, images, cache=cache), extract_features(again, images, cache=cache)
    assert np.array_equal(a, expected(images)) and np.array_equal(b, a)
    assert (first.shown, again.shown) == (10, 0)


def test_what_is_kept_is_one_plain_npy_file_opened_as_a_memory_map(tmp_path: Path) -> None:
    images = pictures()
    features = extract_features(Sums(), images, cache=FeatureCache(tmp_path, key="sums", block=3))
    (name,) = kept(tmp_path)
    assert isinstance(features, np.memmap)
    assert name.startswith("features-") and name.endswith(".npy")
    assert np.array_equal(np.load(tmp_path / name), expected(images))


@pytest.mark.parametrize("block", [1, 3, 10, 1000])
def test_the_size_of_the_blocks_changes_nothing(tmp_path: Path, block: int) -> None:
    images = pictures()
    features = extract_features(Sums(), images, cache=FeatureCache(tmp_path, key="sums", block=block), batch=2)
    assert np.array_equal(features, expected(images))


def test_a_run_that_was_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    images, cache = pictures(), FeatureCache(tmp_path, key="sums", block=3)
    with pytest.raises(Stopped):
        extract_features(Sums(stop_at=6), images, cache=cache, batch=3)
    rest = Sums()
    assert np.array_equal(extract_features(rest, images, cache=cache), expected(images))
    assert rest.shown == 4
    assert len(kept(tmp_path)) == 1


def test_a_run_may_go_on_with_other_blocks(tmp_path: Path) -> None:
    images = pictures()
    with pytest.raises(Stopped):
        extract_features(Sums(stop_at=6), images, cache=FeatureCache(tmp_path, key="sums", block=3), batch=3)
    features = extract_features(Sums(), images, cache=FeatureCache(tmp_path, key="sums", block=4))
    assert np.array_equal(features, expected(images))


def test_a_block_that_was_torn_is_made_again(tmp_path: Path) -> None:
    images, cache = pictures(), FeatureCache(tmp_path, key="sums", block=5)
    with pytest.raises(Stopped):
        extract_features(Sums(stop_at=5), images, cache=cache, batch=5)
    (block,) = tmp_path.glob("*.blocks/*.npy")
    block.write_bytes(block.read_bytes()[:-3])
    assert np.array_equal(extract_features(Sums(), images, cache=cache), expected(images))


def test_a_file_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    images, cache = pictures(), FeatureCache(tmp_path, key="sums")
    extract_features(Sums(), images, cache=cache)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-8])
    assert np.array_equal(extract_features(Sums(), images, cache=cache), expected(images))


def test_two_runs_at_once_do_each_other_no_harm(tmp_path: Path) -> None:
    images, cache = pictures(), FeatureCache(tmp_path, key="sums", block=5)

    class Overtaken(Sums):
        """While this one is busy with its second block, another run makes everything and clears up."""

        def __call__(self, batch: Array) -> Array:
            if self.shown == 5:
                extract_features(Sums(), images, cache=cache)
            return super().__call__(batch)

    assert np.array_equal(extract_features(Overtaken(), images, cache=cache, batch=5), expected(images))
    assert np.array_equal(extract_features(Sums(), images, cache=cache), expected(images))


def test_other_images_and_other_keys_have_features_of_their_own(tmp_path: Path) -> None:
    images = pictures()
    changed = images.copy()
    changed[7, 0, 0, 0] ^= 1
    for shown in (images, changed, images[:5], images.astype(np.float32), images.reshape(10, 5, 4, 3)):
        assert np.array_equal(extract_features(Sums(), shown, cache=FeatureCache(tmp_path, key="sums")), expected(shown))
    extract_features(Sums(), images, cache=FeatureCache(tmp_path, key="other"))
    assert len(kept(tmp_path)) == 6


def test_a_module_is_known_by_its_layers_and_its_weights(tmp_path: Path) -> None:
    images, cache = pictures(), FeatureCache(tmp_path)
    for module in (Colours(), Colours(2.0), nn.Sequential(Colours()), nn.Sequential(nn.AvgPool2d(4), nn.Flatten())):
        extract_features(module, images, cache=cache)
    same = Colours()
    extract_features(same, images, cache=cache)
    assert same.calls == []
    assert len(kept(tmp_path)) == 4


def test_an_array_and_a_tensor_of_the_same_numbers_are_told_apart(tmp_path: Path) -> None:
    images = np.random.RandomState(0).rand(2, 3, 3, 3)
    as_array = extract_features(Colours(), images, cache=FeatureCache(tmp_path))
    as_tensor = extract_features(Colours(), torch.from_numpy(images), cache=FeatureCache(tmp_path))
    assert not np.array_equal(as_array, as_tensor)


def test_a_callable_without_a_key_is_not_cached_by_guesswork(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no weights to hash.*key="):
        extract_features(Sums(), pictures(), cache=FeatureCache(tmp_path))


def test_a_file_in_place_of_the_folder_is_refused_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("words")
    with pytest.raises(SettingError, match="Choose another one"):
        extract_features(Sums(), pictures(), cache=FeatureCache(tmp_path / "file", key="sums"))


def test_features_made_to_run_code_when_read_are_not_read(tmp_path: Path) -> None:
    images, cache = pictures(), FeatureCache(tmp_path, key="sums")
    extract_features(Sums(), images, cache=cache)
    (file,) = tmp_path.iterdir()
    blob = io.BytesIO()
    np.save(blob, np.array([{"pickled": True}] * 10, dtype=object), allow_pickle=True)
    file.write_bytes(blob.getvalue())
    assert np.array_equal(extract_features(Sums(), images, cache=cache), expected(images))


def test_a_disk_that_is_full_says_so_and_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def no_room_for_the_whole(source: Path, target: Path) -> None:
        if source.name.startswith("joined"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    images, cache = pictures(), FeatureCache(tmp_path, key="sums", block=5)
    monkeypatch.setattr("os.replace", no_room_for_the_whole)
    with pytest.raises(SamekindError, match=r"No space left on device.*start again"):
        extract_features(Sums(), images, cache=cache)
    monkeypatch.undo()
    again = Sums()
    assert np.array_equal(extract_features(again, images, cache=cache), expected(images))
    assert again.shown == 0 and len(kept(tmp_path)) == 1


# ---------------------------------------------------------------- by name, and with a net on top


def test_an_encoder_of_your_own_is_taken_as_it_is() -> None:
    encoder = Sums()
    assert resolve_encoder(encoder) is encoder


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SettingError, match="did you mean 'efficientnet_lite0'"):
        resolve_encoder("efficientnet_lite1")


def test_a_small_net_on_frozen_features_learns_what_the_encoder_shows(tmp_path: Path) -> None:
    torch.manual_seed(0)
    images = pictures(60)
    y = torch.arange(60) % 3
    images[np.arange(60), :, :, y.numpy()] //= 4  # each class lacks one colour
    z = torch.from_numpy(extract_features(Colours(), images, cache=FeatureCache(tmp_path)).copy())
    classifier = vector_classifier(3, 3, (16,))
    optimizer = torch.optim.Adam(classifier.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(classifier(z).logits, y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (classifier(z).logits.argmax(1) == y).float().mean() > 0.95


def test_few_images_are_looked_for_in_the_cache_but_not_kept(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    images = np.zeros((5, 2, 2), np.uint8)
    extract_features(net, images, cache=FeatureCache(tmp_path, min_samples=6))
    assert list(tmp_path.iterdir()) == []
    extract_features(net, images, cache=FeatureCache(tmp_path))
    assert isinstance(extract_features(net, images, cache=FeatureCache(tmp_path, min_samples=6)), np.memmap)


def test_what_cannot_be_called_is_no_encoder() -> None:
    with pytest.raises(SettingError, match="encoder is 3; expected a function of images"):
        resolve_encoder(3)  # type: ignore[arg-type]


def test_a_map_of_a_file_is_encoded_without_a_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.uint8).reshape(2, 2, 2))
    net = nn.Flatten()
    torch.set_warn_always(True)
    try:
        features = extract_features(net, np.load(tmp_path / "x.npy", mmap_mode="r"))
    finally:
        torch.set_warn_always(False)
    np.testing.assert_allclose(features, np.arange(8).reshape(2, 4) / 255.0, rtol=1e-6)
