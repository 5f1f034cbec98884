"""SemiSupervisedClassifier: the scikit-learn interface to fitting and to the fitted model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted
from torch import nn

from samekind.data.augment.transforms import Views
from samekind.errors import LabelError
from samekind.files.manifest import require_fit_metadata
from samekind.fitted_estimator import FittedEstimator
from samekind.fitting.fit_model import fit_model
from samekind.fitting.fit_options import FitOptions
from samekind.fitting.label_quality import LabelQuality
from samekind.fitting.label_updates import UpdatableFit
from samekind.model import FittedModel
from samekind.nets.encoders.frozen_features import Encoder, FeatureCache
from samekind.nets.encoders.names import AnyEncoder
from samekind.progress import Progress
from samekind.training.engine import Precision
from samekind.training.trainer import SAVE_EVERY

Array = npt.NDArray[Any]
# Parameters that belong to one machine or one fit. They are not saved with the model.
NOT_SAVED = ("net", "history", "tensorboard", "checkpoint", "save_every", "cache", "progress")


class SemiSupervisedClassifier(FittedEstimator):
    """Classifier that learns from a few labels and many unlabelled samples, with a learned similarity.

    Parameters
    ----------
    method : str, default='auto'
        Name of a method, as listed by `samekind methods`, or BASE+ADDON such as "pi_model+learned_graph". "auto" is "ensemble"
        for vectors, texts and encoded images. It is "learned_graph" for images that are not encoded, and if an option of the
        training steps, such as `epochs` or `net`, is set. `minutes` does not change the method; "ensemble", which takes about
        a second, ignores it.
    settings : mapping of str to value or None, default=None
        Settings of the method, on top of its defaults.
    preset : 'auto' or 'paper', default='auto'
        "auto" uses settings that work well on many kinds of data, "paper" the settings and batch sizes of the paper.
    net : str or torch.nn.Module, default='auto'
        Network: "auto"; a module that turns a batch into features (n, d); or for images "small_conv", "compact",
        "compact_quick", "conv13" or "wide_resnet".
    views : str or mapping of str to callable, default='auto'
        Augmentation: "auto"; for vectors "noise" or "random_walk"; for images "shift_flip" (random shift and horizontal flip),
        "affine" (random affine map and shift) or "shift"; or your own {"labelled_only": f, "weak": f, "strong": f}.
    epochs : a number above 0, or 'auto' or 'quick', default='auto'
        Passes over X. "auto" takes seconds for 1,000 samples; "quick" makes a quarter of the steps of "auto".
    minutes : a number above 0, or None, default=None
        Minutes within which `fit` ends, in place of `epochs`. A few steps are timed first. If the machine becomes slower
        later, fewer steps are made. If `n_iter_` equals `cost_["planned_steps"]`, `epochs=model.epochs_` repeats the same fit.
    batch_size : two whole numbers of 2 or more, such as (20, 64), or 'auto', default='auto'
        Labelled and unlabelled samples in a batch.
    supervised_warmup : a fraction from 0 to below 1, or 'auto', default='auto'
        Fraction of the steps that train on the labelled samples only, before the method begins.
    optimizer : 'auto', 'adam' or 'sgd', default='auto'
        "sgd" has momentum, weight decay and a linear decay of the learning rate. "auto" is "sgd" for colour images, else
        "adam".
    learning_rate : a number above 0, or 'auto', default='auto'
        Highest learning rate of the schedule: 0.2 with SGD and 0.003 with Adam if "auto". The rate of SGD is meant for
        the mean cross-entropy of the labelled samples; if a method multiplies that by a factor below 1, `fit` divides the
        rate by the factor.
    device : str, default='auto'
        Device on which the model is trained: "cpu", "cuda", "cuda:1", ...; "auto" is a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Seed. The same number gives the same result, bit for bit, on the same machine with the same number of threads.
    verbose : bool, default=False
        Whether to show a progress bar.
    history : path or None, default=None
        File for the log records of the training, one JSON object per line.
    tensorboard : path or None, default=None
        Directory for the log records as TensorBoard events; needs the extra `tensorboard`.
    checkpoint : path or None, default=None
        Directory for checkpoints. If it holds an unfinished fit of the same X, y and settings, `fit` resumes it and gives
        the same result, bit for bit. A finished fit is not repeated.
    save_every : a number of seconds, 0 or more, default=60.0
        Time between two checkpoints.
    precision : 'auto', 'float32', 'float16' or 'bfloat16', default='auto'
        Precision of the training; the 16-bit ones are mixed precision, for GPUs. "auto" is what `accelerate launch
        --mixed_precision` sets, else float32.
    accumulation_steps : a whole number, 1 or more, default=1
        Number of parts into which each batch is divided. They are computed one after another, so that a batch which is too
        large for the memory of the device can be used.
    propagate : True or False, default=False
        Whether the predictions of a trained network use its training samples too: after the training, the labels are
        propagated over the graph of the nearest neighbours by its features, and a new sample gets the mean of its nearest
        training samples. The predictions are the mean of these class probabilities and of the network's. This reduces the
        error where few labels are given and the network is right for most samples, and hardly changes it elsewhere. Methods
        without a network ignore it.
    encoder : str, torch.nn.Module, callable, list of them, or None, default='auto'
        Frozen encoder that turns images or texts into features before the training. With an encoder, `net` and `views` apply
        to the features, which are vectors. None trains a net from scratch.
        For images, "auto" uses a pretrained EfficientNet-lite that suits the number of images, their size and `minutes`. It
        uses no encoder if held-out labels show that the images are unlike photos, for images below 24 pixels, and if `method`
        or an option asks for a net that is trained on the images.
        For texts, "auto" uses "use", a multilingual sentence encoder, unless held-out labels show that "tfidf" is better.
        Other encoders: a name, such as "efficientnet_lite0", "timm:NAME", "hub:REPO:NAME", "hf:NAME" or a .onnx file; a
        module that takes images (n, C, H, W) with uint8 values scaled to [0, 1]; or a function of an array (n, H, W, C), or of
        a list of strings. The features of several encoders are concatenated.
    finetune : 'auto', 'none', 'last' or 'all', default='auto'
        Whether a pretrained EfficientNet-lite is trained further on the labels and on all unlabelled images: its last blocks
        ("last") or all blocks ("all"; a step takes several times as long). This takes minutes, and lowers the error on
        CIFAR-10 by 5 to 8 points. "auto" trains the last blocks if `minutes` allows it, and discards the result if it predicts
        held-out labels worse than the frozen encoder.
    cache : path, FeatureCache or None, default=None
        Directory for encoded features and decoded images, so that several fits share them. None keeps features in memory.
        For an encoder that is a plain function, pass FeatureCache(folder, key="a name for it").
    progress : callable or None, default=None
        Called as progress(title, steps done, steps in total) a few times per second.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    transduction_ : ndarray of shape (n_samples,)
        Class of each sample of X: the given label, or the prediction.
    model_ : FittedModel
        The trained model.
    history_ : list of dict
        Log records of the training.
    n_features_in_ : int
        Number of columns of X; for images, values per image; for texts, 1.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of X; only if X was a data frame whose column names are strings.
    columns_ : tuple of ColumnPlan
        What the fit did with each column; only if X was a table. `str(plan)` is a sentence.
    n_iter_ : int
        Number of training steps.
    epochs_ : float
        Number of passes over X.
    cost_ : dict
        Cost of the training: seconds, speed, floating-point operations and memory.
    quality_ : LabelQuality or None
        Cross-validated accuracy on the labels with a 95 % interval, and advice on what to label next. None for methods that
        hold no labels out.
    updates_ : UpdatableFit or None
        What `update` needs: the given labels and parts of the fit. None for methods other than "ensemble", and after `load`.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> y[6:] = -1  # unlabelled
    >>> model = SemiSupervisedClassifier(epochs="quick", random_state=0).fit(X, y)
    >>> model.predict(X).shape
    (200,)
    """

    model_: FittedModel
    updates_: UpdatableFit | None

    def __init__(
        self,
        method: str = "auto",
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
        propagate: bool = False,
        encoder: AnyEncoder | None = "auto",
        finetune: Literal["auto", "none", "last", "all"] = "auto",
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
        self.propagate = propagate
        self.encoder = encoder
        self.finetune = finetune
        self.cache = cache
        self.progress = progress

    def validate_parameters(self) -> SemiSupervisedClassifier:
        """Raise SettingError for the first parameter that `fit` would not accept. No data is needed.

        Returns
        -------
        SemiSupervisedClassifier
            The estimator itself.
        """
        FitOptions(**{option.name: getattr(self, option.name) for option in fields(FitOptions)}).validate()
        return self

    def fit(self, X: Any, y: Any = None, *, elapsed: float = 0.0) -> SemiSupervisedClassifier:
        """Train on all samples of X and the labels in y. If the fit is interrupted, the estimator does not change.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), (n_samples, H, W) or (n_samples, H, W, C), or a list of paths or texts
            Vectors, images, the paths of image files, or strings. Strings are paths if most of them end like the name of an
            image or name a file, else texts.
        y : array-like of shape (n_samples,)
            Class of each sample. Unlabelled samples have -1; among strings None, '', NaN or pandas.NA.
        elapsed : float, default=0.0
            Seconds that you have already spent on this fit, for example on decoding. They are a part of `minutes`.

        Returns
        -------
        SemiSupervisedClassifier
            The fitted estimator.
        """
        options = FitOptions(**{option.name: getattr(self, option.name) for option in fields(FitOptions)})
        result = fit_model(X, y, options, elapsed=elapsed)
        self._set_fit(result.model, result.history, result.cost, result.steps, result.epochs, result.quality)
        self.updates_ = result.updates
        return self

    def update(self, indices: Any, labels: Any) -> SemiSupervisedClassifier:
        """Give labels to samples of the X of `fit`, or remove labels, and update all predictions without a new fit.

        `transduction_`, `fitted_proba`, `predict` and all other results then take account of the new labels. The graphs, the
        temperatures and the weights of the models stay as they were after the last `fit`, and so does `quality_`; so call
        `refit` from time to time. The first call after a fit takes longer than later ones, because it prepares them.
        `update([], [])` only prepares. See docs/updating.md.

        Parameters
        ----------
        indices : int or array-like of int
            Positions of the samples in the X of `fit`.
        labels : label or array-like of labels
            Label of each of these samples, or one label for all of them. -1, or None among strings, removes a label. A
            label of a new class adds the class; a class that has no label any more is dropped.

        Returns
        -------
        SemiSupervisedClassifier
            The estimator itself. If an error is raised, the estimator does not change.
        """
        model, updates = self._updates().update(self.model_, indices, labels)
        fitted = {"model_": model, "classes_": model.classes, "transduction_": model.train_labels, "updates_": updates}
        self.__dict__ = vars(self) | fitted
        return self

    def refit(self) -> SemiSupervisedClassifier:
        """Fit again on the X of `fit`, with the labels as `update` has changed them. The graphs are not built again.

        The result is the same as that of `fit` with these labels: the weights of the models and the temperatures are chosen
        anew by held-out labels, and `quality_` is measured anew. With a fine-tuned encoder, the weights and temperatures stay
        those of the fit, and `quality_` is None.

        Returns
        -------
        SemiSupervisedClassifier
            The estimator itself. If an error is raised, the estimator does not change.
        """
        model, quality, updates = self._updates().refit(self.model_)
        self.__dict__ = vars(self) | {
            "model_": model,
            "transduction_": model.train_labels,
            "quality_": quality,
            "updates_": updates,
        }
        return self

    def _updates(self) -> UpdatableFit:
        check_is_fitted(self, "model_")
        if self.updates_ is None:
            raise LabelError(
                "this estimator cannot be updated: its method is not 'ensemble', or it was loaded from a file, which does not "
                "hold what an update needs. Call fit with all labels."
            )
        return self.updates_

    def _set_fit(
        self,
        model: FittedModel,
        history: list[dict[str, Any]],
        cost: dict[str, Any],
        n_iter: int,
        epochs: float,
        quality: LabelQuality | None,
    ) -> SemiSupervisedClassifier:
        """Replace all fitted attributes by those of one fit.

        This is a single assignment, so that after Ctrl+C the attributes never belong to two different fits.
        """
        names = model.preprocessor.feature_names
        fitted = {
            "model_": model,
            "classes_": model.classes,
            "transduction_": model.train_labels,
            "n_features_in_": int(np.prod(model.preprocessor.shape)),
            **({} if names is None else {"feature_names_in_": np.array(names, dtype=object)}),
            **({} if model.column_plans is None else {"columns_": model.column_plans}),
            "history_": history,
            "cost_": cost,
            "n_iter_": n_iter,
            "epochs_": epochs,
            "quality_": quality,
            "updates_": None,
        }
        self.__dict__ = {name: value for name, value in vars(self).items() if not name.endswith("_")} | fitted
        return self

    # ---------------------------------------------------------------- saving and loading

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to a directory, atomically, as safetensors and JSON.

        Parameters
        ----------
        path : str or Path
            Directory; a model that is already in it is replaced.
        """
        model = self._fitted_model()
        fit = {"history": self.history_, "cost": self.cost_, "n_iter": self.n_iter_, "epochs": self.epochs_}
        fit["quality"] = None if self.quality_ is None else self.quality_.to_json()
        replace(model, metadata={"parameters": self._saved_parameters(), **fit}).save(Path(path))

    def _saved_parameters(self) -> dict[str, Any]:
        """Return the parameters in a form that JSON allows. A parameter that is an object of the user gets its default."""
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in NOT_SAVED}
        views, random_state, encoder = self.views, self.random_state, self.encoder
        return parameters | {
            "views": views if isinstance(views, str) else "auto",
            "random_state": random_state if isinstance(random_state, int) else None,
            "encoder": encoder if isinstance(encoder, str) else None,
        }

    @classmethod
    def load(
        cls, path: str | Path, *, net: nn.Module | None = None, encoder: Encoder | None = None
    ) -> SemiSupervisedClassifier:
        """Read an estimator that `save` wrote, without running any code from the files.

        Parameters
        ----------
        path : str or Path
            Directory of the model.
        net : torch.nn.Module or None, default=None
            The network of the fit, if it was your own module.
        encoder : torch.nn.Module, callable or None, default=None
            The encoder of the fit, if it was your own object. An encoder that was given by name is built again from its name.

        Returns
        -------
        SemiSupervisedClassifier
            The fitted estimator.
        """
        model = FittedModel.load(Path(path), net=net, encoder=encoder)
        metadata = model.metadata
        require_fit_metadata(metadata, set(cls._get_param_names()) - set(NOT_SAVED))
        loaded = cls(**metadata["parameters"])
        loaded.net = net if net is not None else model.net or "auto"
        loaded.encoder = model.encoder or encoder
        stored = metadata.get("quality")
        quality = None if stored is None else LabelQuality.from_json(stored)
        history, cost, n_iter, epochs = (metadata[name] for name in ("history", "cost", "n_iter", "epochs"))
        return loaded._set_fit(model, history, cost, n_iter, epochs, quality)
