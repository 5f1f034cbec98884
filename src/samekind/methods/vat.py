"""Virtual adversarial training: the answer must not change in the direction in which it would change most.

Miyato et al. 2017, arXiv:1704.03976.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.losses.adversarial import divergence, entropy, unit
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.methods.base import Task, require_positive, seen
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier
from samekind.nets.forward import forward_without_buffer_updates, get_rng_state, set_rng_state

CIFAR = 3 * 32 * 32  # numbers in an image of the paper's CIFAR-10


@dataclass(frozen=True)
class VATConfig:
    eps: float | None = None  # length of the change; None: 8 sqrt(d/3072) for rows of d numbers, the paper's 8 on CIFAR-10
    xi: float = 1e-6  # length of the step at which the power iteration looks; in single precision too short, see RECIPE
    power: int = 1  # power iterations
    w_max: float = 1.0  # weight of the adversarial term
    entropy: float = 0.0  # weight of the mean entropy of the answers; 1 is the paper's "VAT+EntMin"
    same_chance: bool = True  # all passes over the pool rows draw the same dropout

    def __post_init__(self) -> None:
        require_positive(self, "xi", "power")


RECIPE = {"xi": 0.1}  # a step of 1e-6 is lost in rounding, and what is found then is no direction but noise


class VAT(nn.Module):
    iterative = True
    labelled_views: tuple[str, ...] = ("weak",)
    unlabelled_views: tuple[str, ...] = ("weak",)

    def __init__(self, net: Classifier, task: Task, config: VATConfig | None = None) -> None:
        super().__init__()
        self.config = config or VATConfig()
        self.unlabelled_weight = task.unlabelled_weight
        self.student = net
        self.observed: dict[str, Tensor] = {}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        c, (x_u,) = self.config, batch.x_u
        labelled = self.student(batch.x_l[0]).logits  # the only pass that moves batch-norm statistics
        d = torch.randn_like(x_u)
        state = get_rng_state(x_u.device)
        with torch.set_grad_enabled(c.entropy > 0):
            logits = forward_without_buffer_updates(self.student, x_u).logits
        clean = logits.detach()
        r = self._worst(x_u, clean, d, state)
        self.observed = seen(torch.softmax(clean, dim=-1))
        terms = {
            "supervised": label_cross_entropy(labelled, batch.y_l) / len(batch.y_l),
            "adversarial": self.unlabelled_weight * c.w_max * divergence(clean, self._logits(x_u + r, state)),
        }
        return {**terms, "entropy": self.unlabelled_weight * c.entropy * entropy(logits)} if c.entropy > 0 else terms

    def _worst(self, x: Tensor, clean: Tensor, d: Tensor, state: Tensor) -> Tensor:
        """r_adv: of length eps, along the first eigenvector of the Hessian of KL(f(x) || f(x + r)) at r = 0."""
        c = self.config
        for _ in range(c.power):
            d = unit(d).requires_grad_()
            (d,) = torch.autograd.grad(divergence(clean, self._logits(x + c.xi * d, state)), d)
        eps = 8.0 * (x[0].numel() / CIFAR) ** 0.5 if c.eps is None else c.eps
        return eps * unit(d)

    def _logits(self, x: Tensor, state: Tensor) -> Tensor:
        if self.config.same_chance:
            set_rng_state(state, x.device)
        return forward_without_buffer_updates(self.student, x).logits

    def after_step(self) -> None:
        """Nothing moves but the student."""

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)
