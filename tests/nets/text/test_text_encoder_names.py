from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samekind.errors import SettingError
from samekind.nets.text.cleaning import cut_text
from samekind.nets.text.text_encoder_names import build_text_encoder, is_text_encoder, restore_text_encoder

TEXTS = ["the cat sleeps", "a dog runs", "the cat runs", "a dog sleeps"]


@pytest.fixture(scope="module")
def use() -> Any:
    return build_text_encoder("use")


def test_the_sentence_encoder_knows_that_two_languages_mean_the_same(use: Any) -> None:
    english, german, other = use(["the cat sleeps on the sofa", "die Katze schläft auf dem Sofa", "interest rates rise"])
    assert english.shape == (512,)
    assert english @ german > 0.5 > english @ other


def test_a_long_text_has_the_mean_features_of_its_pieces_by_length(use: Any) -> None:
    text = "stocks and bonds fall. " * 60 + "the team wins the cup. " * 30
    pieces = cut_text(text.strip())
    sizes = np.array([1 + len(piece) for piece in pieces])
    assert len(pieces) == 3
    assert np.allclose(use([text, "x"])[0], (use.encode(pieces) * sizes[:, None]).sum(0) / sizes.sum(), atol=1e-5)


def test_empty_and_strange_texts_have_finite_features(use: Any) -> None:
    assert np.isfinite(use(["", " ", "\U0001f600", "\x00", "\ud800", "<br>", "x" * 3000])).all()


def test_encoders_side_by_side_count_as_much_and_can_be_restored() -> None:
    encoder = build_text_encoder("use, tfidf").fitted(TEXTS)
    z = encoder(TEXTS)
    assert (z[:, :512] ** 2).sum(1) == pytest.approx(1.0, abs=1e-4) == (z[:, 512:] ** 2).sum(1)
    restored = restore_text_encoder(encoder.name, encoder.state())
    assert restored.fingerprint == encoder.fingerprint and np.array_equal(restored(TEXTS), z)


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SettingError, match="did you mean 'tfidf'"):
        build_text_encoder("tfdif")
    assert is_text_encoder("use,tfidf") and not is_text_encoder("use,lite0")
