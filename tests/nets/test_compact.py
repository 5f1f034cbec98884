"""Compact net: the whitening filters, images of any size, and digits learned in a few steps."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load, save
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.errors import DataError, SettingError
from samekind.nets.classifier import Classifier
from samekind.nets.compact import (
    CompactNet,
    Residual,
    WhiteningStem,
    compact_classifier,
    init_whitening,
    stride_for,
    whitening_filters,
)
from samekind.nets.ema import ema_copy, update_ema
from samekind.nets.net_cost import measure_net_cost
from samekind.nets.small_conv import SmallConv


def images(n: int = 8, channels: int = 3, height: int = 32, width: int | None = None) -> Tensor:
    """Return smooth images, in which neighbouring pixels and channels are correlated."""
    rough = torch.randn(n, channels, height, width or height, generator=torch.Generator().manual_seed(1))
    return F.avg_pool2d(rough, 3, stride=1, padding=1) + rough.mean(dim=1, keepdim=True)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def whitened(channels: int = 3, side: int = 32) -> CompactNet:
    torch.manual_seed(0)
    net = CompactNet(channels, side=side, width=8, n_features=16)
    init_whitening(net, images(channels=channels, height=side))
    return net


def widths(net: nn.Module) -> list[int]:
    return [layer.out_channels for layer in net.modules() if isinstance(layer, nn.Conv2d)]


def operations(*, quick: bool) -> int:
    classifier = compact_classifier((3, 32, 32), n_classes=10, quick=quick)
    init_whitening(classifier, images())
    return measure_net_cost(classifier, images(1)).forward


# ---------------------------------------------------------------- whitening


@pytest.mark.parametrize(("channels", "kernel"), [(1, 2), (3, 2), (2, 3)])
def test_whitened_patches_are_uncorrelated_and_have_variance_one(channels: int, kernel: int) -> None:
    x = images(200, channels, 12) + 0.5 * noise(200, channels, 12, 12)  # every component far above the floor
    n = channels * kernel**2
    responses = F.conv2d(x.double(), whitening_filters(x, kernel, n)).transpose(0, 1).flatten(1)
    torch.testing.assert_close(responses @ responses.T / responses.shape[1], torch.eye(n).double(), rtol=0, atol=0.02)


def test_the_component_of_largest_variance_comes_first() -> None:
    flat = images(500, 1, 1).expand(500, 1, 8, 8)
    first, *rest = whitening_filters(flat + 0.01 * noise(500, 1, 8, 8), 2, 4)
    assert first.std() < 0.05 * first.mean().abs()  # the same weight everywhere: the mean brightness
    assert all(f.sum().abs() < 0.05 * f.abs().sum() for f in rest)


def test_a_component_without_variance_is_not_amplified() -> None:
    flat = noise(50, 1, 1, 1).expand(50, 1, 8, 8)
    filters = whitening_filters(flat, 2, 4)
    assert filters.isfinite().all()
    assert filters.square().sum(dim=(1, 2, 3)).max() <= 1.0 / (5e-4 * flat[:, 0, 0, 0].square().mean()) * 1.01


def test_the_filters_do_not_depend_on_the_scale_of_the_images() -> None:
    x = images(50)
    small, large = whitening_filters(x, 2, 12), 100.0 * whitening_filters(100.0 * x, 2, 12)
    torch.testing.assert_close(large.abs(), small.abs(), rtol=1e-3, atol=1e-5)


def test_each_component_has_a_filter_of_each_sign() -> None:
    filters = whitened().stem.filters
    assert filters.shape == (24, 3, 2, 2)
    assert torch.equal(filters[:12], -filters[12:])


def test_images_of_bytes_can_be_whitened() -> None:
    x = (40.0 * images(20, 3, 16) + 128.0).clamp(0, 255).to(torch.uint8)
    assert torch.equal(whitening_filters(x, 2, 12), whitening_filters(x.float(), 2, 12))


@pytest.mark.parametrize("n", [20, 700, 1500])
def test_images_are_sampled_from_the_whole_dataset(n: int) -> None:
    x = images(n, 1, 8)
    lengths = whitening_filters(x, 2, 4).square().sum(dim=(1, 2, 3))
    half_of_it_black = whitening_filters(torch.cat([x, torch.zeros_like(x)]), 2, 4).square().sum(dim=(1, 2, 3))
    torch.testing.assert_close(half_of_it_black, 2.0 * lengths, rtol=0.1, atol=0.0)


def test_a_net_without_a_whitening_stem_is_left_unchanged() -> None:
    net = SmallConv(3)
    before = copy.deepcopy(net.state_dict())
    init_whitening(net, images())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_images_that_are_all_zero_are_refused() -> None:
    with pytest.raises(DataError, match="all zero"):
        init_whitening(CompactNet(3), torch.zeros(4, 3, 32, 32))


def test_a_net_without_filters_raises_an_error_that_names_init_whitening() -> None:
    with pytest.raises(SettingError, match=r"Call init_whitening\(net, images\)"):
        CompactNet(3)(images())


# ---------------------------------------------------------------- the filters stay


def test_the_filters_are_not_trained_and_the_bias_is() -> None:
    net = whitened()
    net(images()).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    assert net.stem.filters.grad is None and not net.stem.filters.requires_grad
    assert "stem.filters" not in dict(net.named_parameters())


@pytest.mark.parametrize("statistics", ["own", "copy", "ema"])
def test_an_ema_copy_has_the_same_filters_and_keeps_them(statistics: str) -> None:
    net = whitened()
    teacher = ema_copy(net)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1.0)
    update_ema(teacher, net, 0.9, statistics=statistics)  # type: ignore[arg-type]
    assert torch.equal(teacher.stem.filters, net.stem.filters)


def test_the_filters_are_saved_and_loaded_with_the_net() -> None:
    net, other = whitened().eval(), CompactNet(3, width=8, n_features=16).eval()
    other.load_state_dict(load(save(net.state_dict())))
    assert torch.equal(other(images()), net(images()))


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize(("channels", "quick"), [(1, False), (3, True)])
@pytest.mark.parametrize("size", [(8, 8), (9, 15), (28, 28), (33, 50), (48, 48), (64, 96)])
def test_images_of_any_size_from_eight_pixels_give_z_and_logits(channels: int, quick: bool, size: tuple[int, int]) -> None:
    classifier = compact_classifier((channels, *size), n_classes=3, quick=quick)
    x = images(2, channels, *size)
    init_whitening(classifier, x)
    z, logits = classifier(x)
    assert z.shape == (2, 128)
    assert logits.shape == (2, 3)


def test_images_of_256_pixels_pass_through_a_stem_of_stride_eight() -> None:
    net = whitened(side=256)
    assert net.stem.stride == 8
    assert net.stem.filters.shape == (48, 3, 16, 16)
    assert net(images(1, 3, 256).expand(2, -1, -1, -1)).shape == (2, 16)


@pytest.mark.parametrize(
    ("side", "stride"), [(8, 1), (28, 1), (32, 1), (47, 1), (48, 2), (64, 2), (96, 4), (128, 4), (192, 8), (256, 8), (1000, 8)]
)
def test_the_stem_leaves_24_to_48_pixels_of_large_images(side: int, stride: int) -> None:
    assert stride_for(side) == stride


@pytest.mark.parametrize("side", [8, 10, 16, 24, 28, 32, 48, 64, 100])
@pytest.mark.parametrize(("quick", "fewest", "most"), [(False, 3, 6), (True, 2, 3)])
def test_the_mean_is_over_few_pixels(side: int, quick: bool, fewest: int, most: int) -> None:
    net = CompactNet(1, side=side, width=4, n_features=8, quick=quick)
    x = images(2, 1, side)
    init_whitening(net, x)
    maps = net.layers(net.stem_pool(net.stem(x)))
    assert maps.shape[2] == maps.shape[3] and fewest <= maps.shape[2] <= most


@pytest.mark.parametrize(
    ("side", "expected"), [(8, [32, 64, 128]), (16, [32, 64, 128, 128]), (28, [32, 64, 128, 128]), (32, [32, 64, 128, 128])]
)
def test_the_channels_of_the_quick_net_double_up_to_the_features(side: int, expected: list[int]) -> None:
    assert widths(CompactNet(3, side=side, quick=True)) == expected


@pytest.mark.parametrize("side", [8, 16, 28, 32])
def test_each_block_but_the_first_is_followed_by_a_residual_block(side: int) -> None:
    net = CompactNet(3, side=side)
    assert widths(net) == [32, 64, 64, 128, 128]
    assert [isinstance(layer, Residual) for layer in net.layers] == [False, False, True, False, True]


def test_a_residual_block_returns_x_plus_its_change() -> None:
    x = noise(2, 3)
    torch.testing.assert_close(Residual(nn.Identity())(x), 2.0 * x)


def test_a_cifar_image_costs_36_megaflop_and_eight_if_quick() -> None:
    stem, head = 24 * 12 * 31 * 31, 1280
    first, second, third = 24 * 32 * 31 * 31, 32 * 64 * 15 * 15 + 64 * 64 * 7 * 7, 64 * 128 * 7 * 7 + 128 * 128 * 3 * 3
    quick = 24 * 32 * 15 * 15 + 32 * 64 * 7 * 7 + 64 * 128 * 3 * 3 + 128 * 128 * 2 * 2
    assert operations(quick=False) == 2 * (stem + 9 * (first + second + third) + head)
    assert operations(quick=True) == 2 * (stem + 9 * quick + head)


def test_a_net_made_for_one_size_takes_others() -> None:
    net = whitened(side=32).eval()
    assert net(images(2, 3, 8)).shape == net(images(2, 3, 50)).shape == (2, 16)


def test_images_smaller_than_the_stem_are_refused_with_a_hint() -> None:
    with pytest.raises(DataError, match=r"8x8 pixels; its stem needs 16.*side="):
        whitened(side=256)(images(2, 3, 8))


def test_sides_below_eight_are_refused() -> None:
    with pytest.raises(SettingError, match="side is 7; expected 8"):
        CompactNet(1, side=7)


def test_z_does_not_depend_on_the_memory_layout_of_the_images() -> None:
    net, x = whitened().eval(), images()
    torch.testing.assert_close(net(x), net(x.contiguous(memory_format=torch.channels_last)))


def test_the_stem_is_a_plain_convolution_with_a_bias() -> None:
    stem = WhiteningStem(1)
    init_whitening(stem, images(channels=1))
    stem.bias.data.fill_(2.0)
    torch.testing.assert_close(stem(torch.zeros(1, 1, 4, 4)), torch.full((1, 8, 3, 3), 2.0))


@pytest.mark.parametrize("quick", [False, True])
def test_digits_are_learned_in_a_hundred_steps(quick: bool) -> None:
    torch.manual_seed(0)
    rows, classes = load_digits(return_X_y=True)
    x, y = torch.tensor(rows / 8.0 - 1.0, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.from_numpy(classes)
    classifier: Classifier = compact_classifier((1, 8, 8), n_classes=10, quick=quick)
    init_whitening(classifier, x[:1000])
    optimizer = torch.optim.Adam(classifier.parameters(), lr=0.003)
    for step in range(100):
        some = torch.arange(60 * step, 60 * (step + 1)) % 1000
        optimizer.zero_grad()
        F.cross_entropy(classifier(x[some]).logits, y[some]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    wrong = classifier.eval()(x[1000:]).logits.argmax(1) != y[1000:]
    assert wrong.float().mean() < 0.08
