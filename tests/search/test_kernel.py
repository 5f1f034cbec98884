"""Kernel from similarities: it is positive semidefinite, close to W, and usable in scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import SpectralClustering
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.svm import SVC

from samekind import SemiSupervisedClassifier
from samekind.errors import SettingError
from samekind.search.kernel import Kernel, choose_landmarks

Array = npt.NDArray[Any]
POINTS, CLASSES = make_blobs(150, n_features=4, centers=3, random_state=3)


def step_similarity(A: Array, B: Array) -> Array:
    """Return a similarity that is not positive semidefinite: 1 within a distance of 1, else 0."""
    return np.asarray((np.linalg.norm(A[:, None] - B[None], axis=2) < 1.0).astype(float))


def min_eigenvalue(K: Array) -> float:
    return float(np.linalg.eigvalsh(K)[0])


@pytest.fixture(scope="module")
def model() -> SemiSupervisedClassifier:
    shown = np.full(150, -1)
    for c in range(3):
        shown[np.flatnonzero(np.equal(CLASSES, c))[:4]] = c
    return SemiSupervisedClassifier(epochs=15, random_state=0).fit(POINTS, shown)


@given(seed=st.integers(0, 1000), n=st.integers(2, 40), unit=st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_kernel_is_positive_semidefinite_on_any_set(seed: int, n: int, unit: bool) -> None:
    rng = np.random.default_rng(seed)
    kernel = Kernel(step_similarity, rng.normal(size=(30, 2)), unit=unit)
    K = kernel(rng.normal(size=(n, 2)))
    assert np.array_equal(K, K.T)
    assert min_eigenvalue(K) > -1e-9 * max(1.0, float(np.abs(K).max()))


def test_on_the_landmarks_the_kernel_is_s_without_its_negative_eigenvalues() -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    S = step_similarity(x, x)
    eigenvalues, U = np.linalg.eigh(S)
    assert eigenvalues[0] < -0.1, "the test needs an S with negative eigenvalues"
    nearest = (U * eigenvalues.clip(0)) @ U.T
    kernel = Kernel(step_similarity, x)
    np.testing.assert_allclose(kernel(x), nearest, atol=1e-4)
    assert kernel.distortion.relative == pytest.approx(np.linalg.norm(nearest - S) / np.linalg.norm(S), rel=1e-3)
    assert kernel.distortion.min_eigenvalue == pytest.approx(eigenvalues[0])
    assert kernel.distortion.n_negative == int((eigenvalues < -1e-6 * eigenvalues[-1]).sum())


def test_a_similarity_that_is_a_kernel_already_is_unchanged() -> None:
    x = np.random.default_rng(0).normal(size=(30, 2))
    kernel = Kernel(lambda A, B: np.exp(-np.square(A[:, None] - B[None]).sum(2)), x)
    assert kernel.distortion.relative < 1e-5 and kernel.distortion.n_negative == 0


def test_with_unit_the_diagonal_is_1(model: SemiSupervisedClassifier) -> None:
    K = model.kernel(unit=True)(POINTS)
    np.testing.assert_allclose(K.diagonal(), 1.0, atol=1e-12)
    assert np.abs(K).max() <= 1 + 1e-12


def test_the_learned_similarity_becomes_a_kernel_that_is_close_to_it(model: SemiSupervisedClassifier) -> None:
    kernel, W = model.kernel(), model.similarity(POINTS, symmetric=True)
    K = kernel(POINTS)
    assert min_eigenvalue(W) < -1e-3 < -1e-9 < min_eigenvalue(K)
    change = np.linalg.norm(K - W) / np.linalg.norm(W)
    assert kernel.distortion.relative == pytest.approx(change, rel=1e-2)
    assert change < 0.1
    assert f"changed by {100 * kernel.distortion.relative:.2f} %" in str(kernel.distortion)


def test_similarity_with_psd_is_the_kernel(model: SemiSupervisedClassifier) -> None:
    np.testing.assert_array_equal(model.similarity(POINTS[:9], POINTS[:5], psd=True), model.kernel()(POINTS[:9], POINTS[:5]))
    np.testing.assert_array_equal(model.similarity(POINTS[:9], psd=True), model.kernel()(POINTS[:9]))


def test_few_landmarks_are_nearly_as_close_to_w_on_other_samples(model: SemiSupervisedClassifier) -> None:
    W = model.similarity(POINTS, symmetric=True)
    K = model.kernel(landmarks=60)(POINTS)
    assert np.linalg.norm(K - W) / np.linalg.norm(W) < 0.15
    assert min_eigenvalue(K) > -1e-9


def test_a_support_vector_machine_with_this_kernel_predicts_new_samples(model: SemiSupervisedClassifier) -> None:
    new = POINTS + np.random.default_rng(0).normal(0, 0.1, POINTS.shape)
    kernel, shown = model.kernel(), np.arange(0, 150, 3)
    svm = SVC(kernel="precomputed").fit(kernel(POINTS[shown]), CLASSES[shown])
    assert svm.score(kernel(new, POINTS[shown]), CLASSES) > 0.95
    assert SVC(kernel=kernel).fit(POINTS[shown], CLASSES[shown]).score(new, CLASSES) > 0.95


def test_spectral_clustering_with_this_kernel_finds_the_classes(model: SemiSupervisedClassifier) -> None:
    K = model.similarity(POINTS, psd=True).clip(0)  # affinities may not be negative
    found = SpectralClustering(3, affinity="precomputed", random_state=0).fit_predict(K)
    assert adjusted_rand_score(CLASSES, found) > 0.9


def test_fewer_than_one_landmark_is_refused() -> None:
    with pytest.raises(SettingError, match="1 or more"):
        choose_landmarks(10, 0)
    assert choose_landmarks(10, 20).tolist() == list(range(10))
    assert len(set(choose_landmarks(100, 20))) == 20
