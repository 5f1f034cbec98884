"""SemiSupervisedClassifier: from a few labels and all the data, a classifier and a similarity."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from samekind import defaults, model
from samekind.data.augment.transforms import Views
from samekind.data.dataset import UNLABELLED, Dataset, scaled_dataset
from samekind.data.image_layout import as_floats, as_tensor, sample_shape
from samekind.data.inputs import Labels, read_labels
from samekind.errors import DataError, SettingError
from samekind.methods import build, is_iterative, method_defaults, supervised_loss_fraction, supervised_method, uses_unlabelled
from samekind.methods.base import Method, Task
from samekind.methods.predictors import AnyPredictor, DeepPredictor
from samekind.nets.classifier import Classifier, classifier_from_features
from samekind.nets.encoders.frozen_features import Encoder, FeatureCache
from samekind.preprocessing import open_input
from samekind.progress import Progress
from samekind.search.index import Candidates, SimilarityIndex
from samekind.search.kernel import LANDMARKS, Kernel, choose_landmarks
from samekind.search.pair_scores import make_pair_score
from samekind.search.pairwise import pairwise_log_odds, pairwise_similarity
from samekind.training.checkpointer import checkpoint_seed
from samekind.training.engine import Engine, Precision, open_engine, round_batch_size
from samekind.training.time_budget import Clock, load_step_budget, save_step_budget, time_inference, time_step
from samekind.training.trainer import SAVE_EVERY, Stage, TrainConfig, train_stages

Array = npt.NDArray[Any]
ROWS = 2048  # rows predicted at a time,
VALUES = 2**21  # or fewer, if they are large images and hold more numbers than this
TIMED_ROWS = 256  # looked at to tell how long a look at all of them takes


class SemiSupervisedClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns from a few labels and all the data.

    Parameters
    ----------
    method : a name from `samekind methods`, or BASE+ADDITION such as "pi_model+learned_graph".
    settings : settings of the method, on top of its preset; an unknown one is refused.
    preset : "auto" for the settings found good on many kinds of data, "paper" for the paper's own settings and batch.
    net : "auto", any torch.nn.Module that turns a batch into features (n, d), or for images a name: "small_conv", "compact",
        "compact_quick", "conv13", "wide_resnet".
    views : how rows are perturbed: "auto"; for vectors "noise" or "walk"; for images "photo" (shifted and mirrored), "tilt"
        or "shift"; or your own {"labelled_only": f, "weak": f, "strong": f}.
    epochs : passes over X, or "auto": 1,000 rows take seconds. "quick" is a quarter of that.
    minutes : how long to fit, instead of `epochs`. A few steps are timed first; how many fit into the minutes on this
        machine as it is then is `n_iter_`, and `epochs=model.epochs_` makes the same model again.
    batch_size : labelled rows and rows of the pool in a step, as (20, 64), or "auto".
    supervised_warmup : share of the run that is spent on the labelled rows alone, from 0 to below 1, or "auto".
    optimizer : "adam", "sgd" (with momentum and weight decay, the rate falling along a line), or "auto": SGD for photos.
    learning_rate : the highest of the schedule, or "auto": 0.2 by SGD, 0.003 by Adam. SGD's is for the mean cross-entropy of
        labels; where a method gives that a part of its loss only, the rate is so much higher.
    device : "auto", "cpu", "cuda", ...
    random_state : the same number gives the same result, bit for bit, on the same machine.
    verbose : whether to show a progress bar.
    history : a file to which the course of the training is written, one JSON object a line.
    tensorboard : a folder to which it is written as TensorBoard events too (extra `tensorboard`).
    checkpoint : a folder to which the training is saved as it goes. If it holds an unfinished fit of the same X, y and
        settings, `fit` goes on with it and gives the same result, bit for bit; a finished one is not repeated.
    save_every : seconds between two checkpoints; what a kill can cost.
    precision : "float32", or "bfloat16" or "float16" for mixed precision, which GPUs are made for; "auto" is what
        `accelerate launch --mixed_precision` says, and float32 without it.
    accumulation_steps : into how many parts a batch is cut that is too large for the memory of the device.
    encoder : None, or what turns images into features before anything is learnt, and is not trained itself: a name such as
        "efficientnet_lite0" (needs the extra `encoders`), a torch.nn.Module that gets (n, C, H, W), bytes as values from
        0 to 1, or any function of an array (n, H, W, C). Images are encoded once; `net` and `views` are then those of vectors.
    cache : a folder for encoded features and decoded pictures, so that they are made once for many fits; None keeps
        features in memory. For an encoder that is a plain function: FeatureCache(folder, key="a name for it").
    progress : a function that is told (what is being done, steps done, of how many) now and then.

    Attributes
    ----------
    classes_ : the classes, sorted.
    transduction_ : the label given to every row of the X it was fitted on (labels that were given stay).
    history_ : the course of the training.
    n_features_in_ : columns of X (for images: numbers in a row).
    n_iter_ : steps of training.
    epochs_ : passes over X that these were.
    cost_ : what the training cost: seconds, steps and rows a second, floating-point operations, memory.
    """

    def __init__(
        self,
        method: str = "learned_graph",
        *,
        settings: Mapping[str, Any] | None = None,
        preset: Literal["auto", "paper"] = "auto",
        net: str | nn.Module = "auto",
        views: str | Views = "auto",
        epochs: float | Literal["auto", "quick"] = "auto",
        minutes: float | None = None,
        batch_size: tuple[int, int] | Literal["auto"] = "auto",
        supervised_warmup: float | Literal["auto"] = "auto",
        optimizer: Literal["auto", "adam", "sgd"] = "auto",
        learning_rate: float | Literal["auto"] = "auto",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        history: str | Path | None = None,
        tensorboard: str | Path | None = None,
        checkpoint: str | Path | None = None,
        save_every: float = SAVE_EVERY,
        precision: Precision = "auto",
        accumulation_steps: int = 1,
        encoder: str | Encoder | None = None,
        cache: str | Path | FeatureCache | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.method = method
        self.settings = settings
        self.preset = preset
        self.net = net
        self.views = views
        self.epochs = epochs
        self.minutes = minutes
        self.batch_size = batch_size
        self.supervised_warmup = supervised_warmup
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.history = history
        self.tensorboard = tensorboard
        self.checkpoint = checkpoint
        self.save_every = save_every
        self.precision = precision
        self.accumulation_steps = accumulation_steps
        self.encoder = encoder
        self.cache = cache
        self.progress = progress

    # ---------------------------------------------------------------- fit

    def fit(self, X: Any, y: Any = None) -> SemiSupervisedClassifier:
        """Learns from all rows of X; y holds a class for some, and -1 (or None among strings) for the rest.

        X holds vectors (n, d), images (n, H, W) or (n, H, W, C), or the paths of pictures.
        """
        is_iterative(self.method)  # an unknown method is refused before any work is done
        device = defaults.device_for(self.device)
        with open_input(X, encoder=self.encoder, cache=self.cache, device=device, verbose=self.verbose) as taken:
            labels = read_labels(y, len(taken))
            self._intake = taken.intake
            return self._fit(as_tensor(taken.rows()), labels)

    def _fit(self, rows: Tensor, labels: Labels) -> SemiSupervisedClassifier:
        iterative = is_iterative(self.method)
        _require_two(rows)
        codes = torch.from_numpy(labels.codes)
        self._scaler = defaults.choose_scaler(rows, codes, keep_columns=isinstance(self.net, nn.Module))
        pool = scaled_dataset(rows, self._scaler, codes, len(labels.classes))
        self.classes_ = labels.classes
        self._shape = sample_shape(rows)
        self.n_features_in_ = int(np.prod(self._intake.shape))
        # a seed of our own, and the caller's random state left as it was
        device = defaults.device_for(self.device)
        with open_engine(device, self.precision, self.accumulation_steps) as engine, torch.random.fork_rng(devices=[]):
            seed = int(engine.share(str(self._seed()).encode()))
            torch.manual_seed(seed)
            self._train(pool, seed, iterative, engine)
        self._remember(pool, labels.codes)
        return self

    def _seed(self) -> int:
        """Drawn from random_state; without one, a fit that is taken up again keeps the seed it began with."""
        known = checkpoint_seed(Path(self.checkpoint)) if self.checkpoint is not None and self.random_state is None else None
        return int(check_random_state(self.random_state).randint(2**31 - 1)) if known is None else known

    def _train(self, pool: Dataset, seed: int, iterative: bool, engine: Engine) -> None:
        sizes = self._batch(pool)
        labelled, unlabelled = (
            round_batch_size(sizes.labelled, engine.n_parts),
            round_batch_size(sizes.unlabelled, engine.n_parts, len(pool)),
        )
        looks = self._looks(pool, seed) if iterative else defaults.ViewDefaults({})
        net = self._make_net(pool).to(engine.device) if iterative else None
        task = Task(pool.n_classes, len(pool.labelled), len(pool), 0, labelled, unlabelled, looks.unlabelled_weight)
        photos, paper = defaults.is_photo(pool.shape), self.preset == "paper"
        by, schedule = defaults.optimizer_and_schedule(
            defaults.optimizer_for(self.optimizer, photos=photos, paper=paper), self.learning_rate
        )
        plan = TrainConfig(
            0,
            labelled,
            unlabelled,
            schedule,
            seed,
            title=self.method,
            verbose=self.verbose,
            history=self.history,
            tensorboard=self.tensorboard,
            checkpoint=self.checkpoint,
            save_every=self.save_every,
            settings=self._identity(),
            progress=self.progress,
            optimizer=by,
        )
        steps = self._steps(len(pool), unlabelled) if iterative else 0
        if self.minutes is not None and net is not None:
            steps = self._steps_in_time(self.minutes, net, task, pool, looks, plan, engine)
        warmup_steps = round(self._labels_first(len(pool.labelled), pool.shape) * steps)
        task = replace(task, steps=steps - warmup_steps)
        warmup, config = replace(plan, steps=steps).split_warmup(warmup_steps)
        if by.kind == "sgd":
            rate = config.schedule.lr_max / supervised_loss_fraction(self.method, task)
            config = replace(config, schedule=replace(config.schedule, lr_max=rate))
        stages = [Stage(self.method, lambda: self._method(net, task), config)]
        if warmup_steps and net is not None:
            student = net
            with torch.random.fork_rng(devices=[]):
                self._method(copy.deepcopy(net), task)  # what cannot be built is refused now, not after the warm-up
            stages.insert(0, Stage("supervised warm-up", lambda: supervised_method(student, task), warmup))
        predictor, self.history_, self.cost_, _ = train_stages(stages, pool, looks.views, engine)
        self._predictor = self._at_rest(cast(AnyPredictor, predictor))
        if isinstance(self._predictor, DeepPredictor):
            self._predictor.mirrored = self._answers_by_both_sides(looks)
        self.n_iter_ = steps
        self.epochs_ = steps * unlabelled / len(pool)

    def _method(self, net: Classifier | None, task: Task) -> Method:
        return build(self.method, net, task, {**self._start(), **(self.settings or {})})

    def _batch(self, pool: Dataset) -> defaults.BatchSizes:
        n, photos = len(pool), defaults.is_photo(pool.shape)
        if self.batch_size == "auto":
            return defaults.default_batch_sizes(n, photos=photos, paper=self.preset == "paper")
        sizes = tuple(self.batch_size) if isinstance(self.batch_size, (tuple, list)) else ()
        if len(sizes) != 2 or not all(isinstance(size, int) and size >= 2 for size in sizes):
            raise SettingError(
                f"batch_size is {self.batch_size!r}; expected two whole numbers of 2 or more, such as (20, 64), or 'auto'"
            )
        return defaults.BatchSizes(sizes[0], min(sizes[1], n))

    def _labels_first(self, n_labelled: int, shape: tuple[int, ...]) -> float:
        """Share of the steps on the labels alone; `shape` is that of a row as the net sees it."""
        if self.supervised_warmup == "auto":
            if not uses_unlabelled(self.method):
                return 0.0  # it has nothing else to come after
            return defaults.supervised_warmup_for(n_labelled, photos=defaults.is_photo(shape), paper=self.preset == "paper")
        if not isinstance(self.supervised_warmup, (int, float)) or not 0.0 <= self.supervised_warmup < 1.0:
            raise SettingError(
                f"supervised_warmup is {self.supervised_warmup!r}; expected a share from 0 to below 1, or 'auto'"
            )
        return float(self.supervised_warmup)

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with, besides what the training knows itself."""
        views = self.views if isinstance(self.views, str) else {name: type(view).__name__ for name, view in self.views.items()}
        net = self.net if isinstance(self.net, str) else type(self.net).__name__
        own = {"views": views, "kind of net": net, "precision": self.precision, "classes": self.classes_.tolist()}
        own |= {"supervised_warmup": self.supervised_warmup}
        return {"method": self.method, "preset": self.preset, **own}

    def _start(self) -> dict[str, Any]:
        if self.preset not in ("auto", "paper"):
            raise SettingError(f"preset is {self.preset!r}; expected 'auto' or 'paper'")
        return method_defaults(self.method, defaults.kind_of(self._shape)) if self.preset == "auto" else {}

    def _steps(self, n_rows: int, batch: int) -> int:
        if self.epochs in ("auto", "quick"):
            steps = defaults.steps_for(n_rows, self._shape)
            return steps if self.epochs == "auto" else max(1, steps // 4)
        if not isinstance(self.epochs, (int, float)) or not self.epochs > 0:
            raise SettingError(f"epochs is {self.epochs!r}; expected a number above 0, 'auto' or 'quick'")
        return max(1, round(self.epochs * n_rows / batch))

    def _steps_in_time(
        self,
        minutes: float,
        net: Classifier,
        task: Task,
        pool: Dataset,
        looks: defaults.ViewDefaults,
        plan: TrainConfig,
        engine: Engine,
    ) -> int:
        """Steps that these minutes hold: those of the labels alone and those of the method, each timed on a copy of the net.

        The timing itself and the look at all rows when they are over count too, but for no more than half of the minutes: a
        model that was hardly trained is of no use in time either. A run that is taken up again makes as many steps as it was
        begun with.
        """
        if not minutes > 0 or self.epochs != "auto":
            raise SettingError(
                f"minutes is {minutes!r} and epochs {self.epochs!r}; expected minutes above 0, or epochs, and not both"
            )
        folder = None if self.checkpoint is None else Path(self.checkpoint)
        steps = None if folder is None else load_step_budget(folder, minutes)
        if steps is None:
            clock = Clock()
            share = self._labels_first(task.n_labelled, pool.shape)

            def alone(steps: int) -> Method:
                return supervised_method(copy.deepcopy(net), replace(task, steps=steps))

            def method(steps: int) -> Method:
                made: Any = self._method(copy.deepcopy(net), replace(task, steps=steps))
                return cast(Method, made.to(engine.device))

            seconds = (1.0 - share) * time_step(method, pool, looks.views, plan, engine)
            seconds += share * time_step(alone, pool, looks.views, plan.split_warmup(0)[0], engine) if share else 0.0
            last_look = self._seconds_to_remember(net, pool, mirrored=self._answers_by_both_sides(looks))
            left = 60.0 * minutes - last_look - clock.seconds()
            steps = max(1, int(max(left, 30.0 * minutes) / seconds))
        steps = int(engine.share(str(steps).encode()))
        if folder is not None and engine.rank == 0:
            save_step_budget(folder, minutes, steps)
        return steps

    def _answers_by_both_sides(self, looks: defaults.ViewDefaults) -> bool:
        return looks.mirrored and self.preset != "paper"

    def _seconds_to_remember(self, net: Classifier, pool: Dataset, *, mirrored: bool) -> float:
        """What `_remember` will take, by a net that answers as the trained one will."""
        alike = cast(DeepPredictor, self._at_rest(DeepPredictor(copy.deepcopy(net), mirrored=mirrored).eval()))
        return time_inference(alike.features, pool.inputs(slice(min(self._block, TIMED_ROWS))).to(self._dtype), len(pool))

    def _make_net(self, pool: Dataset) -> Classifier:
        if isinstance(self.net, nn.Module):
            return classifier_from_features(copy.deepcopy(self.net), pool.inputs(slice(2)), pool.n_classes)
        net = defaults.net_for(pool.shape, pool.n_classes, self.net)
        defaults.initialize_whitening(net, pool)
        return net

    def _looks(self, pool: Dataset, seed: int) -> defaults.ViewDefaults:
        if not isinstance(self.views, str):
            return defaults.ViewDefaults(self.views)
        return defaults.view_defaults(
            pool, seed, self.views, mirror=not defaults.classes_are_characters(self.classes_.tolist())
        )

    def _at_rest(self, predictor: AnyPredictor) -> AnyPredictor:
        """As it answers from now on."""
        return predictor.requires_grad_(False).to("cpu", self._dtype)

    def _remember(self, pool: Dataset, codes: npt.NDArray[np.int64]) -> None:
        """Features of the fitted rows, for kneighbors, and a label for each of them."""
        blocks = (pool.inputs(slice(start, start + self._block)) for start in range(0, len(pool), self._block))
        self._fitted_z = _in_blocks(self._predictor.features, (block.to(self._dtype) for block in blocks), len(pool))
        guessed = self._probabilities(self._fitted_z).argmax(1).numpy()
        self.transduction_ = self.classes_[np.where(codes == UNLABELLED, guessed, codes)]

    # ---------------------------------------------------------------- answers

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> Array:
        """(n, C): the probability of each class, in the order of `classes_`."""
        return self._probabilities(self._features(X)).numpy()

    def predict_proba_from_features(self, z: Array) -> Array:
        """(n, C): `predict_proba` of rows by their features, as `transform` gives them; the net is not run again."""
        check_is_fitted(self, "classes_")
        return self._probabilities(torch.from_numpy(z).to(self._dtype)).numpy()

    def fitted_proba(self) -> Array:
        """(n, C): `predict_proba` of the X it was fitted on, without looking at X again."""
        check_is_fitted(self, "classes_")
        return self._probabilities(self._fitted_z).numpy()

    def fitted_features(self) -> Array:
        """`transform` of the X it was fitted on, without looking at X again."""
        check_is_fitted(self, "classes_")
        return self._fitted_z.numpy()

    def transform(self, X: Any) -> Array:
        """Features z of each row."""
        return self._features(X).numpy()

    def similarity(self, A: Any, B: Any = None, *, symmetric: bool = False, psd: bool = False) -> Array:
        """W in [0, 1], shape (len(A), len(B)): how surely a row of A and a row of B are of the same kind.

        Without B, all pairs of A. W_ij and W_ji may differ; `symmetric` gives their mean, `psd` the values of `kernel()`.
        """
        if psd:
            return self.kernel()(A, B)
        z_a = self._features(A)
        z_b = z_a if B is None else self._features(B)
        return pairwise_similarity(make_pair_score(self._predictor), z_a, z_b, symmetric=symmetric).numpy()

    def log_odds(self, A: Any, B: Any = None, *, symmetric: bool = False) -> Array:
        """ln(W / (1 - W)), shape (len(A), len(B)): margins order pairs also where W is 0 or 1 to the last digit."""
        z_a = self._features(A)
        z_b = z_a if B is None else self._features(B)
        return pairwise_log_odds(make_pair_score(self._predictor), z_a, z_b, symmetric=symmetric).numpy()

    def kneighbors(
        self, X: Any, n_neighbors: int = 9, *, symmetric: bool = False, candidates: Candidates = "all"
    ) -> tuple[Array, Array]:
        """(similarities, indices into the fitted X), both (n, n_neighbors), most alike first.

        `candidates`: "all" compares with every fitted row; a number, or "auto", with that many likely ones, found quickly.
        """
        z = self._features(X)
        if not 1 <= n_neighbors <= len(self._fitted_z):
            raise SettingError(f"n_neighbors is {n_neighbors}; expected 1 to {len(self._fitted_z)}, the number of fitted rows")
        found = self.index().search(z, n_neighbors, symmetric=symmetric, candidates=candidates)
        return found.similarity.numpy(), found.ids.numpy()

    def kernel(self, *, landmarks: int = LANDMARKS, unit: bool = False) -> Kernel:
        """k(A, B), a positive semidefinite kernel near W, for SVC(kernel="precomputed") and the like; see docs/similarity.md.

        It is made from `landmarks` fitted rows, all if there are not more; `kernel().distortion` says how far it is from W.
        """
        check_is_fitted(self, "classes_")
        score = make_pair_score(self._predictor)

        def similarity(A: Any, z: Tensor) -> Array:
            return pairwise_similarity(score, z if A is z else self._features(A), z, symmetric=True).numpy()

        return Kernel(similarity, self._fitted_z[choose_landmarks(len(self._fitted_z), landmarks)], unit=unit)

    def index(self, X: Any = None, *, features: Array | None = None) -> SimilarityIndex:
        """An index of the fitted rows, or of X: the most alike of many queries, of several examples at once, and more.

        `features` are what `transform` gives for X, where that is at hand already; the net is not run again.
        """
        check_is_fitted(self, "classes_")
        if features is not None:
            z = torch.from_numpy(features).to(self._dtype)
        else:
            z = self._fitted_z if X is None else self._features(X)
        return SimilarityIndex(z, make_pair_score(self._predictor))

    # ---------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Writes a folder with safetensors and JSON, whole or not at all."""
        check_is_fitted(self, "classes_")
        model.save(self, Path(path))

    @classmethod
    def load(
        cls, path: str | Path, *, net: nn.Module | None = None, encoder: Encoder | None = None
    ) -> SemiSupervisedClassifier:
        """Reads what `save` wrote, without running any code from it.

        `net` and `encoder` are needed if the model was fitted with one of your own. An encoder by name is built again.
        """
        return model.load(cls, Path(path), net, encoder)

    # ---------------------------------------------------------------- inside

    @property
    def _dtype(self) -> torch.dtype:
        # vectors are answered in double precision, so that a row's answer does not depend on the rows beside it
        return torch.float64 if len(self._shape) == 1 else torch.float32

    @property
    def _block(self) -> int:
        return ROWS if len(self._shape) == 1 else max(1, min(ROWS, VALUES // self.n_features_in_))

    def _features(self, X: Any) -> Tensor:
        check_is_fitted(self, "classes_")
        rows = self._intake.rows(X, self.cache, verbose=self.verbose)
        blocks = (as_tensor(rows[start : start + self._block]) for start in range(0, len(rows), self._block))
        scaled = (self._scaler(as_floats(block)).to(self._dtype) for block in blocks)
        return _in_blocks(self._predictor.features, scaled, len(rows))

    def _probabilities(self, z: Tensor) -> Tensor:
        return _in_blocks(self._predictor.probabilities, torch.split(z, ROWS), len(z))

    @property
    def _n_features_out(self) -> int:
        return int(self._fitted_z.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.non_deterministic = False
        return tags


def _in_blocks(function: Any, blocks: Iterable[Tensor], n: int) -> Tensor:
    """function of all n rows, some at a time.

    Answers are written into one tensor: kept one by one, they would lie between the large blocks that come and go, and the
    memory allocator could not use the gaps again.
    """
    answers, at = torch.empty(0), 0
    with torch.inference_mode():
        for block in blocks:
            answer = function(block)
            answers = answer.new_empty((n, *answer.shape[1:])) if at == 0 else answers
            answers[at : at + len(answer)] = answer
            at += len(answer)
    return answers


def _require_two(rows: Tensor) -> None:
    if len(rows) < 2:
        raise DataError("X has one sample only (n_samples = 1); at least two rows of two classes are needed.")
