"""Clean texts before they are encoded, and cut long texts into pieces. Cleaning removes HTML tags and control characters."""

from __future__ import annotations

import html
import re
import unicodedata
from itertools import pairwise

CLEANING = 1  # version of the cleaning rules; it is part of the fingerprint of each encoder
PIECE_CHARACTERS = 1000  # length of a piece in characters, about 150 to 200 English words
MAX_PIECES = 64  # if a text has more pieces, this many evenly spaced ones are encoded
# names of HTML elements; other words between < and >, such as List<int> or <name@example.org>, are kept as text
TAGS = (
    "a abbr address article aside b big blockquote body br button caption center cite code col dd del details div dl dt em "
    "figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i iframe img input ins kbd label li link main "
    "mark meta nav noscript ol option p pre q s samp section select small span strike strong sub summary sup table tbody td "
    "textarea tfoot th thead time title tr tt u ul video"
).split()
TAG = re.compile(rf"</?(?:{'|'.join(TAGS)})(?:[\s/][^<>]*)?>|<!doctype[^<>]*>", re.IGNORECASE)
HIDDEN = (("<script", "</script>"), ("<style", "</style>"), ("<!--", "-->"))  # parts of HTML that a browser does not show
SPACES = re.compile(r"[\s\x00-\x1f\x7f\u200b\u2060\ufeff]+")


def clean_text(text: str) -> str:
    """Return a text in Unicode form NFC, with single spaces, without HTML tags, and with HTML entities as characters."""
    if "<" in text:
        for begin, end in HIDDEN:
            text = _without_blocks(text, begin, end)
        text = TAG.sub(" ", text)
    if "&" in text:
        text = html.unescape(text)
    # JSON allows half of a surrogate pair, which cannot be encoded as UTF-8; it is replaced
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return SPACES.sub(" ", unicodedata.normalize("NFC", text)).strip()


def _without_blocks(text: str, begin: str, end: str) -> str:
    """Return the text without its parts from `begin` to `end`. A part without an end is kept, so that the time stays linear."""
    lower, kept, at = text.lower(), [], 0
    if len(lower) != len(text):  # a few capital letters become two characters in lower case, which would move all positions
        lower = text
    while (start := lower.find(begin, at)) >= 0 and (stop := lower.find(end, start)) >= 0:
        kept.append(text[at:start])
        at = stop + len(end)
    return " ".join([*kept, text[at:]]) if kept else text


def cut_text(text: str, size: int = PIECE_CHARACTERS, most: int = MAX_PIECES) -> list[str]:
    """Return the pieces of a cleaned text, of about equal length. Pieces end at a space if there is one near."""
    n = -(-len(text) // size)
    if n <= 1:
        return [text]
    edges = [_space_near(text, round(i * len(text) / n), size // 4) for i in range(n + 1)]
    spans = list(pairwise(edges))
    if n > most:
        spans = [spans[round(i * (n - 1) / (most - 1))] for i in range(most)]
    return [text[start:stop].strip() for start, stop in spans]


def _space_near(text: str, at: int, reach: int) -> int:
    """Return the position of the last space before `at`, if it is within `reach` characters; else `at`."""
    if at in (0, len(text)):
        return at
    space = text.rfind(" ", at - reach, at)
    return at if space < 0 else space
