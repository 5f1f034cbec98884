"""All exceptions and warnings that samekind raises.

    SamekindError
    ├── DataError            X or a data file is invalid            (also a ValueError)
    │   └── NonNumericError  X contains values that are not numbers (also a TypeError)
    ├── LabelError           y is invalid                           (also a ValueError)
    ├── SettingError         a setting is unknown or out of range   (also a ValueError)
    ├── DivergedError        a loss term is NaN or infinite         (also an ArithmeticError)
    ├── DownloadError        a dataset could not be downloaded
    ├── ModelFileError       a saved model or run cannot be read or written
    ├── CheckpointError      a checkpoint cannot be read, written or resumed
    ├── WorkerLostError      another process of a distributed run has died
    ├── StoreError           the label store of the server cannot be read or written
    ├── RequestError         an HTTP request is invalid; `status` is the HTTP status
    └── Interrupted          a signal stopped a training or the server; `exit_code` is that of the command
    CollapseWarning          training continues, but the model predicts one class for every sample
    CheckpointWarning        training continues, but a checkpoint is damaged or could not be written
    UnreachableWarning       the graph is solved, but some samples have no path to a labelled sample

An error message says what was found, what was expected, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SamekindError(Exception):
    """Base class of all errors that samekind raises."""


class DataError(SamekindError, ValueError):
    """X or a data file is invalid; also a ValueError."""


class NonNumericError(DataError, TypeError):
    """X contains values that are not numbers; also a TypeError."""


class LabelError(SamekindError, ValueError):
    """The labels y are invalid; also a ValueError."""


class SettingError(SamekindError, ValueError):
    """A setting, method or network is unknown, or a value is out of range; also a ValueError."""


class DivergedError(SamekindError, ArithmeticError):
    """A loss term is NaN or infinite; also an ArithmeticError."""


class DownloadError(SamekindError):
    """A dataset could not be downloaded."""


class ModelFileError(SamekindError):
    """A saved model or run cannot be read or written."""


class CheckpointError(SamekindError):
    """A checkpoint cannot be read, written or resumed."""


class WorkerLostError(SamekindError):
    """Another process of a distributed run has died."""


class StoreError(SamekindError):
    """The label store of the server cannot be read or written."""


class RequestError(SamekindError):
    """An HTTP request is invalid. `status` is the HTTP status, and `more` are further fields of the response body."""

    def __init__(self, status: int, detail: str, **more: object) -> None:
        super().__init__(status, detail)
        self.status, self.detail, self.more = status, detail, more

    def __str__(self) -> str:
        return self.detail


class Interrupted(SamekindError):
    """A signal stopped a training or the server.

    `exit_code` is 128 + the number of the signal: 130 for SIGINT, 143 for SIGTERM.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message, signal)
        self.message = message
        self.exit_code = 128 + signal

    def __str__(self) -> str:
        return self.message


class CollapseWarning(UserWarning):
    """The model predicts one class for every sample."""


class ClassFractionWarning(UserWarning):
    """The predicted class fractions of the unlabelled samples are far from every estimate of these fractions."""


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged or could not be written."""


class ShortTrainingWarning(UserWarning):
    """The training is too short for the method to work as in its paper."""


class UnreachableWarning(UserWarning):
    """Some samples of a graph have no path to a labelled sample."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean ...?" with the known name that is most similar to `name`; if none is similar, list all known
    names.
    """
    known = sorted(set(known))
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
