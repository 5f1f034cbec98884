"""Predictors: the trained models that methods return. Each computes features, probabilities and similarities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from samekind.graphs.affinity import log_affinity, out_of_sample_weights, out_of_sample_widths
from samekind.graphs.kernels import gaussian_kernel, log_gaussian_kernel
from samekind.graphs.nearest_neighbors import nearest_neighbors
from samekind.losses.laplacian import squared_distance
from samekind.methods.blueprint import Blueprint
from samekind.methods.ensemble_predictor import EnsemblePredictor
from samekind.nets.classifier import Classifier
from samekind.nets.similarity_net import SimilarityNet, same_probability


class DeepPredictor(nn.Module):
    """Neural network as a predictor: a classifier, with or without a similarity network Phi.

    With Phi, similarities are its outputs. Without, they are the classifier's confidence A = exp(-beta d^2), eq. (7) of the
    paper, where d is the distance of two predictions. With `mirrored`, features are averaged over an image and its horizontal
    flip; that also averages the logits, because the head is linear.
    """

    def __init__(
        self,
        classifier: Classifier,
        similarity_net: SimilarityNet | None = None,
        *,
        log_odds: float = 0.0,
        beta: float = 3.0,
        mirrored: bool = False,
    ) -> None:
        super().__init__()
        self.classifier = classifier
        self.similarity_net = similarity_net
        self.log_odds = log_odds
        self.beta = beta
        self.mirrored = mirrored

    def features(self, x: Tensor) -> Tensor:
        z: Tensor = self.classifier.features(x)
        return (z + self.classifier.features(x.flip(-1))) / 2 if self.mirrored else z

    def probabilities(self, z: Tensor) -> Tensor:
        return torch.softmax(self.classifier.head(z), dim=-1)

    def similarity(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        if self.similarity_net is not None:
            return same_probability(self.similarity_net.grid(z_a, z_b), self.log_odds)
        return torch.exp(self.log_similarity(self.side(z_a), self.side(z_b)))

    def side(self, z: Tensor) -> Tensor:
        """Return the class probabilities (n, C), from which `log_similarity` computes the similarity.

        For predictors without Phi.
        """
        return self.probabilities(z)

    def log_similarity(self, f_a: Tensor, f_b: Tensor) -> Tensor:
        """Return ln A (n_a, n_b) for class probabilities (n, C). ln A still ranks pairs that are so similar that A
        rounds to 1.
        """
        return -self.beta * squared_distance(f_a[:, None], f_b[None, :])

    def blueprint(self) -> Blueprint:
        layers = None if self.similarity_net is None else self.similarity_net.hidden
        return Blueprint("deep", log_odds=self.log_odds, beta=self.beta, similarity_layers=layers, mirrored=self.mirrored)


class PropagatedPredictor(DeepPredictor):
    """Neural network with training samples to which labels were propagated: the mean of two class probabilities.

    One half is the network's prediction f(x). The other half is F(x) = SUM_j w_j F_j / SUM_j w_j over the k training samples
    with the most similar features by cosine, where F_j are their propagated class probabilities and w_j is the third power of
    the cosine. Features and similarities are those of the network.
    """

    points: Tensor
    F: Tensor

    def __init__(self, n_points: int, n_classes: int, n_neighbors: int, **network: Any) -> None:
        super().__init__(**network)
        self.n_neighbors = n_neighbors
        self.register_buffer("points", torch.zeros(n_points, self.classifier.n_features))
        self.register_buffer("F", torch.full((n_points, n_classes), 1.0 / n_classes))

    @classmethod
    def from_points(cls, base: DeepPredictor, z: Tensor, F: Tensor, n_neighbors: int) -> PropagatedPredictor:
        """Return the predictor with the network of `base`, for training samples with features z (n, d) and probabilities F."""
        network: dict[str, Any] = {"classifier": base.classifier, "similarity_net": base.similarity_net}
        numbers: dict[str, Any] = {"log_odds": base.log_odds, "beta": base.beta, "mirrored": base.mirrored}
        predictor = cls(len(z), F.shape[1], n_neighbors, **network, **numbers)
        predictor.points, predictor.F = normalize(z, dim=1), F.to(z.dtype)
        return predictor.requires_grad_(False).eval()

    def probabilities(self, z: Tensor) -> Tensor:
        return (super().probabilities(z) + self.propagated(z)) / 2

    def propagated(self, z: Tensor) -> Tensor:
        """Return the weighted mean (n, C) of the propagated class probabilities of the nearest training samples."""
        v = normalize(z, dim=1).to(self.points.dtype)
        distances, indices = nearest_neighbors(v, self.points, self.n_neighbors)
        weights = (1.0 - 0.5 * distances.square()).clamp_min(torch.finfo(v.dtype).eps).pow(3)
        return torch.einsum("nk,nkc->nc", weights / weights.sum(1, keepdim=True), self.F[indices])

    def side(self, z: Tensor) -> Tensor:
        return super().probabilities(z)

    def blueprint(self) -> Blueprint:
        n_points, n_classes = self.F.shape
        deep = super().blueprint()
        return replace(deep, kind="propagated", n_points=n_points, n_classes=n_classes, n_neighbors=self.n_neighbors)


class GraphPredictor(nn.Module):
    """Solved graph as a predictor: a new sample gets the weighted mean of the probabilities of the nearest points of the graph.

    f(x) = SUM_i W(x, x_i) F_i / SUM_i W(x, x_i) over the k nearest points x_i with probabilities F_i. A point of the graph
    itself gets its own F_i. The constructor needs only the sizes of the tensors; their values can be loaded later.
    """

    points: Tensor
    widths: Tensor
    F: Tensor

    def __init__(self, n_points: int, n_features: int, n_classes: int, n_neighbors: int) -> None:
        super().__init__()
        self.n_neighbors = n_neighbors
        self.register_buffer("points", torch.zeros(n_points, n_features))
        self.register_buffer("widths", torch.ones(n_points))
        self.register_buffer("F", torch.full((n_points, n_classes), 1.0 / n_classes))

    def fill(self, points: Tensor, widths: Tensor, F: Tensor) -> GraphPredictor:
        """Copy the points, widths and probabilities into the buffers, rounded to the buffers' precision, and return this
        predictor.
        """
        self.points.copy_(points)
        self.widths.copy_(widths)
        self.F.copy_(F)
        return self

    def point_probabilities(self) -> Tensor:
        """Return the probabilities (n, C) of the points of the graph."""
        return self.F

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1).to(self.points.dtype)

    def probabilities(self, z: Tensor) -> Tensor:
        weights, indices = out_of_sample_weights(z, self.points, self.widths, self.n_neighbors)
        return torch.einsum("nk,nkc->nc", weights, self.F[indices])

    def similarity(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        return torch.exp(self.log_similarity(self.side(z_a), self.side(z_b)))

    def side(self, z: Tensor) -> Tensor:
        """Return (n, d + 1): each sample, followed by its kernel width in the graph."""
        return torch.cat([z, out_of_sample_widths(z, self.points, self.widths, self.n_neighbors)[:, None]], dim=1)

    def log_similarity(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ln W (n_a, n_b) for samples described by `side`. ln W is finite even where W underflows to 0."""
        # Do not compute the distance by a matrix product: it rounds, and identical points must have distance exactly 0, however
        # small their widths are.
        d = torch.cdist(a[:, :-1], b[:, :-1], compute_mode="donot_use_mm_for_euclid_dist")
        return log_affinity(d, a[:, -1:], b[:, -1])

    def blueprint(self) -> Blueprint:
        (n_points, n_features), n_classes = self.points.shape, self.F.shape[1]
        return Blueprint("graph", n_points=n_points, n_features=n_features, n_classes=n_classes, n_neighbors=self.n_neighbors)


class KernelPredictor(nn.Module):
    """Sum of kernels as a predictor: f(x) = SUM_j a_j K(x, x_j) over the centres x_j, moved to the nearest probabilities.

    The constructor needs only the sizes of the tensors; their values can be loaded later.
    """

    points: Tensor
    a: Tensor
    width: Tensor

    def __init__(self, n_points: int, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("points", torch.zeros(n_points, n_features))
        self.register_buffer("a", torch.zeros(n_points, n_classes))
        self.register_buffer("width", torch.ones(()))

    def fill(self, points: Tensor, a: Tensor, width: float) -> KernelPredictor:
        """Copy centres, coefficients and width into the buffers, rounded to the buffers' precision, and return this
        predictor.
        """
        self.points.copy_(points)
        self.a.copy_(a)
        self.width.fill_(width)
        return self

    def point_probabilities(self) -> Tensor:
        """Return the probabilities (m, C) of the kernel centres."""
        return self.probabilities(self.points)

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1).to(self.points.dtype)

    def probabilities(self, z: Tensor) -> Tensor:
        return nearest_probabilities(gaussian_kernel(z, self.points, self.width) @ self.a)

    def similarity(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        return torch.exp(self.log_similarity(z_a, z_b))

    def side(self, z: Tensor) -> Tensor:
        return z

    def log_similarity(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """Return ln K (n_a, n_b), the logarithm of the Gaussian kernel. ln K is finite even where K underflows to 0."""
        return log_gaussian_kernel(z_a, z_b, self.width)

    def blueprint(self) -> Blueprint:
        (n_points, n_features), n_classes = self.points.shape, self.a.shape[1]
        return Blueprint("kernel", n_points=n_points, n_features=n_features, n_classes=n_classes)


def nearest_probabilities(f: Tensor) -> Tensor:
    """Return the class probabilities p (n, C) that are nearest to the values f (n, C).

    p_c = max(0, f_c - t), with t such that the p_c of a sample sum to one. So classes keep their order, even if some values are
    negative, as they can be in a least-squares fit.
    """
    descending_f = f.sort(dim=1, descending=True).values
    excess = (descending_f.cumsum(1) - 1.0) / torch.arange(1, f.shape[1] + 1, device=f.device, dtype=f.dtype)
    n_positive = (descending_f > excess).sum(dim=1, keepdim=True)
    p = (f - excess.gather(1, n_positive - 1)).clamp_min(0.0)
    return p / p.sum(dim=1, keepdim=True)


AnyPredictor = DeepPredictor | GraphPredictor | KernelPredictor | EnsemblePredictor


def build_predictor(blueprint: Blueprint, classifier: Classifier | None) -> AnyPredictor:
    """Return a predictor with the tensor shapes of the blueprint. The values of its tensors are loaded afterwards."""
    if blueprint.kind == "ensemble":
        return EnsemblePredictor(blueprint.shapes, blueprint.n_neighbors)
    if classifier is None:
        sizes = blueprint.n_points, blueprint.n_features, blueprint.n_classes
        return KernelPredictor(*sizes) if blueprint.kind == "kernel" else GraphPredictor(*sizes, blueprint.n_neighbors)
    layers = blueprint.similarity_layers
    phi = None if layers is None else SimilarityNet(classifier.n_features, layers, dropout=0.0)
    numbers: dict[str, Any] = {"log_odds": blueprint.log_odds, "beta": blueprint.beta, "mirrored": blueprint.mirrored}
    if blueprint.kind == "propagated":
        network: dict[str, Any] = {"classifier": classifier, "similarity_net": phi, **numbers}
        return PropagatedPredictor(blueprint.n_points, blueprint.n_classes, blueprint.n_neighbors, **network)
    return DeepPredictor(classifier, phi, **numbers)
