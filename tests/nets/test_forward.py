"""Forward passes restore modes, buffers and random states as they promise."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from samekind.nets.classifier import Classifier
from samekind.nets.conv13 import MeanOnlyNorm
from samekind.nets.forward import eval_mode, forward_without_buffer_updates, get_rng_state, interleaved_logits, set_rng_state

CPU = torch.device("cpu")


def net(norm: nn.Module) -> Classifier:
    head = nn.Linear(2, 2, bias=False)
    head.weight.data.copy_(torch.eye(2))
    return Classifier(norm, 2, 2, head=head).train()


def samples(n: int = 4) -> torch.Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(0)) + 3.0


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(2), nn.BatchNorm1d(2, momentum=None), MeanOnlyNorm(2)])
def test_a_pass_without_buffer_updates_gives_the_same_logits_and_keeps_the_statistics(norm: nn.Module) -> None:
    classifier = net(norm)
    before = {name: buffer.clone() for name, buffer in classifier.named_buffers()}
    quiet = forward_without_buffer_updates(classifier, samples()).logits
    assert all(torch.equal(buffer, before[name]) for name, buffer in classifier.named_buffers())
    assert torch.equal(quiet, classifier(samples()).logits)
    assert not all(torch.equal(buffer, before[name]) for name, buffer in classifier.named_buffers())


def test_a_pass_without_buffer_updates_sends_gradient_to_the_weights() -> None:
    classifier = net(nn.BatchNorm1d(2))
    torch.autograd.backward(forward_without_buffer_updates(classifier, samples()).logits[:, 0].square().sum())
    grad = classifier.head.get_parameter("weight").grad
    assert grad is not None and grad.any()


def test_interleaved_samples_come_back_in_their_order() -> None:
    classifier = net(nn.Identity())
    for n, n_batches in ((7, 3), (6, 2), (5, 1), (2, 4)):
        assert torch.equal(interleaved_logits(classifier, samples(n), n_batches), samples(n))


def test_each_interleaved_batch_is_normalised_by_itself_and_the_first_updates_the_statistics() -> None:
    classifier = net(nn.BatchNorm1d(2, affine=False))
    x = samples(6)
    found = interleaved_logits(classifier, x, 2)
    for batch in (x[0::2], x[1::2]):
        expected = (batch - batch.mean(0)) / (batch.var(0, unbiased=False) + 1e-5).sqrt()
        where = [int((x == sample).all(1).nonzero()) for sample in batch]
        torch.testing.assert_close(found[where], expected)
    mean = classifier.features.get_buffer("running_mean")
    torch.testing.assert_close(mean, 0.1 * x[0::2].mean(0))


def test_an_interleaved_batch_mixes_samples_from_the_start_and_the_end() -> None:
    sizes: list[list[float]] = []
    classifier = net(nn.Identity())
    classifier.features.register_forward_pre_hook(lambda _, given: sizes.append(given[0][:, 0].tolist()))
    interleaved_logits(classifier, torch.tensor([[0.0, 0.0]] * 3 + [[1.0, 0.0]] * 6), 3)
    assert sizes == [[0.0, 1.0, 1.0]] * 3


def test_the_same_random_state_gives_the_same_dropout() -> None:
    drop, state = nn.Dropout(0.5), get_rng_state(CPU)
    first = drop(torch.ones(100))
    other = drop(torch.ones(100))
    set_rng_state(state, CPU)
    assert torch.equal(drop(torch.ones(100)), first)
    assert not torch.equal(first, other)


def parts() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))


def test_eval_mode_restores_train_mode_after_an_error() -> None:
    classifier = parts().train()
    try:
        with eval_mode(classifier):
            assert not classifier.training
            raise KeyError
    except KeyError:
        assert classifier.training


def test_eval_mode_restores_the_mode_of_each_module() -> None:
    classifier = parts().train()
    classifier[1].eval()
    with eval_mode(classifier):
        assert not any(part.training for part in classifier)
    assert [part.training for part in classifier] == [True, False, True]
