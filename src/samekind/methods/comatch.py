"""CoMatch: pseudo-labels are smoothed over similar samples, and samples with equal pseudo-labels get similar embeddings.

Li, Xiong & Hoi 2021, arXiv:2011.11183.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.config import Config, Fraction, NonNegative, Positive, PositiveInt
from samekind.data.augment.transforms import Views
from samekind.data.dataset import Batch
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.weak_strong_losses import inner_products, masked_cross_entropy, pseudo_label_graph
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.memory_bank import DistributionAlignment, FeatureQueue
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import THRESHOLD_SPACE, MethodSpec
from samekind.methods.weak_to_strong import with_reference_strong_view
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay
from samekind.nets.mlp import Projection


@dataclass(frozen=True)
class CoMatchConfig(Config):
    """Settings of CoMatch; the defaults are the paper's."""

    threshold: Fraction = 0.95  # τ; an unlabelled sample is used if the largest probability of its target is at least this
    lambda_u: NonNegative = 1.0  # weight of the pseudo-label loss
    lambda_c: NonNegative = 1.0  # weight of the contrastive term between two strong views
    # weight of a sample's own prediction in its target; the predictions of similar samples have the rest
    smoothing: Fraction = 0.9
    temperature: Positive = 0.2  # a softmax gets the inner products of embeddings divided by this
    # two samples have an edge in the graph if the inner product of their targets is at least this
    edge_threshold: Fraction = 0.8
    embedding_size: PositiveInt = 64
    alignment_batches: PositiveInt = 32  # number of batches whose mean prediction is used in distribution alignment
    queue_batches: PositiveInt = 5  # length of the queue of earlier samples, in batches
    # decay per step of the EMA that predicts after training; None: averages over 2 % of the steps
    ema_decay: Fraction | None = None


class CoMatch(Method):
    """Adds a loss of smoothed pseudo-labels, and a contrastive loss whose target is a graph of these pseudo-labels."""

    stores_samples = True
    step: Tensor
    unlabelled_views = ("strong", "strong", "weak")

    def __init__(self, net: Classifier, task: Task, config: CoMatchConfig | None = None) -> None:
        super().__init__()
        self.config = config or CoMatchConfig()
        self.task = task
        self.ema_decay = ema_decay_for(self.config.ema_decay, task)
        self.student, self.ema = net, ema_copy(net)
        self.projection = Projection(net.n_features, self.config.embedding_size)
        length = self.config.queue_batches * (task.batch_labelled + task.batch_unlabelled)
        self.queue = FeatureQueue(length, self.config.embedding_size, task.n_classes)
        self.alignment = DistributionAlignment(self.config.alignment_batches, task.n_classes)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        # predictions, embeddings and targets of this step, which `after_step` stores; one entry for each part of the batch
        self._batch_parts: list[tuple[Tensor, Tensor, Tensor]] = []

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        c, unlabelled_weight = self.config, self.task.unlabelled_weight
        n_u, n_l = len(batch.index), len(batch.y_l)
        *x_strong, x_weak = batch.x_u
        z, logits = self.student(torch.cat([*x_strong, batch.x_l[0]]))
        strong, _, labelled = logits.split([n_u, n_u, n_l])
        e_first, e_second = self.projection(z[: 2 * n_u]).split([n_u, n_u])
        with torch.no_grad():  # the weak views and the memory only make targets, so no gradient is needed
            z_weak, weak = self.student(x_weak)
            e_weak, e_l = self.projection(z_weak), self.projection(z.detach()[2 * n_u :])
            f = torch.softmax(weak, dim=-1)
            q = self.alignment.align(f)
            target = self._smooth(q, e_weak)
            Q = pseudo_label_graph(target, c.edge_threshold)
            y = F.one_hot(batch.y_l, self.task.n_classes).to(q.dtype)
            # The queue stores q as it was before smoothing. Smoothing reads the queue, so smoothed values would be smoothed
            # again and again.
            self._batch_parts.append((f, torch.cat([e_weak, e_l]), torch.cat([q, y])))
        self.diagnostics = prediction_statistics(f)
        mask = target.amax(1) >= c.threshold
        contrast = F.cross_entropy(inner_products(e_first, e_second) / c.temperature, Q)
        return {
            "supervised": label_cross_entropy(labelled, batch.y_l) / n_l,
            "pseudo_label": unlabelled_weight * c.lambda_u * masked_cross_entropy(strong, target, mask),
            "contrast": unlabelled_weight * c.lambda_c * contrast,
        }

    def adapt_views(self, views: Views) -> Views:
        return with_reference_strong_view(views)

    def after_step(self) -> None:
        self.step += 1
        if self._batch_parts:
            f, points, probabilities = (torch.cat(parts) for parts in zip(*self._batch_parts, strict=True))
            self._batch_parts.clear()
            self.alignment.update(f)
            self.queue.push(points, probabilities)
        update_ema(self.ema, self.student, warmed_up_decay(self.ema_decay, int(self.step)), statistics="copy")

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.ema)

    def _smooth(self, q: Tensor, e_weak: Tensor) -> Tensor:
        """Return the predictions q (n, C), averaged with those of similar samples in the queue; q itself until the queue is
        full.
        """
        if not self.queue.full:
            return q
        similarity = torch.softmax(inner_products(e_weak, self.queue.points) / self.config.temperature, dim=-1)
        neighbors = inner_products(similarity, self.queue.probabilities.T)
        return self.config.smoothing * q + (1.0 - self.config.smoothing) * neighbors


SPEC = MethodSpec(
    "comatch",
    CoMatch,
    CoMatchConfig,
    "pseudo-labels and embeddings regularize each other through a graph",
    paper="Li, Xiong & Hoi 2021, arXiv:2011.11183",
    search_space={**THRESHOLD_SPACE, "lambda_c": (0.3, 1.0)},
)
