"""Wide residual network: the published sizes, the shortcuts, copying and saving."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.errors import SettingError
from samekind.nets.classifier import Classifier
from samekind.nets.net_cost import measure_net_cost
from samekind.nets.wide_resnet import ResidualBlock, WideResNet, wide_resnet_classifier


def thin(channels: int = 3) -> Classifier:
    torch.manual_seed(0)
    return wide_resnet_classifier(4, WideResNet(channels, depth=10, width=0.25))


def images(n: int = 4, channels: int = 3, side: int = 8) -> Tensor:
    return torch.randn(n, channels, side, side, generator=torch.Generator().manual_seed(1))


def test_wrn_28_2_has_the_published_parameters_and_multiplications() -> None:
    cost = measure_net_cost(wide_resnet_classifier(10), torch.zeros(1, 3, 32, 32))
    assert cost.parameters == 1_467_626
    assert cost.forward == 2 * 214_353_152


def test_wrn_28_8_of_cifar_100_has_the_published_number_of_parameters() -> None:
    classifier = wide_resnet_classifier(100, WideResNet(width=8))
    assert sum(p.numel() for p in classifier.parameters()) == 23_401_028


@pytest.mark.parametrize(("depth", "blocks"), [(10, 3), (16, 6), (28, 12), (40, 18)])
def test_the_depth_counts_two_convolutions_a_block_and_four_more_layers(depth: int, blocks: int) -> None:
    net = WideResNet(depth=depth, width=0.25)
    assert len(net.blocks) == blocks
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) == depth - 3  # the depth counts the three 1x1 shortcuts as well, and not the head


@pytest.mark.parametrize("depth", [4, 27, 0])
def test_a_depth_that_is_not_6_blocks_plus_4_is_refused(depth: int) -> None:
    with pytest.raises(SettingError, match=f"depth is {depth}; expected 4 more than a multiple of 6"):
        WideResNet(depth=depth)


def test_a_width_that_leaves_no_channel_is_refused() -> None:
    with pytest.raises(SettingError, match=r"width is 0\.01"):
        WideResNet(width=0.01)


@pytest.mark.parametrize("n_channels", [1, 2, 4, 7, 8])
def test_a_shortcut_of_few_channels_has_the_gradient_of_double_precision(n_channels: int) -> None:
    torch.manual_seed(0)
    block = ResidualBlock(n_channels, 2 * n_channels, 2, 0.1, activate_shortcut=False)
    x = images(16, n_channels, 16)

    def gradient(block: ResidualBlock, x: Tensor) -> Tensor:
        block(x.clone(memory_format=torch.channels_last)).square().sum().backward()
        assert isinstance(block.shortcut, nn.Conv2d) and block.shortcut.weight.grad is not None
        return block.shortcut.weight.grad

    exact = gradient(copy.deepcopy(block).double(), x.double())
    torch.testing.assert_close(gradient(block, x).double(), exact, rtol=1e-4, atol=1e-2)


def test_a_shortcut_subsamples_like_a_stride() -> None:
    torch.manual_seed(0)
    block, x = ResidualBlock(4, 6, 2, 0.1, activate_shortcut=False), images(3, 4, 7)
    assert isinstance(block.shortcut, nn.Conv2d)
    strided = F.conv2d(x, block.shortcut.weight, stride=2)
    nn.init.zeros_(block.conv2.weight)  # so that only the shortcut is left
    torch.testing.assert_close(block(x), strided)


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 28), (3, 33), (5, 5)])
def test_images_of_any_size_and_number_of_channels_give_z_and_logits(channels: int, side: int) -> None:
    classifier = thin(channels)
    z, logits = classifier(images(2, channels, side))
    assert z.shape == (2, classifier.n_features) == (2, 16)
    assert logits.shape == (2, 4)


def test_only_the_first_convolution_has_a_bias() -> None:
    biased = [name for name, m in WideResNet(depth=10).named_modules() if isinstance(m, nn.Conv2d) and m.bias is not None]
    assert biased == ["first"]


@pytest.mark.parametrize("activate", [True, False])
def test_a_block_without_change_returns_its_shortcut(activate: bool) -> None:
    block = ResidualBlock(2, 2, 1, 0.1, activate_shortcut=activate).eval()
    nn.init.zeros_(block.conv2.weight)
    x = images(2, 2)
    expected = F.leaky_relu(block.norm1(x), 0.1) if activate else x
    assert torch.equal(block(x), expected)


def test_only_the_shortcut_of_the_first_block_takes_the_activated_input() -> None:
    blocks = WideResNet(depth=16).blocks
    assert [isinstance(block, ResidualBlock) and block.activate_shortcut for block in blocks] == [True, *[False] * 5]


def test_the_second_and_the_third_stage_halve_the_image() -> None:
    net = WideResNet(depth=10, width=0.25)
    assert net.blocks(net.first(images(side=32))).shape[2:] == (8, 8)


def test_z_is_the_mean_of_the_last_leaky_relu() -> None:
    net = WideResNet(depth=10, width=0.25).eval()
    nn.init.zeros_(net.norm.weight)
    nn.init.ones_(net.norm.bias)
    torch.testing.assert_close(net(images()), torch.ones(4, 16))
    nn.init.constant_(net.norm.bias, -1.0)
    torch.testing.assert_close(net(images()), torch.full((4, 16), -0.1))


def test_the_default_momentum_of_the_running_statistics_is_a_thousandth() -> None:
    assert {m.momentum for m in WideResNet(depth=10).modules() if isinstance(m, nn.BatchNorm2d)} == {0.001}
    assert {m.momentum for m in WideResNet(depth=10, momentum=0.1).modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}


def test_every_parameter_receives_a_gradient() -> None:
    classifier = thin()
    classifier(images()).logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in classifier.parameters())


def test_a_copy_and_a_reloaded_net_predict_the_same() -> None:
    classifier, other, x = thin(), thin(), images()
    classifier(x)  # so that the running statistics differ from the initial ones
    other.load_state_dict(classifier.state_dict())
    expected = classifier.eval()(x).logits
    assert torch.equal(other.eval()(x).logits, expected)
    assert torch.equal(copy.deepcopy(classifier)(x).logits, expected)
