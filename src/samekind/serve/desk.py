"""The desk: all that the endpoints of one server share."""

from __future__ import annotations

from dataclasses import dataclass

from samekind.serve.auth import Keys
from samekind.serve.page import Page


@dataclass
class Desk:
    """The page and the keys to it."""

    page: Page
    keys: Keys

    def close(self) -> None:
        self.page.close()
