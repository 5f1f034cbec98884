"""Every exception and warning that samekind raises.

    SamekindError
    ├── DataError        X, or a file of data, cannot be used (also a ValueError)
    │   └── NonNumericError  X holds things that are not numbers (also a TypeError)
    ├── LabelError       y cannot be used as it is            (also a ValueError)
    ├── SettingError     a setting, method or net is unknown  (also a ValueError)
    ├── DivergedError    a loss term stopped being finite     (also an ArithmeticError)
    ├── DownloadError    a data set could not be fetched
    ├── ModelFileError   a saved model cannot be read or written
    ├── CheckpointError  a run cannot be taken up or saved
    ├── WorkerLostError another process of the run is gone
    ├── StoreError       the labels of a page cannot be read or written
    ├── RequestError     a request to the page cannot be answered; `status` is that of HTTP
    └── Interrupted      a run was stopped from outside; `exit_code` is what a command should end with
    CollapseWarning      training goes on, but every input gets the same answer
    CheckpointWarning    training goes on, but a checkpoint is damaged or could not be written
    UnreachableWarning     a graph is solved, but some of its rows have no way to any label

A message says what was found, what was expected, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SamekindError(Exception):
    """The root: catch this to catch everything raised on purpose."""


class DataError(SamekindError, ValueError):
    """X, or a file of data, cannot be used as it is."""


class NonNumericError(DataError, TypeError):
    """X holds things that are not numbers."""


class LabelError(SamekindError, ValueError):
    """y cannot be used as it is."""


class SettingError(SamekindError, ValueError):
    """A setting, a method or a net is unknown or out of range."""


class DivergedError(SamekindError, ArithmeticError):
    """A loss term stopped being finite."""


class DownloadError(SamekindError):
    """A data set could not be fetched."""


class ModelFileError(SamekindError):
    """A saved model cannot be read or written."""


class CheckpointError(SamekindError):
    """A run cannot be taken up or saved."""


class WorkerLostError(SamekindError):
    """Another process of the run is gone."""


class StoreError(SamekindError):
    """The labels of a page cannot be read or written."""


class RequestError(SamekindError):
    """A request to the page cannot be answered. The status is that of HTTP; `more` goes into the answer beside the text."""

    def __init__(self, status: int, detail: str, **more: object) -> None:
        super().__init__(status, detail)
        self.status, self.detail, self.more = status, detail, more

    def __str__(self) -> str:
        return self.detail


class Interrupted(SamekindError):
    """A run was stopped from outside. The exit code is the shell's for that signal: 130 for SIGINT, 143 for SIGTERM."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message, signal)
        self.message = message
        self.exit_code = 128 + signal

    def __str__(self) -> str:
        return self.message


class CollapseWarning(UserWarning):
    """The classifier gives every input the same answer."""


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged or could not be written."""


class UnreachableWarning(UserWarning):
    """Some rows of a graph have no way to any label."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' for a name close to a known one, else the list of what is known."""
    known = sorted(set(known))
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
