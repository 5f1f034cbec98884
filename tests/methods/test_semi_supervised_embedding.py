"""Semi-supervised embedding: which pairs are pulled together, which are pushed apart, and what gets a gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.errors import DataError, SettingError
from samekind.methods.base import Task
from samekind.methods.semi_supervised_embedding import SemiSupervisedEmbedding, SemiSupervisedEmbeddingConfig
from samekind.nets.classifier import Classifier

TASK = Task(n_classes=2, n_labelled=2, n_samples=4, steps=10)
X = torch.tensor([[0.0, 0.0], [0.0, 1.0], [4.0, 0.0], [4.0, 1.0]])  # two pairs of neighbours
DATASET = Dataset(X, torch.tensor([0, -1, 1, -1]), 2)


def plain() -> Classifier:
    """Return a net whose features and outputs are the inputs."""
    net = Classifier(nn.Identity(), 2, 2)
    net.head.weight.data = torch.eye(2)
    net.head.bias.data = torch.zeros(2)
    return net


def method(**settings: Any) -> SemiSupervisedEmbedding:
    made = SemiSupervisedEmbedding(plain(), TASK, SemiSupervisedEmbeddingConfig(n_neighbors=1, **settings))
    made.refresh(DATASET)
    return made


def batch(rows: list[int]) -> Batch:
    index = torch.tensor(rows)
    return Batch((X[:1],), torch.tensor([0]), (X[index],), index)


def test_terms_by_hand() -> None:
    # neighbours are 1 apart; strangers 0 and 2 are 4 apart, which is 1 short of the margin; outputs (0, 0) want (1, -1)
    terms = method(weight=0.5, margin=5.0).losses(batch([0, 2]), 0.0)
    assert {name: term.item() for name, term in terms.items()} == {"supervised": 2.0, "neighbours": 0.5, "strangers": 0.5}


def test_non_neighbours_beyond_the_margin_get_no_gradient() -> None:
    assert method(margin=4.0).losses(batch([0, 2]), 0.0)["strangers"] == 0.0


def test_cross_entropy_compares_probabilities() -> None:
    terms = method(label_loss="cross_entropy", margin=1.0).losses(batch([0, 2]), 0.0)
    f = torch.softmax(X, dim=1)
    near = ((f[0] - f[1]).square().sum() + (f[2] - f[3]).square().sum()) / 2
    torch.testing.assert_close(terms["neighbours"], near)
    torch.testing.assert_close(terms["strangers"], (1.0 - (f[0] - f[2]).norm()).square())
    torch.testing.assert_close(terms["supervised"], torch.tensor(2.0).log())


def test_every_neighbour_is_drawn_sooner_or_later_and_no_other_sample() -> None:
    made = SemiSupervisedEmbedding(plain(), TASK, SemiSupervisedEmbeddingConfig(n_neighbors=2))
    made.refresh(DATASET)
    torch.manual_seed(0)
    drawn = torch.cat([made._random_neighbors(torch.tensor([0])) for _ in range(30)])
    assert {tuple(row) for row in drawn.tolist()} == {(0.0, 1.0), (4.0, 0.0)}


@pytest.mark.parametrize(("embed", "moved"), [("output", True), ("features", False)])
def test_what_is_embedded_is_moved_and_what_lies_above_it_is_not(embed: str, moved: bool) -> None:
    net = Classifier(nn.Linear(2, 2), 2, 2)
    made = SemiSupervisedEmbedding(net, TASK, SemiSupervisedEmbeddingConfig(n_neighbors=1, embed=embed, margin=9.0))  # type: ignore[arg-type]
    made.refresh(DATASET)
    terms = made.losses(batch([0, 2]), 0.0)
    torch.autograd.backward([terms["neighbours"], terms["strangers"]])
    features: Any = net.features
    assert features.weight.grad.abs().sum() > 0
    assert (net.head.weight.grad is not None) == moved


def test_equal_non_neighbours_do_not_break_the_gradient() -> None:
    x: Tensor = torch.zeros(4, 2)
    made = SemiSupervisedEmbedding(plain(), TASK, SemiSupervisedEmbeddingConfig(n_neighbors=1))
    made.refresh(Dataset(x, torch.tensor([0, -1, 1, -1]), 2))
    index = torch.arange(4)
    terms = made.losses(Batch((x[:1],), torch.tensor([0]), (x,), index), 0.0)
    torch.autograd.backward(list(terms.values()))
    assert all(p.grad is not None and p.grad.isfinite().all() for p in made.student.parameters())
    assert terms["strangers"] == 1.0


def test_an_unlabelled_weight_of_zero_removes_the_term() -> None:
    distrusted = Task(n_classes=2, n_labelled=2, n_samples=4, steps=10, unlabelled_weight=0.0)
    made = SemiSupervisedEmbedding(plain(), distrusted, SemiSupervisedEmbeddingConfig(n_neighbors=1))
    made.refresh(DATASET)
    terms = made.losses(batch([0, 2]), 0.0)
    assert terms["neighbours"] == terms["strangers"] == 0.0 < terms["supervised"]


def test_before_refresh_there_are_no_neighbours() -> None:
    with pytest.raises(DataError, match=r"Call refresh\(dataset\) before losses"):
        SemiSupervisedEmbedding(plain(), TASK).losses(batch([0, 2]), 0.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight": -1.0}, "weight is -1.0; expected a number, 0 or more"),
        ({"margin": 0.0}, "margin is 0.0; expected a number above 0"),
        ({"embed": "feature"}, "did you mean 'features'"),
        ({"label_loss": "hing"}, "did you mean 'hinge'"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        SemiSupervisedEmbeddingConfig(**settings)
