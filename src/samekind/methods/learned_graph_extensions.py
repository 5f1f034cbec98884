"""Extensions of the learned graph that are not in the paper. With the defaults of the config class, none of them is active.

The method that is registered as "learned_graph" is ExtendedLearnedGraph. docs/method.md explains the purpose of each extension,
and docs/defaults.md its effect. The symbols are those of learned_graph.py: Phi is the similarity network, W its output, X1 and
X1' are two views of the unlabelled samples, and λ1 and λ2 the weights of the graph Laplacian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from samekind.config import NonNegative, NonNegativeInt, Positive
from samekind.data.dataset import Batch
from samekind.errors import SettingError
from samekind.losses.cross_entropy import pair_cross_entropy, similarity_distillation_loss
from samekind.losses.laplacian import similar_laplacian, squared_distance
from samekind.losses.mixup import sharpen
from samekind.losses.weak_strong_losses import masked_cross_entropy
from samekind.methods.base import Method, Task
from samekind.methods.learned_graph import LearnedGraph, LearnedGraphConfig
from samekind.methods.pair_batch import PairBatch, Pairs, balance_weights, pair_all, swap_randomly
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.nets.classifier import Output
from samekind.nets.forward import forward_without_buffer_updates
from samekind.nets.similarity_net import TOY_LAYERS


@dataclass(frozen=True)
class ExtendedLearnedGraphConfig(LearnedGraphConfig):
    """Settings of the paper's method, of our extensions, and of ablations. The defaults are the paper's."""

    lambda1: NonNegative | None = None  # λ1; None: computed from k1
    lambda2: NonNegative | None = None  # λ2; None: computed from k2
    # least length of the ramp-up, because a large λ1 early in training would separate labelled pairs
    rampup_steps: NonNegativeInt = 0
    pairs: Literal["paper", "all"] = "paper"  # "paper": pairs by position in the batch; "all": all pairs of a batch
    # class fractions of the dataset; if given, the similarity network learns from as many same-class as other pairs
    prior: Literal["uniform"] | tuple[float, ...] | None = None
    labelled_pair_weight: NonNegative = 1.0  # weight of labelled pairs in the graph Laplacian
    # weight of pairs of two views of one sample, in the label loss of the similarity network
    virtual_pair_weight: NonNegative = 1.0
    # network that predicts the second view X1'; with "teacher", a step takes a third less time
    second_view: Literal["student", "teacher"] = "student"
    # weight of a loss that trains the similarity network on the teacher's predictions
    similarity_distillation: NonNegative = 0.0
    # Temperature that sharpens the targets of X1. The loss is then a cross-entropy, weighted by the confidence of the target;
    # with None it is the paper's squared distance.
    sharpen_temperature: Positive | None = None
    # The settings below are ablations of choices that the paper leaves open.
    detach_w: bool = False  # True: no gradient through W in the term of λ2
    pair_order: Literal["batch", "random"] = "batch"  # "random": swap the two samples of each pair with probability 1/2
    # features from which the EMA of the similarity network predicts in the consistency term
    cons_teacher_features: Literal["ema", "student", "student_other_views"] = "ema"
    evaluate: Literal["ema", "student"] = "ema"  # networks that predict after training: the EMA networks or the trained ones

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prior, tuple | list) and (len(self.prior) < 2 or min(self.prior) < 0 or sum(self.prior) <= 0):
            raise SettingError(
                f"prior is {self.prior}; expected one class fraction, 0 or more, for each of two or more classes"
            )


class ExtendedLearnedGraph(LearnedGraph):
    """Learned graph with our extensions. Each extension is switched on by a setting."""

    config: ExtendedLearnedGraphConfig

    def __init__(self, base: Method, task: Task, config: ExtendedLearnedGraphConfig | None = None) -> None:
        c = config or ExtendedLearnedGraphConfig()
        super().__init__(base, task, c)
        self.log_odds = _prior_log_odds(c.prior, task.n_classes)
        self.rampup = max(c.rampup, c.rampup_steps / max(task.steps, 1))
        self.lambda1 = self.lambda1 if c.lambda1 is None else c.lambda1
        self.lambda2 = self.lambda2 if c.lambda2 is None else c.lambda2
        self.pairs_labelled = c.pairs == "paper"
        self.second_by_teacher = c.second_view == "teacher" and base.teacher is not None
        if self.second_by_teacher:
            self.unlabelled_views = self.unlabelled_views[:2]
            # only the consistency term (lambda3) uses the teacher's outputs for labelled samples
            self.labelled_views = ("weak",) if c.lambda3 == 0 else ("weak", "weak")

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        c, weight = self.config, self.task.unlabelled_weight
        rampup, graph_rampup = self.ramps(progress)
        s = self.forward_pairs(batch)
        terms = self.objective(s._replace(W=s.W.detach()) if c.detach_w else s, rampup, graph_rampup)
        distillation_weight = weight * c.similarity_distillation * graph_rampup
        B1, B2, B3 = len(s.target), len(s.y) / 2, len(s.target) // 2
        if distillation_weight > 0:
            terms["distillation"] = distillation_weight * self._similarity_distillation(s) / B3
        # the supervised term is the mean cross-entropy of the labels times this fraction, so the means below are multiplied by
        # it too
        label_fraction = 2 * B2 / (B1 + 2 * B2)
        if c.sharpen_temperature is not None:
            target = s.target.detach()
            sharpened = sharpen(target, c.sharpen_temperature)
            cross_entropy = masked_cross_entropy(s.student.logits[:B1], sharpened, target.amax(-1))
            terms["sharpened"] = weight * rampup * label_fraction * cross_entropy
        strong, weak = s.student.logits[:B1], s.student.logits[B1 : 2 * B1]
        pseudo_label_terms = self.base.pseudo_label_terms(strong, weak, batch.index, progress)
        return terms | {name: label_fraction * term for name, term in pseudo_label_terms.items()}

    def forward_views(self, batch: Batch) -> tuple[Output, Output]:
        student, teacher = self._forward_second_by_teacher(batch) if self.second_by_teacher else super().forward_views(batch)
        if self.config.cons_teacher_features == "student":
            teacher = teacher._replace(z=student.z)
        elif self.config.cons_teacher_features == "student_other_views":  # eq. (10), taken literally
            teacher = teacher._replace(z=self._student_features_of_teacher_views(batch))
        return student, teacher

    def _student_features_of_teacher_views(self, batch: Batch) -> Tensor:
        """Return the student's features, without gradient, of the views that the EMA teacher gets."""
        (x1, x1_prime, *third), (_, *x_l_prime) = batch.x_u, batch.x_l
        second = [] if self.second_by_teacher else [third[0] if third else x1]
        with torch.no_grad():
            z = forward_without_buffer_updates(self.student, torch.cat([x1_prime, *second, *x_l_prime])).z
        if not self.second_by_teacher:
            return z
        n_u = len(x1)
        return torch.cat([z[:n_u], z[:n_u], z[n_u:]])

    def _forward_second_by_teacher(self, batch: Batch) -> tuple[Output, Output]:
        """Return the outputs of student and teacher, where both use the teacher's output for the second view X1'.

        This saves two forward passes: the student's pass over X1', and the teacher's pass over another view of it.
        """
        (x1, x1_prime), (x_l, *x_l_prime), n_u = batch.x_u, batch.x_l, len(batch.x_u[0])
        with torch.no_grad():
            teacher = self.ema_teacher(torch.cat([x1_prime, *x_l_prime]))
        student = self.student(torch.cat([x1, x_l]))
        z, teacher_z = (torch.cat([out.z[:n_u], teacher.z[:n_u], out.z[n_u:]]) for out in (student, teacher))
        logits, teacher_logits = (
            torch.cat([out.logits[:n_u], teacher.logits[:n_u], out.logits[n_u:]]) for out in (student, teacher)
        )
        return Output(z, logits), Output(teacher_z, teacher_logits)

    def child_batches(self, n_u: int, y_l: Tensor) -> tuple[Pairs, Pairs, Pairs]:
        b1, b2, b3 = super().child_batches(n_u, y_l)
        if self.config.pairs == "all":
            labelled = 2 * n_u + torch.arange(len(y_l), device=y_l.device)
            b2, b3 = pair_all(labelled, labelled, total=len(y_l) / 2), pair_all(b3.i, b3.j, total=n_u // 2)
        return (b1, b2, b3) if self.config.pair_order == "batch" else (swap_randomly(b1), swap_randomly(b2), swap_randomly(b3))

    def pair_label_loss(self, s: PairBatch) -> Tensor:
        virtual, labelled, _ = s.pairs
        virtual_weight = self.task.unlabelled_weight * self.config.virtual_pair_weight * virtual.weight
        weight = labelled.weight if self.config.prior is None else balance_weights(labelled.weight, s.same)
        loss = pair_cross_entropy(s.phi[0], torch.ones_like(virtual.i, dtype=torch.bool), virtual_weight)
        return loss + pair_cross_entropy(s.phi[1], s.same, weight)

    def known_laplacian(self, s: PairBatch) -> Tensor:
        labelled = self.config.labelled_pair_weight * self.laplacian(s.f, s.pairs[1], s.same)
        if self.config.sharpen_temperature is not None:
            return labelled
        return similar_laplacian(squared_distance(s.f[: len(s.target)], s.target), self.config.beta).sum() + labelled

    def pair_consistency(self, s: PairBatch) -> Tensor:
        # leave out the pairs of two views of one sample: both sides of the comparison would be computed from the same teacher
        # output
        if self.second_by_teacher:
            b1, b2, b3 = s.pairs
            s = s._replace(pairs=(b1._replace(weight=torch.zeros_like(b1.weight)), b2, b3))
        return super().pair_consistency(s)

    def _similarity_distillation(self, s: PairBatch) -> Tensor:
        """Return the cross-entropy between Phi's similarities and the teacher's.

        The teacher's similarity is the probability, by the teacher's predictions, that both samples of a pair have the same
        class.
        """
        graph, f = s.pairs[2], torch.softmax(s.teacher.logits, dim=-1)
        agreement = (f.index_select(0, graph.i) * f.index_select(0, graph.j)).sum(-1)
        return similarity_distillation_loss(s.phi[2], agreement, self.log_odds, graph.weight)

    def predictor(self) -> nn.Module:
        if self.config.evaluate == "student":
            return DeepPredictor(self.student, self.similarity, log_odds=self.log_odds, beta=self.config.beta)
        return super().predictor()


def _prior_log_odds(prior: Literal["uniform"] | tuple[float, ...] | None, n_classes: int) -> float:
    """Return ln((1 - pi)/pi), where pi is the fraction of same-class pairs in the dataset; 0 without a prior.

    With class fractions p_c, pi is SUM_c p_c^2. Phi learns from as many same-class as other pairs, so it predicts similarities
    for pi = 1/2. Subtracting the returned number from its log-odds ln(W/(1 - W)) gives W for the true pi.
    """
    if prior is None:
        return 0.0
    if prior != "uniform" and len(prior) != n_classes:
        raise SettingError(
            f"prior has {len(prior)} class fractions, but there are {n_classes} classes; expected one fraction for each class"
        )
    pi = 1.0 / n_classes if prior == "uniform" else sum(p * p for p in prior) / sum(prior) ** 2
    return math.log((1.0 - pi) / pi)


SPEC = MethodSpec(
    "learned_graph",
    ExtendedLearnedGraph,
    ExtendedLearnedGraphConfig,
    "a classifier and a similarity network regularize each other",
    paper="Wang, Tu & Zhou 2020, arXiv:2002.09891",
    base="mean_teacher",
    defaults={
        "pairs": "all",
        "prior": "uniform",
        "virtual_pair_weight": 0.2,
        "lambda1": 0.3,
        "lambda2": 0.1,
        "lambda3": 0.05,
        "rampup_steps": 100,
        "graph_start": 0.5,
        "graph_rampup": 0.2,
        "layers": (64, 32),
        "dropout": 0.0,
        "second_view": "teacher",
        "similarity_distillation": 1.0,
    },
    defaults_by_kind={
        # A labelled pair of different classes would push its two predictions apart even if both are still wrong, because
        # random-walk views bring labels to distant samples only late in training. So the weight of labelled pairs is 0.
        "vectors": {"lambda1": 1.0, "labelled_pair_weight": 0.0, "second_view": "student", "similarity_distillation": 0.0},
        # Strong views gave lower errors. With sharpen_temperature, lambda1 is the weight of the labelled pairs only.
        "photos": {"lambda1": 0.5, "strong_view": True, "sharpen_temperature": 0.5},
    },
    paper_by_kind={"vectors": {"layers": TOY_LAYERS}},  # the paper has no other vectors than two moons and two circles
    search_space={"lambda1": LogUniform(0.1, 3.0), "lambda2": LogUniform(0.03, 3.0)},
)
