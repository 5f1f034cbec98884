"""Learned graph: a classifier and a similarity network trained together, each regularizing the other.

Wang, Tu & Zhou 2020, "End-To-End Graph-based Deep Semi-Supervised Learning", arXiv:2002.09891. This file is the paper's method
in its notation and with its equation numbers; docs/method.md explains both. Our extensions are in learned_graph_extensions.py.
f: class probabilities; Phi: similarity network; W: its output, the probability of "same class"; A: similarity computed from f;
X1 and X1': two views of a batch's unlabelled samples; X_L: its labelled samples; λ1, λ2 and λ3: weights of the loss terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.config import Config, Fraction, NonNegative, Positive
from samekind.data.dataset import Batch
from samekind.losses.consistency import similarity_consistency
from samekind.losses.cross_entropy import label_cross_entropy, pair_cross_entropy
from samekind.losses.laplacian import EPS, extended_laplacian, similar_laplacian, squared_distance
from samekind.losses.ramps import sigmoid_rampup
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.mean_teacher import EmaSchedule
from samekind.methods.pair_batch import PairBatch, Pairs, pair_by_position, pair_halves
from samekind.methods.predictors import DeepPredictor
from samekind.methods.wrapper import MethodWrapper
from samekind.nets.classifier import Classifier, Output
from samekind.nets.ema import ema_copy, update_ema
from samekind.nets.similarity_net import IMAGE_LAYERS, SimilarityNet, same_probability


@dataclass(frozen=True)
class LearnedGraphConfig(Config):
    """Settings of the paper's method; the defaults are the paper's for CIFAR-10."""

    beta: Positive = 3.0  # β in the similarity A = exp(-β d^2) of two samples whose predictions have distance d
    k1: NonNegative = 3.0  # λ1 = k1 n_labelled/n_samples, weight of the Laplacian on pairs whose W is known
    k2: NonNegative = 3.0  # λ2 = k2 n_labelled/n_samples, weight of the Laplacian on pairs whose W is predicted by Phi
    lambda3: NonNegative = 0.15  # λ3, weight of the consistency between the similarity network and its EMA
    rampup: NonNegative = 80 / 600  # fraction of training over which λ1 and λ3 rise from 0
    graph_start: NonNegative = 100 / 600  # fraction of training during which λ2 is 0
    graph_rampup: NonNegative = 50 / 600  # fraction of training over which λ2 then rises
    ema_decay: Fraction | None = None  # decay per step of the EMA of both networks; None: averages over 2 % of the steps
    ema_decay_start: Fraction | None = None  # decay during the ramp-up; None: ema_decay; the paper has 0.99 for SVHN
    layers: tuple[int, ...] = IMAGE_LAYERS  # sizes of the hidden layers of the similarity network
    dropout: Fraction = 0.2  # dropout rate in the similarity network
    eps: Positive = EPS  # added inside the logarithm of the Laplacian, which would be infinite for equal predictions
    strong_view: bool = False  # True: X1 is the strong view, X1' the weak one, and no gradient flows through targets


class LearnedGraph(MethodWrapper):
    """The paper's method as a wrapper: a base method with two views, such as Mean Teacher, predicts the targets of X1."""

    averages_over_batch = True

    def __init__(self, base: Method, task: Task, config: LearnedGraphConfig | None = None) -> None:
        super().__init__(base)
        c = self.config = config or LearnedGraphConfig()
        self.task = task
        self.similarity = SimilarityNet(base.student.n_features, c.layers, dropout=c.dropout)  # Phi in the paper
        self.ema_similarity = ema_copy(self.similarity)
        self.ema_student = ema_copy(base.student) if base.teacher is None else None
        self.ema_schedule = EmaSchedule(c.ema_decay, c.ema_decay_start, c.rampup, task)
        self.rampup, self.log_odds = c.rampup, 0.0
        self.lambda1, self.lambda2 = (k * (task.n_labelled / task.n_samples) for k in (c.k1, c.k2))
        self.strong = c.strong_view or "strong" in base.unlabelled_views
        self.unlabelled_views = ("strong", "weak", "weak") if self.strong else ("weak", "weak")
        self.labelled_views, self.pairs_labelled = ("weak", "weak"), True

    @classmethod
    def can_wrap(cls, base: Method) -> bool:
        return base.has_second_view

    @property
    def ema_teacher(self) -> Classifier:
        """Return the EMA of the student: the base method's teacher, or the wrapper's own EMA if the base has no teacher."""
        teacher = self.ema_student if self.base.teacher is None else self.base.teacher
        assert teacher is not None
        return teacher

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Return the loss terms of eq. (11), by name: line 3 of Algorithm 1. Its other lines are in training/loop.py."""
        return self.objective(self.forward_pairs(batch), *self.ramps(progress))

    def forward_pairs(self, batch: Batch) -> PairBatch:
        n_u = len(batch.x_u[0])
        student, teacher = self.forward_views(batch)
        f = torch.softmax(student.logits, dim=-1)
        target = f[n_u : 2 * n_u] if self.base.teacher is None else torch.softmax(teacher.logits[:n_u], dim=-1)
        pairs = self.child_batches(n_u, batch.y_l)
        all_phi = self.similarity.pairs(student.z, torch.cat([b.i for b in pairs]), torch.cat([b.j for b in pairs]))
        phi_1, phi_2, phi_3 = torch.split(all_phi, [len(b.i) for b in pairs])
        same = batch.y_l[pairs[1].i - 2 * n_u] == batch.y_l[pairs[1].j - 2 * n_u]  # W2 in Algorithm 1: equal labels
        W = same_probability(phi_3, self.log_odds)  # eq. (5)
        self.diagnostics = {**prediction_statistics(f[:n_u].detach()), "mean_w": W.detach().mean()}
        target = target.detach() if self.strong else target
        return PairBatch(batch.y_l, student, teacher, f, target, pairs, (phi_1, phi_2, phi_3), all_phi, same, W)

    def forward_views(self, batch: Batch) -> tuple[Output, Output]:
        """Return the outputs of student and teacher. Output k of both is for the same sample, but for different views of it."""
        (x1, x1_prime, *third), (x_l, x_l_prime) = batch.x_u, batch.x_l
        with torch.no_grad():
            teacher = self.ema_teacher(torch.cat([x1_prime, third[0] if third else x1, x_l_prime]))
        return self.student(torch.cat([x1, x1_prime, x_l])), teacher

    def child_batches(self, n_u: int, y_l: Tensor) -> tuple[Pairs, Pairs, Pairs]:
        """Return the three child batches of eq. (12): pairs of positions in the concatenation [X1, X1', X_L].

        They pair X1 with X1', the first half of X_L with its second half, and the first half of X1 with its second half."""
        x1, x_l = torch.arange(n_u, device=y_l.device), 2 * n_u + torch.arange(len(y_l), device=y_l.device)
        return pair_by_position(x1, n_u + x1), pair_halves(x_l), pair_halves(x1)

    def objective(self, s: PairBatch, rampup: float, graph_rampup: float) -> dict[str, Tensor]:
        """Return the terms of eq. (11) by name, each times its weight and divided by its number of samples or pairs."""
        B1, B2, B3, weight = len(s.target), len(s.y) / 2, len(s.target) // 2, self.task.unlabelled_weight
        lambda2 = weight * self.lambda2 * graph_rampup
        terms = {
            "supervised": label_cross_entropy(s.student.logits[2 * B1 :], s.y) / (B1 + 2 * B2),  # eq. (4)
            "similarity": self.pair_label_loss(s) / (B1 + 2 * B2),
            "laplacian": weight * self.lambda1 * rampup * self.known_laplacian(s) / (B1 + B2),
        }
        if lambda2 > 0:  # leave out a term of weight 0, because it could be 0 * NaN, which is NaN
            terms["graph"] = lambda2 * self.laplacian(s.f, s.pairs[2], s.W) / B3
        if len(self.labelled_views) > 1:  # with two views of labelled samples, the teacher has outputs for these samples too
            terms["consistency"] = weight * self.config.lambda3 * rampup * self.pair_consistency(s) / (B1 + B2 + B3)
        return terms

    def pair_label_loss(self, s: PairBatch) -> Tensor:  # eq. (6)
        virtual_weight = self.task.unlabelled_weight * s.pairs[0].weight
        loss = pair_cross_entropy(s.phi[0], torch.ones_like(s.pairs[0].i, dtype=torch.bool), virtual_weight)
        return loss + pair_cross_entropy(s.phi[1], s.same, s.pairs[1].weight)

    def known_laplacian(self, s: PairBatch) -> Tensor:  # eq. (9) on the child batches 1 and 2, whose W is known
        labelled = self.laplacian(s.f, s.pairs[1], s.same)
        return similar_laplacian(squared_distance(s.f[: len(s.target)], s.target), self.config.beta).sum() + labelled

    def laplacian(self, f: Tensor, pairs: Pairs, W: Tensor) -> Tensor:  # eq. (9), which is eq. (8) with A of eq. (7)
        d2 = squared_distance(f.index_select(0, pairs.i), f.index_select(0, pairs.j))
        return (pairs.weight * extended_laplacian(d2, W.to(d2.dtype), self.config.beta, self.config.eps)).sum()

    def pair_consistency(self, s: PairBatch) -> Tensor:  # eq. (10)
        i, j, weight = (torch.cat(parts) for parts in zip(*s.pairs, strict=True))
        with torch.no_grad():
            teacher_phi = self.ema_similarity.pairs(s.teacher.z, i, j)
        return similarity_consistency(s.all_phi, teacher_phi, weight)

    def ramps(self, progress: float) -> tuple[float, float]:
        """Return two factors in [0, 1]: the ramp-up of λ1 and λ3, and the ramp-up of λ2."""
        graph_progress, length = progress - self.config.graph_start, self.config.graph_rampup
        return sigmoid_rampup(progress, self.rampup), sigmoid_rampup(graph_progress, length) if graph_progress >= 0 else 0.0

    def after_step(self) -> None:
        self.base.after_step()
        decay = self.ema_schedule.next_decay()
        if self.ema_student is not None:
            update_ema(self.ema_student, self.base.student, decay)
        update_ema(self.ema_similarity, self.similarity, decay)

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.ema_teacher, self.ema_similarity, log_odds=self.log_odds, beta=self.config.beta)
