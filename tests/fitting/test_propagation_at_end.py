"""Label propagation over the features of a trained network, as the end of a fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from torch import nn

from samekind import SemiSupervisedClassifier
from samekind.errors import ModelFileError, SettingError
from samekind.files.io import parse_json
from samekind.fitting.propagation_at_end import best_temperature, propagate_labels, sharpen
from samekind.methods.predictors import DeepPredictor, PropagatedPredictor
from samekind.nets.classifier import Classifier

CHAIN = torch.stack([torch.arange(40) * 0.05, torch.ones(40)], dim=1)  # points on a line, seen from the origin


def labelled_ends(n: int = 40) -> np.ndarray:
    """Return labels: 0 for the first sample, 1 for the last one, -1 between."""
    y = np.full(n, -1)
    y[0], y[-1] = 0, 1
    return y


def estimator(**changes: Any) -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier(**{"method": "mean_teacher", "epochs": 5, "random_state": 0, "propagate": True, **changes})


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, truth = make_blobs(200, n_features=3, centers=3, cluster_std=1.0, random_state=1)
    y = np.where(np.isin(np.arange(200), [np.flatnonzero(truth == c)[i] for c in range(3) for i in range(3)]), truth, -1)
    return X, y, truth


def test_labels_spread_along_a_chain_of_neighbours_in_many_steps() -> None:
    F = propagate_labels(CHAIN, labelled_ends(), 2)
    assert (F[:13].argmax(1) == 0).all() and (F[-13:].argmax(1) == 1).all()
    np.testing.assert_allclose(F.sum(1), 1.0)


def test_the_temperature_with_the_highest_likelihood_is_found() -> None:
    # three of four held-out labels are right and each has p = 0.6; the likelihood is highest where p = 3/4
    F = np.array([[0.6, 0.4]] * 4)
    temperature = best_temperature(F, np.array([0, 0, 0, 1]))
    assert sharpen(F, temperature)[0, 0] == pytest.approx(0.75, abs=1e-3)


def test_a_temperature_does_not_change_the_order_of_the_classes() -> None:
    F = np.random.default_rng(0).dirichlet(np.ones(4), 50)
    for temperature in (0.02, 1.0, 7.0):
        np.testing.assert_array_equal(sharpen(F, temperature).argmax(1), F.argmax(1))
    np.testing.assert_allclose(sharpen(F, 1.0), F)


def test_a_new_sample_gets_the_weighted_mean_of_its_nearest_training_samples() -> None:
    base = DeepPredictor(Classifier(nn.Identity(), 2, 2))
    z, F = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.2, 0.8], [0.0, 1.0]])
    predictor = PropagatedPredictor.from_points(base, z, F, 2)
    a, b = 0.8**3, 0.6**3  # the cosines of (0.8, 0.6) with the first two points are 0.8 and 0.6
    expected = (a * F[0] + b * F[1]) / (a + b)
    torch.testing.assert_close(predictor.propagated(torch.tensor([[1.6, 1.2]]))[0], expected, rtol=1e-5, atol=1e-6)


def test_a_new_sample_is_predicted_by_the_mean_of_the_graph_and_the_network() -> None:
    net = Classifier(nn.Identity(), 2, 2)
    nn.init.zeros_(net.head.get_parameter("weight"))
    net.head.get_parameter("bias").data.copy_(torch.tensor([3.0, 1.0]).log())  # the network predicts (3/4, 1/4)
    predictor = PropagatedPredictor.from_points(DeepPredictor(net), torch.eye(2), torch.eye(2), 1)
    found = predictor.probabilities(torch.eye(2))
    torch.testing.assert_close(found, torch.tensor([[7 / 8, 1 / 8], [3 / 8, 5 / 8]]))


def test_a_training_sample_is_predicted_like_a_new_one(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, y, _ = data
    model = estimator().fit(X, y).model_
    predictor = model.predictor
    assert isinstance(predictor, PropagatedPredictor)
    z = model.train_features
    F = torch.from_numpy(propagate_labels(z, y, 3)).to(z.dtype)
    network = DeepPredictor.probabilities(predictor, z)
    torch.testing.assert_close(model.train_probabilities, ((F + network) / 2).detach())


def test_a_sample_without_a_similar_neighbour_still_gets_probabilities() -> None:
    base = DeepPredictor(Classifier(nn.Identity(), 2, 2))
    predictor = PropagatedPredictor.from_points(base, torch.eye(2), torch.eye(2), 2)
    found = predictor.propagated(torch.tensor([[-1.0, -1.0], [0.0, 0.0]]))
    torch.testing.assert_close(found, torch.full((2, 2), 0.5))


def test_features_and_similarities_stay_those_of_the_network(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, y, _ = data
    with_graph, network = estimator().fit(X, y), estimator(propagate=False).fit(X, y)
    np.testing.assert_allclose(with_graph.transform(X[:5]), network.transform(X[:5]))
    np.testing.assert_allclose(with_graph.similarity(X[:5], X[:9]), network.similarity(X[:5], X[:9]))
    assert np.abs(with_graph.predict_proba(X) - network.predict_proba(X)).max() > 0.01


def test_given_labels_are_kept_and_predictions_have_few_errors(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, y, truth = data
    model = estimator().fit(X, y)
    assert (model.transduction_[y >= 0] == y[y >= 0]).all()
    assert (model.transduction_ == truth).mean() > 0.9
    assert (model.predict(X) == truth).mean() > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0, rtol=1e-5)


def test_a_saved_model_predicts_the_same(data: tuple[np.ndarray, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, y, _ = data
    model = estimator().fit(X, y)
    model.save(tmp_path / "model")
    loaded = SemiSupervisedClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.transduction_, model.transduction_)


@pytest.mark.parametrize(("name", "value"), [("n_points", 7), ("n_classes", 2), ("n_neighbors", 10**6), ("kind", "deep")])
def test_a_changed_description_of_the_predictor_is_refused(
    name: str, value: Any, data: tuple[np.ndarray, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    estimator().fit(data[0], data[1]).save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    content = parse_json(path.read_bytes())
    content["predictor"][name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ModelFileError):
        SemiSupervisedClassifier.load(tmp_path / "model")


def test_a_class_with_one_label_needs_no_calibration(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, _, truth = data
    y = np.full(len(X), -1)
    for c in range(3):
        y[np.flatnonzero(truth == c)[0]] = c
    assert np.isfinite(estimator().fit(X, y).predict_proba(X)).all()


def test_a_method_without_a_network_ignores_the_option(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, y, _ = data
    plain, with_option = (estimator(method="poisson", epochs="auto", propagate=p).fit(X, y) for p in (False, True))
    np.testing.assert_array_equal(with_option.predict_proba(X), plain.predict_proba(X))


def test_another_value_than_true_or_false_is_refused(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    with pytest.raises(SettingError, match="propagate is 'yes'; expected True or False"):
        estimator(propagate="yes").fit(data[0], data[1])
