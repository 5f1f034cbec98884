"""fit_model: exact steps, the supervised warm-up, and a model with or without its training set."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs, make_moons
from torch import nn

from samekind import SemiSupervisedClassifier, defaults
from samekind.data.augment.transforms import identity
from samekind.data.dataset import Dataset
from samekind.errors import SettingError, ShortTrainingWarning
from samekind.fitting.fit_model import fit_model
from samekind.fitting.fit_options import FitOptions


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    X, y = make_blobs(60, n_features=3, centers=2, random_state=0)
    return X, np.where(np.arange(60) < 12, y, -1)


def test_the_number_of_steps_can_be_given(data: tuple[np.ndarray, np.ndarray]) -> None:
    fit = fit_model(*data, FitOptions("mean_teacher", random_state=0), steps=7)
    assert (fit.steps, fit.cost["steps"], fit.history[-1]["step"]) == (7, 7, 6)
    assert fit.epochs == 7 * 60 / 60


def test_the_estimator_fits_the_same_model(data: tuple[np.ndarray, np.ndarray]) -> None:
    fit = fit_model(*data, FitOptions("mean_teacher", epochs=5, random_state=0))
    estimator = SemiSupervisedClassifier("mean_teacher", epochs=5, random_state=0).fit(*data)
    np.testing.assert_array_equal(fit.model.predict_proba(data[0]), estimator.predict_proba(data[0]))
    np.testing.assert_array_equal(fit.model.train_labels, estimator.transduction_)


def test_a_model_without_its_training_set_predicts_the_same(data: tuple[np.ndarray, np.ndarray]) -> None:
    options = FitOptions("supervised", epochs=3, random_state=0)
    whole, bare = fit_model(*data, options).model, fit_model(*data, options, keep_training_set=False).model
    assert len(whole.train_features) == 60 and len(bare.train_features) == 0
    np.testing.assert_array_equal(whole.predict_proba(data[0]), bare.predict_proba(data[0]))


def test_the_trained_method_is_returned(data: tuple[np.ndarray, np.ndarray]) -> None:
    fit = fit_model(*data, FitOptions("mean_teacher", random_state=0), steps=2)
    assert type(fit.method).__name__ == "MeanTeacher"


def test_warmup_and_method_share_the_steps(data: tuple[np.ndarray, np.ndarray]) -> None:
    fit = fit_model(*data, FitOptions("mean_teacher", supervised_warmup=0.5, random_state=0), steps=8)
    assert fit.cost["steps"] == fit.steps == 8
    assert fit.history[-1]["step"] == 3  # log records of the method alone


def test_minutes_and_epochs_exclude_each_other() -> None:
    with pytest.raises(SettingError, match=r"minutes is 1\.0 and epochs is 3; expected only one of the two"):
        FitOptions("supervised", minutes=1.0, epochs=3).validate()


def test_sgd_makes_the_same_steps_whether_a_method_averages_over_the_labels_or_over_the_whole_batch(
    data: tuple[np.ndarray, np.ndarray],
) -> None:
    # pi_model divides the label loss by all 24 samples of a batch, fixmatch by the 8 labelled ones; other terms have weight 0
    def weights(method: str, settings: dict[str, float]) -> torch.Tensor:
        views = dict.fromkeys(("labelled_only", "weak", "strong"), identity)  # without random numbers: equal batches
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        options = FitOptions(
            method, settings=settings, net=net, views=views, batch_size=(8, 16), optimizer="sgd", random_state=0
        )
        student = fit_model(*data, options, steps=20).method.student
        return torch.cat([parameter.detach().double().flatten() for parameter in student.parameters()])

    over_batch, over_labels = weights("pi_model", {"w_max": 0.0}), weights("fixmatch", {"lambda_u": 0.0})
    torch.testing.assert_close(over_batch, over_labels, rtol=1e-5, atol=1e-6)


def test_the_paper_s_preset_on_two_moons_has_the_paper_s_nets_and_noise(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = make_moons(60, noise=0.15, random_state=0)
    fit = fit_model(
        X, np.where(np.arange(60) < 12, y, -1), FitOptions("learned_graph", preset="paper", random_state=0), steps=2
    )
    method: Any = fit.method
    assert sum(parameter.numel() for parameter in method.student.parameters()) == 502  # 2 -> 100 -> 2
    assert sum(parameter.numel() for parameter in method.similarity.parameters()) == 176_962  # 200 -> 512 -> 128 -> 64 -> 2
    assert method.config.dropout == 0.2


def test_the_paper_s_preset_adds_noise_to_vectors_and_makes_no_random_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def noted(dataset: Dataset, seed: int, name: str = "auto", *, flip: bool = True) -> defaults.ViewDefaults:
        requested.append(name)
        return view_defaults(dataset, seed, name, flip=flip)

    view_defaults = defaults.view_defaults
    monkeypatch.setattr(defaults, "view_defaults", noted)
    X, y = make_moons(60, noise=0.15, random_state=0)
    fit_model(X, np.where(np.arange(60) < 12, y, -1), FitOptions("pi_model", preset="paper", random_state=0), steps=1)
    fit_model(X, np.where(np.arange(60) < 12, y, -1), FitOptions("pi_model", random_state=0), steps=1)
    assert requested == ["noise", "auto"]


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("temporal_ensembling", "this training has 1 epochs over the unlabelled samples, and the method needs 2 or more"),
        ("temporal_ensembling+sntg", "the method needs 2 or more"),
        ("flexmatch", "the method needs 2 or more"),
        ("mixmatch", "takes 16384 steps, as in the paper, so in this training its weight only reaches"),
    ],
)
def test_a_training_that_is_too_short_for_its_method_warns(
    data: tuple[np.ndarray, np.ndarray], method: str, reason: str
) -> None:
    with pytest.warns(ShortTrainingWarning, match=f"{re.escape(method)} may not work as in its paper: .*{reason}"):
        fit_model(*data, FitOptions(method, epochs=1, random_state=0))


@pytest.mark.filterwarnings("error::samekind.errors.ShortTrainingWarning")
@pytest.mark.parametrize(
    ("method", "epochs", "settings"),
    [("temporal_ensembling", 2, {}), ("flexmatch", 2, {}), ("mixmatch", 1, {"rampup": 0.4}), ("mean_teacher", 1, {})],
)
def test_a_training_that_is_long_enough_does_not_warn(
    data: tuple[np.ndarray, np.ndarray], method: str, epochs: float, settings: dict[str, float]
) -> None:
    fit_model(*data, FitOptions(method, epochs=epochs, settings=settings, random_state=0))
