"""Passes that leave nothing behind, or only a part."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from samekind.nets.classifier import Classifier
from samekind.nets.conv13 import MeanOnlyNorm
from samekind.nets.forward import chance, dealt, set_chance, without_trace

CPU = torch.device("cpu")


def net(norm: nn.Module) -> Classifier:
    head = nn.Linear(2, 2, bias=False)
    head.weight.data.copy_(torch.eye(2))
    return Classifier(norm, 2, 2, head=head).train()


def rows(n: int = 4) -> torch.Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(0)) + 3.0


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(2), nn.BatchNorm1d(2, momentum=None), MeanOnlyNorm(2)])
def test_a_pass_without_trace_answers_as_any_other_and_moves_no_statistics(norm: nn.Module) -> None:
    classifier = net(norm)
    before = {name: buffer.clone() for name, buffer in classifier.named_buffers()}
    quiet = without_trace(classifier, rows()).logits
    assert all(torch.equal(buffer, before[name]) for name, buffer in classifier.named_buffers())
    assert torch.equal(quiet, classifier(rows()).logits)
    assert not all(torch.equal(buffer, before[name]) for name, buffer in classifier.named_buffers())


def test_a_pass_without_trace_sends_gradient_to_the_weights() -> None:
    classifier = net(nn.BatchNorm1d(2))
    torch.autograd.backward(without_trace(classifier, rows()).logits[:, 0].square().sum())
    grad = classifier.head.get_parameter("weight").grad
    assert grad is not None and grad.any()


def test_dealt_rows_come_back_in_their_order() -> None:
    classifier = net(nn.Identity())
    for n, hands in ((7, 3), (6, 2), (5, 1), (2, 4)):
        assert torch.equal(dealt(classifier, rows(n), hands), rows(n))


def test_each_hand_is_normalised_by_itself_and_the_first_is_remembered() -> None:
    classifier = net(nn.BatchNorm1d(2, affine=False))
    x = rows(6)
    found = dealt(classifier, x, 2)
    for hand in (x[0::2], x[1::2]):
        expected = (hand - hand.mean(0)) / (hand.var(0, unbiased=False) + 1e-5).sqrt()
        place = [int((x == row).all(1).nonzero()) for row in hand]
        torch.testing.assert_close(found[place], expected)
    mean = classifier.features.get_buffer("running_mean")
    torch.testing.assert_close(mean, 0.1 * x[0::2].mean(0))


def test_a_hand_holds_a_share_of_what_stands_first_and_of_what_stands_last() -> None:
    sizes: list[list[float]] = []
    classifier = net(nn.Identity())
    classifier.features.register_forward_pre_hook(lambda _, given: sizes.append(given[0][:, 0].tolist()))
    dealt(classifier, torch.tensor([[0.0, 0.0]] * 3 + [[1.0, 0.0]] * 6), 3)
    assert sizes == [[0.0, 1.0, 1.0]] * 3


def test_the_same_chance_gives_the_same_dropout() -> None:
    drop, state = nn.Dropout(0.5), chance(CPU)
    first = drop(torch.ones(100))
    other = drop(torch.ones(100))
    set_chance(state, CPU)
    assert torch.equal(drop(torch.ones(100)), first)
    assert not torch.equal(first, other)
