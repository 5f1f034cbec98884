"""A refit, in a process of its own: a crash or a lack of memory here costs no label.

Called as `python -m samekind.server.jobs.refit_worker FOLDER`; FOLDER/job.json says what is wanted.
Tells how far it is as lines of JSON on stdout, and ends when its parent does (stdin is closed).
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
from samekind.server.jobs.background import end_with_parent
from samekind.server.media.array_images import unique_names
from samekind.server.store.content_hashes import renamed_files
from samekind.server.store.label_store import FileStamp

POLITENESS = 5  # the page comes first


def main(folder: Path) -> None:
    """The model and its answers about all items of the page, in `folder`."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    labels: dict[str, str] = job["labels"]
    renamed: dict[str, str] = {}

    def labels_of(data: UserData) -> list[str | None]:
        names = unique_names(data.names)
        if job["root"] is not None:
            renamed.update(renamed_files(job["root"], [FileStamp(*stamp) for stamp in job["marks"]], names))
        return [labels.get(renamed.get(name, name)) for name in names]

    model, data = refit(Path(job["run"]), labels_of, folder, quick=job["mode"] == "quick", progress=tell)
    tell("answering", 0, 1)
    place = {renamed.get(name, name): k for k, name in enumerate(unique_names(data.names))}
    names: list[str] = job["names"]
    known = set(names)
    new = [name for name in place if name not in known]
    rows = [place.get(name) for name in [*names, *new]]
    f = _rows(model.fitted_proba(), rows, 1.0 / len(model.classes_))
    z = _rows(model.fitted_features(), rows, 0.0)
    words = {
        **job["words"],
        "classes": [str(label) for label in model.classes_],
        "new": new,
        "renamed": renamed,
        "cost": model.cost_,
    }
    write_predictions(folder, f, z, words)


def _rows(array: npt.NDArray[Any], rows: Sequence[int | None], value: float) -> npt.NDArray[np.float32]:
    """Rows in the order of the page; items whose file is gone have no answer."""
    answer = np.full((len(rows), array.shape[1]), value, dtype=np.float32)
    here = [k for k, row in enumerate(rows) if row is not None]
    answer[here] = array[[row for row in rows if row is not None]]
    return answer


def tell(what: str, done: int, total: int) -> None:
    """One line for the parent."""
    sys.stdout.write(json.dumps({"phase": what, "step": done, "total": total}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    end_with_parent()
    with contextlib.suppress(OSError, AttributeError):
        os.nice(POLITENESS)
    try:
        main(Path(sys.argv[1]))
    except SamekindError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        sys.stdout.flush()
        os._exit(2)
    sys.stdout.flush()
    os._exit(0)  # all is written; taking torch apart would only take time
