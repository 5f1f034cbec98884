"""Pi model: consistency between two predictions of one network for two views of each unlabelled sample.

Laine & Aila 2017, arXiv:1610.02242.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.config import Config, NonNegative
from samekind.data.dataset import Batch, Dataset
from samekind.errors import SettingError
from samekind.losses.consistency import softmax_mse
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.ramps import sigmoid_rampup
from samekind.methods.base import BatchOutput, Method, Task, prediction_statistics
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import CONSISTENCY_SPACE, MethodSpec
from samekind.nets.classifier import Classifier, split_output


@dataclass(frozen=True)
class PiModelConfig(Config):
    """Settings of the Pi model; the defaults are the paper's."""

    w_max: NonNegative | None = None  # weight of the consistency term after the ramp-up; None: 100 n_labelled/n_samples
    rampup: NonNegative = 80 / 300  # fraction of training over which the weight rises from 0
    random_flip: bool = False  # True: flip both views of an image together, at random; for augmentations without flips


class PiModel(Method):
    """Adds the squared difference of the predictions for two views to the cross-entropy of the labels."""

    averages_over_batch = True
    has_second_view = True
    keeps_output = True
    keeps_target_features = True
    unlabelled_views = ("weak", "weak")

    def __init__(self, net: Classifier, task: Task, config: PiModelConfig | None = None) -> None:
        super().__init__()
        self.config = config or PiModelConfig()
        self.w_max = consistency_weight(self.config.w_max, task)
        self.student = net

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        x_a, x_b = batch.x_u
        x_l = batch.x_l[0]
        n_u, n = len(x_a), len(x_a) + len(batch.y_l)
        if self.config.random_flip:
            flip = torch.rand(n, device=x_a.device) < 0.5
            x_a, x_b, x_l = _flip(x_a, flip[:n_u]), _flip(x_b, flip[:n_u]), _flip(x_l, flip[n_u:])
        output = self.student(torch.cat([x_a, x_b, x_l]))
        first, second, labelled = split_output(output, [n_u, n_u, len(batch.y_l)])
        self.diagnostics = prediction_statistics(torch.softmax(first.logits.detach(), dim=-1))
        w = self.w_max * sigmoid_rampup(progress, self.config.rampup)
        self.last_output = BatchOutput(first, labelled, torch.softmax(second.logits.detach(), dim=-1), w, second.z.detach())
        return {
            "supervised": label_cross_entropy(labelled.logits, batch.y_l) / n,
            "consistency": w * softmax_mse(first.logits, second.logits),  # the gradient flows through both predictions
        }

    def refresh(self, dataset: Dataset) -> None:
        if self.config.random_flip and len(dataset.shape) != 3:
            raise SettingError(
                f"random_flip is True, but samples of shape {dataset.shape} cannot be flipped. Pass images, or set "
                "random_flip=False."
            )

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)


def consistency_weight(w_max: float | None, task: Task, rule: float = 100.0) -> float:
    """Return the weight of the consistency term, times `task.unlabelled_weight`.

    It is `w_max`, or for None `rule` * n_labelled/n_samples, as in Laine & Aila.
    """
    return task.unlabelled_weight * (rule * task.n_labelled / task.n_samples if w_max is None else w_max)


def _flip(x: Tensor, which: Tensor) -> Tensor:
    """Return images (n, C, H, W), flipped left to right where `which` (n,) is True."""
    return torch.where(which.view(-1, 1, 1, 1), x.flip(-1), x)


SPEC = MethodSpec(
    "pi_model",
    PiModel,
    PiModelConfig,
    "one network predicts the same for two views",
    paper="Laine & Aila 2017, arXiv:1610.02242",
    defaults={"w_max": 10.0},  # with a dozen labels among thousands of samples, 100 n_labelled/n_samples is far too small
    search_space=CONSISTENCY_SPACE,
)
