"""Texts as items: an excerpt for a card, the whole text of an opened item, and the words that a search compares."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from samekind.data.readers.reader import Encoding
from samekind.errors import DataError, RequestError
from samekind.nets.text.cleaning import clean_text
from samekind.server.media.array_images import CHANGED, unique_names
from samekind.server.media.thumbnails import ImageSource

EXCERPT = 400  # number of characters of a text on a card
CLEANED = 10 * EXCERPT  # number of characters that are cleaned to make an excerpt
MAX_SHOWN = 200_000  # largest number of characters that the page shows of an opened text
EMPTY = "(empty)"


class ItemTexts:
    """Texts of the items. They are found by name in the data of the run, which is read when a text is first needed."""

    def __init__(self, manifest: Mapping[str, Any], encoding: Encoding, cache: Path, names: Callable[[], list[str]]) -> None:
        self._data, self._encoding, self._cache, self._names = manifest["config"]["data"], encoding, cache, names
        self._lock = threading.Lock()
        self._texts: dict[str, str] | None = None
        self._folded: list[str] = []

    def full(self, item: int) -> str:
        """Return the text of an item as it is in the data."""
        text = self._read().get(self._names()[item])
        if text is None:
            raise RequestError(404, CHANGED)
        return text

    def excerpt(self, item: int) -> str:
        """Return the beginning of a text, without HTML and in one line."""
        text = clean_text(self.full(item)[:CLEANED]) or EMPTY
        return text if len(text) <= EXCERPT else f"{text[:EXCERPT].rstrip()}…"

    def source(self, item: int) -> ImageSource:
        """Return the source of an image of the excerpt, for places on the page that show only images."""
        excerpt = self.excerpt(item)
        key = hashlib.sha1(self.full(item).encode("utf-8", "surrogatepass")).hexdigest()
        return ImageSource(key, lambda side: excerpt)

    def folded(self) -> list[str]:
        """Return the name and the text of each item in case-folded form, for searches that ignore case."""
        names, texts = self._names(), self._read()
        with self._lock:
            if len(self._folded) != len(names):
                self._folded = [f"{name}\n{texts.get(name, '')}".casefold() for name in names]
            return self._folded

    def _read(self) -> dict[str, str]:
        """Return {name: text} of all items. The data is read at the first call."""
        with self._lock:
            if self._texts is None:
                from samekind.data.user_data import open_like

                try:
                    data = open_like(self._data, self._encoding, cache=self._cache)
                except (DataError, OSError) as error:
                    raise RequestError(404, CHANGED) from error
                self._texts = dict(zip(unique_names(data.names), data.x.tolist(), strict=True))
            return self._texts
