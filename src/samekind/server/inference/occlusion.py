"""Word effects: how the probability of a class changes when a word is removed from a text (occlusion).

The model itself predicts the text without each word, so the effects are exact, and not an explanation by another model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from samekind.data.texts import text_array

Floats = npt.NDArray[np.float32]
Predict = Callable[[npt.NDArray[np.object_]], Floats]  # from texts (n,) to class probabilities (n, C)

MAX_UNITS = 64  # in a text with more words than this, groups of several words are removed
MAX_CHARACTERS = 500_000  # largest number of characters in all texts that are predicted, which limits the time for a long text
WORD = re.compile(r"\S+")
CHARACTER = re.compile(r"\S")  # used for scripts without spaces, in which a "word" may be a whole sentence
LONGEST_WORD = 30  # a word with more characters is divided into its characters


@dataclass(frozen=True)
class WordEffect:
    """One or several words, by their positions in the text, and the probability of the class without these words."""

    start: int
    end: int
    without: float


def word_effects(predict: Predict, text: str, column: int) -> tuple[float, list[WordEffect]]:
    """Return the predicted probability of the class in `column` for a text, and the probability without each of its words."""
    spans = word_spans(text, min(MAX_UNITS, max(2, MAX_CHARACTERS // max(1, len(text)))))
    without = [text[:start] + text[end:] for start, end in spans]
    p = predict(text_array([text, *without]))[:, column]
    return float(p[0]), [WordEffect(start, end, float(p_i)) for (start, end), p_i in zip(spans, p[1:], strict=True)]


def word_spans(text: str, most: int = MAX_UNITS) -> list[tuple[int, int]]:
    """Return (start, end) of each word. If there are more than `most` words, return those of as many groups of words."""
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
