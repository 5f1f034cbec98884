"""Cost of a net: against products counted by hand, and against the numbers of the papers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from samekind.errors import SettingError
from samekind.flops import count_flops
from samekind.nets.conv13 import Conv13, conv13_classifier
from samekind.nets.net_cost import NetCost, StepPasses, count_parameters, measure_net_cost, step_flops
from samekind.nets.similarity_net import SimilarityNet
from samekind.nets.wide_resnet import wide_resnet_classifier

CONV = 2 * (6 * 8 * 8) * (4 * 3 * 3)  # 6 channels of 8x8 pixels, each from 4 x 3x3 products


def test_a_linear_layer_costs_two_operations_per_weight_and_its_weight_gradient_as_many() -> None:
    assert measure_net_cost(nn.Linear(5, 3), torch.zeros(1, 5)) == NetCost(parameters=18, forward=30, training=60)


def test_the_gradient_with_respect_to_the_input_costs_as_much_as_a_forward_pass() -> None:
    assert measure_net_cost(nn.Linear(5, 3), torch.zeros(1, 5), through_input=True).training == 90


def test_a_convolution_costs_its_products_at_every_pixel() -> None:
    conv = nn.Conv2d(4, 6, 3, padding=1)
    assert measure_net_cost(conv, torch.zeros(1, 4, 8, 8)) == NetCost(6 * 4 * 9 + 6, CONV, 2 * CONV)


def test_a_stride_of_two_costs_a_quarter() -> None:
    conv = nn.Conv2d(4, 6, 3, padding=1, stride=2)
    assert measure_net_cost(conv, torch.zeros(1, 4, 8, 8), through_input=True).training == 3 * CONV // 4


@pytest.mark.parametrize("groups", [1, 2])
def test_groups_divide_the_cost_of_both_directions(groups: int) -> None:
    cost = measure_net_cost(nn.Conv2d(4, 6, 3, padding=1, groups=groups), torch.zeros(1, 4, 8, 8), through_input=True)
    assert (cost.forward, cost.training) == (CONV // groups, 3 * CONV // groups)


def test_a_transposed_convolution_costs_its_products_at_every_pixel_it_reads() -> None:
    cost = measure_net_cost(nn.ConvTranspose2d(6, 4, 2, stride=2), torch.zeros(1, 6, 8, 8), through_input=True)
    assert (cost.forward, cost.training) == (2 * (6 * 8 * 8) * (4 * 2 * 2), 6 * (6 * 8 * 8) * (4 * 2 * 2))


def test_the_cost_is_per_sample_for_any_batch_size() -> None:
    net = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(6 * 36, 2))
    assert measure_net_cost(net, torch.zeros(5, 4, 8, 8)) == measure_net_cost(net, torch.zeros(1, 4, 8, 8))


def test_a_frozen_net_costs_only_the_forward_pass() -> None:
    net = nn.Linear(5, 3).requires_grad_(False)
    assert measure_net_cost(net, torch.zeros(1, 5)) == NetCost(parameters=0, forward=30, training=30)


def test_frozen_first_layers_have_no_backward_pass() -> None:
    start, end = nn.Linear(5, 3).requires_grad_(False), nn.Linear(3, 2)
    assert measure_net_cost(nn.Sequential(start, end), torch.zeros(1, 5)) == NetCost(parameters=8, forward=42, training=42 + 12)


def test_cnn_13_has_the_published_cost() -> None:
    cost = measure_net_cost(conv13_classifier(10), torch.zeros(1, 3, 32, 32))
    assert cost.parameters == 3_125_908
    assert cost.forward == 2 * 731_383_040
    assert cost.training == 3 * cost.forward - 2 * 3_538_944  # the first convolution needs no gradient of its input


def test_wrn_28_2_has_the_published_cost() -> None:
    cost = measure_net_cost(wide_resnet_classifier(10), torch.zeros(1, 3, 32, 32))
    first = 2 * 16 * 27 * 32 * 32
    assert (cost.parameters, cost.forward, cost.training) == (1_467_626, 428_706_304, 3 * 428_706_304 - first)


def test_a_step_with_the_papers_batch_costs_1286_gigaflop() -> None:
    image = measure_net_cost(conv13_classifier(10), torch.zeros(1, 3, 32, 32))
    pair = measure_net_cost(SimilarityNet(128), torch.zeros(1, 128), torch.zeros(1, 128), through_input=True)
    assert step_flops(StepPasses(image, n_training=220, n_inference=220), StepPasses(pair, n_training=160)) == pytest.approx(
        1.286e12, rel=1e-3
    )


def test_a_step_is_the_sum_over_its_nets() -> None:
    cheap, expensive = NetCost(0, forward=1, training=3), NetCost(0, forward=10, training=30)
    assert step_flops(StepPasses(cheap, n_training=2, n_inference=5), StepPasses(expensive, n_training=1)) == 2 * 3 + 5 * 1 + 30


def test_operations_on_meta_tensors_are_counted() -> None:
    with torch.device("meta"):
        net, x = nn.Conv2d(4, 6, 3, padding=1), torch.zeros(5, 4, 8, 8)
        with count_flops() as flops:
            net(x).sum().backward()
    assert flops() == 5 * 2 * CONV


def test_counting_leaves_the_net_unchanged() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    net[1].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    measure_net_cost(net, torch.full((4, 3), 7.0))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [module.training for module in net] == [True, False]
    assert all(p.grad is None for p in net.parameters())


def test_a_weight_normed_layer_counts_both_parameters() -> None:
    plain, normed = (count_parameters(Conv13(width=1 / 16, weight_norm=weight_norm)) for weight_norm in (False, True))
    channels = 3 * 8 + 3 * 16 + 32 + 16 + 8
    assert normed == plain + channels


def test_measuring_a_net_that_returns_no_tensor_is_refused() -> None:
    class Words(nn.Module):
        def forward(self, x: Tensor) -> str:
            return "cat"

    with pytest.raises(SettingError, match="returned str; expected a tensor"):
        measure_net_cost(Words(), torch.zeros(1, 2))
