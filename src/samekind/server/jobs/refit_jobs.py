"""Refits: one at a time, in a child process, watched and stoppable; a model appears whole by renaming, or not at all."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from samekind.errors import ModelFileError, RequestError, SamekindError
from samekind.io import atomic_write
from samekind.manifest import read_predictions_manifest
from samekind.server.inference.ranking import changed
from samekind.server.session import Session
from samekind.server.store import label_classes
from samekind.server.store.label_store import now
from samekind.server.unlabelled_project import missing

LINES = 20  # of the log that are shown
PAIRS = 20  # changes from one class to another that are listed


@dataclass
class RefitJob:
    """A refit and how far it is."""

    id: str
    mode: str
    labels_seq: int
    version: int
    state: str = "running"  # running, done, failed, cancelled
    phase: str = "starting"
    step: int = 0
    total: int = 0
    error: str | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    changed: dict[str, Any] | None = None
    started: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))
    in_phase: tuple[float, int] = (0.0, 0)  # when the phase began, and at which step

    def hear(self, words: dict[str, Any]) -> None:
        """One line of the child."""
        if "error" in words:
            self.error = words["error"]
            return
        if words["phase"] != self.phase:
            self.in_phase = (time.monotonic(), words["step"])
        self.phase, self.step, self.total = words["phase"], words["step"], words["total"]

    def eta(self) -> float | None:
        """Seconds left of this phase, from its own speed; None if nothing can be said yet."""
        began, first = self.in_phase
        if self.state != "running" or self.step <= first:
            return None
        return round((self.total - self.step) * (time.monotonic() - began) / (self.step - first), 1)

    def to_json(self) -> dict[str, Any]:
        known = ("id", "mode", "labels_seq", "version", "state", "phase", "step", "total", "error", "metrics", "changed")
        seconds = time.monotonic() - self.started if self.seconds is None else self.seconds
        more = {"eta_s": self.eta(), "seconds": round(seconds, 1), "log_tail": list(self.log)}
        return {**{name: getattr(self, name) for name in known}, **more}


class RefitJobs:
    """The refits of a page."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.job: RefitJob | None = None
        self._child: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None
        if not session.read_only:
            for left_over in session.folder.glob("model-*.part"):
                shutil.rmtree(left_over, ignore_errors=True)

    def start(self, mode: str) -> RefitJob:
        """Begins a refit on the labels as they are now. Refused while one is running, with how far that is."""
        with self._lock:
            if self.job is not None and self.job.state == "running":
                raise RequestError(409, "A refit is running already.", job=self.job.to_json())
            wanted = self._wanted(mode)
            version = max(self.session.versions(), default=1) + 1
            folder = self.session.folder / f"model-{version}.part"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            atomic_write(folder / "job.json", json.dumps(wanted).encode(), ModelFileError)
            self.job = RefitJob(secrets.token_hex(6), mode, wanted["words"]["labels_seq"], version)
            self._child = subprocess.Popen(
                [sys.executable, "-m", "samekind.server.jobs.refit_worker", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(_cores())},
            )
            self._watcher = threading.Thread(target=self._watch, args=(self.job, self._child), daemon=True)
            self._watcher.start()
            return self.job

    def cancel(self, number: str) -> RefitJob:
        """Stops a refit; the model in use stays."""
        with self._lock:
            if self.job is None or self.job.id != number:
                raise RequestError(404, "There is no such refit.")
            if self.job.state == "running" and self._child is not None:
                self.job.state = "cancelled"
                self._child.kill()
        self.wait(10.0)
        return self.job

    def wait(self, seconds: float | None = None) -> None:
        """Until the refit that is running has ended, or for so long."""
        if self._watcher is not None:
            self._watcher.join(seconds)

    def close(self) -> None:
        with suppress(RequestError):
            if self.job is not None:
                self.cancel(self.job.id)

    # ---------------------------------------------------------------- what is asked for

    def _wanted(self, mode: str) -> dict[str, Any]:
        """Labels as they are now, and at which event that is."""
        store = self.session.store
        seq, rows = store.snapshot()
        use_audit = store.meta(label_classes.AUDIT_KEY) == "yes"
        names = label_classes.names(store)
        labels = label_classes.learned_from(store, rows)
        if not self.session.predictions.trained and (request := missing(store, labels)) is not None:
            raise RequestError(409, request)
        if len(set(labels.values())) < 2:
            raise RequestError(
                409, "Labels of two classes are needed to learn from. Label at least one image of another class."
            )
        words = {
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
            "marks": store.file_stamps(),
            "labels": labels,
            "words": words,
            "numbers": names,
        }

    # ---------------------------------------------------------------- while it runs, and after

    def _watch(self, job: RefitJob, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            try:
                job.hear(json.loads(line))
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
                job.error = job.error or f"It ended without a model (exit code {code}); what was in use still is."
            shutil.rmtree(self.session.folder / f"model-{job.version}.part", ignore_errors=True)

    def _adopt(self, job: RefitJob) -> None:
        """Takes the new model into use."""
        session = self.session
        part = session.folder / f"model-{job.version}.part"
        words = read_predictions_manifest(part)
        numbers = json.loads((part / "job.json").read_text(encoding="utf-8"))["numbers"]
        by_name = {name: int(number) for number, name in numbers.items()}  # names as they were when it began
        words["class_ids"] = [by_name[name] for name in words["classes"]]
        words["metrics"]["seconds"] = round(time.monotonic() - job.started, 1)
        atomic_write(part / "predictions.json", (json.dumps(words, indent=2) + "\n").encode(), ModelFileError)
        (part / "job.json").unlink()
        if words["renamed"]:
            number = {name: i for i, name in enumerate(session.store.names)}
            session.store.rename_images({number[old]: new for new, old in words["renamed"].items()})
        if words["new"]:
            session.add_items(words["new"])
        part.rename(session.folder / f"model-{job.version}")
        session.activate(job.version)
        job.metrics, job.changed = words["metrics"], None if session.active_model().before is None else what_changed(session)
        job.phase, job.state = "done", "done"


def what_changed(session: Session) -> dict[str, Any]:
    """How many items the model in use sees otherwise than the one before it, and from which class to which."""
    active_model = session.active_model()
    predictions, before = active_model.predictions, active_model.before
    if before is None:
        return {"n": 0, "by_pair": []}
    old, new = before.pred, predictions.pred
    moved = np.flatnonzero(changed(predictions, before))
    pairs = Counter(zip(old[moved].tolist(), new[moved].tolist(), strict=True))
    listed = [{"from": a, "to": b, "n": count} for (a, b), count in pairs.most_common(PAIRS)]
    return {"n": len(moved), "by_pair": listed}


def _cores() -> int:
    """One core is left to the page."""
    return max(1, (os.cpu_count() or 2) - 1)
