"""Predictors: what is left of a method when training is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from samekind.graphs.affinity import log_affinity, out_of_sample_weights, out_of_sample_widths
from samekind.graphs.kernels import gaussian_kernel, log_gaussian_kernel
from samekind.losses.laplacian import squared_distance
from samekind.nets.classifier import Classifier
from samekind.nets.similarity_net import SimilarityNet, same_probability


@dataclass(frozen=True)
class Blueprint:
    """All that is needed, besides the numbers, to build a predictor again. Goes into JSON."""

    kind: Literal["deep", "graph", "kernel"]
    log_odds: float = 0.0
    beta: float = 3.0
    similarity_layers: Sequence[int] | None = None  # None: no similarity net
    mirrored: bool = False
    n_points: int = 0
    n_features: int = 0
    n_classes: int = 0
    n_neighbors: int = 0

    @property
    def deep(self) -> bool:
        return self.kind == "deep"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class DeepPredictor(nn.Module):
    """f = h ∘ g, with W from Phi where there is one, else the classifier's own confidence A (equation 7).

    If `mirrored`, z is the mean over an image and its mirror image, and so the logits are: the head is linear.
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
        """Where there is no Phi: what a row brings to its pairs, made once for all of them."""
        return self.probabilities(z)

    def log_similarity(self, f_a: Tensor, f_b: Tensor) -> Tensor:
        """ln A (n_a, n_b) from the sides of the rows; unlike A it tells near-equals apart."""
        return -self.beta * squared_distance(f_a[:, None], f_b[None, :])

    def blueprint(self) -> Blueprint:
        layers = None if self.similarity_net is None else self.similarity_net.hidden
        return Blueprint("deep", log_odds=self.log_odds, beta=self.beta, similarity_layers=layers, mirrored=self.mirrored)


class GraphPredictor(nn.Module):
    """The points of a solved graph: anything else is the average of the graph points around it.

    f(x) = SUM_i W(x, x_i) F_i / SUM_i W(x, x_i) over the k nearest x_i; a point of the graph keeps its own F_i. Made from
    sizes alone, so that a saved state can be loaded into it.
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
        """Take over what was solved, in this module's own precision."""
        self.points.copy_(points)
        self.widths.copy_(widths)
        self.F.copy_(F)
        return self

    def answers(self) -> Tensor:
        """What it says of its own points (n, C)."""
        return self.F

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1).to(self.points.dtype)

    def probabilities(self, z: Tensor) -> Tensor:
        weights, indices = out_of_sample_weights(z, self.points, self.widths, self.n_neighbors)
        return torch.einsum("nk,nkc->nc", weights, self.F[indices])

    def similarity(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        return torch.exp(self.log_similarity(self.side(z_a), self.side(z_b)))

    def side(self, z: Tensor) -> Tensor:
        """(n, d + 1): a point and its width in the graph."""
        return torch.cat([z, out_of_sample_widths(z, self.points, self.widths, self.n_neighbors)[:, None]], dim=1)

    def log_similarity(self, a: Tensor, b: Tensor) -> Tensor:
        """ln W (n_a, n_b) from the sides of the rows; it does not vanish where W is too small for a number."""
        # not by matrix product: identical points have to be exactly 0 apart, however small the widths
        d = torch.cdist(a[:, :-1], b[:, :-1], compute_mode="donot_use_mm_for_euclid_dist")
        return log_affinity(d, a[:, -1:], b[:, -1])

    def blueprint(self) -> Blueprint:
        (n_points, n_features), n_classes = self.points.shape, self.F.shape[1]
        return Blueprint("graph", n_points=n_points, n_features=n_features, n_classes=n_classes, n_neighbors=self.n_neighbors)


class KernelPredictor(nn.Module):
    """A sum of kernels: f(x) = SUM_j a_j K(x, x_j) over the centres x_j, for any x; then the nearest probabilities to it.

    Made from sizes alone, so that a saved state can be loaded into it.
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
        """Take over what was solved, in this module's own precision."""
        self.points.copy_(points)
        self.a.copy_(a)
        self.width.fill_(width)
        return self

    def answers(self) -> Tensor:
        """What it says of its own centres (m, C)."""
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
        """ln K (n_a, n_b); it does not vanish where K is too small for a number."""
        return log_gaussian_kernel(z_a, z_b, self.width)

    def blueprint(self) -> Blueprint:
        (n_points, n_features), n_classes = self.points.shape, self.a.shape[1]
        return Blueprint("kernel", n_points=n_points, n_features=n_features, n_classes=n_classes)


def nearest_probabilities(f: Tensor) -> Tensor:
    """The probabilities p (n, C) nearest to f: p_c = max(0, f_c - t) with the t that makes a row sum to one.

    The order of classes stays, also where f is below 0, as least squares may be.
    """
    falling = f.sort(dim=1, descending=True).values
    excess = (falling.cumsum(1) - 1.0) / torch.arange(1, f.shape[1] + 1, device=f.device, dtype=f.dtype)
    counted = (falling > excess).sum(dim=1, keepdim=True)
    p = (f - excess.gather(1, counted - 1)).clamp_min(0.0)
    return p / p.sum(dim=1, keepdim=True)


AnyPredictor = DeepPredictor | GraphPredictor | KernelPredictor


def build_predictor(blueprint: Blueprint, classifier: Classifier | None) -> AnyPredictor:
    """A predictor of the right shape, waiting for its numbers."""
    if classifier is None:
        sizes = blueprint.n_points, blueprint.n_features, blueprint.n_classes
        return KernelPredictor(*sizes) if blueprint.kind == "kernel" else GraphPredictor(*sizes, blueprint.n_neighbors)
    layers = blueprint.similarity_layers
    phi = None if layers is None else SimilarityNet(classifier.n_features, layers, dropout=0.0)
    return DeepPredictor(classifier, phi, log_odds=blueprint.log_odds, beta=blueprint.beta, mirrored=blueprint.mirrored)
