"""Choice of a text encoder: what encoder="auto" takes for the texts of a fit, and why, in one line.

The encoders that are installed are tried in the order of `installed_text_encoders`. The first one is taken, unless a later one
predicts held-out labels with fewer errors and a higher likelihood. TF-IDF does so where texts are unlike sentences, such as log
lines, part numbers or a language that the sentence encoders do not know.
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

MOST_TEXTS = {"minilm,use": 20_000}  # a slow encoder is not tried for more texts: these take about five minutes on one core


@dataclass(frozen=True)
class TextEncoderChoice:
    """Choice for the texts of a fit: the name of the encoder, the input with it, and the reason."""

    encoder: str
    fit_input: TextInput
    reason: str

    def __str__(self) -> str:
        return f"encoder: {self.encoder} ({self.reason})"


def choose_text_encoder(
    texts: TextInput, codes: npt.NDArray[np.int64], n_classes: int, candidates: Sequence[str] | None = None
) -> TextEncoderChoice:
    """Return the choice for texts with class codes (n,) that are negative for unlabelled texts.

    `candidates` are names of encoders, the preferred one first; None means those that are installed.
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
        if scores[name].is_better_than(scores[chosen]):
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


def with_features(texts: TextInput, encoder: TextEncoder) -> TextInput:
    """Return the texts with their features by an encoder."""
    return texts.with_encoder(encoder, texts.encode(encoder))
