"""Choice of an image encoder: decides which encoder encoder="auto" uses for the images of a fit, and says why in one line.

The number of images, their size and the time determine which encoder is tried. Held-out labels then decide whether it is used.
For that, the stacked ensemble is fitted to its features and to the baseline features, which need no training. If the baseline
features predict held-out labels with fewer errors and a higher likelihood, the images are unlike photos, for example digits or
spectrograms. Then a network is trained from scratch. For grey images, the encoder is only used if it makes at most half as many
errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from samekind.clock import Clock
from samekind.data.target_shape import NATIVE_SIDE, SIDE
from samekind.nets.encoders.plan import SMALLEST_ENCODED, PlannedEncoder, plan_encoder, plan_within
from samekind.preprocessing.baseline_features import compute_baseline_features
from samekind.preprocessing.encoding_limit import EncodingLimit, EncodingTooSlow
from samekind.stacking.one_thread import one_thread
from samekind.stacking.stacked_ensemble import fit_stacked_ensemble

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Encode = Callable[[str, Array], Floats]  # from (name of an encoder, images) to features

ALL_SAMPLES = 4000  # with up to this many images, the trial uses all of them, and the fit uses their features
TRIAL_SAMPLES = 1000  # number of images in the trial if there are more; labelled ones are taken first
# for grey images, the errors with the encoder may be at most this fraction of the errors with baseline features
GREY_FRACTION = 0.5
UNLABELLED_SECONDS = 300.0  # seconds that encoding may take for an unlabelled project, because its page starts afterwards
MIN_PROBABILITY = 1e-6


@dataclass(frozen=True)
class EncoderChoice:
    """Choice for the images of a fit: the name of an encoder, or None for a network from scratch, and the reason in words."""

    encoder: str | None
    reason: str
    features: Floats | None = None  # features of all images, if the trial has computed them
    side: int | None = None  # side to which images are reduced for a network from scratch; None: they are not reduced

    def __str__(self) -> str:
        return f"encoder: {self.encoder or 'none, a net is trained from scratch'} ({self.reason})"


@dataclass(frozen=True)
class HeldOutScore:
    """Score of predictions of held-out labels: the fraction that is wrong, and the mean log-likelihood."""

    error: float
    likelihood: float

    def is_better_than(self, other: HeldOutScore) -> bool:
        """Return whether this score has fewer errors and a higher likelihood than the other."""
        return self.error < other.error and self.likelihood > other.likelihood

    def percent(self) -> str:
        """Return the fraction of wrong predictions as a text, such as "12 %"."""
        return f"{100 * self.error:.0f} %"


def choose_encoder(
    images: Array,
    codes: Array,
    n_classes: int,
    minutes: float | None,
    encode: Encode,
    limit: EncodingLimit | None = None,
) -> EncoderChoice:
    """Return the choice for images (n, H, W, C) or vectors. `codes` (n,) are class indices, negative for unlabelled samples.

    With a limit, `encode` may raise EncodingTooSlow. Then a faster encoder is tried, and tests that would take too long are
    left out.
    """
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
    plan, features = _encode_in_time(plan, some, n, encode, limit)
    if plan is None or features is None:
        return EncoderChoice(None, f"{what}; no encoder is fast enough for {minutes:g} minutes", side=side)
    found, base = _held_out_scores(features, some, codes[trial], n_classes, limit)
    whole = features if len(trial) == n else None
    if found is None or base is None:
        if channels == 1:
            return EncoderChoice(None, f"{what}; too few labels or too little time to test an encoder", side=side)
        why = "too few labels" if limit is None or not limit.is_half_over() else "too little time"
        return EncoderChoice(plan.name, f"{what}, about {_duration(plan, n)}; {why} to test it", whole)
    tested = f"held-out labels: {found.percent()} wrong with {plan.name}, {base.percent()} with features of the pixels"
    if _scratch_is_better(found, base, grey=channels == 1):
        return EncoderChoice(None, f"{what}; {tested}", side=side)
    return EncoderChoice(plan.name, f"{what}, about {_duration(plan, n)}; {tested}", whole)


def _encode_in_time(
    plan: PlannedEncoder | None, images: Array, n: int, encode: Encode, limit: EncodingLimit | None
) -> tuple[PlannedEncoder | None, Floats | None]:
    """Return the encoder and the features of the images: the planned encoder, or a faster one if that is too slow."""
    while plan is not None:
        try:
            return plan, encode(plan.name, images)
        except EncodingTooSlow as slow:
            assert limit is not None
            side = min(images.shape[1:3])
            plan = plan_within(limit.seconds_left(), n, side, slowdown=slow.slowdown, below=plan.gflop)
    return None, None


def _held_out_scores(
    features: Floats, images: Array, codes: Array, n_classes: int, limit: EncodingLimit | None
) -> tuple[HeldOutScore | None, HeldOutScore | None]:
    """Return the scores of the features and of the baseline features; None if there are too few labels or too little time."""
    if limit is not None and limit.is_half_over():
        return None, None
    clock = Clock()
    found = held_out_score(features, codes, n_classes)
    # after the test of the baseline features, the fit itself takes as long as the test of the features
    if limit is not None and not limit.has_room_for(2.0 * clock.seconds()):
        return found, None
    return found, held_out_score(compute_baseline_features(images), codes, n_classes)


def encoder_without_labels(images: Array) -> str | None:
    """Return the name of the encoder for the images of an unlabelled project; None for baseline features.

    Baseline features are used for grey images, because without labels it is unknown whether an encoder suits them, and for very
    many images.
    """
    if unsuitable_for_encoders(images) is not None or images.shape[3] == 1:
        return None
    plan = plan_encoder(len(images), min(images.shape[1:3]))
    return plan.name if plan is not None and plan.seconds(len(images)) <= UNLABELLED_SECONDS else None


def unsuitable_for_encoders(images: Array) -> str | None:
    """Return the reason why a pretrained encoder cannot be used for these samples; None if it can."""
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        return "the samples are no images in grey or colour"
    if min(images.shape[1:3]) < SMALLEST_ENCODED:
        return f"images of {images.shape[1]} x {images.shape[2]} are too small"
    if images.dtype != np.uint8 and not (float(images.min()) >= 0.0 and float(images.max()) <= 1.0):
        return "the values are neither bytes nor between 0 and 1"
    return None


def held_out_score(features: Floats, codes: Array, n_classes: int) -> HeldOutScore | None:
    """Return how well the stacked ensemble predicts held-out labels from these features; None if there are too few labels."""
    if len(np.unique(codes[codes >= 0])) < n_classes:
        return None
    with one_thread():
        fitted = fit_stacked_ensemble(torch.from_numpy(np.array(features)).double(), codes, n_classes, seed=0)
    if fitted.held_out is None:
        return None
    P, y = fitted.held_out
    likelihood = np.log(np.maximum(P[np.arange(len(y)), y], MIN_PROBABILITY)).mean()
    return HeldOutScore(float((P.argmax(1) != y).mean()), float(likelihood))


def _scratch_is_better(found: HeldOutScore, base: HeldOutScore, *, grey: bool) -> bool:
    """Return whether a network from scratch is expected to be better than the encoder with the score `found`.

    `base` is the score with baseline features, which are worse than a trained network. Grey images are often no photos, so for
    them the encoder must be far better than the baseline. On 300 images of MNIST with 50 labels, the encoder had 23 % errors
    and the baseline 27 %.
    """
    if grey and found.error > GREY_FRACTION * base.error:
        return True
    return base.is_better_than(found)


def trial_samples(codes: Array) -> Array:
    """Return sorted indices of at most TRIAL_SAMPLES samples: labelled ones, and if there is room, evenly spaced others."""
    labelled, others = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
    if len(labelled) > TRIAL_SAMPLES:
        labelled = labelled[np.linspace(0, len(labelled) - 1, TRIAL_SAMPLES).astype(int)]
    n_others = min(len(others), TRIAL_SAMPLES - len(labelled))
    spaced = others[np.linspace(0, len(others) - 1, n_others).astype(int)] if n_others else others[:0]
    return np.sort(np.concatenate([labelled, spaced]))


def _duration(plan: PlannedEncoder, n_images: int) -> str:
    seconds = plan.seconds(n_images)
    return f"{max(1.0, seconds):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
