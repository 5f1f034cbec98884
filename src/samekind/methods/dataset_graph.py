"""Dataset graph: labels are propagated over a graph of many samples while the network is trained, and become pseudo-labels.

A bank holds the features that the target network computes anyway for the unlabelled samples of each batch, and the features of
all labelled samples. Every few steps the labels are propagated over the nearest neighbours in the bank. This is an add-on: the
base method provides the views, the features and the targets. docs/methods/dataset_graph.md explains each setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from samekind.config import Config, Fraction, FractionBelowOne, NonNegative, PositiveInt
from samekind.data.dataset import Batch, Dataset
from samekind.errors import SettingError
from samekind.losses.cross_entropy import pair_log_odds
from samekind.losses.laplacian import extended_laplacian, squared_distance
from samekind.losses.mixup import sharpen
from samekind.losses.ramps import linear_ramp
from samekind.losses.weak_strong_losses import masked_cross_entropy, propagated_cross_entropy
from samekind.methods.base import BatchOutput, Method, StepCounter, Task
from samekind.methods.full_pass import dataset_features
from samekind.methods.mean_teacher import EmaSchedule
from samekind.methods.propagation_bank import Neighbors, PropagationBank
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.methods.wrapper import MethodWrapper
from samekind.nets.ema import ema_copy, update_ema
from samekind.nets.similarity_net import SimilarityNet, same_probability

GAMMA = 3.0  # power of the cosine with edge_weights="cosine", as in label propagation at the end of a fit
TEMPERATURE = 0.5  # temperature that sharpens the base method's targets in the term of `lambda_teacher`
BETA = 3.0  # β in the graph Laplacian, as in learned_graph
MIN_LABELLED = 256  # least number of labelled samples whose features are computed before a propagation
LABELLED_FRACTION = 0.25  # fraction of the labelled samples whose features are computed before a propagation
MIN_WEIGHT = 1e-6  # smallest weight of an edge
SOLVER_STEPS = 60  # about as many steps as conjugate gradients need for a propagation


@dataclass(frozen=True)
class DatasetGraphConfig(Config):
    """Settings of the dataset graph."""

    bank_size: PositiveInt = 3000  # number of unlabelled samples in the bank
    n_neighbors: PositiveInt = 10  # k, neighbours of each sample in the graph
    diffusion_alpha: FractionBelowOne = 0.99  # α, fraction of a propagated label that comes from the neighbours
    refresh_steps: PositiveInt = 100  # steps between two propagations; a tenth of the training if that is less
    start: FractionBelowOne = 0.1  # fraction of training before the first propagation
    start_rampup: NonNegative = 0.1  # fraction of training over which the weights below then rise from 0
    lambda_bank: NonNegative = 3.0  # weight of the cross-entropy with propagated labels
    # weight of the cross-entropy with the base method's sharpened targets, in place of its consistency term; 0: keep that term
    lambda_teacher: NonNegative = 1.0
    strong_view: bool = False  # True: the student gets the strong view, also if the base method has only weak ones
    edge_weights: Literal["uniform", "cosine", "learned"] = "uniform"  # weights of edges; "learned": by a similarity network
    # weight of the loss of a similarity network; 0: there is none; None: 1 if edge_weights is "learned", and else 0
    lambda_similarity: NonNegative | None = None
    # The settings below are only used with a similarity network.
    similarity_targets: Literal["propagated", "base"] = "propagated"  # class probabilities that the similarity network learns
    pairs: Literal["neighbors", "random"] = "neighbors"  # samples of the graph with which a sample of the batch forms pairs
    lambda_laplacian: NonNegative = 0.0  # weight of the graph Laplacian over the pairs
    layers: tuple[int, ...] = (64, 32)  # sizes of the hidden layers of the similarity network
    ema_similarity_decay: Fraction | None = None  # EMA decay of the similarity network; None: an average over 2 % of the steps

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.similarity_weight:
            return
        if self.edge_weights == "learned":
            raise SettingError(
                'edge_weights is "learned", but lambda_similarity is 0. Use a lambda_similarity above 0, such as 1.'
            )
        if self.lambda_laplacian:
            raise SettingError(
                f"lambda_laplacian is {self.lambda_laplacian}, but there is no similarity network. Set lambda_similarity to 1."
            )

    @property
    def similarity_weight(self) -> float:
        """Return the weight of the loss of the similarity network; 0 if there is none."""
        return float(self.edge_weights == "learned") if self.lambda_similarity is None else self.lambda_similarity


class GraphStart(StepCounter):
    """Step at which the first propagation is due."""

    def __init__(self, start: float, steps: int) -> None:
        super().__init__()
        self.start, self.first_step = start, math.ceil(start * steps)

    def replan(self, step_at: Callable[[float], float]) -> None:
        self.first_step = math.ceil(step_at(self.start))

    @property
    def reached(self) -> bool:
        """Return whether the first propagation is due."""
        return int(self.step) >= self.first_step


class DatasetGraphWrapper(MethodWrapper):
    """Adds pseudo-labels, which label propagation over a bank of features predicts, to the terms of a base method."""

    def __init__(self, base: Method, task: Task, config: DatasetGraphConfig | None = None) -> None:
        super().__init__(base)
        c = self.config = config or DatasetGraphConfig()
        self.task = task
        n_features = base.student.n_features
        self.bank = PropagationBank(min(c.bank_size, task.n_samples), task.n_labelled, n_features, task.n_classes)
        self.graph_start = GraphStart(c.start, task.steps)
        self.refresh_every = refresh_interval(c.refresh_steps, task.steps)
        self.stores_samples = True
        if c.strong_view:
            self.unlabelled_views = ("strong", *base.unlabelled_views[1:])
        self.similarity = SimilarityNet(n_features, c.layers, dropout=0.0) if c.similarity_weight else None
        self.ema_similarity = None if self.similarity is None else ema_copy(self.similarity)
        self.ema_schedule = EmaSchedule(c.ema_similarity_decay, None, 0.0, task)
        self._batch_parts: list[Tensor] = []  # features of the unlabelled samples of each part of the batch, for `after_step`

    @classmethod
    def can_wrap(cls, base: Method) -> bool:
        return base.keeps_target_features

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        terms, output = super().losses(batch, progress), self.base.last_output
        assert output is not None and output.target_z is not None
        self._batch_parts.append(output.target_z)
        c, weight, logits = self.config, self._weight(batch, progress), output.unlabelled.logits
        if c.lambda_teacher:
            terms.pop("consistency", None)
            target = sharpen(output.target, TEMPERATURE)
            terms["teacher"] = weight * c.lambda_teacher * masked_cross_entropy(logits, target, output.target.amax(1))
        with torch.no_grad():
            neighbors = self.bank.neighbors(output.target_z, c.n_neighbors, self._edge_weights)
        if neighbors is None:
            if self.similarity is not None:  # a gradient of 0, because SGD with momentum needs one from the first step on
                terms["similarity"] = 0.0 * self.similarity(output.unlabelled.z, output.unlabelled.z).sum()
            return terms
        terms["bank"] = weight * c.lambda_bank * propagated_cross_entropy(logits, neighbors.mean_F())
        return terms if self.similarity is None else terms | self._pair_terms(output, neighbors, weight)

    def _weight(self, batch: Batch, progress: float) -> float:
        """Return the factor of all terms.

        A base method that divides its loss by the size of the whole batch multiplies the mean cross-entropy of the labels by
        the labelled fraction of the batch, so the factor contains this fraction too.
        """
        n_l, n_u = len(batch.y_l), len(batch.index)
        fraction = n_l / (n_l + n_u) if self.base.averages_over_batch else 1.0
        return self.task.unlabelled_weight * fraction * linear_ramp(progress - self.config.start, self.config.start_rampup)

    def _edge_weights(self, z: Tensor, neighbor_z: Tensor, cosines: Tensor) -> Tensor:
        if self.config.edge_weights == "learned":
            phi = self.ema_similarity
            assert phi is not None
            return same_probability(phi.combine(phi.left(z)[:, None], phi.right(neighbor_z))).clamp_min(MIN_WEIGHT)
        if self.config.edge_weights == "cosine":
            return cosines.clamp_min(MIN_WEIGHT).pow(GAMMA)
        return torch.ones_like(cosines)

    def _pair_terms(self, output: BatchOutput, neighbors: Neighbors, weight: float) -> dict[str, Tensor]:
        """Return the loss of the similarity network, and the graph Laplacian, over pairs of the batch and the graph."""
        c, phi = self.config, self.similarity
        assert phi is not None
        z, F = neighbors.z, neighbors.F
        if c.pairs == "random":
            z, F = self.bank.random_samples(*neighbors.weights.shape)
        logits = phi.combine(phi.left(output.unlabelled.z)[:, None], phi.right(z))
        with torch.no_grad():
            if c.similarity_targets == "propagated":
                p, neighbor_p = neighbors.mean_F(), F
            else:
                head = (self.base.teacher or self.student).head
                p, neighbor_p = output.target, torch.softmax(head(z), dim=-1)
            agreement = torch.einsum("nc,nkc->nk", p, neighbor_p).clamp(0.0, 1.0)
        terms = {
            "similarity": weight * c.similarity_weight * binary_cross_entropy_with_logits(pair_log_odds(logits), agreement)
        }
        if c.lambda_laplacian:
            d2 = squared_distance(torch.softmax(output.unlabelled.logits, dim=-1)[:, None], F)
            laplacian = F.amax(-1) * extended_laplacian(d2, same_probability(logits), BETA)
            terms["laplacian"] = weight * c.lambda_laplacian * laplacian.mean()
        return terms

    def after_step(self) -> None:
        super().after_step()
        self.graph_start.step += 1
        if self._batch_parts:
            self.bank.store_unlabelled(torch.cat(self._batch_parts))
            self._batch_parts.clear()
        if self.similarity is not None and self.ema_similarity is not None:
            update_ema(self.ema_similarity, self.similarity, self.ema_schedule.next_decay())

    def refresh(self, dataset: Dataset) -> None:
        """Propagate the labels over the samples in the bank, once the first propagation is due."""
        super().refresh(dataset)
        if not self.graph_start.reached:
            return
        slots = self.bank.oldest_labelled(max(MIN_LABELLED, math.ceil(LABELLED_FRACTION * self.task.n_labelled)))
        samples = dataset.labelled[slots]
        some = replace(dataset, x=dataset.x[samples], y=dataset.y[samples])
        self.bank.store_labelled(slots, dataset_features(self.base.teacher or self.student, some), some.y)
        with torch.no_grad():
            self.bank.propagate(self.config.n_neighbors, self.config.diffusion_alpha, self._edge_weights)

    def full_passes(self, steps: int) -> int:
        """Return the number of propagations. Before each, a part of the labelled samples gets a forward pass."""
        return super().full_passes(steps) + len(self._propagation_steps(steps))

    def later_flops(self, steps: int) -> float:
        """Return the floating-point operations of all propagations and lookups in a training of `steps` steps.

        They are computed and not measured, because the bank is almost empty in the few steps that are measured.
        """
        n_classes, n_unlabelled = self.task.n_classes, self.task.batch_unlabelled
        interval, d = refresh_interval(self.config.refresh_steps, steps), self.bank.graph_z.shape[1]
        flops = super().later_flops(steps)
        for done in self._propagation_steps(steps):
            n = self.task.n_labelled + min(len(self.bank.recent_z), done * n_unlabelled)
            solver_step = n * n_classes * (4 * self.config.n_neighbors + 12)  # a product with the graph, and five sums
            flops += 2 * n * n * d + SOLVER_STEPS * solver_step + interval * 2 * n_unlabelled * n * d
        return flops

    def _propagation_steps(self, steps: int) -> list[int]:
        """Return the numbers of steps after which the labels are propagated, in a training of `steps` steps."""
        interval = refresh_interval(self.config.refresh_steps, steps)
        return [done for done in range(interval, steps, interval) if done >= self.config.start * steps]


def refresh_interval(refresh_steps: int, steps: int) -> int:
    """Return the number of steps between two propagations in a training of `steps` steps."""
    return max(1, min(refresh_steps, steps // 10))


SPEC = MethodSpec(
    "dataset_graph",
    DatasetGraphWrapper,
    DatasetGraphConfig,
    "labels propagated over a bank of features become pseudo-labels in every step",
    paper="after Iscen, Tolias, Avrithis & Chum 2019, arXiv:1904.04717",
    base="mean_teacher",
    defaults_by_kind={"photos": {"strong_view": True}},
    search_space={"lambda_bank": LogUniform(1.0, 10.0)},
)
