"""Encoder choice: what encoder="auto" takes for the images of a fit, and why, in one line.

The number of images, their size and the time decide which encoder is tried. Then held-out labels decide whether it is used: the
ensemble is fitted on its features and on the baseline features, which need no training. If the baseline features predict
held-out labels with fewer errors and a higher likelihood, the images are unlike photos, such as digits or spectrograms, and a
net is trained from scratch. Images in grey are encoded only if the encoder makes at most half as many errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from samekind.data.target_shape import NATIVE_SIDE, SIDE
from samekind.nets.encoders.plan import SMALLEST_ENCODED, PlannedEncoder, plan_encoder
from samekind.preprocessing.baseline_features import compute_baseline_features
from samekind.stacking.stacked_ensemble import fit_stacked_ensemble

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Encode = Callable[[str, Array], Floats]  # name of an encoder, images -> features

ALL_SAMPLES = 4000  # up to this many images, the trial uses all of them, and their features are used in the fit
TRIAL_SAMPLES = 1000  # of more images: labelled ones first
GREY_FRACTION = 0.5  # of the baseline's errors that an encoder of images in grey may make
UNLABELLED_SECONDS = 300.0  # the page of an unlabelled project starts after the images are encoded
MIN_PROBABILITY = 1e-6


@dataclass(frozen=True)
class EncoderChoice:
    """Choice for the images of a fit: the name of an encoder, or None for a net from scratch, and the reason."""

    encoder: str | None
    reason: str
    features: Floats | None = None  # of all images, if the trial has computed them
    side: int | None = None  # to which images are reduced for a net from scratch; None: not at all

    def __str__(self) -> str:
        return f"encoder: {self.encoder or 'none, a net is trained from scratch'} ({self.reason})"


@dataclass(frozen=True)
class HeldOutScore:
    """Prediction of held-out labels: the fraction that is wrong, and the mean log-likelihood."""

    error: float
    likelihood: float

    def is_better_than(self, other: HeldOutScore) -> bool:
        """Return whether fewer labels are wrong and the likelihood is higher."""
        return self.error < other.error and self.likelihood > other.likelihood

    def percent(self) -> str:
        """Return the fraction of wrong labels as a text."""
        return f"{100 * self.error:.0f} %"


def choose_encoder(images: Array, codes: Array, n_classes: int, minutes: float | None, encode: Encode) -> EncoderChoice:
    """Return the choice for images (n, H, W, C) or vectors, with class codes (n,) that are negative for unlabelled images."""
    reason = unsuitable_for_encoders(images)
    if reason is not None:
        return EncoderChoice(None, reason)
    height, width, channels = images.shape[1:]
    n, side = len(images), SIDE if max(height, width) > NATIVE_SIDE and images.dtype == np.uint8 else None
    what = f"{n:,} {'grey ' if channels == 1 else ''}images of {height} x {width}"
    plan = plan_encoder(n, min(height, width), minutes)
    if plan is None:
        return EncoderChoice(None, f"{what}; no encoder is fast enough for {minutes:g} minutes", side=side)
    trial = np.arange(n) if n <= ALL_SAMPLES else trial_samples(codes)
    some = images if len(trial) == n else images[trial]
    features = encode(plan.name, some)
    found = held_out_score(features, codes[trial], n_classes)
    base = held_out_score(compute_baseline_features(some), codes[trial], n_classes)
    whole = features if len(trial) == n else None
    if found is None or base is None:
        if channels == 1:
            return EncoderChoice(None, f"{what}; too few labels to test an encoder", side=side)
        return EncoderChoice(plan.name, f"{what}, about {_duration(plan, n)}; too few labels to test it", whole)
    tested = f"held-out labels: {found.percent()} wrong with {plan.name}, {base.percent()} with features of the pixels"
    if _scratch_is_better(found, base, grey=channels == 1):
        return EncoderChoice(None, f"{what}; {tested}", side=side)
    return EncoderChoice(plan.name, f"{what}, about {_duration(plan, n)}; {tested}", whole)


def encoder_without_labels(images: Array) -> str | None:
    """Return the name of the encoder that shows an unlabelled project, or None for baseline features.

    They are for images in grey, since no label can tell whether an encoder suits them, and for very many images.
    """
    if unsuitable_for_encoders(images) is not None or images.shape[3] == 1:
        return None
    plan = plan_encoder(len(images), min(images.shape[1:3]))
    return plan.name if plan is not None and plan.seconds(len(images)) <= UNLABELLED_SECONDS else None


def unsuitable_for_encoders(images: Array) -> str | None:
    """Return why samples are not for a pretrained encoder, or None if they are."""
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        return "the samples are no images in grey or colour"
    if min(images.shape[1:3]) < SMALLEST_ENCODED:
        return f"images of {images.shape[1]} x {images.shape[2]} are too small"
    if images.dtype != np.uint8 and not (float(images.min()) >= 0.0 and float(images.max()) <= 1.0):
        return "the values are neither bytes nor between 0 and 1"
    return None


def held_out_score(features: Floats, codes: Array, n_classes: int) -> HeldOutScore | None:
    """Return how well the ensemble on these features predicts held-out labels; None if there are too few of them."""
    if len(np.unique(codes[codes >= 0])) < n_classes:
        return None
    fitted = fit_stacked_ensemble(torch.from_numpy(np.array(features)).double(), codes, n_classes, seed=0)
    if fitted.held_out is None:
        return None
    P, y = fitted.held_out
    likelihood = np.log(np.maximum(P[np.arange(len(y)), y], MIN_PROBABILITY)).mean()
    return HeldOutScore(float((P.argmax(1) != y).mean()), float(likelihood))


def _scratch_is_better(found: HeldOutScore, base: HeldOutScore, *, grey: bool) -> bool:
    """Return whether a net from scratch is expected to be better than an encoder with the score `found`.

    Baseline features are worse than a trained net, and images in grey are often no photos, so there the encoder must be far
    better than the baseline. On 300 images of MNIST with 50 labels it had 23 % errors, and the baseline 27 %.
    """
    if grey and found.error > GREY_FRACTION * base.error:
        return True
    return base.is_better_than(found)


def trial_samples(codes: Array) -> Array:
    """Return the indices of labelled samples and, if there is room, of evenly spaced other ones, in order."""
    labelled, others = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
    if len(labelled) > TRIAL_SAMPLES:
        labelled = labelled[np.linspace(0, len(labelled) - 1, TRIAL_SAMPLES).astype(int)]
    n_others = min(len(others), TRIAL_SAMPLES - len(labelled))
    spaced = others[np.linspace(0, len(others) - 1, n_others).astype(int)] if n_others else others[:0]
    return np.sort(np.concatenate([labelled, spaced]))


def _duration(plan: PlannedEncoder, n_images: int) -> str:
    seconds = plan.seconds(n_images)
    return f"{max(1.0, seconds):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
