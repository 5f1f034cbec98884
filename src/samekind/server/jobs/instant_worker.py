"""Worker process that updates a fitted model after every label. It keeps the model in memory.

It runs as `python -m samekind.server.jobs.instant_worker FOLDER`, where FOLDER/job.json is a request as for a refit. The worker
fits the model once and then reads requests from stdin, one JSON object per line: {"seq": number of the last event, "labels":
{item name: class name}}. After each request it writes the probabilities of all items to FOLDER/f-0.npy or f-1.npy, and one line
of JSON to stdout. If no request follows for IDLE_SECONDS, it fits again with all labels, and meanwhile answers further
requests. The process ends together with the server, which closes its stdin.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import queue
import signal
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from samekind.errors import ModelFileError, SamekindError
from samekind.estimator import SemiSupervisedClassifier
from samekind.files.io import atomic_write_array
from samekind.project.fit import fit_again
from samekind.project.run_folder import finetuned_encoder
from samekind.server.jobs.job_items import JobItems

NICENESS = 5  # the process gets a lower priority than the server, because the server must respond quickly
IDLE_SECONDS = 2.0

Labels = list[str | None]


class InstantWorker:
    """The fitted model and its labels, and the fit with all labels that may be running in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job: dict[str, Any] = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        self.items = JobItems(self.job)
        self.executor = ThreadPoolExecutor(1)
        self.seq: int = self.job["metadata"]["labels_seq"]
        self.n_written = 0
        self.refitting: Future[SemiSupervisedClassifier] | None = None
        began = time.monotonic()
        self.encoder = finetuned_encoder(Path(self.job["run"]))
        self.model, _, self.y = fit_again(Path(self.job["run"]), self.items.labels_of, folder, encoder=self.encoder)
        self.fitted_y = self.y  # labels of the last complete fit
        if self.model.updates_ is None:
            raise ModelFileError("this model cannot be updated after each label; press r to refit")
        self.report("fit", began)

    def report(self, kind: str, began: float) -> None:
        """Write the probabilities of all items to a file, and its name as a message to the server."""
        model, name = self.model, f"f-{self.n_written % 2}.npy"  # the server may still be reading the other file
        f = self.items.by_item(model.fitted_proba(), 1.0 / len(model.classes_), with_new=False)
        atomic_write_array(self.folder / name, f, ModelFileError)
        self.n_written += 1
        # a fine-tuned encoder was trained on the labels of its fit, so these labels cannot tell how good the model is
        known = self.encoder is None and model.quality_ is not None
        quality = model.quality_.to_json() if known and model.quality_ is not None else None
        classes = [str(label) for label in model.classes_]
        seconds = round(time.monotonic() - began, 3)
        write_line({"kind": kind, "seq": self.seq, "file": name, "classes": classes, "seconds": seconds, "quality": quality})

    def update(self, seq: int, labels: dict[str, str]) -> None:
        """Update the model to the labels {item name: class name}."""
        began, y = time.monotonic(), self.items.labels_in(labels)
        change_labels(self.model, self.y, y)
        self.y, self.seq = y, seq
        self.report("update", began)

    def start_refit(self) -> None:
        """Start a fit with all labels in a thread. Do nothing if such a fit is running, or if there is no new label."""
        if self.refitting is None and self.y != self.fitted_y:
            self.fitted_y = self.y
            self.refitting = self.executor.submit(copy.copy(self.model).refit)

    def take_refit(self) -> None:
        """Replace the model by that of the fit in the thread, if it is complete.

        Update it for the labels that came meanwhile.
        """
        if self.refitting is not None and self.refitting.done():
            began, model = time.monotonic(), self.refitting.result()
            self.refitting = None
            change_labels(model, self.fitted_y, self.y)
            self.model = model
            self.report("refit", began)

    def serve(self, requests: queue.Queue[dict[str, Any]]) -> None:
        """Answer requests until the process ends."""
        while True:
            request = None
            with contextlib.suppress(queue.Empty):
                request = requests.get(timeout=IDLE_SECONDS if self.refitting is None else IDLE_SECONDS / 10)
            try:
                if request is not None:
                    self.update(request["seq"], request["labels"])
                elif self.refitting is None:
                    self.start_refit()
                self.take_refit()
            except SamekindError as error:
                write_line({"error": str(error), "seq": self.seq if request is None else request["seq"]})


def change_labels(model: SemiSupervisedClassifier, before: Labels, after: Labels) -> None:
    """Update a model after the labels of all rows have changed from `before` to `after`."""
    changed = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if changed:
        model.update(changed, [after[i] for i in changed])


def write_line(message: dict[str, Any]) -> None:
    """Write a message to the server: one line of JSON."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def read_requests(requests: queue.Queue[dict[str, Any]]) -> None:
    """Put each line of stdin into the queue; end this process when stdin is closed."""
    for line in sys.stdin:
        requests.put(json.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)  # ends the process at once, even if the main thread is computing


def main(folder: Path) -> None:
    """Fit the model, then answer requests until stdin is closed."""
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=read_requests, args=(requests,), daemon=True).start()
    try:
        worker = InstantWorker(folder)
    except SamekindError as error:
        write_line({"error": str(error), "seq": None})
        sys.exit(2)
    worker.serve(requests)


if __name__ == "__main__":
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    main(Path(sys.argv[1]))
