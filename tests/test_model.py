"""FittedModel: the model of an estimator by itself, on disk and in memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from samekind import SemiSupervisedClassifier
from samekind.errors import ModelFileError
from samekind.model import BLOCK_SAMPLES, FittedModel, inference_block_size, inference_dtype

X, TRUE = make_blobs(80, n_features=4, centers=3, random_state=1)
Y = np.where(np.arange(80) < 20, TRUE, -1)


@pytest.fixture(scope="module")
def fitted() -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier(epochs=4, random_state=0).fit(X, Y)


def test_a_model_can_be_loaded_without_the_estimator(tmp_path: Path, fitted: SemiSupervisedClassifier) -> None:
    fitted.save(tmp_path)
    model = FittedModel.load(tmp_path)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(model.similarity(X[:5], X), fitted.similarity(X[:5], X))
    np.testing.assert_array_equal(model.train_labels, fitted.transduction_)


def test_a_loaded_model_can_be_saved_again_with_its_metadata(tmp_path: Path, fitted: SemiSupervisedClassifier) -> None:
    fitted.save(tmp_path / "first")
    FittedModel.load(tmp_path / "first").save(tmp_path / "second")
    again = SemiSupervisedClassifier.load(tmp_path / "second")
    assert (again.n_iter_, again.history_) == (fitted.n_iter_, fitted.history_)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_similarities_of_features_are_those_of_their_samples(fitted: SemiSupervisedClassifier) -> None:
    z = fitted.transform(X)
    np.testing.assert_allclose(fitted.model_.similarity_from_features(z[:6], z), fitted.similarity(X[:6], X), rtol=1e-12)


def test_given_labels_stay_in_the_training_set(fitted: SemiSupervisedClassifier) -> None:
    np.testing.assert_array_equal(fitted.model_.train_labels[:20], TRUE[:20])


def test_a_model_of_another_format_is_refused(tmp_path: Path, fitted: SemiSupervisedClassifier) -> None:
    fitted.save(tmp_path)
    manifest = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**manifest, "format": 3}))
    with pytest.raises(ModelFileError, match="format 3"):
        FittedModel.load(tmp_path)


def test_vectors_are_predicted_in_double_precision_and_large_images_in_small_blocks() -> None:
    assert (inference_dtype((5,)), inference_dtype((3, 32, 32))) == (torch.float64, torch.float32)
    assert inference_block_size((5,)) == inference_block_size((1, 8, 8)) == BLOCK_SAMPLES
    assert inference_block_size((3, 1024, 1024)) == 1
