"""Fine-tuned encoders: their weights are saved beside the model, and another or damaged file is refused."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load, save
from sklearn.base import clone
from torch import Tensor

from samekind import SemiSupervisedClassifier
from samekind.errors import ModelFileError, SettingError
from samekind.nets.encoders.efficientnet import LITE0, VARIANTS, EfficientNetLite, efficientnet_lite
from samekind.nets.encoders.finetuned import finetuned, is_finetuned, load_finetuned, save_finetuned
from samekind.nets.encoders.frozen_features import FeatureCache, extract_features

SIDE = 32
Weights = dict[str, Tensor]


@torch.no_grad()
def perturbed(seed: int = 0, side: int = SIDE) -> EfficientNetLite:
    """Return lite0 with other weights in the last block, as after a short fine-tuning."""
    net = efficientnet_lite(side=side)
    generator = torch.Generator().manual_seed(seed)
    for parameter in net.blocks[-1].parameters():
        parameter.add_(0.1 * parameter.std() * torch.randn(parameter.shape, generator=generator))
    return finetuned(net)


def images(n: int = 12) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return images that are bright above or below, and their labels; the last ones are unlabelled."""
    classes = np.arange(n) % 2
    found = np.random.default_rng(0).integers(0, 80, (n, SIDE, SIDE, 3))
    found[classes == 0, :16] += 150
    found[classes == 1, 16:] += 150
    return found.astype(np.uint8), np.where(np.arange(n) < 6, classes, -1)


@pytest.fixture(scope="module")
def fitted() -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier("label_propagation", encoder=perturbed()).fit(*images())


@pytest.fixture
def folder(fitted: SemiSupervisedClassifier, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def weights_of(folder: Path) -> Path:
    (path,) = folder.glob("encoder-*.safetensors")
    return path


def replace_weights(folder: Path, change: Callable[[Weights], Weights]) -> None:
    """Change the tensors of the encoder, and let the name of the file and model.json fit the new content."""
    path = weights_of(folder)
    blob = save(change(load(path.read_bytes())))
    path.unlink()
    name = f"encoder-{hashlib.sha256(blob).hexdigest()[:16]}.safetensors"
    (folder / name).write_bytes(blob)
    set_entry(folder, encoder_weights=name)


def set_entry(folder: Path, **entries: Any) -> None:
    manifest = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(manifest | entries))


# ---------------------------------------------------------------- the encoder


def test_the_copy_is_frozen_and_has_its_own_fingerprint_for_each_side_and_weights() -> None:
    original = efficientnet_lite(side=SIDE).train().requires_grad_(True)
    copy = finetuned(original)
    assert is_finetuned(copy) and not is_finetuned(original)
    assert not copy.training and not any(parameter.requires_grad for parameter in copy.parameters())
    assert original.training and all(parameter.requires_grad for parameter in original.parameters())
    fingerprints = [one.fingerprint for one in (original, copy, perturbed(), perturbed(1), perturbed(side=64))]
    assert len(set(fingerprints)) == 5 and finetuned(perturbed()).fingerprint == fingerprints[2]


def test_the_cache_keeps_features_of_other_weights_apart(tmp_path: Path) -> None:
    X, _ = images()
    nets = efficientnet_lite(side=SIDE), perturbed()
    original, tuned = (extract_features(net, X, cache=FeatureCache(tmp_path)) for net in nets)
    assert not np.allclose(original, tuned) and len(list(tmp_path.glob("features-*.npy"))) == 2


@pytest.mark.parametrize("name", VARIANTS)
def test_the_weights_of_each_variant_are_read_again_exactly(name: str, tmp_path: Path) -> None:
    net = finetuned(EfficientNetLite(40, VARIANTS[name]))
    again = load_finetuned(f"{name}@40", tmp_path / save_finetuned(net, tmp_path))
    assert (again.fingerprint, again.side, again.variant) == (net.fingerprint, 40, VARIANTS[name])
    assert is_finetuned(again) and not any(parameter.requires_grad for parameter in again.parameters())


def test_a_side_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(SettingError, match="side is 100000; expected at most 2048 pixels, such as 224"):
        EfficientNetLite(100_000, LITE0)


# ---------------------------------------------------------------- saved models


def test_a_saved_model_has_its_weights_beside_it_and_predicts_the_same(fitted: SemiSupervisedClassifier, folder: Path) -> None:
    X, _ = images()
    manifest = json.loads((folder / "model.json").read_text())
    assert (manifest["encoder"], manifest["custom_encoder"]) == ("efficientnet_lite0@32", False)
    assert manifest["encoder_weights"] == weights_of(folder).name
    again = SemiSupervisedClassifier.load(folder)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    again.save(folder.parent / "second")
    assert weights_of(folder.parent / "second").name == weights_of(folder).name


def test_loading_needs_no_package_with_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(package: str = "") -> Path:
        raise AssertionError("the weights of the package were read")

    monkeypatch.setattr("samekind.nets.encoders.efficientnet.weights_file", nothing)
    assert SemiSupervisedClassifier.load(folder).encoder == "efficientnet_lite0@32"


def test_a_later_save_removes_the_weights_of_the_previous_encoder(folder: Path) -> None:
    before = weights_of(folder).name
    SemiSupervisedClassifier("label_propagation", encoder=perturbed(1)).fit(*images()).save(folder)
    assert weights_of(folder).name != before
    SemiSupervisedClassifier("label_propagation", encoder="lite0@32").fit(*images()).save(folder)
    assert not list(folder.glob("encoder-*")) and SemiSupervisedClassifier.load(folder).encoder == "lite0@32"


def test_pickle_and_clone_keep_the_weights(fitted: SemiSupervisedClassifier) -> None:
    X, y = images()
    expected = fitted.predict_proba(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), expected)
    np.testing.assert_array_equal(clone(fitted).fit(X, y).predict_proba(X), expected)


# ---------------------------------------------------------------- damaged and swapped files


def assert_refused(folder: Path, match: str) -> None:
    with pytest.raises(ModelFileError, match=match) as caught:
        SemiSupervisedClassifier.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda blob: blob[:-100], "was changed after it was written: .*Save the model again"),
        (lambda blob: b"", "was changed after it was written: the file is cut short"),
        (lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]), "does not match the hash in its name"),
        (lambda blob: pickle.dumps(print), "was changed after it was written"),
    ],
)
def test_a_damaged_weights_file_is_refused(folder: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    path = weights_of(folder)
    path.write_bytes(damage(path.read_bytes()))
    assert_refused(folder, message)


def test_a_missing_weights_file_is_refused(folder: Path) -> None:
    weights_of(folder).unlink()
    assert_refused(folder, r"the weights encoder-\w+.safetensors of the encoder are missing .*Save the model again")


def _changed(weights: Weights) -> Weights:
    return weights | {"head.bias": weights["head.bias"] + 1.0}


def _without_bias(weights: Weights) -> Weights:
    return {name: value for name, value in weights.items() if name != "head.bias"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_changed, "the encoder efficientnet_lite0@32 differs from the one that the model was fitted with: its hash is"),
        (_without_bias, "the tensor head.bias has the shape none; expected"),
        (lambda weights: weights | {"more": torch.zeros(1)}, "the tensor more has the shape .*expected no such tensor"),
        (lambda weights: weights | {"head.bias": torch.zeros(7)}, r"the tensor head.bias has the shape \(7,\); expected"),
        (lambda weights: {name: value.half() for name, value in weights.items()}, "tensors of the dtype F16; expected F32"),
    ],
)
def test_weights_of_another_net_are_refused(folder: Path, change: Callable[[Weights], Weights], message: str) -> None:
    replace_weights(folder, change)
    assert_refused(folder, message)


def test_other_weights_are_refused_by_the_test_image_even_without_a_hash(folder: Path) -> None:
    replace_weights(folder, _changed)
    set_entry(folder, encoder_hash=None)
    assert_refused(folder, "for the same test image it returned")


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("encoder", "efficientnet_lite0@64", "its hash is"),
        ("encoder", "efficientnet_lite2@32", "was changed after it was written: the tensor"),
        (
            "encoder",
            "efficientnet_lite0",
            "model.json was changed: .*expected the name of an EfficientNet-lite",
        ),
        ("encoder", "efficientnet_lite0@999999999", "model.json was changed"),
        ("encoder", "timm:resnet18@32", "model.json was changed"),
        ("encoder", None, "the shape of the model's input does not fit its encoder"),
        ("encoder_weights", None, "its hash is"),
        ("encoder_weights", "../encoder-0123456789abcdef.safetensors", "expected the name of a weights file of an encoder"),
        ("encoder_weights", 3, "expected the name of a weights file of an encoder"),
    ],
)
def test_a_changed_description_is_refused(folder: Path, entry: str, value: Any, message: str) -> None:
    set_entry(folder, **{entry: value})
    assert_refused(folder, message)
