"""Cross-validation with partial labels: labelled samples are held out in turn, and unlabelled samples are always trained on.

    GridSearchCV(SemiSupervisedClassifier(), {"method": ["ensemble", "learned_graph"]}, cv=PartialLabelKFold(5)).fit(X, y)

scikit-learn's own splitters treat -1 as a further class, and fail on strings with None.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from samekind.data.inputs import n_samples, read_labels
from samekind.errors import SettingError

Integers = npt.NDArray[np.int64]


class PartialLabelKFold(BaseCrossValidator):  # type: ignore[misc]
    """K folds over the labelled samples, stratified by class. All unlabelled samples are in every training set.

    A class with a single label stays in training, so that every training set has a label of each class.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, 2 or more. A class may have fewer labels than there are folds.
    random_state : int, RandomState or None, default=0
        Seed of the order in which labelled samples are dealt to the folds.
    """

    def __init__(self, n_splits: int = 5, *, random_state: int | np.random.RandomState | None = 0) -> None:
        if not isinstance(n_splits, (int, np.integer)) or isinstance(n_splits, bool) or n_splits < 2:
            raise SettingError(f"n_splits is {n_splits!r}; expected a whole number of 2 or more")
        self.n_splits = int(n_splits)
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Integers, Integers]]:
        """Yield the indices of training and test samples of each fold.

        Parameters
        ----------
        X : array-like or list of paths
            Samples; only their number is used.
        y : array-like of shape (n_samples,)
            Class of each sample; -1, or None among strings, for unlabelled samples.
        groups : object
            Ignored; scikit-learn passes it.

        Yields
        ------
        train : ndarray of int
            Indices of all unlabelled samples, and of the labelled samples outside the fold.
        test : ndarray of int
            Indices of the labelled samples in the fold.
        """
        folds = self._folds(read_labels(y, n_samples(X)).codes)
        for fold in range(self.n_splits):
            yield np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)

    def _folds(self, codes: Integers) -> Integers:
        """Return the number of the fold (n,) in which each sample is tested; -1 for a sample that is always in training."""
        rng = check_random_state(self.random_state)
        classes = [rng.permutation(np.flatnonzero(codes == code)) for code in range(codes.max() + 1)]
        dealt = np.concatenate([members for members in classes if len(members) > 1] or [np.empty(0, dtype=np.int64)])
        if len(dealt) < self.n_splits:
            raise SettingError(
                f"n_splits is {self.n_splits}, but y has only {len(dealt)} labels in classes with at least two labels. "
                "Use fewer folds, or label more samples."
            )
        folds = np.full(len(codes), -1, dtype=np.int64)
        # counted on from class to class, so that the folds have equal sizes
        folds[dealt] = np.arange(len(dealt)) % self.n_splits
        return folds
