"""Most similar items: by exhaustive search, among candidates, and for several examples at once."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from samekind.errors import SettingError
from samekind.nets.similarity_net import SimilarityNet, same_probability
from samekind.search.index import EXHAUSTIVE_UP_TO, SearchResult, SimilarityIndex
from samekind.search.pair_scores import PhiScore


def phi(n_features: int = 6, *, steep: float = 3.0) -> SimilarityNet:
    torch.manual_seed(0)
    net = SimilarityNet(n_features, (16, 8), dropout=0.0).requires_grad_(False)
    for layer in net.layers:
        cast(nn.Linear, layer).weight.mul_(steep)
    return net


def score(net: SimilarityNet) -> PhiScore:
    layers = [cast(nn.Linear, layer) for layer in net.layers]
    return PhiScore([(layer.weight, layer.bias) for layer in layers], slope=net.slope)


def items(n: int, d: int = 6) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(1))


def log_odds(net: SimilarityNet, z_a: Tensor, z_b: Tensor) -> Tensor:
    logits = net.grid(z_a, z_b)
    return logits[..., 0] - logits[..., 1]


@pytest.fixture(scope="module")
def many() -> SimilarityIndex:
    return SimilarityIndex(items(EXHAUSTIVE_UP_TO + 2000), score(phi()))


@given(n=st.integers(2, 60), k=st.integers(1, 70), symmetric=st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_most_similar_items_are_the_largest_entries_of_the_full_matrix(n: int, k: int, symmetric: bool) -> None:
    z, net = items(n), phi()
    W = same_probability(net.grid(z, z))
    W = ((W + W.T) / 2 if symmetric else W).fill_diagonal_(-1.0)
    found = SimilarityIndex(z, score(net)).search(range(n), k, symmetric=symmetric)
    expected = W.sort(dim=1, descending=True).values[:, : min(k, n - 1)]
    torch.testing.assert_close(found.similarity[:, : n - 1], expected, atol=1e-6, rtol=0)
    assert (found.ids[:, n - 1 :] == -1).all() and (found.similarity[:, n - 1 :] == 0).all()


def test_an_item_finds_itself_only_with_include_self() -> None:
    index = SimilarityIndex(items(30), score(phi()))
    assert (index.search([4], 30).ids != 4).all()
    assert 4 in index.search([4], 30, include_self=True).ids


def test_similarities_that_saturate_at_1_are_still_ranked() -> None:
    net, z = phi(steep=9.0), items(200)
    found = SimilarityIndex(z, score(net)).search([0], 20, include_self=True)
    assert (found.similarity[0, :5] == 1.0).all(), "the test needs a W that saturates at 1"
    assert found.ids[0, :5].tolist() == log_odds(net, z[:1], z)[0].argsort(descending=True)[:5].tolist()


def test_duplicates_are_sorted_by_index() -> None:
    z = items(50)
    z[[7, 21, 33]] = z[3].clone()
    ids = SimilarityIndex(z, score(phi())).search(z[:1], 50).ids[0].tolist()
    assert sorted(ids.index(i) for i in (3, 7, 21, 33)) == [ids.index(i) for i in (3, 7, 21, 33)]


def test_candidates_find_nearly_all_of_what_an_exhaustive_search_finds(many: SimilarityIndex) -> None:
    assert many.recall(range(40), 9, candidates=800) > 0.9
    assert many.recall(range(40), 9, candidates=20) < many.recall(range(40), 9, candidates=800)


def test_items_found_among_candidates_have_their_exact_similarity(many: SimilarityIndex) -> None:
    few, all_of_them = many.search(range(8), 5, candidates=200), many.search(range(8), len(many), candidates="all")
    assert not few.exact and all_of_them.exact
    for row in range(8):
        true = dict(all_of_them.pairs(row))
        assert [true[item] for item, _ in few.pairs(row)] == [W for _, W in few.pairs(row)] and len(few.pairs(row)) == 5


def test_recall_is_the_fraction_of_true_items_that_are_found() -> None:
    empty = torch.zeros(2, 3)
    true = SearchResult(torch.tensor([[1, 2, 3], [4, -1, -1]]), empty, exact=True, log_odds=empty)
    found = SearchResult(torch.tensor([[3, 9, 1], [-1, -1, -1]]), empty, exact=False, log_odds=empty)
    assert found.recall(true) == 2 / 4 and true.recall(true) == 1.0 and found.first(1).recall(true.first(1)) == 2 / 3


def test_candidates_exclude_the_query_and_items_outside_only(many: SimilarityIndex) -> None:
    allowed = torch.arange(len(many)) % 3 == 0
    found = many.search([0, 3], 9, candidates=64, only=allowed)
    assert (found.ids % 3 == 0).all()
    assert (found.ids != torch.tensor([[0], [3]])).all()


def test_few_allowed_items_are_searched_exhaustively(many: SimilarityIndex) -> None:
    found = many.search([0], 9, only=[5, 9, 11])
    assert found.exact
    assert sorted(found.ids[0].tolist()) == [-1] * 6 + [5, 9, 11]


def test_no_item_below_min_sim_is_found() -> None:
    index = SimilarityIndex(items(40), score(phi()))
    found = index.search(range(5), 39, min_sim=0.5)
    assert ((found.similarity >= 0.5) | (found.ids == -1)).all()
    assert (found.ids == -1).any() and (found.ids >= 0).any()


def test_several_examples_combine_by_the_geometric_mean_of_w_and_of_1_minus_w() -> None:
    z, net = items(40), phi()
    W = same_probability(net.grid(z, z)).double()
    found = SimilarityIndex(z, score(net)).search_by_example([1, 2], 37, not_ids=[3])
    assert sorted(found.ids[0].tolist()) == [i for i in range(40) if i not in (1, 2, 3)]
    assert [pair for *pair, _ in found.ranked()] == [list(pair) for pair in found.pairs()]
    for item, similarity in found.pairs():
        assert similarity == pytest.approx(float((W[1, item] * W[2, item]).sqrt() * (1 - W[3, item])), abs=1e-6)


def test_how_any_takes_the_largest_similarity() -> None:
    z, net = items(40), phi()
    W = same_probability(net.grid(z, z))
    for item, similarity in SimilarityIndex(z, score(net)).search_by_example([1, 2], 5, how="any").pairs():
        assert similarity == pytest.approx(float(W[[1, 2], item].max()), abs=1e-6)


def test_a_large_selection_of_examples_can_be_searched(many: SimilarityIndex) -> None:
    found = many.search_by_example(range(500), 60)
    assert (found.ids >= 500).all()


def test_a_single_example_gives_the_same_result_as_search(many: SimilarityIndex) -> None:
    like, near = many.search_by_example([5], 9, candidates=300), many.search([5], 9, candidates=300)
    assert like.ids.tolist() == near.ids.tolist()
    torch.testing.assert_close(like.similarity.float(), near.similarity)


def test_halves_that_are_recomputed_give_the_same_results(many: SimilarityIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = many.search(range(40), 9, candidates=100, symmetric=True)
    monkeypatch.setattr("samekind.search.candidates.MAX_CACHED", 0)
    recomputed = SimilarityIndex(items(EXHAUSTIVE_UP_TO + 2000), score(phi())).search(
        range(40), 9, candidates=100, symmetric=True
    )
    assert torch.equal(kept.ids, recomputed.ids) and torch.equal(kept.similarity, recomputed.similarity)


def test_features_may_come_as_an_array() -> None:
    z = items(30)
    index = SimilarityIndex(z, score(phi()))
    assert torch.equal(index.search(z[:4].numpy(), 5).ids, index.search(z[:4], 5).ids)
    with pytest.raises(SettingError, match="expected integer indices"):
        index.search_by_example([0.5])  # type: ignore[list-item]


def test_no_query_gives_an_empty_result() -> None:
    assert SimilarityIndex(items(5), score(phi())).search(torch.empty(0, 6), 3).ids.shape == (0, 3)


def test_wrong_arguments_are_refused_with_what_is_expected(many: SimilarityIndex) -> None:
    with pytest.raises(SettingError, match="the index holds items 0 to"):
        many.search([len(many)])
    with pytest.raises(SettingError, match=r"expected features \(q, 6\)"):
        many.search(torch.zeros(2, 5))
    with pytest.raises(SettingError, match="expected a whole number of 1 or more"):
        many.search([0], 0)
    with pytest.raises(SettingError, match="a whole number of 9 or more"):
        many.search([0], 9, candidates=3)
    with pytest.raises(SettingError, match="at least one item"):
        many.search_by_example([])
    with pytest.raises(SettingError, match="one per item, or indices"):
        many.search([0], only=torch.ones(3, dtype=torch.bool))
    with pytest.raises(SettingError, match="'all' or 'any'"):
        many.search_by_example([0], how="most")  # type: ignore[arg-type]
