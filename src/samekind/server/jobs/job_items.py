"""Items of a job in a child process: maps each item to its row of the data, and each row to its label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.readers.reader import UserData
from samekind.server.media.array_images import unique_names
from samekind.server.store.batches import ItemFileStamp
from samekind.server.store.content_hashes import find_renamed_files


class JobItems:
    """Items of a job, and the row of the data that each item has. They are matched when `labels_of` gets the data.

    `renamed` maps the new name of each renamed file to its old name. `new` lists the items of the data that are not in the job.
    """

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._job = job
        self.renamed: dict[str, str] = {}
        self.new: list[str] = []
        self._names: list[str] = []  # item name of each row; a renamed file has its old name
        self._rows: list[int | None] = []  # row of each item; None if its file is gone

    def labels_of(self, data: UserData) -> list[str | None]:
        """Match the items with the rows of the data, and return the label of each row."""
        names, job = unique_names(data.names), self._job
        if job["root"] is not None:
            stamps = [ItemFileStamp(*stamp) for stamp in job["file_stamps"]]
            self.renamed.update(find_renamed_files(job["root"], stamps, names))
        self._names = [self.renamed.get(name, name) for name in names]
        row = {name: k for k, name in enumerate(self._names)}
        known = set(job["names"])
        self.new = [name for name in row if name not in known]
        self._rows = [row.get(name) for name in [*job["names"], *self.new]]
        return self.labels_in(job["labels"])

    def labels_in(self, labels: Mapping[str, str]) -> list[str | None]:
        """Return the label of each row, from labels {item name: class name}."""
        return [labels.get(name) for name in self._names]

    def by_item(self, array: npt.NDArray[Any], value: float, *, with_new: bool = True) -> npt.NDArray[np.float32]:
        """Return the rows of an array in the order of the items. An item whose file is gone gets `value` in all columns."""
        rows = self._rows if with_new else self._rows[: len(self._job["names"])]
        ordered = np.full((len(rows), array.shape[1]), value, dtype=np.float32)
        present = [k for k, row in enumerate(rows) if row is not None]
        ordered[present] = array[[row for row in rows if row is not None]]
        return ordered
