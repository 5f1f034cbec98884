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
from pathlib import Path

from samekind.errors import SamekindError
from samekind.project.fit import refit
from samekind.server.inference.predictions import write_predictions
from samekind.server.jobs.background import exit_with_parent
from samekind.server.jobs.job_items import JobItems

NICENESS = 5  # lower priority than that of the server, which must respond quickly


def main(folder: Path) -> None:
    """Train the model that job.json describes; write the model, and its predictions for all items, to `folder`."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    items = JobItems(job)
    quick = job["mode"] == "quick"
    model, _ = refit(Path(job["run"]), items.labels_of, folder, quick=quick, progress=report_progress)
    report_progress("predicting", 0, 1)
    f = items.by_item(model.fitted_proba(), 1.0 / len(model.classes_))
    z = items.by_item(model.fitted_features(), 0.0)
    metadata = {
        **job["metadata"],
        "classes": [str(label) for label in model.classes_],
        "new": items.new,
        "renamed": items.renamed,
        "cost": model.cost_,
        "updatable": model.model_.updatable,
        "quality": None if model.quality_ is None else model.quality_.to_json(),
    }
    write_predictions(folder, f, z, metadata)


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
