"""SemiSupervisedClassifier: predictions, accepted and refused input, reproducibility, files, and scikit-learn tools."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import samekind
from samekind import SemiSupervisedClassifier
from samekind.data.augment.transforms import GaussianNoise, identity
from samekind.errors import DataError, LabelError, ModelFileError, SamekindError, SettingError
from samekind.fitting.fit_options import FitOptions
from samekind.methods import METHODS

QUICK: dict[str, Any] = {"epochs": 3, "random_state": 0}
IMAGES = [name for name, spec in METHODS.items() if spec.method.images_only]  # type: ignore[attr-defined]
Pair = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def blobs(n: int = 90, *, centers: int = 3, d: int = 4, labels: int = 4) -> Pair:
    X, y = make_blobs(n, n_features=d, centers=centers, random_state=3)
    shown = np.full(n, -1)
    for c in range(centers):
        shown[np.flatnonzero(y == c)[:labels]] = c
    return X, shown


@pytest.fixture(scope="module")
def fitted() -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier(**QUICK).fit(*blobs())


def test_dir_lists_what_the_package_offers() -> None:
    assert set(samekind.__all__) <= set(dir(samekind)) and samekind.SemiSupervisedClassifier is SemiSupervisedClassifier


# ------------------------------------------------------------------ predictions and similarities


def test_it_separates_two_moons_with_twelve_labels() -> None:
    X, y = make_moons(1000, noise=0.1, random_state=0)
    shown = np.full(1000, -1)
    for c in (0, 1):
        shown[np.flatnonzero(y == c)[:6]] = c
    model = SemiSupervisedClassifier(random_state=0).fit(X, shown)
    assert np.mean(model.transduction_ != y) < 0.03


@pytest.mark.parametrize("settings", [{"sharpen_temperature": 0.0}, {"sharpen_temperatur": 0.5}, {"prior": (0.5, 0.3, 0.2)}])
def test_a_wrong_setting_is_refused_before_the_warmup(settings: dict[str, Any], tmp_path: Path) -> None:
    # colour images have a supervised warm-up, which takes some time
    x = np.random.default_rng(0).integers(0, 256, (40, 24, 24, 3), dtype=np.uint8)
    y = np.where(np.arange(40) < 10, np.arange(40) % 2, -1)
    with pytest.raises(SettingError, match=r"sharpe|prior"):
        SemiSupervisedClassifier(settings=settings, epochs=4, random_state=0, checkpoint=tmp_path).fit(x, y)
    assert not any(tmp_path.rglob("*"))


@pytest.mark.parametrize("epochs", [5, 20])
def test_a_short_training_does_not_swap_the_classes(epochs: int) -> None:
    # the term that separates differently labelled samples is symmetric, so it must not act before the labels do
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (100, 5)), rng.normal(4, 1, (100, 5))])
    y = np.repeat([0, 1], 100)
    shown = np.where(np.arange(200) % 100 < 3, y, -1)
    model = SemiSupervisedClassifier(epochs=epochs, random_state=0).fit(X, shown)
    assert np.mean(model.predict(X) != y) < 0.05


def test_predictions_have_the_documented_shapes(fitted: SemiSupervisedClassifier) -> None:
    X, _ = blobs()
    assert fitted.predict(X).shape == (90,)
    assert fitted.predict_proba(X).shape == (90, 3)
    np.testing.assert_allclose(fitted.predict_proba(X).sum(1), 1.0)
    assert fitted.transform(X).shape[0] == 90
    assert fitted.transduction_.shape == (90,)


def test_similarity_is_between_0_and_1(fitted: SemiSupervisedClassifier) -> None:
    X, _ = blobs()
    W = fitted.similarity(X[:5], X[:7])
    assert W.shape == (5, 7)
    assert ((W >= 0) & (W <= 1)).all()
    np.testing.assert_array_equal(fitted.similarity(X[:5]), fitted.similarity(X[:5], X[:5]))


def test_neighbours_are_sorted_by_similarity(fitted: SemiSupervisedClassifier) -> None:
    X, _ = blobs()
    W, indices = fitted.kneighbors(X[:4], n_neighbors=9)
    assert W.shape == indices.shape == (4, 9)
    assert (np.diff(W, axis=1) <= 0).all()
    np.testing.assert_allclose(np.take_along_axis(fitted.similarity(X[:4], X), indices, 1), W, rtol=1e-12)


def test_given_labels_are_kept() -> None:
    X, shown = blobs()
    shown[0] = (shown[0] + 1) % 3  # a label that contradicts the data
    model = SemiSupervisedClassifier(**QUICK).fit(X, shown)
    np.testing.assert_array_equal(model.transduction_[shown != -1], shown[shown != -1])


@pytest.mark.parametrize("method", [*(name for name in METHODS if name not in IMAGES), "pi_model+learned_graph"])
def test_every_method_predicts_and_has_a_similarity(method: str) -> None:
    X, shown = blobs()
    quick = {**QUICK, "epochs": 30} if method == "fast_swa" else QUICK  # its average of weights starts late in training
    model = SemiSupervisedClassifier(method, **quick).fit(X, shown)
    assert model.score(X[shown != -1], shown[shown != -1]) > 0.5
    assert model.similarity(X[:3], X[:4]).shape == (3, 4)
    assert model.kneighbors(X[:2], 3)[1].shape == (2, 3)


def test_a_method_for_images_predicts_and_has_a_similarity() -> None:
    X, shown = blobs(d=16)
    images = X.reshape(90, 4, 4)
    views = {"weak": GaussianNoise(0.1), "strong": GaussianNoise(0.3)}
    model = SemiSupervisedClassifier("remixmatch", settings={"augment": "given"}, views=views, **QUICK).fit(images, shown)
    assert model.score(images[shown != -1], shown[shown != -1]) > 0.5
    assert model.similarity(images[:3], images[:4]).shape == (3, 4)
    assert model.kneighbors(images[:2], 3)[1].shape == (2, 3)


def test_a_method_for_images_refuses_vectors_with_a_hint() -> None:
    with pytest.raises(SettingError, match=r"rotates images by 90 degrees.* or use mixmatch"):
        SemiSupervisedClassifier("remixmatch", **QUICK).fit(*blobs())


# ------------------------------------------------------------------ accepted input


@pytest.mark.parametrize("shape", [(60, 8, 8), (60, 12, 10, 3), (60, 9, 9, 1)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_of_any_layout_and_dtype_are_accepted(shape: tuple[int, ...], dtype: type) -> None:
    images: np.ndarray[Any, Any] = (np.random.default_rng(0).random(shape) * 255).astype(dtype)
    y = np.array([0, 1, 2, -1, -1, -1] * 10)
    model = SemiSupervisedClassifier(**QUICK).fit(images, y)
    assert model.predict(images).shape == (60,)
    assert model.similarity(images[:2]).shape == (2, 2)


def test_strings_with_none_and_odd_integers_work_as_labels() -> None:
    X, shown = blobs()
    names = np.array(["ant", "bee", "cat", None], dtype=object)[shown]
    assert set(SemiSupervisedClassifier(**QUICK).fit(X, names).predict(X)) <= {"ant", "bee", "cat"}
    two = np.where(shown == 0, 3, np.where(shown == 1, 7, -1))
    model = SemiSupervisedClassifier(**QUICK).fit(X, two)
    assert model.classes_.tolist() == [3, 7]
    assert set(model.predict(X)) <= {3, 7}


def test_a_class_with_a_single_label_works() -> None:
    X, shown = blobs()
    shown[np.flatnonzero(shown == 2)[1:]] = -1
    assert SemiSupervisedClassifier(**QUICK).fit(X, shown).classes_.tolist() == [0, 1, 2]


def test_the_type_of_array_does_not_matter() -> None:
    X, shown = blobs()
    X = X.astype(np.float32)
    expected = SemiSupervisedClassifier(**QUICK).fit(X, shown).predict_proba(X)
    for same in (X.astype(np.float64), np.asfortranarray(X), X.tolist(), X.astype(object)):
        np.testing.assert_array_equal(SemiSupervisedClassifier(**QUICK).fit(same, shown).predict_proba(same), expected)


def test_bytes_work_as_vectors() -> None:
    X = np.random.default_rng(0).integers(0, 255, (40, 6)).astype(np.uint8)
    assert SemiSupervisedClassifier(**QUICK).fit(X, [0, 1, -1, -1] * 10).predict(X).shape == (40,)


def test_any_module_that_returns_features_can_be_the_net() -> None:
    X, shown = blobs()
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
    before = [p.clone() for p in net.parameters()]
    model = SemiSupervisedClassifier(net=net, **QUICK).fit(X, shown)
    assert model.transform(X).shape == (90, 16)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True)), "the caller's net was changed"


@pytest.mark.parametrize("as_images", [False, True])
def test_fitted_proba_equals_predict_proba_of_the_training_set(as_images: bool) -> None:
    X, y = blobs()
    if as_images:
        X = np.random.default_rng(0).integers(0, 256, (len(X), 6, 6, 3), dtype=np.uint8)
    model = SemiSupervisedClassifier(**QUICK).fit(X, y)
    np.testing.assert_array_equal(model.fitted_proba(), model.predict_proba(X))
    np.testing.assert_array_equal(model.predict_proba_from_features(model.transform(X)), model.predict_proba(X))


@pytest.mark.parametrize(
    "how", [{"accumulation_steps": 2}, {"precision": "bfloat16"}, {"accumulation_steps": 2, "precision": "bfloat16"}]
)
def test_accumulation_and_mixed_precision_give_nearly_the_same_model(how: dict[str, Any]) -> None:
    X, shown = blobs()
    expected = SemiSupervisedClassifier("mean_teacher", **QUICK).fit(X, shown).predict_proba(X)
    found = SemiSupervisedClassifier("mean_teacher", **QUICK, **how).fit(X, shown).predict_proba(X)
    np.testing.assert_allclose(found, expected, atol=1e-4 if "precision" not in how else 0.02)


def test_memory_mapped_images_give_the_same_predictions_as_those_in_memory(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 12, 10, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    y = np.array([0, 1, 2, -1, -1, -1] * 10)
    expected, found = (SemiSupervisedClassifier(**QUICK).fit(X, y).predict_proba(images) for X in (images, mapped))
    np.testing.assert_array_equal(found, expected)
    as_floats = SemiSupervisedClassifier(**QUICK).fit(images.astype(np.float32), y).predict_proba(images)
    np.testing.assert_allclose(as_floats, expected, atol=1e-4)


def test_the_cost_of_training_is_saved(tmp_path: Path, fitted: SemiSupervisedClassifier) -> None:
    assert fitted.cost_["steps"] == fitted.n_iter_
    fitted.save(tmp_path)
    assert SemiSupervisedClassifier.load(tmp_path).cost_ == fitted.cost_


# ------------------------------------------------------------------ refused input


@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        (np.zeros((4, 2)), [-1, -1, -1, -1], LabelError, "holds no label"),
        (np.zeros((4, 2)), [1, 1, -1, -1], LabelError, "one class only"),
        ([[0.0, np.nan], [1.0, 1.0]], [0, 1], DataError, "contains NaN.*sample 0"),
        ([[0.0, 1.0], [np.inf, 1.0]], [0, 1], DataError, "infinity.*sample 1"),
        (np.zeros((4, 2)), [0, 1], LabelError, "4 samples and y has 2"),
        (np.zeros((0, 2)), [], DataError, "empty"),
        (np.zeros((2, 0)), [0, 1], DataError, "without values"),
        (np.zeros(4), [0, 1, 0, 1], DataError, "Reshape your data"),
        (np.array([["a", "b"], ["c", "d"]], dtype=object), [0, 1], DataError, "not numbers"),
        ([[1.0, 2.0], [1.0]], [0, 1], DataError, "same length"),
        (np.ones((2, 2)) * 1j, [0, 1], DataError, "[Cc]omplex"),
        (np.zeros((4, 2)), [0.5, 1.5, -1, -1], LabelError, "Unknown label type"),
        (np.zeros((4, 2)), None, LabelError, "y is missing"),
        (np.zeros((4, 2)), [["a"], ["b"], [1], [None]], LabelError, "mixes"),
        (np.zeros((4, 2)), np.zeros((4, 2)), LabelError, "1d array"),
    ],
)
def test_bad_input_is_refused_with_a_specific_message(X: Any, y: Any, error: type[SamekindError], message: str) -> None:
    if y is not None and np.ndim(y) == 2 and np.shape(y)[1] == 1:
        y = np.array([row[0] for row in y], dtype=object)
    with pytest.raises(error, match=message):
        SemiSupervisedClassifier(**QUICK).fit(X, y)


def test_one_sample_is_refused() -> None:
    with pytest.raises(SamekindError, match=r"one (sample|class)"):
        SemiSupervisedClassifier(**QUICK).fit([[1.0, 2.0]], [0])


def test_another_number_of_features_at_predict_is_refused(fitted: SemiSupervisedClassifier) -> None:
    with pytest.raises(DataError, match=r"3 features, but .* expecting 4"):
        fitted.predict(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "learned_grahp"}, "did you mean 'learned_graph'"),
        ({"method": "supervised+pi_model"}, "is not a base method plus an add-on"),
        ({"settings": {"lamda2": 1.0}}, "did you mean 'lambda2'"),
        ({"epochs": 0}, "epochs is 0"),
        ({"preset": "home"}, "preset is 'home'"),
        ({"net": "resnet"}, "net is 'resnet'"),
        ({"views": "shift"}, "views is 'shift'"),
        ({"precision": "bf16"}, "precision is 'bf16'"),
        ({"accumulation_steps": 0}, "accumulation_steps is 0"),
        ({"save_every": -1.0}, "save_every is -1.0"),
        ({"accumulation_steps": 60}, "90 samples cannot be divided into 60 parts"),
        ({"views": {"labelled_only": identity}}, "the method needs a view called 'weak'"),
        ({"net": nn.Conv1d(1, 1, 1)}, None),
    ],
)
def test_bad_settings_are_refused(arguments: dict[str, Any], message: str | None) -> None:
    with pytest.raises(SettingError if message else (SettingError, RuntimeError), match=message):
        SemiSupervisedClassifier(**{**QUICK, **arguments}).fit(*blobs())


@pytest.mark.parametrize("views", ["auto", "noise", "random_walk", {"labelled_only": identity, "weak": GaussianNoise(0.1)}])
def test_views_can_be_chosen(views: Any) -> None:
    X, shown = blobs()
    assert SemiSupervisedClassifier(views=views, **QUICK).fit(X, shown).predict(X).shape == (90,)


def test_with_labels_that_contradict_the_graph_unlabelled_samples_are_not_used() -> None:
    # random labels: no walk is confirmed, unlabelled samples are not used, and the predictions do not collapse
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 10)), np.full(300, -1)
    y[:60] = rng.integers(0, 2, 60)
    model = SemiSupervisedClassifier(epochs=10, random_state=0).fit(X, y)
    assert model.history_[-1]["loss"]["laplacian"] == 0.0
    assert "graph" not in model.history_[-1]["loss"]
    assert 0.2 < model.transduction_.mean() < 0.8


def test_too_many_neighbours_are_refused(fitted: SemiSupervisedClassifier) -> None:
    with pytest.raises(SettingError, match="expected 1 to 90"):
        fitted.kneighbors(np.zeros((1, 4)), 91)


# ------------------------------------------------------------------ seeds and files


def test_the_same_seed_gives_the_same_results_bit_for_bit() -> None:
    X, shown = blobs()
    one, other = (SemiSupervisedClassifier(**QUICK).fit(X, shown) for _ in range(2))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    np.testing.assert_array_equal(one.similarity(X), other.similarity(X))


def test_fit_leaves_the_global_random_state_unchanged() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    SemiSupervisedClassifier(**QUICK).fit(*blobs())
    assert torch.equal(torch.rand(3), expected)


def test_the_names_of_labels_do_not_matter() -> None:
    X, shown = blobs()
    model = SemiSupervisedClassifier(**QUICK).fit(X, shown)
    as_strings = np.array(["0", "1", "2", None], dtype=object)[shown]
    other = SemiSupervisedClassifier(**QUICK).fit(X, as_strings)
    np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("method", ["learned_graph", "mean_teacher", "lgc", "laprls", "semi_supervised_embedding"])
def test_save_and_load_give_identical_predictions(tmp_path: Path, method: str) -> None:
    X, shown = blobs()
    model = SemiSupervisedClassifier(method, **QUICK).fit(X, np.array(["a", "b", "c", None], dtype=object)[shown])
    model.save(tmp_path / "model")
    again = SemiSupervisedClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.similarity(X), model.similarity(X))
    np.testing.assert_array_equal(again.transduction_, model.transduction_)
    np.testing.assert_array_equal(again.kneighbors(X, 5)[1], model.kneighbors(X, 5)[1])
    assert again.get_params()["method"] == method


def test_a_model_of_images_can_be_saved(tmp_path: Path) -> None:
    digits = load_digits()
    y = np.where(np.arange(200) < 40, digits.target[:200], -1)
    model = SemiSupervisedClassifier(epochs=2, random_state=0).fit(digits.images[:200], y)
    model.save(tmp_path)
    again = SemiSupervisedClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(digits.images[:50]), model.predict_proba(digits.images[:50]))


def test_a_saved_model_is_safetensors_and_json_and_holds_no_pickle(tmp_path: Path, fitted: SemiSupervisedClassifier) -> None:
    fitted.save(tmp_path)
    names = sorted(path.suffix for path in tmp_path.iterdir())
    assert names == [".json", ".safetensors"]
    json.loads((tmp_path / "model.json").read_text())
    for path in tmp_path.iterdir():
        with pytest.raises((pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError, AttributeError)):
            pickle.loads(path.read_bytes())


def test_a_second_save_replaces_the_first_completely(tmp_path: Path, fitted: SemiSupervisedClassifier) -> None:
    SemiSupervisedClassifier("lgc", **QUICK).fit(*blobs()).save(tmp_path)
    fitted.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert SemiSupervisedClassifier.load(tmp_path).method == "auto"


def test_a_changed_or_missing_file_is_refused(tmp_path: Path, fitted: SemiSupervisedClassifier) -> None:
    with pytest.raises(ModelFileError, match=r"no model\.json"):
        SemiSupervisedClassifier.load(tmp_path / "nowhere")
    fitted.save(tmp_path)
    weights = next(tmp_path.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(ModelFileError, match="was changed"):
        SemiSupervisedClassifier.load(tmp_path)
    weights.unlink()
    with pytest.raises(ModelFileError, match="missing"):
        SemiSupervisedClassifier.load(tmp_path)


def test_a_custom_net_must_be_passed_to_load(tmp_path: Path) -> None:
    X, shown = blobs()
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    model = SemiSupervisedClassifier(net=net, **QUICK).fit(X, shown)
    model.save(tmp_path)
    with pytest.raises(ModelFileError, match=r"net=\.\.\."):
        SemiSupervisedClassifier.load(tmp_path)
    again = SemiSupervisedClassifier.load(tmp_path, net=nn.Sequential(nn.Linear(4, 8), nn.Tanh()))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_history_is_stored_and_written_as_json_lines(tmp_path: Path) -> None:
    model = SemiSupervisedClassifier(history=tmp_path / "history.jsonl", **QUICK).fit(*blobs())
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert len(lines) == len(model.history_) > 1
    assert {"step", "loss", "mean_w", "entropy", "class_fractions", "seconds"} <= set(lines[-1])


# ------------------------------------------------------------------ scikit-learn


def test_clone_and_pipeline_work_with_unlabelled_samples() -> None:
    X, shown = blobs(60, labels=8)
    model = SemiSupervisedClassifier(epochs=2, random_state=0)
    assert clone(model).get_params() == model.get_params()
    pipeline = make_pipeline(StandardScaler(), model).fit(X, shown)
    assert pipeline.predict(X).shape == (60,)


def interrupt(x: torch.Tensor, index: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    raise KeyboardInterrupt


def test_after_an_interrupted_first_fit_the_estimator_is_not_fitted(tmp_path: Path) -> None:
    model = SemiSupervisedClassifier(views={"labelled_only": interrupt, "weak": interrupt}, **QUICK)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*blobs())
    X, _ = blobs()
    for name in ("predict", "predict_proba", "transform", "similarity", "kneighbors", "index"):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            getattr(model, name)(X)
    for name, given in (("fitted_proba", []), ("fitted_features", []), ("kernel", []), ("save", [tmp_path])):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            getattr(model, name)(*given)


def test_an_interrupted_second_fit_leaves_the_first_one_complete() -> None:
    X, y = blobs()
    model = SemiSupervisedClassifier("supervised", **QUICK).fit(X, y)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.set_params(views={"labelled_only": interrupt, "weak": interrupt}).fit(X[:, :2], np.where(y == 2, -1, y))
    assert all(vars(model)[name] is value for name, value in before.items() if name.endswith("_"))
    assert model.predict(X).shape == (90,)


# ---------------------------------------------------------------- colour images


def colour_images(n: int = 60) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return reddish and bluish noise images of 24 x 24 pixels, with a label for every third."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    images = rng.integers(0, 120, (n, 24, 24, 3), dtype=np.uint8)
    images[y == 0, :, :, 0] += 100
    images[y == 1, :, :, 2] += 100
    return images, np.where(np.arange(n) % 3 == 0, y, -1)


@pytest.mark.parametrize(("method", "fraction"), [("supervised", 0.0), ("mean_teacher", 0.2), ("fixmatch+learned_graph", 0.2)])
def test_colour_images_have_a_supervised_warmup_if_the_method_uses_unlabelled_samples(method: str, fraction: float) -> None:
    assert FitOptions(method).warmup_fraction(1000, (3, 32, 32)) == pytest.approx(fraction)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("settings", [{}, {"strong_view": True}])
def test_colour_images_train_with_weak_and_strong_views(tmp_path: Path, dtype: type, settings: dict[str, Any]) -> None:
    images, y = colour_images()
    model = SemiSupervisedClassifier(settings=settings, random_state=0, epochs=40, supervised_warmup=0.3, batch_size=(16, 32))
    model.fit(images.astype(dtype), y)
    assert (model.transduction_ == np.arange(60) % 2).mean() > 0.9
    assert model.cost_["steps"] == model.n_iter_ == round(40 * 60 / 32)
    model.save(tmp_path)
    again = SemiSupervisedClassifier.load(tmp_path)
    assert np.array_equal(again.predict_proba(images), model.predict_proba(images))
    assert again.get_params()["supervised_warmup"] == 0.3
    assert tuple(again.get_params()["batch_size"]) == (16, 32)


@pytest.mark.parametrize(
    ("arguments", "classes", "mirrored"),
    [
        ({}, ["cat", "dog"], True),
        ({}, ["b", "d"], False),
        ({"views": "shift"}, ["cat", "dog"], False),
        ({"preset": "paper", "batch_size": (4, 8)}, ["cat", "dog"], False),
    ],
)
def test_predictions_are_averaged_over_the_flip_if_images_may_be_mirrored(
    tmp_path: Path, arguments: dict[str, Any], classes: list[str], mirrored: bool
) -> None:
    images, y = colour_images(20)
    model = SemiSupervisedClassifier("supervised", net="compact_quick", random_state=0, epochs=3, **arguments)
    model.fit(images, np.array([*classes, -1], dtype=object)[y])
    flipped = images[:, :, ::-1].copy()
    model.save(tmp_path)
    for one in (model, SemiSupervisedClassifier.load(tmp_path)):
        difference = np.abs(one.predict_proba(images) - one.predict_proba(flipped)).max()
        assert difference < 1e-6 if mirrored else difference > 1e-4


def test_a_net_can_be_chosen_and_saved_by_name(tmp_path: Path) -> None:
    images, y = colour_images(20)
    model = SemiSupervisedClassifier("supervised", net="compact_quick", random_state=0, epochs=3).fit(images, y)
    model.save(tmp_path)
    again = SemiSupervisedClassifier.load(tmp_path)
    assert again.net == "compact_quick"
    assert np.array_equal(again.predict_proba(images), model.predict_proba(images))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 20}, "batch_size is 20; expected two whole numbers"),
        ({"batch_size": (20, 0)}, "expected two whole numbers of 2 or more"),
        ({"supervised_warmup": 1.0}, "supervised_warmup is 1.0; expected a fraction from 0 to below 1"),
        ({"net": "resnet"}, "there is no network 'resnet'"),
        ({"views": "random_walk"}, "expected one of auto, shift_flip, shift, affine"),
    ],
)
def test_bad_settings_for_images_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        SemiSupervisedClassifier(epochs=1, **arguments).fit(*colour_images(20))


def test_a_progress_function_is_called_during_training() -> None:
    reported: list[tuple[str, int, int]] = []
    X, y = blobs()
    SemiSupervisedClassifier("supervised", epochs=2, random_state=0, progress=lambda *event: reported.append(event)).fit(X, y)
    task, done, total = reported[-1]
    assert task.startswith("supervised") and done == total > 0


def test_quick_takes_a_quarter_of_the_steps() -> None:
    X, y = blobs()
    quick = SemiSupervisedClassifier("supervised", epochs="quick", random_state=0).fit(X, y)
    full = SemiSupervisedClassifier("supervised", random_state=0).fit(X, y)
    assert quick.n_iter_ == full.n_iter_ // 4
    assert (quick.fitted_features() == quick.transform(X)).all()


def test_predictions_below_a_confidence_are_rejected() -> None:
    X, y = make_moons(120, noise=0.2, random_state=0)
    y[40:] = -1
    model = SemiSupervisedClassifier(random_state=0).fit(X, y)
    sure = model.predict_proba(X).max(axis=1) >= 0.9
    rejecting = model.predict(X, reject_below=0.9)
    assert 0 < sure.sum() < len(X)
    np.testing.assert_array_equal(rejecting[sure], model.predict(X)[sure])
    assert (rejecting[~sure] == -1).all()
    with pytest.raises(SettingError, match="reject_below is 2"):
        model.predict(X, reject_below=2)


def test_rejected_samples_have_no_class_among_strings() -> None:
    X, y = make_moons(60, noise=0.2, random_state=0)
    names = np.array(["up", "down"], dtype=object)[y]
    names[20:] = None
    rejecting = SemiSupervisedClassifier(random_state=0).fit(X, names).predict(X, reject_below=1.0)
    assert set(rejecting) <= {"up", "down", None} and None in rejecting


def test_quality_holds_the_cross_validated_accuracy_and_is_saved(tmp_path: Path) -> None:
    X, y = make_moons(120, noise=0.1, random_state=0)
    truth = y.copy()
    y[30:] = -1
    model = SemiSupervisedClassifier(random_state=0).fit(X, y)
    assert model.quality_.n_labels == 30
    assert model.quality_.low <= np.mean(model.transduction_[30:] == truth[30:]) <= model.quality_.high
    model.save(tmp_path)
    assert SemiSupervisedClassifier.load(tmp_path).quality_ == model.quality_
