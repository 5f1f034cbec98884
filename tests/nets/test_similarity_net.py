"""Phi: the paper's sizes, the split first layer, and where dropout acts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from samekind.nets.similarity_net import IMAGE_LAYERS, TOY_LAYERS, SimilarityNet, same_probability


def seeded(*, n_features: int = 6, layers: tuple[int, ...] = (8, 5), dropout: float = 0.0) -> SimilarityNet:
    torch.manual_seed(0)
    return SimilarityNet(n_features, layers, dropout=dropout)


def features(n: int, n_features: int = 6, seed: int = 1) -> Tensor:
    return torch.randn(n, n_features, generator=torch.Generator().manual_seed(seed))


def varies_in_train_mode(net: SimilarityNet, z: Tensor) -> bool:
    with torch.no_grad():
        return not torch.equal(net(z, z), net(z, z))


@pytest.mark.parametrize(("n_features", "layers", "expected"), [(128, IMAGE_LAYERS, 468_290), (100, TOY_LAYERS, 176_962)])
def test_it_has_the_paper_s_number_of_parameters(n_features: int, layers: tuple[int, ...], expected: int) -> None:
    assert sum(p.numel() for p in SimilarityNet(n_features, layers).parameters()) == expected


def test_a_pair_of_images_costs_467_072_multiplications() -> None:
    net, z = SimilarityNet(128), torch.zeros(1, 128)
    with FlopCounterMode(display=False) as counter:
        net(z, z)
    assert counter.get_total_flops() == 2 * 467_072


def test_the_split_first_layer_equals_a_linear_layer_on_the_concatenation() -> None:
    net = seeded()
    first = net.layers[0]
    z_i, z_j = features(7, seed=1), features(7, seed=2)
    torch.testing.assert_close(net.left(z_i) + net.right(z_j), first(torch.cat([z_i, z_j], dim=1)))


def test_the_net_equals_the_layers_of_the_paper_in_sequence() -> None:
    net = seeded()
    a, b, c = net.layers
    chain = nn.Sequential(a, nn.LeakyReLU(0.1), b, nn.LeakyReLU(0.1), c)
    z_i, z_j = features(7, seed=1), features(7, seed=2)
    torch.testing.assert_close(net(z_i, z_j), chain(torch.cat([z_i, z_j], dim=1)))


def test_the_grid_has_the_logits_of_every_pair() -> None:
    net, z = seeded(), features(5)
    i, j = torch.arange(5).repeat_interleave(5), torch.arange(5).repeat(5)
    torch.testing.assert_close(net.grid(z, z).reshape(25, 2), net.pairs(z, i, j))


def test_pairs_by_index_equal_pairs_by_value() -> None:
    net, z = seeded(), features(5)
    i, j = torch.tensor([0, 4, 4]), torch.tensor([3, 1, 4])
    torch.testing.assert_close(net.pairs(z, i, j), net(z[i], z[j]))


def test_the_order_of_a_pair_matters() -> None:
    net = seeded()
    z_i, z_j = features(1, seed=1), features(1, seed=2)
    assert not torch.allclose(net(z_i, z_j), net(z_j, z_i))


def test_dropout_acts_in_train_mode_only() -> None:
    net, z = seeded(dropout=0.5), features(20)
    assert varies_in_train_mode(net, z)
    net.eval()
    assert torch.equal(net(z, z), net(z, z))


def test_without_dropout_train_and_eval_agree() -> None:
    net, z = seeded(dropout=0.0), features(20)
    in_training = net(z, z)
    assert torch.equal(net.eval()(z, z), in_training)


def test_no_dropout_follows_the_last_hidden_layer() -> None:
    z = features(20)
    assert not varies_in_train_mode(seeded(layers=(8,), dropout=0.5), z)
    assert varies_in_train_mode(seeded(layers=(8, 5), dropout=0.5), z)


def test_dropout_follows_every_hidden_layer_but_the_last() -> None:
    net = seeded(layers=(8, 5, 4), dropout=1.0)  # everything is dropped: only the layers after the last dropout count
    last_hidden, out = net.layers[2], net.layers[3]
    assert isinstance(last_hidden, nn.Linear)
    expected = out(nn.functional.leaky_relu(last_hidden.bias, 0.1))
    torch.testing.assert_close(net(features(3), features(3)), expected.expand(3, 2))


def test_equal_logits_give_a_probability_of_a_half() -> None:
    assert same_probability(torch.tensor([2.0, 2.0])).item() == 0.5


def test_the_probability_is_the_first_softmax_output() -> None:
    logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(same_probability(logits), torch.softmax(logits, dim=1)[:, 0])


def test_log_odds_shift_a_probability_of_a_half_to_the_prior() -> None:
    pi = 0.1
    moved = same_probability(torch.zeros(1, 2), log_odds=math.log((1 - pi) / pi))
    assert moved.item() == pytest.approx(pi)


def test_log_odds_are_subtracted_from_the_logit() -> None:
    logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    shift = torch.logit(same_probability(logits)) - torch.logit(same_probability(logits, log_odds=1.5))
    torch.testing.assert_close(shift, torch.full((4,), 1.5))
