"""Log-odds of pairs: equal to those of Phi, independent of the other pairs of a call, and symmetrised."""

from __future__ import annotations

import math
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from samekind.methods.predictors import DeepPredictor, GraphPredictor, KernelPredictor
from samekind.nets.classifier import Classifier
from samekind.nets.similarity_net import IMAGE_LAYERS, SimilarityNet
from samekind.search.pair_scores import KernelScore, PairScore, PhiScore, make_pair_score, mean_log_odds
from samekind.search.pairwise import pairwise_blocks, pairwise_similarity

D = 5


def phi(layers: tuple[int, ...] = (24, 8), dtype: torch.dtype = torch.float32) -> SimilarityNet:
    torch.manual_seed(0)
    return SimilarityNet(D, layers, dropout=0.0).requires_grad_(False).to(dtype)


def score(net: SimilarityNet, log_odds: float = 0.0) -> PhiScore:
    layers = [cast(nn.Linear, layer) for layer in net.layers]
    return PhiScore([(layer.weight, layer.bias) for layer in layers], slope=net.slope, log_odds=log_odds)


def samples(n: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("layers", [IMAGE_LAYERS, (24, 8), (7,)])
def test_log_odds_are_the_differences_of_the_logits_of_phi(layers: tuple[int, ...]) -> None:
    net, a, b = phi(layers), samples(9), samples(70, seed=2)
    logits = net.grid(a, b)
    s = score(net, log_odds=1.5)
    found = s.matrix(s.left(a), s.right(b))
    torch.testing.assert_close(found, logits[..., 0] - logits[..., 1] - 1.5, atol=1e-6, rtol=1e-5)


@given(n_a=st.integers(0, 40), n_b=st.integers(1, 90), c=st.integers(1, 20), seed=st.integers(0, 99), double=st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_log_odds_of_a_pair_do_not_depend_on_the_other_pairs(n_a: int, n_b: int, c: int, seed: int, double: bool) -> None:
    dtype = torch.float64 if double else torch.float32
    s, a, b = score(phi(dtype=dtype)), samples(40, dtype), samples(90, dtype, seed=2)
    whole = s.matrix(s.left(a), s.right(b))
    assert torch.equal(s.matrix(s.left(a[:n_a]), s.right(b[:n_b])), whole[:n_a, :n_b])
    chosen = torch.randint(0, 90, (n_a, c), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(s.selected(s.left(a[:n_a]), s.right(b), chosen), whole[:n_a].gather(1, chosen))


@given(pairs=st.integers(60, 3000), symmetric=st.booleans(), same=st.booleans())
@settings(max_examples=12, deadline=None)
def test_similarities_do_not_depend_on_the_size_of_the_blocks(pairs: int, symmetric: bool, same: bool) -> None:
    s, a = score(phi()), samples(33)
    b = a if same else samples(50, seed=2)
    expected = pairwise_similarity(s, a, b, symmetric=symmetric)
    found = pairwise_similarity(s, a, b, symmetric=symmetric, max_pairs=pairs)
    if symmetric and not same:
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    else:
        assert torch.equal(found, expected)


def test_blocks_cover_every_pair_once_and_hold_at_most_max_pairs() -> None:
    seen = torch.zeros(33, 50)
    for one, other, log_odds in pairwise_blocks(score(phi()), samples(33), samples(50, seed=2), max_pairs=100):
        assert log_odds.numel() <= 100
        seen[one, other] += 1
    assert (seen == 1).all()


def test_symmetric_similarities_are_the_mean_of_w_ij_and_w_ji() -> None:
    s, a, b = score(phi()), samples(20), samples(30, seed=2)
    W = pairwise_similarity(s, a, a)
    torch.testing.assert_close(pairwise_similarity(s, a, a, symmetric=True), (W + W.T) / 2)
    expected = (pairwise_similarity(s, a, b) + pairwise_similarity(s, b, a).T) / 2
    torch.testing.assert_close(pairwise_similarity(s, a, b, symmetric=True), expected)
    assert not torch.allclose(W, W.T)


@given(a=st.floats(-30, 30), b=st.floats(-30, 30))
@settings(deadline=None)
def test_mean_log_odds_are_the_log_odds_of_the_mean(a: float, b: float) -> None:
    ij, ji = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    same, other = ij.sigmoid() + ji.sigmoid(), (-ij).sigmoid() + (-ji).sigmoid()
    assert float(mean_log_odds(ij, ji)) == pytest.approx(float(torch.log(same / other)), abs=1e-9)


def test_mean_log_odds_still_rank_where_w_is_1() -> None:
    ij, ji = torch.tensor([40.0, 60.0, 60.0, math.inf]), torch.tensor([40.0, 40.0, 60.0, math.inf])
    log_odds = mean_log_odds(ij, ji)
    assert (log_odds.sigmoid() == 1).all()
    assert log_odds.argsort().tolist() == [0, 1, 2, 3]


def graph() -> GraphPredictor:
    points, widths = samples(30, seed=3), torch.linspace(0.5, 2.0, 30)
    return GraphPredictor(30, D, 2, 4).fill(points, widths, torch.full((30, 2), 0.5))


def predictors() -> list[DeepPredictor | GraphPredictor | KernelPredictor]:
    torch.manual_seed(0)
    classifier = Classifier(torch.nn.Identity(), D, 3)
    kernel = KernelPredictor(30, D, 2).fill(samples(30, seed=3), torch.zeros(30, 2), 0.7)
    return [DeepPredictor(classifier, phi(), log_odds=2.0), DeepPredictor(classifier), graph(), kernel]


@pytest.mark.parametrize("which", range(4), ids=["phi", "confidence", "graph", "kernel"])
def test_every_predictor_has_a_score_whose_w_is_its_similarity(which: int) -> None:
    predictor = predictors()[which].requires_grad_(False)
    a, b = samples(8), torch.cat([samples(8), samples(300, seed=2)])
    s: PairScore = make_pair_score(predictor)
    W = pairwise_similarity(s, a, b)
    torch.testing.assert_close(W, predictor.similarity(a, b), atol=1e-6, rtol=1e-5)
    chosen = torch.randint(0, 308, (8, 7), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(s.selected(s.left(a), s.right(b), chosen).sigmoid(), W.gather(1, chosen))


def test_log_odds_rank_pairs_where_w_is_0_or_1() -> None:
    s = KernelScore(lambda a, b: -((a - b.T) ** 2))
    log_odds = s.matrix(torch.zeros(1, 1), torch.tensor([[0.0], [1e-5], [2e-5], [20.0], [30.0]]))
    assert (log_odds.diff() < 0).all()
    assert log_odds.sigmoid()[0, [0, 1, 2, 4]].tolist() == [1.0, 1.0, 1.0, 0.0]
