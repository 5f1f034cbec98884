"""Updates of the predictions after every label, without a refit: the server's side, which runs `instant_worker` as a process.

Only models of vectors and of encoder features can be updated. Labels are in the store before a request is acknowledged, so none
is lost if the process or the server is killed: the next process begins with all labels of the store. The updated predictions
are only in memory. They do not become a model: `samekind predict` uses the active model, and only a refit makes a new one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import numpy as np
from typing_extensions import TypedDict

from samekind.errors import ModelFileError, RequestError, SamekindError
from samekind.files.io import atomic_write
from samekind.server.inference.predictions import Predictions
from samekind.server.periodic_task import PeriodicTask
from samekind.server.session import Session
from samekind.server.summaries import count_newer_labels

MAX_DEATHS = 3  # of the worker in a row, after which the updates are turned off
SECONDS = 0.1  # seconds between two checks of the label store
SWITCH_KEY = "instant"  # key of this setting in the label store; its value "no" turns the updates off

State = Literal["off", "unavailable", "idle", "working", "failed"]


class InstantState(TypedDict):
    """Whether the predictions are updated after every label, as JSON. `seconds` is the time that the last update took."""

    state: State
    seconds: float | None
    error: str | None


class InstantRefits:
    """Keeps the predictions of a session up to date with its labels, by a worker process.

    The first new label starts the process.

    `request` returns the content of job.json for a fit with all labels (`RefitJobs.request`).
    """

    def __init__(self, session: Session, request: Callable[[], dict[str, Any]]) -> None:
        self.session, self._request = session, request
        self.folder = session.folder / "instant"
        self._lock = threading.RLock()
        self._child: subprocess.Popen[str] | None = None
        self._watcher: threading.Thread | None = None
        self._n_items = 0  # number of items that the worker knows
        self._failed_at: int | None = None  # number of the last event of the labels for which an update has failed
        self._n_deaths = 0  # of workers, since the last update that succeeded
        self._current: tuple[Predictions | None, int] = (None, 0)  # predictions that are up to date at this event
        # {number of the last event of a request under way: {class name: class id}}
        self._class_ids: dict[int, dict[str, int]] = {}
        self._seconds: float | None = None
        self._error: str | None = None
        self._task = None if session.read_only else PeriodicTask(SECONDS, self._look)

    # ---------------------------------------------------------------- setting and state of the updates

    @property
    def on(self) -> bool:
        """Whether the user has left the updates on. They are always off for a read-only session."""
        return not self.session.read_only and self.session.store.meta(SWITCH_KEY) != "no"

    def switch(self, *, on: bool) -> None:
        """Turn the updates on or off. The setting is saved in the label store."""
        self.session.store.set_meta(SWITCH_KEY, "yes" if on else "no")
        with self._lock:
            self._error, self._failed_at, self._n_deaths = None, None, 0
            if not on:
                self._stop()

    def to_json(self) -> InstantState:
        """Return the state of the updates as JSON."""
        with self._lock:
            return {"state": self._state(), "seconds": self._seconds, "error": self._error}

    def _state(self) -> State:
        if not self.on:
            return "off"
        if not self._available():
            return "unavailable"
        if self._error is not None:
            return "failed"
        return "working" if self._class_ids else "idle"

    def _available(self) -> bool:
        """Return whether the active model is one that can be updated."""
        return bool(self.session.predictions.metadata.get("updatable"))

    # ---------------------------------------------------------------- communication with the worker

    def _look(self) -> None:
        """Send the labels to the worker if some are newer than the predictions. If there is no worker, start one."""
        with self._lock:
            seq = self.session.store.last_seq
            if self._class_ids or seq == self._failed_at or not self._is_stale(seq) or not self.on:
                return
            try:
                request = self._request()
            except RequestError as refused:  # for example because there are too few labels for a fit
                self._error, self._failed_at = refused.detail, seq
                return
            self._error = None
            self._send(request)

    def _is_stale(self, seq: int) -> bool:
        """Return whether a training label is newer than the predictions, which a new model or an undo may have replaced."""
        predictions = self.session.predictions
        if seq <= predictions.metadata["labels_seq"] or self._current == (predictions, seq) or not self._available():
            return False
        stale = count_newer_labels(self.session, predictions.metadata) > 0
        self._current = (None, 0) if stale else (predictions, seq)
        return stale

    def _send(self, request: dict[str, Any]) -> None:
        seq = request["metadata"]["labels_seq"]
        if self._child is not None and len(request["names"]) != self._n_items:
            self._stop()
        if self._child is None:
            self._start(request)
        else:
            assert self._child.stdin is not None
            try:
                self._child.stdin.write(json.dumps({"seq": seq, "labels": request["labels"]}) + "\n")
                self._child.stdin.flush()
            except OSError:  # the worker has just ended, so start a new one
                self._stop()
                self._start(request)
        self._class_ids[seq] = {name: int(class_id) for class_id, name in request["class_names"].items()}

    def _start(self, request: dict[str, Any]) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        atomic_write(self.folder / "job.json", json.dumps(request).encode(), ModelFileError)
        child = subprocess.Popen(
            [sys.executable, "-m", "samekind.server.jobs.instant_worker", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or "1"},
        )
        self._child, self._n_items = child, len(request["names"])
        self._watcher = threading.Thread(target=self._watch, args=(child,), daemon=True)
        self._watcher.start()

    def _watch(self, child: subprocess.Popen[str]) -> None:
        """Process the messages of a worker until it ends."""
        assert child.stdout is not None
        for line in child.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # the line is not a message, but output of some library
            with self._lock:
                if child is self._child:
                    self._take(message)
        child.wait()
        child.stdout.close()
        with self._lock:
            if child is self._child:
                self._handle_death()

    def _handle_death(self) -> None:
        """Wait for the next label before another worker is started; after MAX_DEATHS turn the updates off."""
        self._failed_at, self._n_deaths = self.session.store.last_seq, self._n_deaths + 1
        self._stop()
        if self._n_deaths < MAX_DEATHS:
            self._error = self._error or (
                "the process that updates predictions has ended; all labels are stored, and the next one starts it again"
            )
        else:
            self.switch(on=False)
            self._error = (
                f"updates are off, because their process has ended {MAX_DEATHS} times, perhaps for lack of memory; all labels "
                "are stored. Press r to refit, or turn the updates on again"
            )

    def _take(self, message: dict[str, Any]) -> None:
        if "error" in message:
            self._error, self._failed_at = message["error"], message["seq"]
            if message["seq"] is None:  # None stands for the first fit, which has failed
                self._class_ids.clear()
            self._class_ids.pop(message["seq"], None)
            return
        ids = self._class_ids.pop(message["seq"], None) or self._current_class_ids()
        try:
            f = np.load(self.folder / message["file"], allow_pickle=False)
            class_ids = [ids[name] for name in message["classes"]]
            self.session.show_update(f, class_ids, message["seq"], message["quality"])
        except (SamekindError, OSError, ValueError, KeyError) as error:
            self._error, self._failed_at = f"the updated predictions cannot be shown ({error})", message["seq"]
            return
        self._seconds, self._error, self._failed_at, self._n_deaths = message["seconds"], None, None, 0

    def _current_class_ids(self) -> dict[str, int]:
        return {name: int(class_id) for class_id, name in self._request()["class_names"].items()}

    def _stop(self) -> None:
        """End the worker process."""
        child, self._child = self._child, None
        self._class_ids.clear()
        if child is not None:
            child.kill()
            child.wait()
            if child.stdin is not None:
                with suppress(OSError):
                    child.stdin.close()

    def close(self) -> None:
        """End the worker process, and stop checking the label store."""
        if self._task is None:
            return
        self._task.close()
        with self._lock:
            self._stop()
        if self._watcher is not None:
            self._watcher.join()
        shutil.rmtree(self.folder, ignore_errors=True)
