"""Label propagation over the features of a trained network: the last part of a fit with `propagate=True`.

The labels spread over the graph of the nearest neighbours by the cosine of the features (local and global consistency), so that
many steps along local edges connect a sample with the labels. The network itself only sees one sample at a time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from samekind.errors import LabelError
from samekind.graphs.affinity import cosine_graph
from samekind.graphs.linear_systems import Floats, Labels, normalize_rows
from samekind.graphs.propagation import leave_one_out_consistency, local_global_consistency
from samekind.methods.predictors import DeepPredictor, PropagatedPredictor
from samekind.model import FittedModel

N_NEIGHBORS = 10
ALPHA = 0.99  # weight of the neighbours against a sample's own label
GAMMA = 3.0  # power of the cosine that weights an edge
TOLERANCE = 1e-6  # of the linear solver
MOST_HELD_OUT = 100  # largest number of labels that are left out, one at a time, to choose the temperature
BLOCK = 10_000  # samples whose class probabilities are computed at a time
LOG_TEMPERATURES = (-4.0, 2.0)


def propagate_at_end(model: FittedModel, y: Labels) -> FittedModel:
    """Return the model with propagated predictions: for its training set and, by nearest neighbours, for new samples.

    Each prediction is the mean of the propagated class probabilities and of the network's, because either can be the better
    one. `model` holds its training set; y (n,) holds the class indices of the training set, -1 for an unlabelled sample. A
    predictor without a network has propagated its labels already, so its model is returned as it is.
    """
    predictor, z = model.predictor, model.train_features
    if not isinstance(predictor, DeepPredictor):
        return model
    if not (y >= 0).any():
        raise LabelError(f"y holds no labelled sample (all {len(y)} are -1). Label at least one per class.")
    F = propagate_labels(z, y, len(model.classes))
    propagated = PropagatedPredictor.from_points(predictor, z, torch.from_numpy(F), min(N_NEIGHBORS, len(z)))
    probabilities = (torch.from_numpy(F).to(z.dtype) + network_probabilities(predictor, z)) / 2
    codes = np.where(y >= 0, y, probabilities.argmax(1).numpy())
    return replace(model, predictor=propagated, train_codes=codes, train_probabilities=probabilities)


@torch.no_grad()
def network_probabilities(predictor: DeepPredictor, z: Tensor) -> Tensor:
    """Return the class probabilities (n, C) that the network predicts from the features z (n, d)."""
    head = next(predictor.parameters())
    return torch.cat([predictor.probabilities(part.to(head)).to(z) for part in torch.split(z, BLOCK)])


def propagate_labels(z: Tensor, y: Labels, n_classes: int) -> Floats:
    """Return the class probabilities (n, C) after propagation over the features z (n, d), with calibrated confidence."""
    W = cosine_graph(z, min(N_NEIGHBORS, len(z) - 1), GAMMA)
    F = local_global_consistency(W, y, n_classes, ALPHA, tolerance=TOLERANCE)
    held_out = _labels_to_hold_out(y)
    if not len(held_out):
        return F
    without = leave_one_out_consistency(W, y, n_classes, held_out, ALPHA, tolerance=TOLERANCE)
    return sharpen(F, best_temperature(without, y[held_out]))


def best_temperature(F: Floats, y: Labels) -> float:
    """Return the temperature T at which the probabilities F^(1/T), normalized, have the highest likelihood of the labels y."""

    def loss(log_temperature: float) -> float:
        p = sharpen(F, float(np.exp(log_temperature)))[np.arange(len(y)), y]
        return -float(np.log(np.maximum(p, 1e-6)).mean())

    found = minimize_scalar(loss, bounds=LOG_TEMPERATURES, method="bounded")
    return float(np.exp(found.x))


def sharpen(F: Floats, temperature: float) -> Floats:
    """Return F^(1/temperature) (n, C), each row divided by its sum."""
    log_F = np.log(np.maximum(F, np.finfo(float).tiny)) / temperature
    return normalize_rows(np.exp(log_F - log_F.max(axis=1, keepdims=True)))


def _labels_to_hold_out(y: Labels) -> Labels:
    """Return the positions of labels whose class has another label, at most MOST_HELD_OUT of them at equal distances."""
    labelled = np.flatnonzero(y >= 0)
    counts = np.bincount(y[labelled])
    held_out = labelled[counts[y[labelled]] > 1]
    if len(held_out) <= MOST_HELD_OUT:
        return held_out
    return held_out[np.linspace(0, len(held_out) - 1, MOST_HELD_OUT).round().astype(np.int64)]
