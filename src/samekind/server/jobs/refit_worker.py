"""A refit in a process of its own. If it crashes or runs out of memory, no label is lost.

This module runs as `python -m samekind.server.jobs.refit_worker FOLDER`. FOLDER/job.json, which refit_jobs.py writes, describes
the refit. The process writes its progress to stdout as lines of JSON, and ends when its parent does, because its stdin is then
closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.readers.reader import UserData
from samekind.errors import SamekindError
from samekind.project.fit import refit
from samekind.server.inference.predictions import write_predictions
from samekind.server.jobs.background import exit_with_parent
from samekind.server.media.array_images import unique_names
from samekind.server.store.batches import ItemFileStamp
from samekind.server.store.content_hashes import find_renamed_files

NICENESS = 5  # lower priority than that of the server, which must respond quickly


def main(folder: Path) -> None:
    """Train the model that job.json describes; write the model, and its predictions for all items, to `folder`."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    labels: dict[str, str] = job["labels"]
    renamed: dict[str, str] = {}

    def labels_of(data: UserData) -> list[str | None]:
        names = unique_names(data.names)
        if job["root"] is not None:
            renamed.update(find_renamed_files(job["root"], [ItemFileStamp(*stamp) for stamp in job["file_stamps"]], names))
        return [labels.get(renamed.get(name, name)) for name in names]

    model, data = refit(Path(job["run"]), labels_of, folder, quick=job["mode"] == "quick", progress=report_progress)
    report_progress("predicting", 0, 1)
    place = {renamed.get(name, name): k for k, name in enumerate(unique_names(data.names))}
    names: list[str] = job["names"]
    known = set(names)
    new = [name for name in place if name not in known]
    rows = [place.get(name) for name in [*names, *new]]
    f = _reorder(model.fitted_proba(), rows, 1.0 / len(model.classes_))
    z = _reorder(model.fitted_features(), rows, 0.0)
    metadata = {
        **job["metadata"],
        "classes": [str(label) for label in model.classes_],
        "new": new,
        "renamed": renamed,
        "cost": model.cost_,
    }
    write_predictions(folder, f, z, metadata)


def _reorder(array: npt.NDArray[Any], rows: Sequence[int | None], value: float) -> npt.NDArray[np.float32]:
    """Return the rows of an array in another order. A row of None, for an item whose file is gone, is filled with `value`."""
    ordered = np.full((len(rows), array.shape[1]), value, dtype=np.float32)
    present = [k for k, row in enumerate(rows) if row is not None]
    ordered[present] = array[[row for row in rows if row is not None]]
    return ordered


def report_progress(phase: str, step: int, total: int) -> None:
    """Write a line with the progress to stdout, for the parent process."""
    sys.stdout.write(json.dumps({"phase": phase, "step": step, "total": total}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    exit_with_parent()
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    try:
        main(Path(sys.argv[1]))
    except SamekindError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        sys.exit(2)
