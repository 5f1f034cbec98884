"""Ensemble teacher: targets that an EMA teacher and an ensemble of classifiers and graphs predict together.

The ensemble is fitted to the teacher's features of all samples, so its graphs join samples of which the network alone is
unsure. Its soft labels start the training where labels are few, and the teacher's predictions follow the student. Fine-tuning
of a pretrained encoder uses this method. It combines Mean Teacher (Tarvainen & Valpola 2017), self-training on propagated
labels (Iscen et al. 2019) and the strong view of FixMatch (Sohn et al. 2020).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from samekind.config import Config, Fraction, NonNegative, Positive, PositiveInt
from samekind.data.dataset import Batch, Dataset
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.methods.base import BatchOutput, Method, Task, prediction_statistics
from samekind.methods.full_pass import dataset_features
from samekind.methods.mean_teacher import EmaSchedule
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.nets.classifier import Classifier, split_output
from samekind.nets.ema import ema_copy, update_ema
from samekind.stacking.ensemble_candidates import Weighting
from samekind.stacking.one_thread import one_thread
from samekind.stacking.stacked_ensemble import N_NEIGHBORS, fit_stacked_ensemble

HEAD_ITERATIONS, HEAD_PENALTY = 50, 1e-4
LEAST_PROBABILITY = 1e-6  # probabilities in a product are at least this, so that no single factor decides alone


@dataclass(frozen=True)
class EnsembleTeacherConfig(Config):
    """Settings of the ensemble teacher."""

    ensemble_weight: Fraction = 0.5  # weight of the ensemble's soft label in the target; the teacher has the rest
    sharpness: Positive = 2.0  # power to which the target is raised; 1: not sharpened
    lambda_u: NonNegative = 1.0  # weight of the unlabelled loss
    lambda_l: NonNegative = 0.25  # weight of the loss on the labels, which are also in the ensemble's soft labels
    fits: PositiveInt = 1  # fits of the ensemble during the training; the first is before the first step
    n_neighbors: PositiveInt = N_NEIGHBORS  # neighbours of each sample in the graphs of the ensemble
    # True: before the first step, the linear head is fitted to the soft labels; for a network that is already trained
    fit_head: bool = False
    ema_decay: Fraction | None = None  # decay per step of the EMA teacher; None: averages over 2 % of the steps


class EnsembleTeacher(Method):
    """Trains the student's strong views towards the product of the teacher's prediction and the ensemble's soft label."""

    has_second_view = True
    keeps_output = True
    labelled_views = ("strong",)
    unlabelled_views = ("strong", "weak")
    teacher: Classifier
    soft_labels: Tensor

    def __init__(self, net: Classifier, task: Task, config: EnsembleTeacherConfig | None = None) -> None:
        super().__init__()
        self.config = config or EnsembleTeacherConfig()
        self.lambda_u = task.unlabelled_weight * self.config.lambda_u
        self.student, self.teacher = net, ema_copy(net)
        self.ema_schedule = EmaSchedule(self.config.ema_decay, None, 0.0, task)
        self.refresh_every = 0 if self.config.fits == 1 else max(1, -(-task.steps // self.config.fits))
        self.weighting: Weighting | None = None  # of the ensemble's models, if it is known; None: held-out labels decide
        uniform = torch.full((task.n_samples, task.n_classes), 1.0 / task.n_classes)
        self.register_buffer("soft_labels", uniform)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        x_strong, x_weak = batch.x_u
        with torch.no_grad():
            teacher = self.teacher(x_weak).logits
        output = self.student(torch.cat([x_strong, batch.x_l[0]]))
        strong, labelled = split_output(output, [len(x_strong), len(batch.y_l)])
        terms = self.pseudo_label_terms(strong.logits, teacher, batch.index, progress)
        self.last_output = BatchOutput(strong, labelled, torch.softmax(teacher, dim=-1), self.lambda_u)
        return {"supervised": self.config.lambda_l * label_cross_entropy(labelled.logits, batch.y_l) / len(batch.y_l), **terms}

    def pseudo_label_terms(self, strong: Tensor, weak: Tensor, index: Tensor, progress: float) -> dict[str, Tensor]:
        target = self.combined_target(torch.softmax(weak.detach(), dim=-1), self.soft_labels[index])
        self.diagnostics = prediction_statistics(target)
        return {"soft_label": self.lambda_u * cross_entropy(strong, target)}

    def combined_target(self, p: Tensor, Q: Tensor) -> Tensor:
        """Return the target (n, C): (p^(1 - a) Q^a)^s, divided by its sum, with the weight a and the sharpness s."""
        a = self.config.ensemble_weight
        log_product = (1.0 - a) * p.clamp_min(LEAST_PROBABILITY).log() + a * Q.clamp_min(LEAST_PROBABILITY).log()
        return torch.softmax(self.config.sharpness * log_product, dim=-1)

    def refresh(self, dataset: Dataset) -> None:
        """Fit the ensemble to the teacher's features of all samples, and store its class probabilities as soft labels."""
        z = dataset_features(self.teacher, dataset).double()
        with one_thread():
            fitted = fit_stacked_ensemble(
                z,
                dataset.y.cpu().numpy(),
                dataset.n_classes,
                seed=0,
                n_neighbors=self.config.n_neighbors,
                weighting=self.weighting,
            )
        self.soft_labels.copy_(torch.from_numpy(fitted.probabilities))
        if self.config.fit_head and int(self.ema_schedule.step) == 0:
            fit_head(self.student.head, z.float(), self.soft_labels)
            self.teacher.head.load_state_dict(self.student.head.state_dict())

    def after_step(self) -> None:
        update_ema(self.teacher, self.student, self.ema_schedule.next_decay())

    def full_passes(self, steps: int) -> int:
        return len(range(0, steps, self.refresh_every)) if self.refresh_every else 1

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.teacher)


def fit_head(head: nn.Module, z: Tensor, Q: Tensor) -> None:
    """Fit a linear head to features z (n, d) and soft labels Q (n, C): the least cross-entropy with a small penalty."""
    z, Q = z.to(next(head.parameters()).device), Q.to(z.device)
    parameters = list(head.parameters())
    optimizer = torch.optim.LBFGS(parameters, max_iter=HEAD_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        penalty = sum((p.square().sum() for p in parameters), torch.zeros((), device=z.device))
        value = cross_entropy(head(z), Q) + HEAD_PENALTY * penalty
        torch.autograd.backward(value)
        return value.item()

    with torch.enable_grad(), one_thread():
        for parameter in parameters:
            nn.init.zeros_(parameter)
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    optimizer.zero_grad()


SPEC = MethodSpec(
    "ensemble_teacher",
    EnsembleTeacher,
    EnsembleTeacherConfig,
    "an EMA teacher and the ensemble on its features predict the targets together",
    paper="after Tarvainen & Valpola 2017, Iscen et al. 2019 and Sohn et al. 2020",
    search_space={"sharpness": (1.0, 2.0, 4.0), "lambda_u": LogUniform(0.3, 3.0)},
)
