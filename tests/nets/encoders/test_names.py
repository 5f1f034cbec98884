"""Encoders by name, from other libraries, and side by side."""

from __future__ import annotations

import importlib.util
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from samekind.errors import DataError, ModelFileError, SettingError
from samekind.nets.encoders.batch_norm import fold_batch_norms
from samekind.nets.encoders.fingerprints import fingerprint_of
from samekind.nets.encoders.frozen_features import FeatureCache, extract_features
from samekind.nets.encoders.names import encoder_name, resolve_encoder
from samekind.nets.encoders.normalized import NormalizedEncoder

HUBCONF = """
import torch

class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 5, 3)
        self.bn = torch.nn.BatchNorm2d(5)
        self.fc = torch.nn.Linear(5, 7)

    def forward(self, x):
        return self.fc(self.bn(self.conv(x)).relu().mean(dim=(2, 3)))

def tiny({parameters}):
    return Tiny()

def text():
    return "no module"
"""


def images(n: int = 3, side: int = 20) -> Any:
    return np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def repository(folder: Path, parameters: str = "pretrained=False") -> str:
    folder.mkdir()
    (folder / "hubconf.py").write_text(HUBCONF.replace("{parameters}", parameters))
    return str(folder)


# ---------------------------------------------------------------- names


def test_a_name_may_be_short_and_give_the_side_in_pixels() -> None:
    encoder = resolve_encoder("lite1@64")
    assert (encoder.variant.name, encoder.side) == ("efficientnet_lite1", 64)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["model.pt", "weights/model.PTH", "model.pkl@64"])
def test_a_pickle_is_never_opened(name: str, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(SettingError, match=r"may run code when it is opened\. Export the model as \.onnx"):
        resolve_encoder(str(path))
    assert not (tmp_path / "ran").exists()


def test_only_encoders_of_names_have_a_name() -> None:
    assert encoder_name("lite0") == "lite0" and encoder_name(["lite0", "a.onnx"]) == "lite0,a.onnx"
    assert encoder_name("hub:repository:tiny") is None, "loading a saved model would run its code"
    assert encoder_name(nn.Flatten()) is None and encoder_name(["lite0", nn.Flatten()]) is None


# ---------------------------------------------------------------- side by side


def test_features_side_by_side_have_the_same_length_in_each_part() -> None:
    parts = [nn.Flatten(), nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())]
    z = extract_features(resolve_encoder(parts), images())
    assert z.shape == (3, 1200 + 12)
    np.testing.assert_allclose(np.linalg.norm(z[:, :1200], axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(z[:, 1200:], axis=1), 1.0, rtol=1e-5)


def test_parts_are_in_eval_mode_and_may_be_named_in_one_text() -> None:
    part = nn.Sequential(nn.Flatten(), nn.Dropout(0.5)).train()
    z = extract_features(resolve_encoder([part, part]), images())
    np.testing.assert_array_equal(z[:, :1200], z[:, 1200:])
    assert part.training
    assert extract_features(resolve_encoder("lite0@32, lite1@32"), images()).shape == (3, 2560)


def test_encoders_side_by_side_are_cached_by_the_weights_of_all_parts(tmp_path: Path) -> None:
    for width in (2, 3, 2):
        pooled = nn.Sequential(nn.AdaptiveAvgPool2d(width), nn.Flatten())
        extract_features(resolve_encoder([nn.Flatten(), pooled]), images(), cache=FeatureCache(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(SettingError, match="empty list"):
        resolve_encoder([])


# ---------------------------------------------------------------- networks of other libraries


def test_an_image_is_resized_and_normalized_before_the_network() -> None:
    shown: list[Tensor] = []

    class Records(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            shown.append(x)
            return x

    z = NormalizedEncoder(Records(), 8, mean=(0.5, 0.0, 0.0), std=(0.25, 1.0, 1.0))(torch.full((1, 1, 20, 30), 0.75))
    assert shown[0].shape == (1, 3, 8, 8)
    torch.testing.assert_close(z, torch.tensor([[1.0, 0.75, 0.75]]))


@pytest.mark.parametrize("output", ["text", torch.zeros(2), torch.zeros(2, 1, 1, 1, 1)])
def test_an_output_without_features_is_refused(output: Any) -> None:
    class Returns(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return output

    with pytest.raises(SettingError, match=r"returned (str|a tensor of shape)"):
        NormalizedEncoder(Returns(), 8)(torch.zeros(2, 3, 8, 8))


def test_values_of_another_range_are_refused() -> None:
    with pytest.raises(DataError, match="values from 0 to 200; expected values from 0 to 1"):
        NormalizedEncoder(nn.Identity(), 8)(torch.linspace(0, 200, 12).view(1, 3, 2, 2))


def test_a_batch_norm_after_a_convolution_is_folded() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net(torch.rand(8, 3, 9, 9))  # statistics that differ from 0 and 1
    folded = fold_batch_norms(net.eval(), torch.rand(2, 3, 9, 9))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    x = torch.rand(2, 3, 9, 9)
    torch.testing.assert_close(folded(x), net(x))


def test_a_batch_norm_that_is_called_elsewhere_stays() -> None:
    class Before(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)
            self.norm.running_mean = torch.ones(3)

        def forward(self, x: Tensor) -> Tensor:
            z: Tensor = self.conv(self.norm(x))
            return z.mean(dim=(2, 3))

    net = Before().eval()
    assert fold_batch_norms(net, torch.rand(2, 3, 9, 9)) is net


@pytest.mark.parametrize("parameters", ["pretrained=False", ""])
def test_a_model_of_a_hub_folder_gives_features_without_its_classifier(parameters: str, tmp_path: Path) -> None:
    encoder = resolve_encoder(f"hub:{repository(tmp_path / 'repository', parameters)}:tiny@16")
    assert extract_features(encoder, images()).shape == (3, 5)
    assert fingerprint_of(encoder) and not any(isinstance(module, nn.BatchNorm2d) for module in encoder.modules())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet18", "expected hub:REPO:NAME"),
        ("{folder}:huge", "cannot be loaded.*huge"),
        ("{folder}:text", "returned a str; expected a torch.nn.Module"),
    ],
)
def test_a_wrong_hub_name_is_one_sentence(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((SettingError, ModelFileError), match=message):
        resolve_encoder("hub:" + name.replace("{folder}", repository(tmp_path / "repository")))


def test_without_timm_the_error_gives_the_command_that_installs_it() -> None:
    if importlib.util.find_spec("timm") is not None:
        pytest.skip("timm is installed")
    with pytest.raises(SettingError, match=r"timm:resnet18 needs the package timm. Run: pip install 'samekind\[timm\]'"):
        resolve_encoder("timm:resnet18")


# ---------------------------------------------------------------- transformers


def vit(folder: Path, **settings: Any) -> Path:
    """Write a small vision transformer in the format of transformers."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "patch_size": 8}
    transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=16)).save_pretrained(folder)
    if settings:
        (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


def test_a_transformer_is_read_with_its_size_and_normalization(tmp_path: Path) -> None:
    folder = vit(tmp_path, image_mean=[0.5] * 3, image_std=[0.25] * 3, size={"height": 16, "width": 16})
    encoder: Any = resolve_encoder(f"hf:{folder}")
    assert encoder.side == 16 and encoder.mean.flatten().tolist() == [0.5] * 3 and encoder.std.flatten().tolist() == [0.25] * 3
    assert extract_features(encoder, images()).shape == (3, 8)
    assert fingerprint_of(encoder) == fingerprint_of(resolve_encoder(f"hf:{folder}"))


def test_a_residual_network_of_transformers_has_its_batch_norms_folded(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1], layer_type="basic")
    transformers.ResNetModel(config).save_pretrained(tmp_path)
    encoder: Any = resolve_encoder(f"hf:{tmp_path}@32")
    assert not any(isinstance(module, nn.BatchNorm2d) for module in encoder.modules())
    assert extract_features(encoder, images()).shape[0] == 3


@pytest.mark.parametrize("damage", ["pickle", "truncated", "text", "nothing"])
def test_a_damaged_folder_of_transformers_is_one_sentence(damage: str, tmp_path: Path) -> None:
    folder = vit(tmp_path / "vit")
    weights = folder / "model.safetensors"
    if damage == "pickle":
        torch.save(torch.zeros(1), folder / "pytorch_model.bin")
        weights.unlink()
    elif damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:200])
    elif damage == "text":
        (folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    else:
        folder = tmp_path / "nowhere"
    with pytest.raises(ModelFileError, match="hf:"):
        resolve_encoder(f"hf:{folder}")
