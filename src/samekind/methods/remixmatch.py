"""ReMixMatch: MixMatch with distribution alignment, strong views whose target is the weak view, and rotation prediction.

Berthelot et al. 2019, arXiv:1911.09785.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.config import Config, Fraction, NonNegative, Positive, PositiveInt
from samekind.data.augment.ctaugment import CTAugment, draws_from_tensor, initial_rates, with_ctaugment
from samekind.data.augment.transforms import Views
from samekind.data.dataset import Batch, Dataset
from samekind.errors import SettingError
from samekind.losses.cross_entropy import label_cross_entropy, soft_cross_entropy
from samekind.losses.mixup import align_to_prior, sharpen
from samekind.losses.ramps import linear_ramp
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.mixmatch import mixup_batch, rampup_length, unfinished_rampup
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay
from samekind.nets.forward import forward_without_buffer_updates, interleaved_logits

N_ROTATIONS = 4  # rotations by 0, 90, 180 and 270 degrees
PRIOR_DECAY = 0.999  # decay per step of the moving average of class fractions among the labels


@dataclass(frozen=True)
class ReMixMatchConfig(Config):
    """Settings of ReMixMatch; the defaults are the paper's."""

    K: PositiveInt = 8  # number of strong views of each unlabelled sample; the paper has 1 with 40 labels
    T: Positive = 0.5  # sharpening temperature: a smaller T brings targets nearer to one-hot
    mixup_alpha: Positive = 0.75  # a of the distribution Beta(a, a), from which mixup ratios are drawn
    w_max: NonNegative = 1.5  # weight of the loss of mixed unlabelled samples after the ramp-up
    w_strong: NonNegative = 0.5  # weight of the loss of the first strong view, without mixup, after the ramp-up
    # fraction of training over which weights rise; None: the paper's 16,384 steps (8 times as many with 40 labels)
    rampup: NonNegative | None = None
    w_rotation: NonNegative = 0.5  # weight of the rotation loss; the paper has 2 with 40 labels, and 3 on SVHN
    alignment_batches: PositiveInt = 128  # number of batches whose mean prediction is used in distribution alignment
    prior: Literal["uniform"] | tuple[float, ...] | None = None  # class fractions of the dataset; None: those of the labels
    # "given": use the strong augmentation of the data instead of CTAugment
    augment: Literal["ctaugment", "given"] = "ctaugment"
    # decay per step of the EMA that predicts after training; None: averages over 2 % of the steps
    ema_decay: Fraction | None = None


class ReMixMatch(Method):
    """MixMatch with distribution alignment, strong views, rotation prediction and CTAugment."""

    images_only = True
    stores_samples = True
    step: Tensor
    p_data: Tensor
    recent: Tensor
    rates: Tensor

    def __init__(self, net: Classifier, task: Task, config: ReMixMatchConfig | None = None) -> None:
        super().__init__()
        c = self.config = config or ReMixMatchConfig()
        self.ema_decay = ema_decay_for(c.ema_decay, task)
        self.unlabelled_weight = task.unlabelled_weight
        self.rampup = rampup_length(c.rampup, task)
        probes = ("draws", "probe") if c.augment == "ctaugment" else ()
        self.labelled_views = ("strong", *probes)
        self.unlabelled_views = ("weak", *["strong"] * c.K)
        # the EMA only predicts after training; targets are predicted by the student
        self.student, self.ema = net, ema_copy(net)
        self.rotation_head = nn.Linear(net.n_features, N_ROTATIONS)
        self.register_buffer("p_data", _class_fractions(c.prior, task.n_classes))
        self.register_buffer("recent", torch.full((c.alignment_batches, task.n_classes), 1.0 / task.n_classes))
        self.register_buffer("rates", initial_rates())
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.augment = CTAugment(self.rates)
        # mean prediction and mean label of each part of the batch, for `after_step`
        self._batch_means: list[tuple[Tensor, Tensor]] = []
        # from `_probe`: the augmentations drawn, and the probabilities of the true classes
        self._probed: list[tuple[Tensor, Tensor]] = []

    def adapt_views(self, views: Views) -> Views:
        return with_ctaugment(views, self.augment) if self.config.augment == "ctaugment" else views

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        c, y = self.config, F.one_hot(batch.y_l, self.p_data.shape[0]).to(self.p_data.dtype)
        n_l, n_u, (weak, *strong) = len(y), len(batch.index), batch.x_u
        q = self._sharpened_targets(weak, y)
        self._probe(batch)
        inputs, targets = torch.cat([batch.x_l[0], weak, *strong]), torch.cat([y, *[q] * (1 + len(strong))])
        x, target = mixup_batch(inputs, targets, c.mixup_alpha)
        logits = interleaved_logits(self.student, x, 2 + len(strong))
        first = forward_without_buffer_updates(self.student, strong[0]).logits
        rotated, quarters = _rotate_randomly(strong[0])
        rotated_z = forward_without_buffer_updates(self.student, rotated).z
        ramp = self.unlabelled_weight * linear_ramp(progress, self.rampup)
        return {
            "supervised": soft_cross_entropy(logits[:n_l], target[:n_l]) / n_l,
            "mixed": c.w_max * ramp * soft_cross_entropy(logits[n_l:], target[n_l:]) / (len(x) - n_l),
            "strong": c.w_strong * ramp * soft_cross_entropy(first, q) / n_u,
            "rotation": c.w_rotation * label_cross_entropy(self.rotation_head(rotated_z), quarters) / n_u,
        }

    @torch.no_grad()
    def _sharpened_targets(self, weak: Tensor, y: Tensor) -> Tensor:
        """Return the targets (n, C): predictions for the weak view, aligned to the class fractions of the labels, then
        sharpened.
        """
        f = torch.softmax(forward_without_buffer_updates(self.student, weak).logits, dim=-1)
        self.diagnostics = prediction_statistics(f)
        self._batch_means.append((f.mean(0), y.mean(0)))
        return sharpen(align_to_prior(f, self.p_data / self.p_data.sum(), self.recent.mean(0)), self.config.T)

    @torch.no_grad()
    def _probe(self, batch: Batch) -> None:
        """Store which probability the EMA predicts for the true class of labelled images after random augmentations.

        CTAugment uses these probabilities to learn how strong each augmentation may be.
        """
        if self.config.augment == "ctaugment":
            _, draws, probe = batch.x_l
            f = torch.softmax(self.ema.eval()(probe).logits, dim=-1)
            self._probed.append((draws, f.gather(1, batch.y_l[:, None]).flatten().cpu()))

    @torch.no_grad()
    def after_step(self) -> None:
        self.step += 1
        update_ema(self.ema, self.student, warmed_up_decay(self.ema_decay, int(self.step)), statistics="copy")
        if self._batch_means:
            predictions, labels = (torch.stack(parts).mean(0) for parts in zip(*self._batch_means, strict=True))
            self.recent.copy_(torch.cat([self.recent[1:], predictions[None]]))
            self.p_data.lerp_(labels, 1.0 - PRIOR_DECAY if self.config.prior is None else 0.0)
        for draws, match in self._probed:
            self.augment.update(draws_from_tensor(draws), match)
        self._batch_means, self._probed = [], []

    def refresh(self, dataset: Dataset) -> None:
        if len(dataset.shape) != 3 or dataset.shape[1] != dataset.shape[2]:
            raise SettingError(
                "remixmatch rotates images by 90 degrees, so it needs square images, but the samples have the shape "
                f"{dataset.shape}. Pass images (n, side, side) or (n, side, side, channels), or use mixmatch."
            )

    def shortfall(self, epochs: float) -> str | None:
        return unfinished_rampup(self.rampup)

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.ema)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ReMixMatch:
        """Move all tensors to a device or dtype, except the rates of CTAugment.

        The strong augmentation shares the rates, and uses them on the device of the dataset.
        """
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.rates = self.augment.rates
        return self


def _rotate_randomly(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate each image (n, C, H, H) by a random number of quarter turns, 0 to 3; return the images and these numbers."""
    quarters = torch.randint(N_ROTATIONS, (len(x),), device=x.device)
    every = torch.stack([torch.rot90(x, quarter, (2, 3)) for quarter in range(N_ROTATIONS)])
    return every[quarters, torch.arange(len(x), device=x.device)], quarters


def _class_fractions(prior: Literal["uniform"] | tuple[float, ...] | None, n_classes: int) -> Tensor:
    if prior is None or prior == "uniform":
        return torch.full((n_classes,), 1.0 / n_classes)
    if len(prior) != n_classes or min(prior) < 0 or sum(prior) <= 0:
        raise SettingError(f"prior is {prior}; expected {n_classes} class fractions, none of them below 0")
    return torch.tensor(prior) / sum(prior)


SPEC = MethodSpec(
    "remixmatch",
    ReMixMatch,
    ReMixMatchConfig,
    "MixMatch with distribution alignment, strong views and rotation prediction",
    paper="Berthelot et al. 2019, arXiv:1911.09785",
    defaults={"K": 2},  # on a CPU, eight strong views of each sample take too long
    search_space={"w_max": LogUniform(0.5, 5.0), "K": (1, 2)},
)
