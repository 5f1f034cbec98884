"""Frozen encoders and image paths as input of the estimator."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from torch import Tensor, nn

from samekind import SemiSupervisedClassifier
from samekind.errors import DataError, LabelError, ModelFileError, SettingError
from samekind.nets.encoders.frozen_features import FeatureCache
from samekind.nets.encoders.names import ENCODERS
from samekind.preprocessing.lazy_features import MIN_CACHED
from samekind.preprocessing.preprocessor import FitInput, Preprocessor, decode_size, open_input

Array = npt.NDArray[Any]
QUICK: dict[str, Any] = {"epochs": 10, "random_state": 0}
SIDE = 10


class Halves(nn.Module):
    """Encoder with four features: the mean of the upper, lower, left and right half. Counts the images it has encoded."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), weight))
        self.n_encoded = 0

    def forward(self, x: Tensor) -> Tensor:
        self.n_encoded += len(x)
        h, w = x.shape[2] // 2, x.shape[3] // 2
        parts = (x[:, :, :h], x[:, :, h:], x[:, :, :, :w], x[:, :, :, w:])
        return self.weight * torch.stack([part.mean(dim=(1, 2, 3)) for part in parts], dim=1)


def halves(images: Array) -> Array:
    """Return the means of the upper and the lower half of images (n, H, W, C), as a function that is not a module."""
    assert images.ndim == 4
    half = images.shape[1] // 2
    return np.stack([images[:, :half].mean(axis=(1, 2, 3)), images[:, half:].mean(axis=(1, 2, 3))], axis=1)


def scenes(n: int = 60, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return images that are bright in the upper or in the lower half, their classes, and labels for 5 of each class."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 2
    images = rng.integers(0, 80, (n, SIDE, SIDE, 3))
    images[classes == 0, : SIDE // 2] += 150
    images[classes == 1, SIDE // 2 :] += 150
    return images.astype(np.uint8), classes, np.where(np.arange(n) < 10, classes, -1)


def saved(folder: Path, images: Array) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{k:03d}.png" for k in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


# ------------------------------------------------------------------ encoders


@pytest.mark.parametrize("encoder", [Halves(), halves])
def test_a_model_on_features_predicts_and_has_a_similarity(encoder: Any) -> None:
    X, classes, y = scenes()
    model = SemiSupervisedClassifier(encoder=encoder, epochs=150, random_state=0).fit(X, y)
    new, new_classes, _ = scenes(20, seed=1)
    assert (model.transduction_ == classes).all() and (model.predict(new) == new_classes).all()
    assert model.n_features_in_ == SIDE * SIDE * 3 and len(model.transform(new)) == 20
    W = model.similarity(new)
    assert W[0, 2] > W[0, 1]
    assert (classes[model.kneighbors(new, 3)[1]] == new_classes[:, None]).all()


def test_an_encoder_gives_the_same_model_as_precomputed_features() -> None:
    X, _, y = scenes()
    features = Halves()(torch.from_numpy(X).permute(0, 3, 1, 2) / 255.0).detach().numpy()
    expected = SemiSupervisedClassifier(**QUICK).fit(features, y).predict_proba(features)
    found = SemiSupervisedClassifier(encoder=Halves(), **QUICK).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_encoder_is_not_trained_and_encodes_each_image_once() -> None:
    X, _, y = scenes()
    encoder = Halves().train()
    SemiSupervisedClassifier(encoder=encoder, **QUICK).fit(X, y)
    assert encoder.n_encoded == 60 and encoder.training
    assert encoder.weight.tolist() == [1.0] * 4 and encoder.weight.grad is None


def test_a_function_gets_grey_images_with_one_channel_and_floats_unchanged() -> None:
    X, classes, y = scenes()
    grey = X[..., 0].astype(np.float32) / 255.0
    model = SemiSupervisedClassifier(encoder=halves, **QUICK).fit(grey, y)
    assert (model.predict(grey[..., None]) == classes).all()


def test_cached_features_are_computed_once_for_all_fits_and_predictions(tmp_path: Path) -> None:
    X, _, y = scenes()
    first = SemiSupervisedClassifier(encoder=Halves(), cache=tmp_path, **QUICK).fit(X, y)
    again = Halves()
    model = SemiSupervisedClassifier("supervised", encoder=again, cache=tmp_path, **QUICK).fit(X, y)
    model.predict(X)
    assert again.n_encoded == 0
    first.predict(X[:7])
    assert len(list(tmp_path.iterdir())) == 1, "features of a few images were stored"


def test_features_of_many_new_images_are_cached(tmp_path: Path) -> None:
    X, _, y = scenes()
    model = SemiSupervisedClassifier(encoder=Halves(), cache=str(tmp_path), **QUICK).fit(X, y)
    many = np.random.default_rng(0).integers(0, 256, (MIN_CACHED, 4, 4, 1), dtype=np.uint8)
    encoder = Halves()
    rows = Preprocessor((1, 4, 4), True, encoder).samples(many, tmp_path)
    assert len(list(tmp_path.glob("features-*.npy"))) == 2 and encoder.n_encoded == MIN_CACHED
    np.testing.assert_array_equal(rows[:5], Preprocessor((1, 4, 4), True, encoder).samples(many)[:5])
    assert model.cache == str(tmp_path)


def test_a_function_needs_a_key_to_be_cached(tmp_path: Path) -> None:
    X, _, y = scenes()
    with pytest.raises(SettingError, match=r"FeatureCache\(folder, key='\.\.\.'\)"):
        SemiSupervisedClassifier(encoder=halves, cache=tmp_path, **QUICK).fit(X, y)
    SemiSupervisedClassifier(encoder=halves, cache=FeatureCache(tmp_path, key="halves"), **QUICK).fit(X, y)
    assert len(list(tmp_path.glob("features-*.npy"))) == 1


def test_labels_are_checked_before_encoding() -> None:
    X, _, _ = scenes()
    encoder = Halves()
    with pytest.raises(LabelError, match="holds no label"):
        SemiSupervisedClassifier(encoder=encoder, **QUICK).fit(X, np.full(60, -1))
    assert encoder.n_encoded == 0


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("efficientnet_lite", "did you mean 'efficientnet_lite"),
        (3, "encoder is 3; expected a name, timm:NAME"),
        (len, "the encoder returned"),
    ],
)
def test_an_invalid_encoder_is_refused(encoder: Any, message: str) -> None:
    X, _, y = scenes()
    with pytest.raises(SettingError, match=message):
        SemiSupervisedClassifier(encoder=encoder, **QUICK).fit(X, y)


def test_images_of_another_size_or_dtype_are_refused() -> None:
    X, _, y = scenes()
    model = SemiSupervisedClassifier(encoder=Halves(), **QUICK).fit(X, y)
    with pytest.raises(
        DataError, match=r"samples of shape \(3, 9, 10\), but the model was fitted on samples of shape \(3, 10, 10\)"
    ):
        model.predict(X[:, 1:])
    with pytest.raises(DataError, match=r"X holds floats, but the model was fitted on bytes \(uint8\)"):
        model.predict(X.astype(float))


def test_clone_keeps_the_encoder_and_the_cache() -> None:
    X, _, y = scenes()
    by_name = clone(SemiSupervisedClassifier(encoder="efficientnet_lite0", cache="folder"))
    assert (by_name.get_params()["encoder"], by_name.get_params()["cache"]) == ("efficientnet_lite0", "folder")
    one = SemiSupervisedClassifier(encoder=Halves(2.0), **QUICK)
    np.testing.assert_array_equal(clone(one).fit(X, y).predict_proba(X), one.fit(X, y).predict_proba(X))


# ------------------------------------------------------------------ files


def test_a_custom_encoder_must_be_passed_to_load(tmp_path: Path) -> None:
    X, _, y = scenes()
    model = SemiSupervisedClassifier(encoder=Halves(), **QUICK).fit(X, y)
    model.save(tmp_path)
    with pytest.raises(ModelFileError, match=r"load\(path, encoder=\.\.\.\)"):
        SemiSupervisedClassifier.load(tmp_path)
    again = SemiSupervisedClassifier.load(tmp_path, encoder=Halves())
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.n_features_in_ == model.n_features_in_


@pytest.mark.parametrize("other", [Halves(1.5), halves])
def test_another_encoder_than_that_of_the_fit_is_refused(tmp_path: Path, other: Any) -> None:
    X, _, y = scenes()
    SemiSupervisedClassifier(encoder=Halves(), **QUICK).fit(X, y).save(tmp_path)
    with pytest.raises(
        ModelFileError, match="the encoder that was passed differs from the one that the model was fitted with: its hash is"
    ):
        SemiSupervisedClassifier.load(tmp_path, encoder=other)


def test_an_encoder_chosen_by_name_is_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS, "halves", Halves)
    X, _, y = scenes()
    model = SemiSupervisedClassifier(encoder="halves", **QUICK).fit(X, y)
    model.save(tmp_path)
    again = SemiSupervisedClassifier.load(tmp_path)
    assert again.encoder == "halves"
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ModelFileError, match="with the encoder 'halves', which is built by itself"):
        SemiSupervisedClassifier.load(tmp_path, encoder=Halves())
    monkeypatch.setitem(ENCODERS, "halves", lambda: Halves(0.5))
    with pytest.raises(
        ModelFileError, match="the encoder halves differs from the one that the model was fitted with: its hash is"
    ):
        SemiSupervisedClassifier.load(tmp_path)


def test_an_encoder_for_a_model_without_one_is_refused(tmp_path: Path) -> None:
    X, _, y = scenes()
    SemiSupervisedClassifier("lgc", **QUICK).fit(X, y).save(tmp_path)
    with pytest.raises(ModelFileError, match="fitted without an encoder"):
        SemiSupervisedClassifier.load(tmp_path, encoder=Halves())


def test_a_model_without_the_weights_of_its_encoder_names_the_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENCODERS, "efficientnet_lite0", Halves)
    X, _, y = scenes()
    SemiSupervisedClassifier(encoder="efficientnet_lite0", **QUICK).fit(X, y).save(tmp_path)
    monkeypatch.undo()

    def nothing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", nothing)
    with pytest.raises(SettingError, match="pip install --force-reinstall efficientnet_lite0"):
        SemiSupervisedClassifier.load(tmp_path)


# ------------------------------------------------------------------ paths


def test_paths_give_the_same_model_as_the_array_of_their_pixels(tmp_path: Path) -> None:
    X, _, y = scenes()
    paths = saved(tmp_path / "photos", X)
    expected = SemiSupervisedClassifier("supervised", **QUICK).fit(X, y)
    model = SemiSupervisedClassifier("supervised", **QUICK).fit([str(path) for path in paths], y)
    np.testing.assert_array_equal(model.predict_proba(paths), expected.predict_proba(X))
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(paths))
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_without_a_cache_decoded_images_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, _ = scenes()
    paths = saved(tmp_path / "photos", X)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with open_input(paths) as opened:
        assert isinstance(opened, FitInput) and isinstance(opened.images, np.memmap)
        assert len(list((tmp_path / "temporary").iterdir())) == 1
        np.testing.assert_array_equal(opened.samples(), X)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_paths_with_an_encoder_are_decoded_into_the_cache(tmp_path: Path) -> None:
    X, classes, y = scenes()
    paths = saved(tmp_path / "photos", X)
    model = SemiSupervisedClassifier(encoder=Halves(), cache=tmp_path / "cache", **QUICK).fit(paths, y)
    assert (model.predict(paths) == classes).all()
    assert {path.name.split("-")[0] for path in (tmp_path / "cache").iterdir()} == {"images", "source", "features"}
    model.save(tmp_path / "model")
    again = SemiSupervisedClassifier.load(tmp_path / "model", encoder=Halves())
    np.testing.assert_array_equal(again.predict_proba(paths), model.predict_proba(paths))


def test_new_images_of_another_size_are_resized(tmp_path: Path) -> None:
    X, classes, y = scenes()
    model = SemiSupervisedClassifier(**{**QUICK, "epochs": 30}).fit(saved(tmp_path / "photos", X), y)
    larger = saved(tmp_path / "larger", X[:8].repeat(3, axis=1).repeat(3, axis=2))
    assert (model.predict(larger) == classes[:8]).all()


def test_unreadable_images_are_named_with_the_reason(tmp_path: Path) -> None:
    X, _, y = scenes()
    paths = saved(tmp_path, X)
    model = SemiSupervisedClassifier("lgc", **QUICK).fit(paths, y)
    paths[3].write_bytes(paths[3].read_bytes()[:60])
    for call in (lambda: model.fit(paths, y), lambda: model.predict(paths)):
        with pytest.raises(DataError, match=r"003\.png': "):
            call()
    with pytest.raises(DataError, match=r"nowhere\.png': no such file"):
        model.predict([tmp_path / "nowhere.png"])


def test_paths_are_refused_by_a_model_of_vectors_or_floats(tmp_path: Path) -> None:
    X, _, y = scenes()
    paths = saved(tmp_path, X[:2])
    for other, kind in ((X.reshape(60, -1), "vectors"), (X / 255.0, "images that are not bytes")):
        with pytest.raises(DataError, match=f"list of paths, and the model was fitted on {kind}"):
            SemiSupervisedClassifier("lgc", **QUICK).fit(other, y).predict(paths)


# ------------------------------------------------------------------ EfficientNet-lite0 and progress


def test_the_side_of_an_encoder_is_the_decoded_size() -> None:
    encoder = Halves()
    assert decode_size(encoder) == decode_size(None) == "auto"
    encoder.side = 48  # type: ignore[assignment]
    assert getattr(decode_size(encoder), "side", None) == 48


def test_efficientnet_by_name_classifies_images_and_can_be_saved(tmp_path: Path) -> None:
    X, classes, y = scenes(24)
    model = SemiSupervisedClassifier("supervised", encoder="efficientnet_lite0", epochs=40, random_state=0).fit(X, y)
    assert (model.transduction_ == classes).mean() > 0.9
    model.save(tmp_path)
    again = SemiSupervisedClassifier.load(tmp_path)
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-6)
    assert getattr(decode_size("efficientnet_lite0"), "side", None) == 128


def test_a_progress_bar_is_shown_only_while_images_are_encoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, _, y = scenes()
    model = SemiSupervisedClassifier("lgc", encoder=Halves(), cache=tmp_path, verbose=True).fit(X, y)
    assert "encoding images" in capsys.readouterr().err
    model.predict(X)
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------ options are checked before anything is encoded


@pytest.mark.parametrize(
    ("encoder", "options", "message"),
    [
        ("given", {"settings": {"neighbors": 5}}, "ensemble has no setting 'neighbors'; did you mean 'n_neighbors'"),
        ("given", {"settings": {"n_neighbors": 0}}, "n_neighbors is 0; expected a whole number, 1 or more"),
        ("given", {"method": "lgc", "settings": {"alfa": 0.5}}, "lgc has no setting 'alfa'; did you mean 'alpha'"),
        ("given", {"settings": {"lambda2": 0.3}}, "ensemble has no setting 'lambda2'"),
        ("auto", {"settings": {"lambda2": 0.3}}, "ensemble has no setting 'lambda2'"),
        (
            "auto",
            {"settings": {"lamda2": 0.3}},
            "ensemble has no setting 'lamda2'.*; learned_graph has no setting 'lamda2'",
        ),
    ],
)
def test_a_wrong_setting_is_refused_before_any_image_is_encoded(
    encoder: str, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encodes(*_: Any, **__: Any) -> Any:
        raise AssertionError("images were encoded")

    monkeypatch.setattr("samekind.preprocessing.preprocessor.extract_features", encodes)
    X, _, y = scenes()
    X = X.repeat(3, axis=1).repeat(3, axis=2)
    with pytest.raises(SettingError, match=message):
        SemiSupervisedClassifier(encoder=Halves() if encoder == "given" else "auto", **options).fit(X, y)


@pytest.mark.parametrize("form", ["vectors", "small images", "grey images"])
def test_settings_of_a_trained_method_are_accepted_where_no_encoder_is_used(form: str) -> None:
    X, _, y = scenes()
    X = {"vectors": X.reshape(len(X), -1)[:, ::30], "small images": X, "grey images": X[..., 0]}[form]
    options: dict[str, Any] = {"epochs": "quick"} if form == "vectors" else {}
    with pytest.raises(SettingError, match=r"^lambda2 is -1|; lambda2 is -1"):
        SemiSupervisedClassifier(settings={"lambda2": -1}, **options).fit(X, y)
