from __future__ import annotations

import math

import numpy as np
import pytest

from samekind.errors import ModelFileError, SettingError
from samekind.nets.text.tfidf_encoder import N_COMPONENTS, TfidfEncoder, terms_of

TEXTS = ["red red apple", "red pear", "blue sea", "blue sky, blue sea"]


def test_terms_are_words_pairs_of_unspaced_characters_and_emoji() -> None:
    assert terms_of("Don't PANIC!") == ["don", "t", "panic"]
    assert terms_of("中文字 ok 日") == ["中文", "文字", "ok", "日"]
    assert terms_of("good \U0001f600\U0001f600") == ["good", "\U0001f600", "\U0001f600"]


def test_weights_are_those_of_the_formula() -> None:
    encoder = TfidfEncoder().fitted(TEXTS)
    assert encoder.terms == ("blue", "red", "sea")  # the terms of two texts or more
    idf = math.log(5 / 3) + 1  # all three occur in two of four texts
    assert encoder.idf == pytest.approx([idf] * 3)
    log_count = 1 + math.log(2)
    row = encoder.weights([{"blue": 2, "sea": 1, "unknown": 5}]).toarray()[0]
    assert row == pytest.approx([log_count / math.hypot(log_count, 1), 0, 1 / math.hypot(log_count, 1)])


def test_features_keep_the_inner_products_of_the_weights_if_all_components_are_kept() -> None:
    encoder = TfidfEncoder().fitted(TEXTS)
    z = encoder(TEXTS)
    assert z[0] @ z[1] == pytest.approx(1.0, abs=1e-5)  # only "red" counts
    assert z[0] @ z[2] == pytest.approx(0.0, abs=1e-5)


def test_there_are_at_most_200_components() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 400, 30)) for _ in range(300)]
    assert TfidfEncoder().fitted(texts)(texts[:3]).shape == (3, N_COMPONENTS)


@pytest.mark.parametrize("texts", [["", ""], ["!", "?"]])
def test_texts_without_words_have_one_feature_of_zero(texts: list[str]) -> None:
    assert TfidfEncoder().fitted(texts)(["", "new words"]).tolist() == [[0.0], [0.0]]


def test_words_that_occur_once_each_are_kept_if_there_are_no_others() -> None:
    assert TfidfEncoder().fitted(["one", "two"]).terms == ("one", "two")


def test_a_restored_encoder_has_the_same_features_and_hash() -> None:
    encoder = TfidfEncoder().fitted(TEXTS)
    restored = TfidfEncoder.restored(encoder.state())
    assert restored.fingerprint == encoder.fingerprint != TfidfEncoder().fitted(TEXTS[:2]).fingerprint
    assert np.array_equal(restored(["red sea"]), encoder(["red sea"]))


def test_a_changed_state_is_refused() -> None:
    state = TfidfEncoder().fitted(TEXTS).state()
    with pytest.raises(ModelFileError, match="was changed"):
        TfidfEncoder.restored({**state, "idf": state["idf"][:1]})
    with pytest.raises(ModelFileError, match="was changed"):
        TfidfEncoder.restored({})


def test_an_encoder_that_is_not_fitted_is_refused() -> None:
    with pytest.raises(SettingError, match="no terms yet"):
        TfidfEncoder()(["x"])
