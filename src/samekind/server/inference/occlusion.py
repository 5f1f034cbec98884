"""Word effects: how the probability of a class changes when a word is removed from a text (occlusion).

They are what the model does, not an explanation by another one: the model predicts the text without each word.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from samekind.data.texts import text_array

Floats = npt.NDArray[np.float32]
Predict = Callable[[npt.NDArray[np.object_]], Floats]  # texts (n,) -> probabilities (n, C)

MAX_UNITS = 64  # a text with more words is removed in pieces of several words
MAX_CHARACTERS = 500_000  # of all texts that are predicted, which bounds the time for a long text
WORD = re.compile(r"\S+")
CHARACTER = re.compile(r"\S")  # in scripts without spaces, of which a word may be a whole sentence
LONGEST_WORD = 30  # characters; a longer one is cut into its characters


@dataclass(frozen=True)
class WordEffect:
    """A word or several ones, by their positions in the text, and the probability of the class without them."""

    start: int
    end: int
    without: float


def word_effects(predict: Predict, text: str, column: int) -> tuple[float, list[WordEffect]]:
    """Return the predicted probability of class `column` for a text, and what it is without each word."""
    spans = word_spans(text, min(MAX_UNITS, max(2, MAX_CHARACTERS // max(1, len(text)))))
    without = [text[:start] + text[end:] for start, end in spans]
    p = predict(text_array([text, *without]))[:, column]
    return float(p[0]), [WordEffect(start, end, float(p_i)) for (start, end), p_i in zip(spans, p[1:], strict=True)]


def word_spans(text: str, most: int = MAX_UNITS) -> list[tuple[int, int]]:
    """Return (start, end) of each word; if there are more than `most` words, of as many groups of neighbouring words."""
    spans: list[tuple[int, int]] = []
    for found in WORD.finditer(text):
        if found.end() - found.start() <= LONGEST_WORD:
            spans.append(found.span())
        else:
            spans += [one.span() for one in CHARACTER.finditer(text, *found.span())]
    if len(spans) <= most:
        return spans
    groups = np.array_split(np.arange(len(spans)), most)
    return [(spans[group[0]][0], spans[group[-1]][1]) for group in groups]
