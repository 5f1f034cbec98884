"""Classifier: features, a head, and a feature width that is found by a forward pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from samekind.errors import SettingError
from samekind.nets.classifier import Classifier, classifier_from_features
from samekind.nets.mlp import vector_classifier


def test_the_head_maps_z_to_the_logits() -> None:
    classifier = vector_classifier(2, 3)
    z, logits = classifier(torch.randn(5, 2))
    assert z.shape == (5, 100)
    assert torch.equal(classifier.head(z), logits)


def test_the_paper_s_toy_net_has_502_parameters() -> None:
    classifier = vector_classifier(2, 2)
    assert sum(p.numel() for p in classifier.parameters()) == 502
    assert (classifier.n_features, classifier.n_classes) == (100, 2)


def test_a_head_passed_in_is_the_one_used() -> None:
    head = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    classifier = Classifier(nn.Identity(), 4, 3, head=head)
    x = torch.randn(2, 4)
    assert torch.equal(classifier(x).logits, head(x))
    assert (classifier.n_features, classifier.n_classes) == (4, 3)


def test_the_number_of_features_is_found_by_a_forward_pass() -> None:
    features = nn.Sequential(nn.Flatten(), nn.Linear(12, 7))
    classifier = classifier_from_features(features, torch.zeros(2, 3, 4), n_classes=5)
    assert classifier.n_features == 7
    assert classifier(torch.zeros(6, 3, 4)).logits.shape == (6, 5)


def test_that_forward_pass_leaves_statistics_and_mode_unchanged() -> None:
    norm = nn.BatchNorm1d(3)
    classifier_from_features(norm, torch.full((4, 3), 9.0), n_classes=2)
    assert norm.training
    assert norm.running_mean is not None and torch.equal(norm.running_mean, torch.zeros(3))


def test_that_forward_pass_leaves_a_submodule_in_eval_mode() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3).eval())
    classifier_from_features(net, torch.zeros(4, 3), n_classes=2)
    assert [part.training for part in net] == [True, False]


def test_a_net_that_ends_in_feature_maps_is_refused_with_a_hint() -> None:
    with pytest.raises(SettingError, match=r"returned \(2, 4, 8, 8\).*pooling or flattening"):
        classifier_from_features(nn.Conv2d(1, 4, 3, padding=1), torch.zeros(2, 1, 8, 8), n_classes=2)


def test_a_net_that_returns_no_tensor_is_refused() -> None:
    class Pair(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, x

    with pytest.raises(SettingError, match="returned tuple"):
        classifier_from_features(Pair(), torch.zeros(2, 3), n_classes=2)
