"""EnsemblePredictor: the stacked ensemble as a torch module, which predicts new samples and can be saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from samekind.graphs.affinity import out_of_sample_weights
from samekind.methods.blueprint import Blueprint
from samekind.stacking.decision_trees import TREE_MODELS, Trees, tree_probabilities
from samekind.stacking.ensemble_candidates import average_weights
from samekind.stacking.ensemble_fit import EnsembleFit
from samekind.stacking.input_views import ColumnStatistics, GraphProjection, make_view, unit_rows
from samekind.stacking.kernel_logistic import COLUMNS, BaseClassifier, base_classifiers, rbf_kernel
from samekind.stacking.stacked_ensemble import GRAPHS, SHARPNESS

Shapes = Mapping[str, Sequence[int]]
MIN_PROBABILITY = 1e-12
# A new sample at this distance from a training sample or nearer is treated as that training sample. The unit is the kernel
# width of the training sample.
SAME_POINT = 1e-9  # above 0, because rounding gives even a training sample a small distance to itself


class EnsemblePredictor(nn.Module):
    """Weighted mean of the predictions of base classifiers and graphs. The features of a sample are the sample itself.

    From each graph, a new sample gets the weighted mean of the predictions of the nearest training samples, and a training
    sample gets its own prediction. The constructor needs only the shapes of the tensors; their values can be loaded later.
    """

    def __init__(self, shapes: Shapes, n_neighbors: int) -> None:
        super().__init__()
        self.n_neighbors = n_neighbors
        for name, shape in shapes.items():
            self.register_buffer(name, torch.empty(tuple(shape), dtype=torch.float64))

    @classmethod
    def from_fit(cls, fit: EnsembleFit) -> EnsemblePredictor:
        """Return the predictor of a fitted ensemble. It shares the tensors of the fit, so that an update copies nothing."""
        tensors = {
            "mean": fit.columns.mean,
            "scale": fit.columns.scale,
            "base_weights": torch.from_numpy(fit.base_weights),
            "base_temperatures": torch.from_numpy(fit.base_temperatures),
            "temperature": torch.tensor(fit.temperature, dtype=torch.float64),
            "class_factors": torch.from_numpy(fit.class_factors),
            "pair": torch.tensor(fit.pair, dtype=torch.float64),
        }
        # a base with weight 0 is not stored, unless the average of all bases has a weight
        kept_bases = [slice(None) if w > 0 or fit.base_weights[-1] > 0 else slice(0, 0) for w in fit.base_weights[:-1]]
        for part, kept in zip(fit.bases, kept_bases[: len(fit.bases)], strict=True):
            tensors[f"{part.base.name}_coefficients"], tensors[f"{part.base.name}_bias"] = part.coefficients[kept], part.bias
            if part.centers is not None:
                tensors[f"{part.base.name}_centers"] = part.centers[kept]
        for (model, trees), kept in zip(fit.trees.items(), kept_bases[len(fit.bases) :], strict=True):
            tensors |= {f"{model}_{name}": tensor[kept] for name, tensor in trees._asdict().items() if name != "start"}
            tensors[f"{model}_start"] = trees.start
        for name, graph in zip(GRAPHS, fit.graphs, strict=True):
            kept = slice(None) if graph.weight > 0 else slice(0, 0)  # the points of a graph with weight 0 are not stored
            tensors |= {
                f"{name}_graph_center": graph.projection.center,
                f"{name}_graph_basis": graph.projection.basis,
                f"{name}_graph_points": graph.points[kept],
                f"{name}_graph_widths": graph.widths[kept],
                f"{name}_graph_P": torch.from_numpy(graph.P)[kept].double(),
                f"{name}_graph_weight": torch.tensor(graph.weight, dtype=torch.float64),
            }
        predictor = cls({name: tensor.shape for name, tensor in tensors.items()}, fit.graphs[0].n_neighbors)
        predictor.load_state_dict(tensors, assign=True)
        return predictor

    def shapes(self) -> dict[str, list[int]]:
        """Return the shape of each tensor, by name."""
        return {name: list(tensor.shape) for name, tensor in self.state_dict().items()}

    def blueprint(self) -> Blueprint:
        return Blueprint("ensemble", n_neighbors=self.n_neighbors, shapes=self.shapes())

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1).to(self.get_buffer("mean").dtype)

    def probabilities(self, z: Tensor) -> Tensor:
        mixed = self._bases(z)
        for name in GRAPHS:
            weight = self.get_buffer(f"{name}_graph_weight")
            if weight > 0:
                mixed = mixed + weight * self._graph(name, z)
        return _normalize(_temper(mixed, self.get_buffer("temperature")) * self.get_buffer("class_factors"))

    def _bases(self, z: Tensor) -> Tensor:
        columns = ColumnStatistics(self.get_buffer("mean"), self.get_buffer("scale"))
        weights, temperatures = self.get_buffer("base_weights"), self.get_buffer("base_temperatures")
        table = f"{COLUMNS}_bias" in self._buffers
        bases, models = base_classifiers(z.shape[1], table=table), TREE_MODELS if table else ()
        P = []
        for base, weight in zip((*bases, *models), weights[:-1], strict=True):
            if weight == 0 and weights[-1] == 0:  # not stored
                P.append(z.new_zeros(len(z), len(self.get_buffer("class_factors"))))
            elif isinstance(base, BaseClassifier):
                P.append(self._logistic(base, make_view(z, columns, base.view)))
            else:
                trees = Trees(*(self.get_buffer(f"{base}_{name}") for name in Trees._fields))
                P.append(tree_probabilities(base, trees, z))
        shares = average_weights([base.name for base in bases] + [*models])
        P.append(reduce(torch.add, (share * p for share, p in zip(shares, P, strict=True))))
        return torch.stack([w * _temper(p, T) for p, w, T in zip(P, weights, temperatures, strict=True)]).sum(0)

    def _logistic(self, base: BaseClassifier, inputs: Tensor) -> Tensor:
        """Return the class probabilities (n, C) by one logistic regression, from its view of the samples."""
        if base.rbf:
            inputs = rbf_kernel(inputs, self.get_buffer(f"{base.name}_centers"))
        return torch.softmax(
            inputs @ self.get_buffer(f"{base.name}_coefficients") + self.get_buffer(f"{base.name}_bias"), dim=1
        )

    def _graph(self, name: str, z: Tensor) -> Tensor:
        center, basis = self.get_buffer(f"{name}_graph_center"), self.get_buffer(f"{name}_graph_basis")
        points, widths = self.get_buffer(f"{name}_graph_points"), self.get_buffer(f"{name}_graph_widths")
        queries = GraphProjection(center, basis, unit=name == "unit")(z)
        weights, indices = out_of_sample_weights(
            queries, points, widths, self.n_neighbors, tolerance=SAME_POINT, sharpness=SHARPNESS
        )
        return torch.einsum("nk,nkc->nc", weights, self.get_buffer(f"{name}_graph_P")[indices])

    def similarity(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        return torch.exp(self.log_similarity(self.side(z_a), self.side(z_b)))

    def side(self, z: Tensor) -> Tensor:
        """Return (n, d + C): the features of each sample scaled to length 1, followed by its class probabilities."""
        return torch.cat([unit_rows(z), self.probabilities(z)], dim=1)

    def log_similarity(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ln W (n_a, n_b), the logarithm of the similarity, for samples described by `side`.

        The log-odds ln(W/(1 - W)) are computed with the two numbers of `PairCoefficients`, a bias and a slope.
        """
        bias, slope = self.get_buffer("pair")
        d = a.shape[1] - len(self.get_buffer("class_factors"))
        agreement = (a[:, d:] @ b[:, d:].T).clamp(MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)
        return logsigmoid(torch.logit(agreement) + bias + slope * (a[:, :d] @ b[:, :d].T))


def _temper(P: Tensor, temperature: Tensor) -> Tensor:
    return _normalize(P.clamp_min(MIN_PROBABILITY).pow(temperature))


def _normalize(P: Tensor) -> Tensor:
    return P / P.sum(dim=1, keepdim=True)
