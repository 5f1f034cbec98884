"""Virtual adversarial training (VAT): of all small perturbations, the one that changes the prediction most must not change it.

Miyato et al. 2017, arXiv:1704.03976.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.config import Config, NonNegative, Positive, PositiveInt
from samekind.data.dataset import Batch
from samekind.losses.adversarial import entropy, kl_divergence, unit_vectors
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.nets.classifier import Classifier
from samekind.nets.forward import forward_without_buffer_updates, get_rng_state, set_rng_state

CIFAR_SIZE = 3 * 32 * 32  # number of values in a CIFAR-10 image, for which the paper chose eps


@dataclass(frozen=True)
class VATConfig(Config):
    """Settings of VAT; the defaults are the paper's."""

    # length of the perturbation; None: 8 sqrt(d/3072) for inputs of d values, which is 8 on CIFAR-10
    eps: Positive | None = None
    # finite-difference step of the power iteration; the estimator's default is 0.1, because float32 needs a larger step
    xi: Positive = 1e-6
    power_iterations: PositiveInt = 1
    w_max: NonNegative = 1.0  # weight of the adversarial loss
    entropy_weight: NonNegative = 0.0  # weight of the mean entropy of the predictions; 1 is the paper's "VAT+EntMin"
    same_dropout: bool = True  # True: all forward passes over the unlabelled samples use the same dropout mask


class VAT(Method):
    """Adds the KL divergence between predictions with and without the perturbation to the cross-entropy of the labels."""

    def __init__(self, net: Classifier, task: Task, config: VATConfig | None = None) -> None:
        super().__init__()
        self.config = config or VATConfig()
        self.unlabelled_weight = task.unlabelled_weight
        self.student = net

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        c, (x_u,) = self.config, batch.x_u
        labelled = self.student(batch.x_l[0]).logits  # only this forward pass updates the batch-norm statistics
        d = torch.randn_like(x_u)
        rng_state = get_rng_state(x_u.device)
        with torch.set_grad_enabled(c.entropy_weight > 0):
            logits = forward_without_buffer_updates(self.student, x_u).logits
        clean = logits.detach()
        r = self._adversarial_perturbation(x_u, clean, d, rng_state)
        self.diagnostics = prediction_statistics(torch.softmax(clean, dim=-1))
        terms = {
            "supervised": label_cross_entropy(labelled, batch.y_l) / len(batch.y_l),
            "adversarial": self.unlabelled_weight * c.w_max * kl_divergence(clean, self._logits(x_u + r, rng_state)),
        }
        if c.entropy_weight > 0:
            terms["entropy"] = self.unlabelled_weight * c.entropy_weight * entropy(logits)
        return terms

    def _adversarial_perturbation(self, x: Tensor, clean: Tensor, d: Tensor, rng_state: Tensor) -> Tensor:
        """Return the perturbation of length eps that changes the prediction most.

        By power iteration, it has the direction of the first eigenvector of the Hessian of KL(f(x) || f(x + r)) at r = 0.
        """
        c = self.config
        for _ in range(c.power_iterations):
            d = unit_vectors(d).requires_grad_()
            (d,) = torch.autograd.grad(kl_divergence(clean, self._logits(x + c.xi * d, rng_state)), d)
        eps = 8.0 * (x[0].numel() / CIFAR_SIZE) ** 0.5 if c.eps is None else c.eps
        return eps * unit_vectors(d)

    def _logits(self, x: Tensor, rng_state: Tensor) -> Tensor:
        if self.config.same_dropout:
            set_rng_state(rng_state, x.device)
        return forward_without_buffer_updates(self.student, x).logits

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)


SPEC = MethodSpec(
    "vat",
    VAT,
    VATConfig,
    "the prediction resists the worst small perturbation of the input",
    paper="Miyato et al. 2017, arXiv:1704.03976",
    defaults={"xi": 0.1},  # in float32, a step of 1e-6 is lost in rounding errors, and the direction found would be random
    search_space={"eps": LogUniform(1.0, 10.0), "w_max": LogUniform(0.3, 3.0)},
)
