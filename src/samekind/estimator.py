"""SemiSupervisedClassifier: from a few labels and all the data, a classifier and a similarity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from samekind import recipe, storage
from samekind.data.inputs import read_labels, read_rows
from samekind.data.pool import UNLABELLED, Pool
from samekind.data.scaling import scaler_for
from samekind.data.views import Views
from samekind.errors import DataError, SettingError
from samekind.methods import build, needs_steps, recipe_of
from samekind.methods.contract import Task
from samekind.methods.predictors import AnyPredictor
from samekind.nets.classifier import Classifier, classifier_on
from samekind.query.alike import all_pairs, most_alike
from samekind.training.run import Plan, train
from samekind.training.schedules import Schedule

Array = npt.NDArray[Any]
ROWS = 2048  # rows predicted at a time


class SemiSupervisedClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns from a few labels and all the data.

    Parameters
    ----------
    method : a name from `samekind methods`, or BASE+ADDITION such as "pi_model+learned_graph".
    settings : settings of the method, on top of its recipe; an unknown one is refused.
    recipe : "auto" for the settings found good on many kinds of data, "paper" for the paper's own settings and batch.
    net : "auto", or any torch.nn.Module that turns a batch into features (n, d).
    views : how rows are perturbed: "auto", "noise", "walk" (vectors), "shift" (images), or your own {"solo": f, "weak": f}.
    epochs : passes over X, or "auto": 1,000 rows take seconds.
    learning_rate : the highest of the schedule.
    device : "auto", "cpu", "cuda", ...
    random_state : the same number gives the same result, bit for bit, on the same machine.
    verbose : whether to show a progress bar.
    history : a file to which the course of the training is written, one JSON object a line.

    Attributes
    ----------
    classes_ : the classes, sorted.
    transduction_ : the label given to every row of the X it was fitted on (labels that were given stay).
    history_ : the course of the training.
    n_features_in_ : columns of X (for images: numbers in a row).
    n_iter_ : steps of training.
    """

    def __init__(
        self,
        method: str = "learned_graph",
        *,
        settings: Mapping[str, Any] | None = None,
        recipe: Literal["auto", "paper"] = "auto",
        net: str | nn.Module = "auto",
        views: str | Views = "auto",
        epochs: float | Literal["auto"] = "auto",
        learning_rate: float = 0.003,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        history: str | Path | None = None,
    ) -> None:
        self.method = method
        self.settings = settings
        self.recipe = recipe
        self.net = net
        self.views = views
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.history = history

    # ---------------------------------------------------------------- fit

    def fit(self, X: Any, y: Any = None) -> SemiSupervisedClassifier:
        """Learns from all rows of X; y holds a class for some, and -1 (or None among strings) for the rest."""
        steps_needed = needs_steps(self.method)
        rows = torch.from_numpy(read_rows(X))
        labels = read_labels(y, len(rows))
        _require_two(rows)
        self._scaler = scaler_for(rows)
        pool = Pool(self._scaler(rows), torch.from_numpy(labels.codes), len(labels.classes))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.classes_ = labels.classes
        self._shape = tuple(rows.shape[1:])
        self.n_features_in_ = int(np.prod(self._shape))
        # a seed of our own, and the caller's random state left as it was
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._train(pool, seed, steps_needed)
        self._remember(pool, labels.codes)
        return self

    def _train(self, pool: Pool, seed: int, steps_needed: bool) -> None:
        sizes = recipe.batch_sizes(len(pool), paper=self.recipe == "paper")
        steps = self._steps(len(pool), sizes.unlabelled) if steps_needed else 0
        device = recipe.device_for(self.device)
        looks = self._looks(pool, seed) if steps_needed else recipe.Looks({})
        task = Task(pool.n_classes, len(pool.labelled), len(pool), steps, sizes.labelled, sizes.unlabelled, looks.trust)
        net = self._make_net(pool).to(device) if steps_needed else None
        method: Any = build(self.method, net, task, {**self._start(), **(self.settings or {})})
        schedule = Schedule(lr_max=self.learning_rate)
        plan = Plan(steps, sizes.labelled, sizes.unlabelled, schedule, seed, device, self.method, self.verbose, self.history)
        predictor, self.history_ = train(method.to(device), pool, looks.views, plan)
        self._predictor = cast(AnyPredictor, predictor)
        self.n_iter_ = steps

    def _start(self) -> dict[str, Any]:
        if self.recipe not in ("auto", "paper"):
            raise SettingError(f"recipe is {self.recipe!r}; expected 'auto' or 'paper'")
        return recipe_of(self.method) if self.recipe == "auto" else {}

    def _steps(self, n_rows: int, batch: int) -> int:
        if self.epochs == "auto":
            return recipe.steps_for(n_rows, self._shape)
        if not isinstance(self.epochs, (int, float)) or not self.epochs > 0:
            raise SettingError(f"epochs is {self.epochs!r}; expected a number above 0, or 'auto'")
        return max(1, round(self.epochs * n_rows / batch))

    def _make_net(self, pool: Pool) -> Classifier:
        if isinstance(self.net, nn.Module):
            import copy

            return classifier_on(copy.deepcopy(self.net), pool.x[:2], pool.n_classes)
        if self.net != "auto":
            raise SettingError(f"net is {self.net!r}; expected 'auto' or a torch.nn.Module that returns features")
        return recipe.net_for(self._shape, pool.n_classes)

    def _looks(self, pool: Pool, seed: int) -> recipe.Looks:
        return recipe.looks_for(pool, seed, self.views) if isinstance(self.views, str) else recipe.Looks(self.views)

    def _remember(self, pool: Pool, codes: npt.NDArray[np.int64]) -> None:
        """Features of the fitted rows, for kneighbors, and a label for each of them."""
        self._predictor.requires_grad_(False).to("cpu", self._dtype)
        self._fitted_z = self._in_blocks(self._predictor.features, pool.x.to(self._dtype))
        guessed = self._in_blocks(self._predictor.probabilities, self._fitted_z).argmax(1).numpy()
        self.transduction_ = self.classes_[np.where(codes == UNLABELLED, guessed, codes)]

    # ---------------------------------------------------------------- answers

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> Array:
        """(n, C): the probability of each class, in the order of `classes_`."""
        z = self._features(X)
        return self._in_blocks(self._predictor.probabilities, z).numpy()

    def transform(self, X: Any) -> Array:
        """Features z of each row."""
        return self._features(X).numpy()

    def similarity(self, A: Any, B: Any = None) -> Array:
        """W in [0, 1], shape (len(A), len(B)): how surely a row of A and a row of B are of the same kind.

        Without B, all pairs of A. W is not forced to be symmetric; average it with its transpose if you need that.
        """
        z_a = self._features(A)
        z_b = z_a if B is None else self._features(B)
        return all_pairs(self._predictor.similarity, z_a, z_b).numpy()

    def kneighbors(self, X: Any, n_neighbors: int = 9) -> tuple[Array, Array]:
        """(similarities, indices into the fitted X), both (n, n_neighbors), most alike first."""
        z = self._features(X)
        if not 1 <= n_neighbors <= len(self._fitted_z):
            raise SettingError(f"n_neighbors is {n_neighbors}; expected 1 to {len(self._fitted_z)}, the number of fitted rows")
        W, indices = most_alike(self._predictor.similarity, z, self._fitted_z, n_neighbors)
        return W.numpy(), indices.numpy()

    # ---------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Writes a folder with safetensors and JSON, whole or not at all."""
        check_is_fitted(self, "classes_")
        storage.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, net: nn.Module | None = None) -> SemiSupervisedClassifier:
        """Reads what `save` wrote, without running any code from it. `net` is needed if the model was fitted with one."""
        return storage.load(cls, Path(path), net)

    # ---------------------------------------------------------------- inside

    @property
    def _dtype(self) -> torch.dtype:
        # vectors are answered in double precision, so that a row's answer does not depend on the rows beside it
        return torch.float64 if len(self._shape) == 1 else torch.float32

    def _features(self, X: Any) -> Tensor:
        check_is_fitted(self, "classes_")
        rows = torch.from_numpy(read_rows(X, shape=self._shape))
        return self._in_blocks(self._predictor.features, self._scaler(rows).to(self._dtype))

    def _in_blocks(self, function: Any, x: Tensor) -> Tensor:
        with torch.inference_mode():
            return torch.cat([function(block) for block in torch.split(x, ROWS)])

    @property
    def _n_features_out(self) -> int:
        return int(self._fitted_z.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.non_deterministic = False
        return tags


def _require_two(rows: Tensor) -> None:
    if len(rows) < 2:
        raise DataError("X has one sample only (n_samples = 1); at least two rows of two classes are needed.")
