"""The history of a run as TensorBoard events: the same numbers, for people who look at curves there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from samekind.errors import SettingError


class TensorBoardWriter:
    """Writes each record below `folder`; what an earlier sitting wrote from step `start` on is left out of the curves."""

    def __init__(self, folder: str | Path, start: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise SettingError(
                "tensorboard= was asked for, and TensorBoard is not installed. Install samekind[tensorboard], or leave it out: "
                "history= writes the same numbers as JSON lines."
            ) from error
        self._writer: Any = SummaryWriter(str(folder), purge_step=start)

    def __call__(self, record: Mapping[str, Any]) -> None:
        for name, number in scalars(record):
            self._writer.add_scalar(name, number, record["step"])

    def close(self) -> None:
        self._writer.close()


def scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Every number of a record but its step, by a name such as loss/supervised or class_shares/0."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}/{name}", number) for name, number in value.items())
        elif isinstance(value, list):
            yield from ((f"{key}/{place}", number) for place, number in enumerate(value))
        elif key != "step":
            yield key, value
