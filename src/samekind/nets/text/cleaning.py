"""Clean texts before they are encoded (tags of HTML, control characters, white space), and cut long ones into pieces."""

from __future__ import annotations

import html
import re
import unicodedata
from itertools import pairwise

CLEANING = 1  # version of the rules below, part of the fingerprint of each encoder
PIECE_CHARACTERS = 1000  # a piece has about this many characters, which are 150 to 200 English words
MAX_PIECES = 64  # of a longer text, this many evenly spaced pieces are encoded
# elements of HTML; other words between < and >, such as List<int> or <name@example.org>, are text
TAGS = (
    "a abbr address article aside b big blockquote body br button caption center cite code col dd del details div dl dt em "
    "figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i iframe img input ins kbd label li link main "
    "mark meta nav noscript ol option p pre q s samp section select small span strike strong sub summary sup table tbody td "
    "textarea tfoot th thead time title tr tt u ul video"
).split()
TAG = re.compile(rf"</?(?:{'|'.join(TAGS)})(?:[\s/][^<>]*)?>|<!doctype[^<>]*>", re.IGNORECASE)
HIDDEN = (("<script", "</script>"), ("<style", "</style>"), ("<!--", "-->"))  # what a browser does not show
SPACES = re.compile(r"[\s\x00-\x1f\x7f\u200b\u2060\ufeff]+")


def clean_text(text: str) -> str:
    """Return a text in Unicode NFC with single spaces, without tags of HTML and with its entities as characters."""
    if "<" in text:
        for begin, end in HIDDEN:
            text = _without_blocks(text, begin, end)
        text = TAG.sub(" ", text)
    if "&" in text:
        text = html.unescape(text)
    # half of a surrogate pair, which JSON allows, cannot be encoded as UTF-8
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return SPACES.sub(" ", unicodedata.normalize("NFC", text)).strip()


def _without_blocks(text: str, begin: str, end: str) -> str:
    """Return the text without the parts from `begin` to `end`; a part without an end stays, so that the time is linear."""
    lower, kept, at = text.lower(), [], 0
    if len(lower) != len(text):  # a few capitals become two characters
        lower = text
    while (start := lower.find(begin, at)) >= 0 and (stop := lower.find(end, start)) >= 0:
        kept.append(text[at:start])
        at = stop + len(end)
    return " ".join([*kept, text[at:]]) if kept else text


def cut_text(text: str, size: int = PIECE_CHARACTERS, most: int = MAX_PIECES) -> list[str]:
    """Return the pieces of a clean text, of about equal length; they end at spaces where there are some."""
    n = -(-len(text) // size)
    if n <= 1:
        return [text]
    edges = [_space_near(text, round(i * len(text) / n), size // 4) for i in range(n + 1)]
    spans = list(pairwise(edges))
    if n > most:
        spans = [spans[round(i * (n - 1) / (most - 1))] for i in range(most)]
    return [text[start:stop].strip() for start, stop in spans]


def _space_near(text: str, at: int, reach: int) -> int:
    """Return the position of the last space before `at`, if it is within `reach` characters."""
    if at in (0, len(text)):
        return at
    space = text.rfind(" ", at - reach, at)
    return at if space < 0 else space
