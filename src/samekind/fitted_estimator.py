"""FittedEstimator: predictions, features, similarities and searches of a fitted estimator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from samekind.data.columns.output_frames import LIBRARIES, as_frame, as_series
from samekind.data.inputs import n_samples, read_given_labels, select_samples
from samekind.errors import LabelError
from samekind.model import FittedModel
from samekind.nets.encoders.frozen_features import FeatureCache
from samekind.search.index import Candidates, SimilarityIndex
from samekind.search.kernel import LANDMARKS, Kernel

Array = npt.NDArray[Any]


class FittedEstimator(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the estimator: everything that uses the model which `fit` stores in `model_`."""

    model_: FittedModel
    cache: str | Path | FeatureCache | None
    verbose: bool

    def _fitted_model(self) -> FittedModel:
        check_is_fitted(self, "model_")
        return replace(self.model_, cache=self.cache, verbose=self.verbose)

    def _output_library(self) -> str | None:
        """Return the library of data frames that `set_output` has asked for; None for arrays."""
        configured = getattr(self, "_sklearn_output_config", {}).get("transform")
        return configured if configured in LIBRARIES else None

    # ---------------------------------------------------------------- predictions and features

    def predict(self, X: Any, *, reject_below: float | None = None) -> Array:
        """Return the most probable class of each sample.

        Parameters
        ----------
        X : array-like, or list of paths or texts
            Samples, in the form used for `fit`.
        reject_below : a probability from 0 to 1, or None, default=None
            Samples whose most probable class has a lower probability than this get no class: -1, or None among strings.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels; a series with the index of X after `set_output(transform="pandas")` or "polars".
        """
        found, library = self._fitted_model().predict(X, reject_below=reject_below), self._output_library()
        return found if library is None else as_series(found, X, library)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on the labelled samples; samples without a label are left out.

        Parameters
        ----------
        X : array-like, or list of paths or texts
            Samples, in the form used for `fit`.
        y : array-like of shape (n_samples,)
            Class of each sample, or no label, as in `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        float
            Fraction of the labelled samples whose class is predicted.
        """
        labelled, truth = read_given_labels(y, n_samples(X))
        if len(labelled) == 0:
            raise LabelError(f"y holds no label (all {len(y)} samples are unlabelled). Pass y with at least one label.")
        right = self._fitted_model().predict(select_samples(X, labelled)).astype(object) == truth
        return float(np.average(right, weights=None if sample_weight is None else np.asarray(sample_weight)[labelled]))

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class.

        Parameters
        ----------
        X : array-like, or list of paths or texts
            Samples, in the form used for `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`; a data frame with a column for each class after `set_output`.
        """
        found, library = self._fitted_model().predict_proba(X), self._output_library()
        return found if library is None else as_frame(found, [str(one) for one in self.model_.classes], X, library)

    def predict_proba_from_features(self, z: Array) -> Array:
        """Return the class probabilities of samples whose features are known. The network is not run again.

        Parameters
        ----------
        z : ndarray of shape (n_samples, n_features_out)
            Features, as `transform` returns them.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`.
        """
        model = self._fitted_model()
        return model.probabilities(model.as_features(z)).numpy()

    def fitted_proba(self) -> Array:
        """Return the class probabilities of the training set, computed from stored features. X is not needed.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`.
        """
        model = self._fitted_model()
        return model.fitted_probabilities().numpy()

    def fitted_features(self) -> Array:
        """Return the features of the training set, which the model has stored.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Features of each sample.
        """
        return self._fitted_model().train_features.numpy()

    def transform(self, X: Any) -> Array:
        """Return the features of each sample: the last hidden layer of the network.

        Without a network, as with the method "ensemble", that is the sample itself, or its encoding.

        Parameters
        ----------
        X : array-like, or list of paths or texts
            Samples, in the form used for `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Features of each sample.
        """
        return self._fitted_model().features(X).numpy()

    # ---------------------------------------------------------------- similarity

    def similarity(self, A: Any, B: Any = None, *, symmetric: bool = False, psd: bool = False) -> Array:
        """Return the learned similarity W of pairs: the probability that both samples belong to the same class.

        Parameters
        ----------
        A : array-like, or list of paths or texts
            First samples of the pairs.
        B : array-like, list of paths or texts, or None, default=None
            Second samples of the pairs; None takes all pairs of A.
        symmetric : bool, default=False
            Whether to average W_ij and W_ji, which may differ.
        psd : bool, default=False
            Whether to return the values of `kernel()` in place of W; they form a positive semidefinite matrix.

        Returns
        -------
        ndarray of shape (len(A), len(B))
            Similarities in [0, 1].
        """
        return self.kernel()(A, B) if psd else self._fitted_model().similarity(A, B, symmetric=symmetric)

    def log_odds(self, A: Any, B: Any = None, *, symmetric: bool = False) -> Array:
        """Return the log-odds ln(W / (1 - W)) of pairs. They rank pairs even where W rounds to 0 or 1.

        Parameters
        ----------
        A : array-like, or list of paths or texts
            First samples of the pairs.
        B : array-like, list of paths or texts, or None, default=None
            Second samples of the pairs; None takes all pairs of A.
        symmetric : bool, default=False
            Whether to average both directions of a pair.

        Returns
        -------
        ndarray of shape (len(A), len(B))
            Log-odds of "same class".
        """
        return self._fitted_model().log_odds(A, B, symmetric=symmetric)

    def kneighbors(
        self, X: Any, n_neighbors: int = 9, *, symmetric: bool = False, candidates: Candidates = "all"
    ) -> tuple[Array, Array]:
        """Return the most similar training samples of each query, most similar first.

        Parameters
        ----------
        X : array-like, or list of paths or texts
            Queries.
        n_neighbors : int, default=9
            Number of neighbours, from 1 to the number of training samples.
        symmetric : bool, default=False
            Whether to average W_ij and W_ji.
        candidates : 'all', 'auto' or int, default='all'
            "all" compares each query with every training sample. A number compares it only with this many likely neighbours,
            which is faster. "auto" chooses the number.

        Returns
        -------
        similarities : ndarray of shape (n_queries, n_neighbors)
            Similarities in [0, 1].
        indices : ndarray of shape (n_queries, n_neighbors)
            Indices into the X of `fit`.
        """
        return self._fitted_model().kneighbors(X, n_neighbors, symmetric=symmetric, candidates=candidates)

    def kernel(self, *, landmarks: int = LANDMARKS, unit: bool = False) -> Kernel:
        """Return a positive semidefinite kernel close to the similarity W, for SVC(kernel="precomputed") and the like.

        Parameters
        ----------
        landmarks : int, default=2000
            Number of training samples from which the kernel is built; all of them if there are fewer.
        unit : bool, default=False
            Whether to scale the kernel so that k(x, x) = 1.

        Returns
        -------
        Kernel
            Function k(A, B); its attribute `distortion` measures how far it is from W. See docs/similarity.md.
        """
        return self._fitted_model().kernel(landmarks=landmarks, unit=unit)

    def index(self, X: Any = None, *, features: Array | None = None) -> SimilarityIndex:
        """Return an index that finds the most similar samples to each of many queries, or to several examples together.

        Parameters
        ----------
        X : array-like, list of paths or texts, or None, default=None
            Samples to search; None takes the training set.
        features : ndarray of shape (n_samples, n_features_out) or None, default=None
            Features of the samples to search, as `transform` returns them. The network is not run again.

        Returns
        -------
        SimilarityIndex
            Index of the samples.
        """
        return self._fitted_model().index(X, features=features)

    # ---------------------------------------------------------------- interface of scikit-learn

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.train_features.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.non_deterministic = False
        return tags
