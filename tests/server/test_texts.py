"""Texts in the server: word effects, uploaded texts, and exports, on a run fitted by TF-IDF."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from tests.preprocessing.test_text_input import METAL, sentences

from samekind import SemiSupervisedClassifier
from samekind.errors import RequestError
from samekind.project.fit import FitConfig, fit
from samekind.server.inference.occlusion import MAX_UNITS, word_effects, word_spans
from samekind.server.routes.items import show_item
from samekind.server.routes.rest import PredictRequest, Sample, predict, show_model
from samekind.server.routes.word_effects import show_word_effects
from samekind.server.session import Session
from samekind.server.transfer.exporters import as_label_studio


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("texts")
    body, topics, _ = sentences(40)
    with (folder / "offers.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "body", "topic"), *zip(range(100, 140), body, topics, strict=True)])
    fit(FitConfig(str(folder / "offers.csv"), text="body", label_column="topic", encoder="tfidf"), folder / "run")
    with closing(Session(folder / "run")) as opened:
        yield opened


def test_a_text_is_cut_into_at_most_as_many_parts_that_cover_it() -> None:
    text = "one two  three\nfour"
    assert [text[a:b] for a, b in word_spans(text)] == text.split()
    many = " ".join(f"w{i}" for i in range(1000))
    spans = word_spans(many)
    assert len(spans) == MAX_UNITS and " ".join(many[a:b] for a, b in spans) == many
    assert len(word_spans("字" * 40)) == 40 and word_spans("  ") == []


def test_the_effect_of_a_word_is_what_the_model_predicts_without_it() -> None:
    seen: list[str] = []

    def predict_by_length(texts: np.ndarray) -> np.ndarray:
        seen.extend(texts)
        p = np.array([len(text) / 100 for text in texts], dtype=np.float32)
        return np.stack([1 - p, p], axis=1)

    p, effects = word_effects(predict_by_length, "a bcd", column=1)
    assert seen == ["a bcd", " bcd", "a "]
    assert p == pytest.approx(0.05) and [round(one.without, 3) for one in effects] == [0.04, 0.02]


def test_the_one_informative_word_matters_most() -> None:
    filler = "today we they sell buy see many some good old new here there now often never always with without".split()
    goods = {"fruit": ["pears", "grapes"], "metal": ["iron", "copper"]}
    rng = np.random.default_rng(0)
    classes = ["fruit" if i % 2 else "metal" for i in range(60)]
    parts = [[*rng.choice(filler, 6, replace=False), rng.choice(goods[one])] for one in classes]
    texts = [" ".join(rng.permutation(one)) for one in parts]
    y = [one if i < 24 else None for i, one in enumerate(classes)]
    model = SemiSupervisedClassifier(encoder="use", random_state=0).fit(texts, y)
    found = []
    for text, own in zip(texts[30:], classes[30:], strict=True):
        p, effects = word_effects(model.predict_proba, text, list(model.classes_).index(own))
        most = min(effects, key=lambda one: one.without)
        found.append(text[most.start : most.end] in goods[own] and most.without < p)
    assert np.mean(found) > 0.8


def test_the_page_gets_the_effects_on_the_predicted_class(session: Session) -> None:
    found, details = show_word_effects(session, 20), show_item(session, 20)
    text = details["full_text"]
    assert text is not None and [text[one["start"] : one["end"]] for one in found["effects"]] == text.split()
    assert found["class_id"] == details["pred"] and 0.5 < found["probability"] <= 1.0
    assert all(0.0 <= one["without"] <= 1.0 for one in found["effects"])


def test_uploaded_texts_are_predicted(session: Session) -> None:
    body = PredictRequest(
        samples=[Sample(text="We sell pears, plum and apple."), Sample(text=f"{METAL[0]} and {METAL[1]}"), Sample(text="")]
    )
    results = predict(session, body)["results"]
    assert [one["label"] for one in results[:2]] == ["fruit", "metal"] and sum(results[2]["probabilities"].values()) > 0.99
    assert show_model(session)["input"] == "text"
    with pytest.raises(RequestError, match="Send 'text'"):
        predict(session, PredictRequest(samples=[Sample(vector=[1.0])]))


def test_label_studio_gets_the_texts(session: Session) -> None:
    blob = b"".join(as_label_studio(session, "labels", "labelled")).decode()
    assert f'"text": "{sentences(40)[0][0]}"' in blob and '"to_name": "text"' in blob and '"image"' not in blob
