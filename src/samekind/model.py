"""FittedModel: a trained predictor with its preprocessing. It predicts, compares and searches, and can be saved and loaded.

    model/
      model.json                  description of the model, and the name of its weights file
      weights-<hash>.safetensors  tensors; the hash is that of the content, so that a damaged file is detected
      encoder-<hash>.safetensors  weights of the encoder, if it was fine-tuned

`save` replaces model.json last, and atomically, so that after a crash the previous model is still complete. `load` runs no code
from the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save as write_tensors
from torch import Tensor, nn

from samekind import defaults
from samekind.data.dataset import UNLABELLED, Dataset
from samekind.data.inputs import without_class
from samekind.data.scaling import Scaler
from samekind.errors import ModelFileError, SettingError
from samekind.files.io import atomic_write
from samekind.files.manifest import MODEL_FORMAT
from samekind.image_layout import as_floats, as_tensor
from samekind.methods.predictors import AnyPredictor
from samekind.model_file import read_model
from samekind.nets.encoders.finetuned import PATTERN, architecture_name, is_finetuned, save_finetuned
from samekind.nets.encoders.fingerprints import fingerprint_of
from samekind.nets.encoders.frozen_features import Encoder, FeatureCache
from samekind.preprocessing.preprocessor import AnyPreprocessor
from samekind.preprocessing.saved_preprocessor import restore_preprocessor
from samekind.preprocessing.table_input import TablePreprocessor
from samekind.search.index import Candidates, SimilarityIndex
from samekind.search.kernel import LANDMARKS, Kernel, choose_landmarks
from samekind.search.pair_scores import PairScore, make_pair_score
from samekind.search.pairwise import pairwise_log_odds, pairwise_similarity
from samekind.tabular.column_plan import ColumnPlan

Array = npt.NDArray[Any]
BLOCK_SAMPLES = 2048  # largest number of samples that are predicted at a time
BLOCK_VALUES = 2**21  # largest number of values in a block of images, so that large images are predicted in smaller blocks


def inference_dtype(shape: tuple[int, ...]) -> torch.dtype:
    """Return the precision in which samples of this shape are predicted.

    Vectors are predicted in double precision, so that a prediction does not depend on the other samples in its block.
    """
    return torch.float64 if len(shape) == 1 else torch.float32


def inference_block_size(shape: tuple[int, ...]) -> int:
    """Return how many samples of this shape are predicted at a time."""
    return BLOCK_SAMPLES if len(shape) == 1 else max(1, min(BLOCK_SAMPLES, BLOCK_VALUES // int(np.prod(shape))))


def prepare_for_inference(predictor: AnyPredictor, shape: tuple[int, ...]) -> AnyPredictor:
    """Move the predictor to the CPU, in the precision for predictions and without gradients, and return it."""
    return predictor.requires_grad_(False).to("cpu", inference_dtype(shape))


@dataclass(frozen=True, eq=False)
class FittedModel:
    """Trained model: all that is needed to predict classes and similarities of new X.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        Class labels, sorted.
    preprocessor : Preprocessor, TextPreprocessor or TablePreprocessor
        Reads X, and encodes images, texts or the columns of tables.
    scaler : Scaler
        Standardizes the samples.
    shape : tuple of int
        Shape of a sample before scaling: (d,) or (C, H, W).
    predictor : nn.Module
        Features, class probabilities and pair similarities.
    train_features : Tensor of shape (n_samples, n_features)
        Features of the training set; empty if they were not kept.
    train_codes : ndarray of shape (n_samples,)
        Index in `classes` for each training sample: the given label, or the prediction.
    train_probabilities : Tensor of shape (n_samples, n_classes) or None
        Class probabilities of the training set, if the method computed them; None: they are computed from the features.
    net : str or None
        Name of the net; None if the user gave a module.
    encoder : str or None
        Name of the encoder; None if the user gave an encoder object, or if there is no encoder.
    device : str
        Device on which an encoder given by name is built.
    metadata : Mapping
        Further facts to save with the model, JSON-serializable.
    cache : path, FeatureCache or None
        Where features of many new images are cached.
    verbose : bool
        Whether to show a bar while images are encoded.
    """

    classes: Array
    preprocessor: AnyPreprocessor
    scaler: Scaler
    shape: tuple[int, ...]
    predictor: AnyPredictor
    train_features: Tensor = field(default_factory=lambda: torch.empty(0))
    train_codes: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    train_probabilities: Tensor | None = None
    net: str | None = "auto"
    encoder: str | None = None
    device: str = "auto"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    cache: str | Path | FeatureCache | None = None
    verbose: bool = False

    # ---------------------------------------------------------------- predictions and features

    def predict(self, X: Any, *, reject_below: float | None = None) -> Array:
        """Return the most probable class (n,) of each sample.

        Where its probability is below `reject_below`, return no class.
        """
        if reject_below is None:
            return np.asarray(self.classes[self.predict_proba(X).argmax(1)])
        if not 0.0 <= reject_below <= 1.0:
            raise SettingError(f"reject_below is {reject_below!r}; expected a probability from 0 to 1, such as 0.8.")
        P = self.predict_proba(X)
        return without_class(self.classes[P.argmax(1)], P.max(axis=1) < reject_below)

    def predict_proba(self, X: Any) -> Array:
        """Return the class probabilities (n, C) of the samples X."""
        return self.probabilities(self.features(X)).numpy()

    def features(self, X: Any) -> Tensor:
        """Return the features z (n, d) of the samples X."""
        samples, size = self.preprocessor.samples(X, self.cache, verbose=self.verbose), inference_block_size(self.shape)
        blocks = (as_tensor(samples[start : start + size]) for start in range(0, len(samples), size))
        scaled = (self.scaler(as_floats(block)).to(self.dtype) for block in blocks)
        return _map_blocks(self.predictor.features, scaled, len(samples))

    def probabilities(self, z: Tensor) -> Tensor:
        """Return the class probabilities (n, C) of samples with features z (n, d)."""
        return _map_blocks(self.predictor.probabilities, torch.split(z, BLOCK_SAMPLES), len(z))

    def as_features(self, z: Array) -> Tensor:
        """Return an array of features as a tensor, in the precision of this model."""
        return torch.from_numpy(z).to(self.dtype)

    @property
    def dtype(self) -> torch.dtype:
        """Return the precision of the features."""
        return inference_dtype(self.shape)

    @property
    def column_plans(self) -> tuple[ColumnPlan, ...] | None:
        """Return the plans of the table's columns, which say how the fit uses them; None if X was not a table."""
        return self.preprocessor.plans if isinstance(self.preprocessor, TablePreprocessor) else None

    @property
    def updatable(self) -> bool:
        """Whether a fit with this predictor can be updated for other labels without a new training."""
        return self.predictor.blueprint().updatable

    @property
    def train_labels(self) -> Array:
        """Return the class (n,) of each training sample: the given label, or the prediction."""
        return np.asarray(self.classes[self.train_codes])

    def fitted_probabilities(self) -> Tensor:
        """Return the class probabilities (n, C) of the training set."""
        return self.probabilities(self.train_features) if self.train_probabilities is None else self.train_probabilities

    def with_training_set(self, dataset: Dataset, probabilities: Tensor | None = None) -> FittedModel:
        """Return the model with the features and classes of its training set. Labelled samples keep their labels.

        `probabilities` (n, C) are those of the training set, if the method has computed them; otherwise the predictor computes
        them.
        """
        size = inference_block_size(self.shape)
        blocks = (dataset.inputs(slice(start, start + size)).to(self.dtype) for start in range(0, len(dataset), size))
        z = _map_blocks(self.predictor.features, blocks, len(dataset))
        found = self.probabilities(z) if probabilities is None else probabilities
        predicted, codes = found.argmax(1).numpy(), dataset.y.numpy()
        train_codes = np.where(codes == UNLABELLED, predicted, codes)
        return replace(self, train_features=z, train_codes=train_codes, train_probabilities=probabilities)

    def with_predictor(self, predictor: AnyPredictor) -> FittedModel:
        """Return the model with another predictor, and without its training set."""
        return replace(self.without_training_set(), predictor=prepare_for_inference(predictor, self.shape))

    def without_training_set(self) -> FittedModel:
        """Return the model without the features, classes and probabilities of its training set."""
        return replace(self, train_features=torch.empty(0), train_codes=np.empty(0, dtype=np.int64), train_probabilities=None)

    # ---------------------------------------------------------------- similarity and search

    @property
    def pair_score(self) -> PairScore:
        """Return the score that computes the similarity of pairs of samples from their features."""
        return make_pair_score(self.predictor)

    def similarity(self, A: Any, B: Any = None, *, symmetric: bool = False) -> Array:
        """Return the similarities W (n_a, n_b) of all pairs of A and B; without B, of A and A.

        With `symmetric`, the means of W_ij and W_ji are returned.
        """
        z_a = self.features(A)
        z_b = z_a if B is None else self.features(B)
        return pairwise_similarity(self.pair_score, z_a, z_b, symmetric=symmetric).numpy()

    def similarity_from_features(self, z_a: Array, z_b: Array) -> Array:
        """Return the similarities W (n_a, n_b) of samples with features z_a (n_a, d) and samples with features z_b (n_b, d)."""
        return pairwise_similarity(self.pair_score, self.as_features(z_a), self.as_features(z_b)).numpy()

    def log_odds_from_features(self, z_a: Array, z_b: Array) -> Array:
        """Return the log-odds ln(W / (1 - W)) (n_a, n_b) of samples with features z_a (n_a, d) and samples with features
        z_b (n_b, d).
        """
        return pairwise_log_odds(self.pair_score, self.as_features(z_a), self.as_features(z_b)).numpy()

    def log_odds(self, A: Any, B: Any = None, *, symmetric: bool = False) -> Array:
        """Return the log-odds ln(W / (1 - W)) (n_a, n_b) of all pairs of A and B; without B, of A and A."""
        z_a = self.features(A)
        z_b = z_a if B is None else self.features(B)
        return pairwise_log_odds(self.pair_score, z_a, z_b, symmetric=symmetric).numpy()

    def kneighbors(
        self, X: Any, n_neighbors: int, *, symmetric: bool = False, candidates: Candidates = "all"
    ) -> tuple[Array, Array]:
        """Return the similarities and the indices, both (n, n_neighbors), of the training samples most similar to each of X."""
        z, n_train = self.features(X), len(self.train_features)
        if not 1 <= n_neighbors <= n_train:
            raise SettingError(f"n_neighbors is {n_neighbors}; expected 1 to {n_train}, the number of training samples")
        found = self.index().search(z, n_neighbors, symmetric=symmetric, candidates=candidates)
        return found.similarity.numpy(), found.ids.numpy()

    def kernel(self, *, landmarks: int = LANDMARKS, unit: bool = False) -> Kernel:
        """Return a positive semidefinite kernel that is close to the similarity W, made from `landmarks` training samples."""
        score = self.pair_score

        def similarity(A: Any, z: Tensor) -> Array:
            return pairwise_similarity(score, z if A is z else self.features(A), z, symmetric=True).numpy()

        chosen = choose_landmarks(len(self.train_features), landmarks)
        return Kernel(similarity, self.train_features[chosen], unit=unit)

    def index(self, X: Any = None, *, features: Array | None = None) -> SimilarityIndex:
        """Return a search index of samples X, or of samples with these features, or without both, of the training set."""
        if features is not None:
            return SimilarityIndex(self.as_features(features), self.pair_score)
        return SimilarityIndex(self.train_features if X is None else self.features(X), self.pair_score)

    # ---------------------------------------------------------------- saving and loading

    def save(self, folder: Path) -> None:
        """Write the model to a directory, atomically."""
        if folder.exists() and not folder.is_dir():
            raise ModelFileError(f"{folder} is a file; expected a directory or an unused path. Choose another path.")
        folder.mkdir(parents=True, exist_ok=True)
        blob = write_tensors(self._tensors())
        weights = f"weights-{hashlib.sha256(blob).hexdigest()[:16]}.safetensors"
        atomic_write(folder / weights, blob, ModelFileError)
        encoder = self.preprocessor.encoder
        kept = save_finetuned(encoder, folder) if is_finetuned(encoder) else None
        manifest = {"format": MODEL_FORMAT, "weights": weights, **self._description(), "encoder_weights": kept}
        atomic_write(folder / "model.json", json.dumps(manifest, indent=2).encode(), ModelFileError)
        for old in (*folder.glob("weights-*.safetensors"), *folder.glob(PATTERN)):
            if old.name not in (weights, kept):
                old.unlink()

    @classmethod
    def load(cls, folder: Path, *, net: nn.Module | None = None, encoder: Encoder | None = None) -> FittedModel:
        """Return the model in a directory.

        `net` and `encoder` must be passed if the fit had a network or encoder of the user.
        """
        saved = read_model(folder, net, inference_dtype)
        manifest, tensors = saved.manifest, saved.tensors
        return cls(
            saved.classes,
            restore_preprocessor(manifest, encoder, tensors, folder, defaults.device_for(manifest["device"])),
            saved.scaler,
            tuple(manifest["shape"]),
            saved.predictor,
            tensors["train.features"],
            tensors["train.codes"].numpy(),
            tensors.get("train.probabilities"),
            **{name: manifest[name] for name in ("net", "encoder", "device", "metadata")},
        )

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {
            "scaler.mean": self.scaler.mean,
            "scaler.scale": self.scaler.scale,
            "train.features": self.train_features,
            "train.codes": torch.from_numpy(self.train_codes),
        }
        if self.train_probabilities is not None:
            tensors["train.probabilities"] = self.train_probabilities
        if self.scaler.basis is not None:
            tensors["scaler.basis"] = self.scaler.basis
        if self.preprocessor.encoder is not None:
            tensors["encoder.probe"] = torch.from_numpy(self.preprocessor.probe())
        tensors |= {f"encoder.state.{name}": torch.from_numpy(np.array(a)) for name, a in self.preprocessor.state().items()}
        tensors |= {f"predictor.{name}": tensor for name, tensor in self.predictor.state_dict().items()}
        return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}

    def _description(self) -> dict[str, Any]:
        encoder = self.preprocessor.encoder
        name = architecture_name(encoder) if is_finetuned(encoder) else self.encoder
        return {
            "net": self.net,
            "encoder": name,
            "encoder_hash": None if encoder is None else fingerprint_of(encoder),
            "custom_encoder": encoder is not None and name is None,
            "device": self.device,
            "input": self.preprocessor.description(),
            "shape": list(self.shape),
            "classes": self.classes.tolist(),
            "classes_dtype": self.classes.dtype.str,
            "predictor": self.predictor.blueprint().as_dict(),
            "metadata": self.metadata,
        }


def _map_blocks(function: Callable[[Tensor], Tensor], blocks: Iterable[Tensor], n: int) -> Tensor:
    """Return the results of a function for all n samples, computed block by block.

    The results are written to one tensor. In a list, the result of each block would lie in memory between the large temporary
    tensors of the blocks, and the allocator could not reuse the gaps.
    """
    results, at = torch.empty(0), 0
    with torch.inference_mode():
        for block in blocks:
            result = function(block)
            results = result.new_empty((n, *result.shape[1:])) if at == 0 else results
            results[at : at + len(result)] = result
            at += len(result)
    return results
