"""Refits: one at a time, each in a child process that can be stopped.

The folder of a new model gets its name when it is complete.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from typing_extensions import NotRequired, TypedDict

from samekind.errors import ModelFileError, RequestError, SamekindError
from samekind.files.io import atomic_write
from samekind.files.manifest import read_predictions_manifest
from samekind.server.inference.active_model import ActiveModel
from samekind.server.inference.ranking import changed_predictions
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.store.label_store import now
from samekind.server.unlabelled_project import describe_missing_labels

LOG_LINES = 20
UNFINISHED_MODEL = re.compile(r"model-\d+\.part")
MAX_PAIRS = 20  # largest number of pairs (old class, new class) in the list of changed predictions

Mode = Literal["quick", "full"]


class ClassChange(TypedDict):
    """Number of items whose predicted class changed from one class to another, as JSON."""

    from_class: int
    to_class: int
    n: int


class PredictionChanges(TypedDict):
    """How the predictions differ from those of the previous model, as JSON."""

    n: int
    by_pair: list[ClassChange]


class JobState(TypedDict):
    """Progress of a refit, as JSON. Without a refit, it has only the field `state`."""

    state: Literal["idle", "running", "done", "failed", "cancelled"]
    id: NotRequired[str]
    mode: NotRequired[Mode]
    labels_seq: NotRequired[int]
    version: NotRequired[int]
    phase: NotRequired[str]
    step: NotRequired[int]
    total: NotRequired[int]
    error: NotRequired[str | None]
    metrics: NotRequired[dict[str, Any]]
    changed: NotRequired[PredictionChanges | None]
    eta_s: NotRequired[float | None]
    seconds: NotRequired[float]
    log_tail: NotRequired[list[str]]


@dataclass
class RefitJob:
    """A refit with its progress."""

    id: str
    mode: Mode
    labels_seq: int
    version: int
    state: Literal["running", "done", "failed", "cancelled"] = "running"
    phase: str = "starting"
    step: int = 0
    total: int = 0
    error: str | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    changed: PredictionChanges | None = None
    started: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    phase_start: tuple[float, int] = (0.0, 0)  # time and step number at which the present phase began

    def update(self, message: dict[str, Any]) -> None:
        """Update the progress with a message from the child process."""
        if "error" in message:
            self.error = message["error"]
            return
        if message["phase"] != self.phase:
            self.phase_start = (time.monotonic(), message["step"])
        self.phase, self.step, self.total = message["phase"], message["step"], message["total"]

    def eta(self) -> float | None:
        """Return the estimated seconds until the present phase ends; None if there is no estimate yet."""
        began, first = self.phase_start
        if self.state != "running" or self.step <= first:
            return None
        return round((self.total - self.step) * (time.monotonic() - began) / (self.step - first), 1)

    def to_json(self) -> JobState:
        """Return the progress as JSON."""
        seconds = time.monotonic() - self.started if self.seconds is None else self.seconds
        return {
            "id": self.id,
            "mode": self.mode,
            "labels_seq": self.labels_seq,
            "version": self.version,
            "state": self.state,
            "phase": self.phase,
            "step": self.step,
            "total": self.total,
            "error": self.error,
            "metrics": self.metrics,
            "changed": self.changed,
            "eta_s": self.eta(),
            "seconds": round(seconds, 1),
            "log_tail": list(self.log),
        }


class RefitJobs:
    """Refits of a run, of which at most one is running."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.job: RefitJob | None = None
        self._child: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None
        if not session.read_only:
            for unfinished in (path for path in session.folder.iterdir() if UNFINISHED_MODEL.fullmatch(path.name)):
                shutil.rmtree(unfinished, ignore_errors=True)

    def start(self, mode: Mode) -> RefitJob:
        """Start a refit on the present labels. If one is running, raise RequestError with its progress."""
        with self._lock:
            if self.job is not None and self.job.state == "running":
                raise RequestError(409, "A refit is running already.", job=self.job.to_json())
            request = self.request(mode)
            version = max(self.session.versions(), default=1) + 1
            folder = self.session.folder / f"model-{version}.part"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            atomic_write(folder / "job.json", json.dumps(request).encode(), ModelFileError)
            self.job = RefitJob(secrets.token_hex(6), mode, request["metadata"]["labels_seq"], version)
            self._child = subprocess.Popen(
                [sys.executable, "-m", "samekind.server.jobs.refit_worker", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(_n_threads())},
            )
            self._watcher = threading.Thread(target=self._watch, args=(self.job, self._child), daemon=True)
            self._watcher.start()
            return self.job

    def cancel(self, job_id: str) -> RefitJob:
        """Stop a refit and return it. The model that is active now stays active."""
        with self._lock:
            if self.job is None or self.job.id != job_id:
                raise RequestError(404, "There is no such refit.")
            if self.job.state == "running" and self._child is not None:
                self.job.state = "cancelled"
                self._child.kill()
        self.wait(10.0)
        return self.job

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the running refit has ended, but at most `seconds`."""
        if self._watcher is not None:
            self._watcher.join(seconds)

    def close(self) -> None:
        """Stop a running refit."""
        with suppress(RequestError):
            if self.job is not None:
                self.cancel(self.job.id)

    def request(self, mode: Mode) -> dict[str, Any]:
        """Return the content of job.json for a refit: the present labels, and the metadata for predictions.json."""
        store = self.session.store
        seq, rows = store.snapshot()
        use_audit = store.meta(label_classes.AUDIT_KEY) == "yes"
        names = label_classes.names(store)
        labels = label_classes.training_labels(store, rows)
        if not self.session.predictions.trained and (missing := describe_missing_labels(store, labels)) is not None:
            raise RequestError(409, missing)
        if len(set(labels.values())) < 2:
            raise RequestError(409, "A fit needs labels of two classes. Label at least one image of another class.")
        metadata = {
            "labels_seq": seq,
            "mode": mode,
            "created": now(),
            "audit_used": use_audit and any(row["source"] == "audit" for row in rows),
            "metrics": {"n_labelled": len(labels), "n_classes": len(set(labels.values()))},
        }
        root = self.session.root
        return {
            "run": str(self.session.run.resolve()),
            "root": None if root is None else str(root),
            "mode": mode,
            "names": store.names,
            "file_stamps": store.file_stamps(),
            "labels": labels,
            "metadata": metadata,
            "class_names": names,
        }

    # ---------------------------------------------------------------- monitoring of the child process

    def _watch(self, job: RefitJob, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            try:
                job.update(json.loads(line))
            except (ValueError, KeyError, TypeError):
                job.log.append(line.rstrip()[:500])
        code = child.wait()
        if child.stdin is not None:
            with suppress(OSError):
                child.stdin.close()
        child.stdout.close()
        try:
            if job.state == "running" and code == 0:
                self._adopt(job)
        except (SamekindError, OSError) as error:
            job.error = str(error)
        finally:
            job.seconds = time.monotonic() - job.started
            if job.state == "running":
                job.state = "failed"
                job.error = job.error or f"It ended without a model (exit code {code}). The active model stays active."
            shutil.rmtree(self.session.folder / f"model-{job.version}.part", ignore_errors=True)

    def _adopt(self, job: RefitJob) -> None:
        """Make the new model the active one."""
        session = self.session
        part = session.folder / f"model-{job.version}.part"
        metadata = read_predictions_manifest(part)
        # The model knows the class names at the start of the refit, which are in job.json. Classes may have been renamed since
        # then.
        names = json.loads((part / "job.json").read_text(encoding="utf-8"))["class_names"]
        ids = {name: int(class_id) for class_id, name in names.items()}
        metadata["class_ids"] = [ids[name] for name in metadata["classes"]]
        metadata["metrics"]["seconds"] = round(time.monotonic() - job.started, 1)
        atomic_write(part / "predictions.json", (json.dumps(metadata, indent=2) + "\n").encode(), ModelFileError)
        (part / "job.json").unlink()
        if metadata["renamed"]:
            items = {name: i for i, name in enumerate(session.store.names)}
            session.store.rename_items({items[old]: new for new, old in metadata["renamed"].items()})
        if metadata["new"]:
            session.add_items(metadata["new"])
        part.rename(session.folder / f"model-{job.version}")
        session.activate(job.version)
        active = session.active_model
        job.metrics, job.changed = metadata["metrics"], None if active.previous is None else count_changes(active)
        job.phase, job.state = "done", "done"


def count_changes(model: ActiveModel) -> PredictionChanges:
    """Return how many predictions differ from those of the previous model, and between which classes they changed."""
    predictions, previous = model.predictions, model.previous
    if previous is None:
        return {"n": 0, "by_pair": []}
    changed = np.flatnonzero(changed_predictions(predictions, previous))
    pairs = Counter(zip(previous.pred[changed].tolist(), predictions.pred[changed].tolist(), strict=True))
    listed: list[ClassChange] = [
        {"from_class": old, "to_class": new, "n": count} for (old, new), count in pairs.most_common(MAX_PAIRS)
    ]
    return {"n": len(changed), "by_pair": listed}


def _n_threads() -> int:
    """Return the number of threads for a refit; one core is left for the server."""
    return max(1, (os.cpu_count() or 2) - 1)
