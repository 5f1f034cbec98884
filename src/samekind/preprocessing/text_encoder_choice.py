"""Choice of a text encoder: decides which encoder encoder="auto" uses for the texts of a fit, and says why in one line.

The installed encoders are tried in the order of `installed_text_encoders`. The first one is used, unless a later one predicts
held-out labels clearly better: with a higher likelihood, and with fewer errors by more than a standard error of the difference.
Few labels are a noisy test. TF-IDF does so if texts are unlike sentences, for example log lines,
part numbers, or texts in a language that the sentence encoders do not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from samekind.nets.text.text_encoder import TextEncoder
from samekind.nets.text.text_encoder_names import build_text_encoder, installed_text_encoders
from samekind.preprocessing.encoder_choice import ALL_SAMPLES, HeldOutScore, held_out_score, trial_samples
from samekind.preprocessing.text_input import TextInput

# {slow encoder: largest number of texts for which it is tried}; so many take about seven minutes on one core
MOST_TEXTS = {"minilm,use": 20_000}


@dataclass(frozen=True)
class TextEncoderChoice:
    """Choice for the texts of a fit: the name of the encoder, the input with this encoder, and the reason in words."""

    encoder: str
    fit_input: TextInput
    reason: str

    def __str__(self) -> str:
        return f"encoder: {self.encoder} ({self.reason})"


def choose_text_encoder(
    texts: TextInput, codes: npt.NDArray[np.int64], n_classes: int, candidates: Sequence[str] | None = None
) -> TextEncoderChoice:
    """Return the choice for these texts. `codes` (n,) are class indices, negative for unlabelled texts.

    `candidates` are names of encoders, the preferred one first; by default, those that are installed.
    """
    if candidates is None:
        candidates = [name for name in installed_text_encoders() if len(texts) <= MOST_TEXTS.get(name, len(texts))]
    trial = np.arange(len(texts)) if len(texts) <= ALL_SAMPLES else trial_samples(codes)
    some = texts if len(trial) == len(texts) else texts.part(trial)
    tried: dict[str, TextInput] = {}
    scores: dict[str, HeldOutScore] = {}
    for name in candidates:
        encoder = build_text_encoder(name).fitted(texts.texts)
        tried[name] = with_features(some, encoder)
        score = held_out_score(tried[name].samples(), codes[trial], n_classes)
        if score is None:
            break
        scores[name] = score
    chosen = candidates[0]
    for name in candidates[1:] if len(scores) == len(candidates) else ():
        if is_clearly_better(scores[name], scores[chosen], int((codes[trial] >= 0).sum())):
            chosen = name
    what = f"{len(texts):,} texts"
    if len(scores) < len(candidates):
        reason = f"{what}; too few labels to test it"
    else:
        reason = f"{what}; held-out labels: " + ", ".join(f"{scores[name].percent()} wrong with {name}" for name in candidates)
    found = tried[chosen]
    whole = found.features if len(trial) == len(texts) else None
    assert found.preprocessor.encoder is not None
    return TextEncoderChoice(chosen, texts.with_encoder(found.preprocessor.encoder, whole), reason)


def is_clearly_better(score: HeldOutScore, other: HeldOutScore, n_labels: int) -> bool:
    """Return whether the first score on held-out labels is better than the other by more than its standard error.

    The standard error is that of the difference between both errors.
    """
    variance = (score.error * (1 - score.error) + other.error * (1 - other.error)) / n_labels
    return score.is_better_than(other) and other.error - score.error > variance**0.5


def with_features(texts: TextInput, encoder: TextEncoder) -> TextInput:
    """Return the texts with the features that this encoder computes for them."""
    return texts.with_encoder(encoder, texts.encode(encoder))
