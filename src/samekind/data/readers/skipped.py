"""What was left out of somebody's data, and why: listed, or refused at the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from samekind.errors import DataError


@dataclass(frozen=True)
class Skipped:
    """A file, row or column that could not be used: its name, and the reason in a few words."""

    path: str
    reason: str

    def __str__(self) -> str:
        # repr, because names hold newlines and bytes that are no text
        return f"{self.path!r}: {self.reason}"


def raise_on_skipped(skipped: Iterable[Skipped]) -> None:
    """What strict=True does: the first one is an error."""
    for one in skipped:
        raise DataError(f"{one}. Mend or remove it, or read without strict to leave it out.")
