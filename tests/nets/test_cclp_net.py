"""CCLP network: the published sizes, dropout, and initialisation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from samekind.nets.cclp_net import CclpNet, cclp_classifier
from samekind.nets.net_cost import measure_net_cost


def images(n: int = 4, side: int = 8) -> Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(1))


def by_hand(maps: int, side: int, n_classes: int) -> tuple[int, int]:
    """Return the parameters and multiply-adds of nine convolutions, their batch norms and the head, summed layer by layer."""
    sizes = [(3, maps, side), (maps, maps, side), (maps, maps, side), (maps, 2 * maps, side // 2)]
    sizes += [(2 * maps, 2 * maps, side // 2)] * 2 + [(2 * maps, 2 * maps, side // 4)] * 3
    linear = 2 * maps * n_classes
    parameters = sum(9 * a * b + b + 2 * b for a, b, _ in sizes) + linear + n_classes
    return parameters, sum(9 * a * b * side**2 for a, b, side in sizes) + linear


@pytest.mark.parametrize(("maps", "parameters"), [(96, 1_999_498), (64, 890_634)])
def test_parameters_and_multiplications_equal_those_of_the_paper(maps: int, parameters: int) -> None:
    cost = measure_net_cost(cclp_classifier(10, CclpNet(maps=maps)), torch.zeros(1, 3, 32, 32))
    assert (cost.parameters, cost.forward // 2) == by_hand(maps, 32, 10)
    assert cost.parameters == parameters


def test_z_has_no_dropout_and_the_head_has_a_rate_of_a_half() -> None:
    torch.manual_seed(0)
    net = cclp_classifier(3, CclpNet(maps=8, dropout=0.0))
    first, second = net(images()), net(images())
    assert torch.equal(first.z, second.z) and not torch.equal(first.logits, second.logits)


def test_whole_channels_of_the_input_are_dropped() -> None:
    drop = CclpNet(maps=4, channel_dropout=0.5).layers[0]
    seen = drop(torch.ones(200, 3, 4, 4))
    assert set(seen.flatten().tolist()) == {0.0, 2.0} and torch.equal(seen.amin((2, 3)), seen.amax((2, 3)))
    assert not any(isinstance(layer, nn.Dropout2d) for layer in CclpNet(maps=4).layers)


def test_eval_mode_drops_nothing() -> None:
    net = cclp_classifier(3, CclpNet(maps=4, channel_dropout=0.5)).eval()
    assert torch.equal(net(images()).logits, net(images()).logits)


def test_running_statistics_have_a_decay_of_0_99() -> None:
    net = CclpNet(maps=4, dropout=0.0)
    norm = next(layer for layer in net.layers if isinstance(layer, nn.BatchNorm2d))
    convolution = next(layer for layer in net.layers if isinstance(layer, nn.Conv2d))
    net(images())
    assert norm.running_mean is not None
    torch.testing.assert_close(norm.running_mean, 0.01 * convolution(images()).mean((0, 2, 3)))
