"""Every exception and warning that samekind raises.

    SamekindError
    ├── DataError        X cannot be used as it is            (also a ValueError)
    │   └── NotNumbersError  X holds things that are not numbers (also a TypeError)
    ├── LabelError       y cannot be used as it is            (also a ValueError)
    ├── SettingError     a setting, method or net is unknown  (also a ValueError)
    ├── DivergedError    a loss term stopped being finite     (also an ArithmeticError)
    └── ModelFileError   a saved model cannot be read or written
    CollapseWarning      training goes on, but every input gets the same answer

A message says what was found, what was expected, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SamekindError(Exception):
    """The root: catch this to catch everything raised on purpose."""


class DataError(SamekindError, ValueError):
    """X cannot be used as it is."""


class NotNumbersError(DataError, TypeError):
    """X holds things that are not numbers."""


class LabelError(SamekindError, ValueError):
    """y cannot be used as it is."""


class SettingError(SamekindError, ValueError):
    """A setting, a method or a net is unknown or out of range."""


class DivergedError(SamekindError, ArithmeticError):
    """A loss term stopped being finite."""


class ModelFileError(SamekindError):
    """A saved model cannot be read or written."""


class CollapseWarning(UserWarning):
    """The classifier gives every input the same answer."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' for a name close to a known one, else the list of what is known."""
    known = sorted(known)
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
