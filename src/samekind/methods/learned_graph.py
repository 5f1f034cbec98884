"""Learned graph: a classifier and a similarity network trained together, each the other's regulariser.

Wang, Tu & Zhou 2020, "End-To-End Graph-based Deep Semi-Supervised Learning", arXiv:2002.09891. An addition: it rides on
a base that says where the target of a second look comes from. docs/method.md has every equation and every reading.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.errors import SettingError
from samekind.losses.consistency import similarity_consistency
from samekind.losses.cross_entropy import label_cross_entropy, pair_cross_entropy, similarity_distillation_loss
from samekind.losses.laplacian import EPS, extended_laplacian, similar_laplacian, squared_distance
from samekind.losses.mixup import sharpened
from samekind.losses.ramps import sigmoid_rampup
from samekind.losses.weak_strong_losses import masked_cross_entropy
from samekind.methods.base import Base, Guesses, Task, refuse_unknown_values, seen
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay
from samekind.nets.similarity_net import IMAGE_LAYERS, SimilarityNet, same_probability


@dataclass(frozen=True)
class LearnedGraphConfig:
    beta: float = 3.0  # β, how fast the classifier's confidence A falls with the distance of two answers
    k1: float = 3.0  # λ1 = k1 n_labelled/n_pool, weight of the Laplacian where W is known
    k2: float = 3.0  # λ2 = k2 n_labelled/n_pool, weight of the Laplacian where W is Phi's
    lambda1: float | None = None  # λ1 itself, instead of k1
    lambda2: float | None = None  # λ2 itself, instead of k2
    lambda3: float = 0.15  # weight of the consistency of Phi
    rampup: float = 80 / 600  # share of the run over which λ1 and λ3 rise
    rampup_steps: int = 0  # and at least this many steps: what drives labelled pairs apart must not overtake their labels
    graph_start: float = 100 / 600  # share of the run before λ2 acts at all
    graph_rampup: float = 50 / 600  # share of the run over which λ2 then rises
    alpha: float | None = None  # how much of themselves the slow copies keep per step; None: an average over 2 % of the run
    alpha_start: float | None = None  # the same while λ1 and λ3 rise, 0.99 in the SVHN settings; None: alpha
    layers: tuple[int, ...] = IMAGE_LAYERS  # hidden layers of Phi
    dropout: float = 0.2  # in Phi
    eps: float = EPS  # added inside ln(1 - exp(-s))
    detach_w: bool = False  # no gradient through W in the λ2 term
    pair_order: Literal["batch", "random"] = "batch"  # "random" swaps the ends of each pair with probability 1/2
    cons_teacher_features: Literal["ema", "student"] = "ema"  # whose features the slow Phi sees
    evaluate: Literal["average", "student"] = "average"  # which network answers in the end
    pairs: Literal["paper", "all"] = "paper"  # B2 and B3 pairs by position, or every pair that the batch holds
    prior: Literal["uniform"] | tuple[float, ...] | None = None  # class shares of the pool: Phi learns from balanced pairs
    labelled_pairs: float = 1.0  # weight of labelled pairs in the Laplacian, where W is 0 or 1 by their labels
    virtual: float = 1.0  # weight of a pair (x, its other view) in the supervised loss of Phi
    # who looks at X1' for Phi; "slow", where the base has a slow copy, saves a third of the work
    second_look: Literal["student", "slow"] = "student"
    follow: float = 0.0  # weight of what the slow copy's answers teach Phi about unlabelled pairs, from when λ2 acts on
    strong: bool = False  # the student looks at X1 through the strong view, and follows what is said of the weak one
    # T: the student's look at X1 learns what is said of the other one, p^(1/T), by cross-entropy, as far as that is sure, in
    # place of the distance between the two; None: the paper's distance
    sharpen: float | None = None

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        if not self.beta > 0 or not self.eps > 0:
            raise SettingError(f"beta is {self.beta} and eps is {self.eps}; expected numbers above 0")
        if self.sharpen is not None and not self.sharpen > 0:
            raise SettingError(f"sharpen is {self.sharpen}; expected a temperature above 0, such as 0.5, or None")
        if isinstance(self.prior, tuple | list) and (len(self.prior) < 2 or min(self.prior) < 0 or sum(self.prior) <= 0):
            raise SettingError(f"prior is {self.prior}; expected a share for each of two or more classes, none below 0")


# What the estimator starts from; the defaults above are the paper's. docs/defaults.md has the measurements.
RECIPE = {
    "pairs": "all",
    "prior": "uniform",
    "virtual": 0.2,
    "lambda1": 0.3,
    "lambda2": 0.1,
    "lambda3": 0.05,
    "rampup_steps": 100,
    "graph_start": 0.5,
    "graph_rampup": 0.2,
    "layers": (64, 32),
    "dropout": 0.0,
    "second_look": "slow",
    "follow": 1.0,
}
# Rows that walk: their labels may be far away at first, and must not be driven apart before they are known.
VECTORS = {"lambda1": 1.0, "labelled_pairs": 0.0, "second_look": "student", "follow": 0.0}
# Photos have strong views that say more than weak ones; lambda1 is left for labelled pairs.
PHOTOS = {"lambda1": 0.5, "strong": True, "sharpen": 0.5}


class Pairs(NamedTuple):
    """Pairs of rows (i, j) and a weight for each; the weights add up to the number of pairs the paper would have."""

    i: Tensor
    j: Tensor
    weight: Tensor


class Coefficients(NamedTuple):
    lambda1: float
    lambda2: float
    lambda3: float
    follow: float
    guesses: float


class LearnedGraph(nn.Module):
    iterative = True
    per_row = True
    rides_on: ClassVar[tuple[str, ...]] = ("student", "teacher")
    step: Tensor

    def __init__(self, base: Base, task: Task, config: LearnedGraphConfig | None = None) -> None:
        super().__init__()
        self.config = config or LearnedGraphConfig()
        self.task = task
        self.base = base
        self.similarity = SimilarityNet(base.student.n_features, self.config.layers, dropout=self.config.dropout)
        self.slow_similarity = ema_copy(self.similarity)
        self.own_slow = ema_copy(base.student) if base.teacher is None else None
        self.alpha = ema_decay_for(self.config.alpha, task)
        self.log_odds = _log_odds(self.config.prior, task.n_classes)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.observed: dict[str, Tensor] = {}
        # of strong views only the student's: the slow copies see the weak one and, in its place, another weak one
        self.by_slow = self.config.second_look == "slow" and base.teacher is not None
        self.strong = self.config.strong or "strong" in base.unlabelled_views
        weak = ("weak", "weak") if self.strong and not self.by_slow else ("weak",)
        self.unlabelled_views: tuple[str, ...] = ("strong" if self.strong else "weak", *weak)
        self.pairs_labels = self.config.pairs == "paper"
        # what the slow copies say of labelled rows is asked for by the consistency of Phi alone
        self.labelled_views: tuple[str, ...] = ("weak",) if self.by_slow and self.config.lambda3 == 0 else ("weak", "weak")

    @property
    def student(self) -> Classifier:
        return self.base.student

    @property
    def teacher(self) -> Classifier:
        slow = self.own_slow if self.own_slow is not None else self.base.teacher
        assert slow is not None
        return slow

    def coefficients(self, progress: float) -> Coefficients:
        """λ1, λ2, λ3 and the weights of `follow` and of sharpened answers at this point of the run."""
        c, share = self.config, self.task.n_labelled / self.task.n_samples
        rise = sigmoid_rampup(progress, max(c.rampup, c.rampup_steps / max(self.task.steps, 1)))
        graph = sigmoid_rampup(progress - c.graph_start, c.graph_rampup) if progress >= c.graph_start else 0.0
        lambda1 = c.k1 * share if c.lambda1 is None else c.lambda1
        lambda2 = c.k2 * share if c.lambda2 is None else c.lambda2
        unlabelled_weight = self.task.unlabelled_weight
        return Coefficients(
            lambda1=unlabelled_weight * lambda1 * rise,
            lambda2=unlabelled_weight * lambda2 * graph,
            lambda3=unlabelled_weight * c.lambda3 * rise,
            follow=unlabelled_weight * c.follow * graph,
            guesses=unlabelled_weight * rise,
        )

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        c, weights = self.config, self.coefficients(progress)
        x_a, x_b, *third = batch.x_u
        other_x_a = third[0] if third else x_a
        x_l, *other_x_l = batch.x_l
        n_u, n_l = len(x_a), len(batch.y_l)
        B1, B2, B3 = n_u, n_l / 2, n_u // 2

        # row k of the teacher is the other view of row k of the student, so a pair (i, j) means the same to both
        with torch.no_grad():
            slow_z, slow_logits = self.teacher(torch.cat([x_b, *other_x_l] if self.by_slow else [x_b, other_x_a, *other_x_l]))
        z, logits = self.student(torch.cat([x_a, x_l] if self.by_slow else [x_a, x_b, x_l]))
        if self.by_slow:  # X1' as the teacher sees it, in the place where the student's look would be
            z, slow_z = (torch.cat([one[:n_u], slow_z[:n_u], one[n_u:]]) for one in (z, slow_z))
            logits, slow_logits = (torch.cat([one[:n_u], slow_logits[:n_u], one[n_u:]]) for one in (logits, slow_logits))
        f = torch.softmax(logits, dim=-1)

        virtual, labelled, graph = self._pairs(n_u, batch.y_l)
        i, j = torch.cat([virtual.i, labelled.i, graph.i]), torch.cat([virtual.j, labelled.j, graph.j])
        phi = self.similarity.pairs(z, i, j)
        sizes = [len(virtual.i), len(labelled.i), len(graph.i)]
        phi_virtual, phi_labelled, phi_graph = torch.split(phi, sizes)

        same = batch.y_l[labelled.i - 2 * n_u] == batch.y_l[labelled.j - 2 * n_u]
        balanced = labelled.weight if c.prior is None else _balanced(labelled.weight, same)
        sup_W = pair_cross_entropy(
            phi_virtual, torch.ones_like(virtual.i, dtype=torch.bool), self.task.unlabelled_weight * c.virtual * virtual.weight
        )
        sup_W = sup_W + pair_cross_entropy(phi_labelled, same, balanced)

        target = f[n_u : 2 * n_u] if self.own_slow is not None else torch.softmax(slow_logits[:n_u], dim=-1)
        if self.strong or c.sharpen is not None:
            target = target.detach()
        unsup = c.labelled_pairs * self._edges(f, labelled, same)
        if c.sharpen is None:
            unsup = similar_laplacian(squared_distance(f[:n_u], target), c.beta).sum() + unsup

        W = same_probability(phi_graph, self.log_odds)
        self.observed = {**seen(f[:n_u].detach()), "mean_w": W.detach().mean()}
        terms = {
            "supervised": label_cross_entropy(logits[2 * n_u :], batch.y_l) / (B1 + 2 * B2),
            "similarity": sup_W / (B1 + 2 * B2),
            "laplacian": weights.lambda1 * unsup / (B1 + B2),
        }
        if other_x_l:
            with torch.no_grad():
                slow_phi = self.slow_similarity.pairs(slow_z if c.cons_teacher_features == "ema" else z, i, j)
            told = torch.zeros_like(virtual.weight) if self.by_slow else virtual.weight  # it would be told of a row and itself
            cons = similarity_consistency(phi, slow_phi, torch.cat([told, labelled.weight, graph.weight]))
            terms["consistency"] = weights.lambda3 * cons / (B1 + B2 + B3)
        if weights.lambda2 > 0:  # skipped, not multiplied by zero: 0 * NaN is NaN
            terms["graph"] = weights.lambda2 * self._edges(f, graph, W.detach() if c.detach_w else W) / B3
        if weights.follow > 0:
            said = torch.softmax(slow_logits, dim=-1)
            agreed = (said.index_select(0, graph.i) * said.index_select(0, graph.j)).sum(-1)
            terms["following"] = (
                weights.follow * similarity_distillation_loss(phi_graph, agreed, self.log_odds, graph.weight) / B3
            )
        # the total divides the labels' sum by B1 + 2 B2: against their mean, what is learnt from guesses keeps its weight
        beside_labels = 2 * B2 / (B1 + 2 * B2)
        if c.sharpen is not None:
            guessed = masked_cross_entropy(logits[:n_u], sharpened(target, c.sharpen), target.amax(-1))
            terms["sharpened"] = weights.guesses * beside_labels * guessed
        if isinstance(self.base, Guesses):
            guesses = self.base.guesses(logits[:n_u], logits[n_u : 2 * n_u], batch.index, progress)
            terms |= {name: beside_labels * term for name, term in guesses.items()}
        return terms

    def _edges(self, f: Tensor, pairs: Pairs, W: Tensor) -> Tensor:
        """The extended Laplacian over these pairs, by their weights."""
        d2 = squared_distance(f.index_select(0, pairs.i), f.index_select(0, pairs.j))
        return (pairs.weight * extended_laplacian(d2, W.to(d2.dtype), self.config.beta, self.config.eps)).sum()

    def after_step(self) -> None:
        self.step += 1
        start, rising = self.config.alpha_start, int(self.step) <= self.config.rampup * self.task.steps
        alpha = warmed_up_decay(start if start is not None and rising else self.alpha, int(self.step))
        self.base.after_step()
        if self.own_slow is not None:
            update_ema(self.own_slow, self.base.student, alpha)
        update_ema(self.slow_similarity, self.similarity, alpha)

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        average = self.config.evaluate == "average"
        return DeepPredictor(
            self.teacher if average else self.student,
            self.slow_similarity if average else self.similarity,
            log_odds=self.log_odds,
            beta=self.config.beta,
        )

    def _pairs(self, n_u: int, y_l: Tensor) -> tuple[Pairs, Pairs, Pairs]:
        """The three child batches as rows of [x_a, x_b, x_l]."""
        n_l, half = len(y_l), n_u // 2
        rows = torch.arange(n_u, device=y_l.device)
        first, second, labelled = rows[:half], rows[half : 2 * half], 2 * n_u + torch.arange(n_l, device=y_l.device)
        b1 = _by_position(rows, n_u + rows)
        if self.config.pairs == "paper":
            b2 = _by_position(labelled[: n_l // 2], labelled[n_l // 2 : 2 * (n_l // 2)])
            b3 = _by_position(first, second)
        else:
            b2 = _every_pair(labelled, labelled, total=n_l / 2)
            b3 = _every_pair(first, second, total=half)
        return (b1, b2, b3) if self.config.pair_order == "batch" else (_swapped(b1), _swapped(b2), _swapped(b3))


def _by_position(i: Tensor, j: Tensor) -> Pairs:
    return Pairs(i, j, torch.ones(len(i), device=i.device))


def _every_pair(a: Tensor, b: Tensor, total: float) -> Pairs:
    """Every (i, j) with i from a and j from b, never a row with itself."""
    i, j = a.repeat_interleave(len(b)), b.repeat(len(a))
    apart = i != j
    i, j = i[apart], j[apart]
    return Pairs(i, j, torch.full((len(i),), total / max(len(i), 1), device=i.device))


def _swapped(pairs: Pairs) -> Pairs:
    """Each pair turned round with probability 1/2."""
    turn = torch.rand(len(pairs.i), device=pairs.i.device) < 0.5
    return Pairs(torch.where(turn, pairs.j, pairs.i), torch.where(turn, pairs.i, pairs.j), pairs.weight)


def _balanced(weight: Tensor, same: Tensor) -> Tensor:
    """The same total weight, half of it on similar and half on different pairs."""
    n_same = same.sum()
    n_other = len(same) - n_same
    if n_same == 0 or n_other == 0:
        return weight
    return weight.sum() * torch.where(same, 0.5 / n_same, 0.5 / n_other)


def _log_odds(prior: Literal["uniform"] | tuple[float, ...] | None, n_classes: int) -> float:
    """ln((1 - pi)/pi), pi = SUM_c p_c^2 the share of same-class pairs; 0 without a prior: W as Phi says it."""
    if prior is None:
        return 0.0
    if prior != "uniform" and len(prior) != n_classes:
        raise SettingError(f"prior has {len(prior)} shares and there are {n_classes} classes; expected one share for each")
    pi = 1.0 / n_classes if prior == "uniform" else sum(p * p for p in prior) / sum(prior) ** 2
    return math.log((1.0 - pi) / pi)
