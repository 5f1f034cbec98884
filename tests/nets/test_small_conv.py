"""Small convolutional net: any image size, batch norm, dropout in training, and digits learned in a few steps."""

from __future__ import annotations

import copy

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.nets.classifier import Classifier
from samekind.nets.small_conv import SmallConv, image_classifier


def digits() -> tuple[Tensor, Tensor]:
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x / 8.0 - 1.0, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.from_numpy(y)


def widths(net: nn.Module) -> list[int]:
    return [layer.out_channels for layer in net.modules() if isinstance(layer, nn.Conv2d)]


@pytest.mark.parametrize("size", [(4, 4), (5, 7), (8, 8), (9, 8), (4, 32), (28, 28), (33, 31), (48, 64)])
def test_images_of_any_size_from_four_pixels_give_z_and_logits(size: tuple[int, int]) -> None:
    classifier = image_classifier((1, *size), n_classes=3)
    z, logits = classifier(torch.randn(2, 1, *size))
    assert z.shape == (2, 128)
    assert logits.shape == (2, 3)


@pytest.mark.parametrize("size", [(4, 4), (1, 3), (40, 12)])
def test_a_net_made_for_one_size_takes_others(size: tuple[int, int]) -> None:
    net = SmallConv(3, side=32, width=4, n_features=16).eval()
    assert net(torch.randn(2, 3, *size)).shape == (2, 16)


@pytest.mark.parametrize(
    ("side", "expected"),
    [(4, [32, 128]), (8, [32, 64, 128]), (16, [32, 64, 128, 128]), (28, [16, 32, 64, 128]), (32, [16, 32, 64, 128, 128])],
)
def test_larger_images_get_more_and_narrower_blocks(side: int, expected: list[int]) -> None:
    assert widths(image_classifier((1, side, side), n_classes=10)) == expected


def test_the_smaller_side_decides_the_number_of_pooling_layers() -> None:
    assert widths(image_classifier((1, 8, 64), n_classes=2)) == widths(image_classifier((1, 8, 8), n_classes=2))


def test_every_convolution_has_a_batch_norm() -> None:
    net = SmallConv(1)
    norms = [layer.num_features for layer in net.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert norms == widths(net)


def test_z_does_not_depend_on_the_memory_layout_of_the_images() -> None:
    net = SmallConv(3, width=4).eval()
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(net(x), net(x.contiguous(memory_format=torch.channels_last)))


def test_dropout_acts_in_train_mode_only() -> None:
    torch.manual_seed(0)
    net, x = SmallConv(1, dropout=0.5), torch.randn(4, 1, 8, 8)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))


def test_without_dropout_a_training_pass_is_repeatable() -> None:
    net, x = SmallConv(1), torch.randn(4, 1, 8, 8)
    assert torch.equal(net(x), net(x))


def test_weights_are_stored_contiguously_as_safetensors_requires() -> None:
    assert all(tensor.is_contiguous() for tensor in SmallConv(3).state_dict().values())


def test_a_copy_and_a_reloaded_net_give_the_same_z() -> None:
    net, x = SmallConv(1).eval(), torch.randn(2, 1, 8, 8)
    reloaded = SmallConv(1).eval()
    reloaded.load_state_dict(net.state_dict())
    assert torch.equal(copy.deepcopy(net)(x), net(x))
    assert torch.equal(reloaded(x), net(x))


def test_digits_are_learned_in_a_hundred_steps() -> None:
    torch.manual_seed(0)
    x, y = digits()
    classifier: Classifier = image_classifier((1, 8, 8), n_classes=10)
    optimizer = torch.optim.Adam(classifier.parameters(), lr=0.003)
    for step in range(100):
        rows = torch.arange(60 * step, 60 * (step + 1)) % 1000
        loss = F.cross_entropy(classifier(x[rows]).logits, y[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    wrong = classifier.eval()(x[1000:]).logits.argmax(1) != y[1000:]
    assert wrong.float().mean() < 0.08
