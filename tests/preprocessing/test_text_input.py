"""Texts as X of the estimator: from fit to save and load."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from samekind import SemiSupervisedClassifier
from samekind.data.texts import parse_texts
from samekind.errors import DataError, ModelFileError, SettingError
from samekind.nets.encoders.frozen_features import FeatureCache

FRUIT = "apple pear plum grape lemon cherry mango peach".split()
METAL = "iron copper zinc tin lead silver gold nickel".split()


def sentences(n: int = 60, seed: int = 0) -> tuple[list[str], list[str | None], list[str]]:
    """Return texts about fruit and metal, the labels of the first eight, and all classes."""
    rng = np.random.default_rng(seed)
    classes = ["fruit" if i % 2 else "metal" for i in range(n)]
    goods = {"fruit": FRUIT, "metal": METAL}
    texts = [f"We sell {' and '.join(rng.choice(goods[c], 3, replace=False))} at the market." for c in classes]
    return texts, [c if i < 8 else None for i, c in enumerate(classes)], classes


@pytest.fixture(scope="module")
def fitted() -> SemiSupervisedClassifier:
    texts, y, _ = sentences()
    return SemiSupervisedClassifier(random_state=0).fit(texts, y)


def vowels(texts: list[str]) -> npt.NDArray[np.float64]:
    """Return how often each vowel occurs in each text."""
    return np.array([[text.count(vowel) for vowel in "aeiou"] for text in texts], dtype=float)


def test_texts_are_classified_and_compared(fitted: SemiSupervisedClassifier) -> None:
    new, _, classes = sentences(20, seed=1)
    assert (fitted.transduction_ == sentences()[2]).mean() > 0.95
    assert (fitted.predict(new) == classes).mean() > 0.9
    W = fitted.similarity(new[:1], new[1:])[0]
    assert W[1::2].mean() > W[0::2].mean()  # the first text is about metal, like every second of the others
    _, near = fitted.kneighbors(new[:2], 5)
    assert near.shape == (2, 5) and fitted.index().search_by_example([0], k=3).ids.shape[-1] == 3
    assert fitted.model_.encoder == "use" and fitted.transform(new).shape == (20, 512)


@pytest.mark.parametrize("make", [tuple, np.array, pd.Series, lambda texts: pd.Series(texts, index=range(9, 9 + len(texts)))])
def test_texts_may_come_in_any_sequence(make: Any, fitted: SemiSupervisedClassifier) -> None:
    texts = sentences(10, seed=1)[0]
    np.testing.assert_array_equal(fitted.predict_proba(make(texts)), fitted.predict_proba(texts))


def test_missing_texts_are_empty_texts() -> None:
    given = ["a", None, float("nan"), pd.NA, ""]
    assert parse_texts(given) == parse_texts(pd.Series(given, dtype=object)) == ["a", "", "", "", ""]
    assert parse_texts([None, None]) is None and parse_texts(["a", 1]) is None and parse_texts(np.zeros((2, 2))) is None


def test_integer_labels_and_minus_one_work_as_for_other_samples() -> None:
    texts, y, classes = sentences()
    model = SemiSupervisedClassifier(encoder="tfidf").fit(
        texts, [-1 if label is None else int(label == "fruit") for label in y]
    )
    assert (model.transduction_ == [int(c == "fruit") for c in classes]).mean() > 0.9


@pytest.mark.parametrize("encoder", ["auto", "tfidf", "use,tfidf", ["tfidf", "use"]])
def test_a_saved_model_predicts_the_same_and_names_its_encoder(encoder: Any, tmp_path: Path) -> None:
    texts, y, _ = sentences()
    model = SemiSupervisedClassifier(encoder=encoder, random_state=0).fit(texts, y)
    model.save(tmp_path)
    loaded = SemiSupervisedClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(texts[:5]), model.predict_proba(texts[:5]))
    manifest = json.loads((tmp_path / "model.json").read_text())
    assert manifest["encoder"] == {"auto": "use"}.get(str(encoder), ",".join(encoder) if isinstance(encoder, list) else encoder)
    assert len(manifest["encoder_hash"]) == 64


def test_a_changed_encoder_is_refused(tmp_path: Path) -> None:
    texts, y, _ = sentences()
    SemiSupervisedClassifier(encoder="tfidf").fit(texts, y).save(tmp_path)
    manifest = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**manifest, "encoder_hash": "0" * 64}))
    with pytest.raises(ModelFileError, match="its hash is"):
        SemiSupervisedClassifier.load(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps({**manifest, "encoder": None, "custom_encoder": False}))
    with pytest.raises(ModelFileError):
        SemiSupervisedClassifier.load(tmp_path)


def test_a_function_of_the_user_encodes_texts_and_is_passed_again(tmp_path: Path) -> None:
    texts, y, _ = sentences()
    model = SemiSupervisedClassifier(encoder=vowels).fit(texts, y)
    np.testing.assert_array_equal(model.transform(["aeiou", "zzz"]), [[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    model.save(tmp_path)
    with pytest.raises(ModelFileError, match="encoder of your own"):
        SemiSupervisedClassifier.load(tmp_path)
    loaded = SemiSupervisedClassifier.load(tmp_path, encoder=vowels)
    np.testing.assert_array_equal(loaded.predict_proba(texts), model.predict_proba(texts))


def test_features_of_the_same_texts_come_from_the_cache(tmp_path: Path) -> None:
    texts, y, _ = sentences()
    calls: list[int] = []

    def counting(texts: list[str]) -> npt.NDArray[np.float64]:
        calls.append(len(texts))
        return vowels(texts)

    for _ in range(2):
        SemiSupervisedClassifier(encoder=counting, cache=FeatureCache(tmp_path, key="vowels")).fit(texts, y)
    assert calls == [60]
    SemiSupervisedClassifier(encoder=counting, cache=FeatureCache(tmp_path, key="vowels")).fit([*texts[:-1], "other"], y)
    assert calls == [60, 60]


def test_a_method_that_trains_a_net_trains_on_the_features() -> None:
    texts, y, classes = sentences()
    model = SemiSupervisedClassifier("mean_teacher", epochs=20, random_state=0).fit(texts, y)
    assert model.n_iter_ > 0 and (model.transduction_ == classes).mean() > 0.9


def test_held_out_labels_choose_tf_idf_for_texts_that_are_no_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    codes = ["q7x zz9k wv3 b8tt".split(), "p4m yy2r hn6 c5dd".split()]
    texts = [" ".join([rng.choice(codes[i % 2]), *(f"{rng.integers(16**6):06x}" for _ in range(12))]) for i in range(120)]
    y = np.where(np.arange(120) < 60, np.arange(120) % 2, -1)
    model = SemiSupervisedClassifier(verbose=True, random_state=0).fit(texts, y)
    assert model.model_.encoder == "tfidf"
    assert "encoder: tfidf (120 texts; held-out labels: " in capsys.readouterr().err


def test_the_same_texts_give_the_same_model() -> None:
    texts, y, _ = sentences()
    first, second = (SemiSupervisedClassifier(random_state=0).fit(texts, y).fitted_proba() for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_model_of_texts_can_be_copied(fitted: SemiSupervisedClassifier) -> None:
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copied.predict(["ripe plums"]), fitted.predict(["ripe plums"]))


def test_strange_texts_are_classified(fitted: SemiSupervisedClassifier) -> None:
    strange = ["", "\U0001f34f\U0001f350", "<p>Apfel &amp; Birne</p>", "\0\ud800", "铁和铜", "x" * 50_000, "plum " * 20_000]
    P = fitted.predict_proba(strange)
    assert np.isfinite(P).all() and P.sum(1) == pytest.approx(1.0)
    assert fitted.predict(["<div>Pflaume, Kirsche und Apfel</div>"]) == ["fruit"]


def test_a_fit_on_many_empty_and_equal_texts_works() -> None:
    texts, y, _ = sentences()
    model = SemiSupervisedClassifier().fit(texts + [""] * 40 + ["plum"] * 40, y + [None] * 80)
    assert set(model.transduction_[-40:]) == {"fruit"}


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("one text", r"X is one string \('one text'\); expected a list of texts"),
        ([[1.0, 2.0]], r"X is a list of 1, and the model was fitted on texts"),
        (np.zeros((2, 3)), r"X is a ndarray of shape \(2, 3\), and the model was fitted on texts"),
        ([1, 2], "fitted on texts"),
    ],
)
def test_other_input_than_texts_is_refused_by_a_model_of_texts(X: Any, message: str, fitted: SemiSupervisedClassifier) -> None:
    with pytest.raises(DataError, match=message):
        fitted.predict(X)


def test_texts_are_refused_by_a_model_of_vectors() -> None:
    model = SemiSupervisedClassifier().fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(DataError, match="X holds 2 texts, and the model was fitted on vectors"):
        model.predict(["one", "two"])


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (None, "X holds texts, which need an encoder"),
        ("lite0", "there is no text encoder 'lite0'"),
        (17, "encoder is 17, and X holds texts; expected 'auto'"),
    ],
)
def test_an_encoder_that_is_none_for_texts_is_refused(encoder: Any, message: str) -> None:
    texts, y, _ = sentences()
    with pytest.raises(SettingError, match=message):
        SemiSupervisedClassifier(encoder=encoder).fit(texts, y)
