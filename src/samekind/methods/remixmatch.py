"""ReMixMatch: MixMatch with guesses held to the shares of the classes, strong looks that follow a weak one, and turned images.

Berthelot et al. 2019, arXiv:1911.09785.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.data.augment.ctaugment import CTAugment, draws_from_tensor, initial_rates, with_ctaugment
from samekind.data.augment.transforms import Views
from samekind.data.dataset import Batch, Dataset
from samekind.errors import SettingError
from samekind.losses.cross_entropy import label_cross_entropy, soft_cross_entropy
from samekind.losses.mixup import aligned, sharpened
from samekind.losses.ramps import linear_ramp
from samekind.methods.base import Task, refuse_unknown_values, require_positive, seen
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.mixmatch import mixup_batch, rampup_length
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay
from samekind.nets.forward import forward_without_buffer_updates, interleaved_logits

QUARTERS = 4  # turns that an image can have had
KEPT = 0.999  # share of itself that the count of labels keeps per step


@dataclass(frozen=True)
class ReMixMatchConfig:
    K: int = 8  # strong looks at each row of the pool; 1 with 40 labels
    T: float = 0.5  # temperature: the smaller, the surer the guesses are made
    mixing: float = 0.75  # a of Beta(a, a), from which the shares of a mixture are drawn
    w_max: float = 1.5  # weight of the mixed pool rows once ramped up
    w_strong: float = 0.5  # weight of the first strong look, not mixed, once ramped up
    rampup: float | None = None  # share of the run over which these two rise; None: 16,384 steps; eightfold with 40 labels
    w_rotation: float = 0.5  # weight of the turns; with 40 labels 2, and 3 on SVHN
    memory: int = 128  # steps over which the mean answer is taken
    prior: Literal["uniform"] | tuple[float, ...] | None = None  # class shares of the pool; None: those of the labels
    augment: Literal["controlled", "given"] = "controlled"  # strong looks by CTAugment, or as the strong view is
    alpha: float | None = None  # how much of itself the slow copy keeps per step; None: an average over 2 % of the run

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        require_positive(self, "K", "T", "mixing", "memory")


RECIPE = {"K": 2}  # eight looks at each row are for machines that do not mind


class ReMixMatch(nn.Module):
    iterative = True
    images_only = True
    step: Tensor
    p_data: Tensor
    recent: Tensor
    rates: Tensor

    def __init__(self, net: Classifier, task: Task, config: ReMixMatchConfig | None = None) -> None:
        super().__init__()
        c = self.config = config or ReMixMatchConfig()
        self.alpha = ema_decay_for(c.alpha, task)
        self.unlabelled_weight = task.unlabelled_weight
        self.rampup = rampup_length(c.rampup, task)
        probes = ("draws", "probe") if c.augment == "controlled" else ()
        self.labelled_views: tuple[str, ...] = ("strong", *probes)
        self.unlabelled_views: tuple[str, ...] = ("weak", *["strong"] * c.K)
        self.student, self.slow = net, ema_copy(net)  # the slow copy answers in the end, and guesses nothing
        self.turn = nn.Linear(net.n_features, QUARTERS)
        self.register_buffer("p_data", _shares(c.prior, task.n_classes))
        self.register_buffer("recent", torch.full((c.memory, task.n_classes), 1.0 / task.n_classes))
        self.register_buffer("rates", initial_rates())
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.augment = CTAugment(self.rates)
        self._said: list[tuple[Tensor, Tensor]] = []  # mean answers and labels of this step, for each part of its batch
        self._probed: list[tuple[Tensor, Tensor]] = []  # draws of its probes, and how well they were classified
        self.observed: dict[str, Tensor] = {}

    def own_views(self, views: Views) -> Views:
        return with_ctaugment(views, self.augment) if self.config.augment == "controlled" else views

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        c, y = self.config, F.one_hot(batch.y_l, self.p_data.shape[0]).to(self.p_data.dtype)
        n_l, n_u, (weak, *strong) = len(y), len(batch.index), batch.x_u
        q = self._guess(weak, y)
        self._probe(batch)
        x, target = mixup_batch(torch.cat([batch.x_l[0], weak, *strong]), torch.cat([y, *[q] * (1 + len(strong))]), c.mixing)
        logits = interleaved_logits(self.student, x, 2 + len(strong))
        first = forward_without_buffer_updates(self.student, strong[0]).logits
        turned, turns = _turned(strong[0])
        turned_z = forward_without_buffer_updates(self.student, turned).z
        ramp = self.unlabelled_weight * linear_ramp(progress, self.rampup)
        return {
            "supervised": soft_cross_entropy(logits[:n_l], target[:n_l]) / n_l,
            "mixed": c.w_max * ramp * soft_cross_entropy(logits[n_l:], target[n_l:]) / (len(x) - n_l),
            "strong": c.w_strong * ramp * soft_cross_entropy(first, q) / n_u,
            "rotation": c.w_rotation * label_cross_entropy(self.turn(turned_z), turns) / n_u,
        }

    @torch.no_grad()
    def _guess(self, weak: Tensor, y: Tensor) -> Tensor:
        """q (n, C): the answer to the weak look, held to the shares of the classes, then sharpened; for all looks at a row."""
        f = torch.softmax(forward_without_buffer_updates(self.student, weak).logits, dim=-1)
        self.observed = seen(f)
        self._said.append((f.mean(0), y.mean(0)))
        return sharpened(aligned(f, self.p_data / self.p_data.sum(), self.recent.mean(0)), self.config.T)

    @torch.no_grad()
    def _probe(self, batch: Batch) -> None:
        """How well the slow copy classifies labelled images at any strength: the probability it gives to the right class."""
        if self.config.augment == "controlled":
            _, draws, probe = batch.x_l
            f = torch.softmax(self.slow.eval()(probe).logits, dim=-1)
            self._probed.append((draws, f.gather(1, batch.y_l[:, None]).flatten().cpu()))

    @torch.no_grad()
    def after_step(self) -> None:
        self.step += 1
        update_ema(self.slow, self.student, warmed_up_decay(self.alpha, int(self.step)), statistics="copy")
        if self._said:
            answers, labels = (torch.stack(parts).mean(0) for parts in zip(*self._said, strict=True))
            self.recent.copy_(torch.cat([self.recent[1:], answers[None]]))
            self.p_data.lerp_(labels, 1.0 - KEPT if self.config.prior is None else 0.0)
        for draws, match in self._probed:
            self.augment.update(draws_from_tensor(draws), match)
        self._said, self._probed = [], []

    def refresh(self, pool: Dataset) -> None:
        if len(pool.shape) != 3 or pool.shape[1] != pool.shape[2]:
            raise SettingError(
                f"remixmatch turns images by quarters, and these rows have the shape {pool.shape}. Give square images "
                "(n, side, side) or (n, side, side, channels), or use mixmatch."
            )

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.slow)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ReMixMatch:
        """Moves to a device, but for the rates: they are shared with the strong view, which works where the pool is."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.rates = self.augment.rates
        return self


def _turned(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each image (n, C, H, H) turned by 0, 1, 2 or 3 quarters, and by how many."""
    turns = torch.randint(QUARTERS, (len(x),), device=x.device)
    every = torch.stack([torch.rot90(x, quarters, (2, 3)) for quarters in range(QUARTERS)])
    return every[turns, torch.arange(len(x), device=x.device)], turns


def _shares(prior: Literal["uniform"] | tuple[float, ...] | None, n_classes: int) -> Tensor:
    if prior is None or prior == "uniform":
        return torch.full((n_classes,), 1.0 / n_classes)
    if len(prior) != n_classes or min(prior) < 0 or sum(prior) <= 0:
        raise SettingError(f"prior is {prior}; expected {n_classes} shares, one for each class, none below 0")
    return torch.tensor(prior) / sum(prior)
