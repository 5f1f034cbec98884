"""The most alike: exhaustively, among candidates, and for several examples at once."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from samekind.errors import SettingError
from samekind.nets.similarity import SimilarityNet, same_probability
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


def margins(net: SimilarityNet, z_a: Tensor, z_b: Tensor) -> Tensor:
    logits = net.grid(z_a, z_b)
    return logits[..., 0] - logits[..., 1]


@pytest.fixture(scope="module")
def many() -> SimilarityIndex:
    return SimilarityIndex(items(EXHAUSTIVE_UP_TO + 2000), score(phi()))


@given(n=st.integers(2, 60), k=st.integers(1, 70), symmetric=st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_most_alike_are_those_of_the_whole_matrix(n: int, k: int, symmetric: bool) -> None:
    z, net = items(n), phi()
    W = same_probability(net.grid(z, z))
    W = ((W + W.T) / 2 if symmetric else W).fill_diagonal_(-1.0)
    found = SimilarityIndex(z, score(net)).search(range(n), k, symmetric=symmetric)
    expected = W.sort(dim=1, descending=True).values[:, : min(k, n - 1)]
    torch.testing.assert_close(found.similarity[:, : n - 1], expected, atol=1e-6, rtol=0)
    assert (found.ids[:, n - 1 :] == -1).all() and (found.similarity[:, n - 1 :] == 0).all()


def test_an_item_finds_itself_only_if_that_is_wanted() -> None:
    index = SimilarityIndex(items(30), score(phi()))
    assert (index.search([4], 30).ids != 4).all()
    assert 4 in index.search([4], 30, itself=True).ids


def test_full_similarities_are_still_told_apart() -> None:
    net, z = phi(steep=9.0), items(200)
    found = SimilarityIndex(z, score(net)).search([0], 20, itself=True)
    assert (found.similarity[0, :5] == 1.0).all(), "the test means nothing unless W is full"
    assert found.ids[0, :5].tolist() == margins(net, z[:1], z)[0].argsort(descending=True)[:5].tolist()


def test_duplicates_come_by_their_number() -> None:
    z = items(50)
    z[[7, 21, 33]] = z[3].clone()
    ids = SimilarityIndex(z, score(phi())).search(z[:1], 50).ids[0].tolist()
    assert sorted(ids.index(i) for i in (3, 7, 21, 33)) == [ids.index(i) for i in (3, 7, 21, 33)]


def test_candidates_find_nearly_all_of_what_an_exhaustive_search_finds(many: SimilarityIndex) -> None:
    assert many.recall(range(40), 9, candidates=800) > 0.9
    assert many.recall(range(40), 9, candidates=20) < many.recall(range(40), 9, candidates=800)


def test_what_candidates_find_has_its_true_similarity(many: SimilarityIndex) -> None:
    few, all_of_them = many.search(range(8), 5, candidates=200), many.search(range(8), len(many), candidates="all")
    assert not few.exact and all_of_them.exact
    for row in range(8):
        true = dict(all_of_them.pairs(row))
        assert [true[item] for item, _ in few.pairs(row)] == [W for _, W in few.pairs(row)] and len(few.pairs(row)) == 5


def test_recall_is_the_share_of_what_there_was_to_find() -> None:
    empty = torch.zeros(2, 3)
    true = SearchResult(torch.tensor([[1, 2, 3], [4, -1, -1]]), empty, exact=True)
    found = SearchResult(torch.tensor([[3, 9, 1], [-1, -1, -1]]), empty, exact=False)
    assert found.recall(true) == 2 / 4 and true.recall(true) == 1.0 and found.first(1).recall(true.first(1)) == 2 / 3


def test_candidates_leave_out_the_query_and_all_that_may_not_be_found(many: SimilarityIndex) -> None:
    allowed = torch.arange(len(many)) % 3 == 0
    found = many.search([0, 3], 9, candidates=64, only=allowed)
    assert (found.ids % 3 == 0).all()
    assert (found.ids != torch.tensor([[0], [3]])).all()


def test_few_allowed_items_are_all_looked_at(many: SimilarityIndex) -> None:
    found = many.search([0], 9, only=[5, 9, 11])
    assert found.exact
    assert sorted(found.ids[0].tolist()) == [-1] * 6 + [5, 9, 11]


def test_nothing_below_the_least_similarity_is_found() -> None:
    index = SimilarityIndex(items(40), score(phi()))
    found = index.search(range(5), 39, min_sim=0.5)
    assert ((found.similarity >= 0.5) | (found.ids == -1)).all()
    assert (found.ids == -1).any() and (found.ids >= 0).any()


def test_like_several_is_the_geometric_mean_and_unlike_is_held_against_it() -> None:
    z, net = items(40), phi()
    W = same_probability(net.grid(z, z)).double()
    found = SimilarityIndex(z, score(net)).search_by_example([1, 2], 37, not_ids=[3])
    assert sorted(found.ids[0].tolist()) == [i for i in range(40) if i not in (1, 2, 3)]
    for item, similarity in found.pairs():
        assert similarity == pytest.approx(float((W[1, item] * W[2, item]).sqrt() * (1 - W[3, item])), abs=1e-6)


def test_like_any_is_the_largest() -> None:
    z, net = items(40), phi()
    W = same_probability(net.grid(z, z))
    for item, similarity in SimilarityIndex(z, score(net)).search_by_example([1, 2], 5, how="any").pairs():
        assert similarity == pytest.approx(float(W[[1, 2], item].max()), abs=1e-6)


def test_a_large_selection_is_answered_too(many: SimilarityIndex) -> None:
    found = many.search_by_example(range(500), 60)
    assert (found.ids >= 500).all()


def test_a_single_example_is_answered_as_by_neighbours(many: SimilarityIndex) -> None:
    like, near = many.search_by_example([5], 9, candidates=300), many.search([5], 9, candidates=300)
    assert like.ids.tolist() == near.ids.tolist()
    torch.testing.assert_close(like.similarity.float(), near.similarity)


def test_halves_that_are_not_kept_give_the_same_answers(many: SimilarityIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = many.search(range(40), 9, candidates=100, symmetric=True)
    monkeypatch.setattr("samekind.search.candidates.HELD", 0)
    made = SimilarityIndex(items(EXHAUSTIVE_UP_TO + 2000), score(phi())).search(range(40), 9, candidates=100, symmetric=True)
    assert torch.equal(kept.ids, made.ids) and torch.equal(kept.similarity, made.similarity)


def test_features_may_come_as_an_array() -> None:
    z = items(30)
    index = SimilarityIndex(z, score(phi()))
    assert torch.equal(index.search(z[:4].numpy(), 5).ids, index.search(z[:4], 5).ids)
    with pytest.raises(SettingError, match="expected their whole numbers"):
        index.search_by_example([0.5])  # type: ignore[list-item]


def test_no_query_is_no_answer() -> None:
    assert SimilarityIndex(items(5), score(phi())).search(torch.empty(0, 6), 3).ids.shape == (0, 3)


def test_wrong_questions_are_refused_with_what_is_right(many: SimilarityIndex) -> None:
    with pytest.raises(SettingError, match="there are 0 to"):
        many.search([len(many)])
    with pytest.raises(SettingError, match=r"expected features \(q, 6\)"):
        many.search(torch.zeros(2, 5))
    with pytest.raises(SettingError, match="expected a whole number of 1 or more"):
        many.search([0], 0)
    with pytest.raises(SettingError, match="expected k = 9 or more"):
        many.search([0], 9, candidates=3)
    with pytest.raises(SettingError, match="at least one item"):
        many.search_by_example([])
    with pytest.raises(SettingError, match="expected a mark for each"):
        many.search([0], only=torch.ones(3, dtype=torch.bool))
    with pytest.raises(SettingError, match="'all' or 'any'"):
        many.search_by_example([0], how="most")  # type: ignore[arg-type]
