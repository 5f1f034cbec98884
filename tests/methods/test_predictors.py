"""Predictions of a trained net, computed by hand."""

from __future__ import annotations

import torch
from torch import nn

from samekind.methods.predictors import DeepPredictor, build_predictor
from samekind.nets.classifier import Classifier


class FirstColumn(nn.Module):
    """z is the first column of an image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0, :, 0]


def test_logits_are_averaged_over_an_image_and_its_flip() -> None:
    net = Classifier(FirstColumn(), 2, 2)
    x = torch.tensor([[[[1.0, 5.0, 3.0], [2.0, 5.0, 6.0]]]])
    both = DeepPredictor(net, mirrored=True)
    assert both.features(x).tolist() == [[2.0, 4.0]]
    z, other = net.features(x), net.features(x.flip(-1))
    by_logits = torch.softmax((net.head(z) + net.head(other)) / 2, dim=-1)
    torch.testing.assert_close(both.probabilities(both.features(x)), by_logits)
    again = build_predictor(both.blueprint(), net)
    assert isinstance(again, DeepPredictor)
    assert again.mirrored
    assert not DeepPredictor(net).mirrored
