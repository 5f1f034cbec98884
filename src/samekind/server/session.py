"""A run as the page sees it: its items, their labels, and what the model in use says about them.

RUN/serve/labels.sqlite   the labels (serve/store.py)
RUN/serve/labels.csv      the same for people, never older than a few seconds
RUN/serve/backups/        copies of the store from earlier starts
RUN/serve/model-N/        models and their answers; model-1 holds the answers of RUN/model, if the run began with a fit
RUN/serve/model-0/        features before the first model, if it began without labels (serve/piles.py)
RUN/serve/active.json     which model is in use
RUN/serve/thumbs/         thumbnails; can be made again
"""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.readers.image_decoder import read_image_header
from samekind.data.readers.reader import Encoding
from samekind.errors import ModelFileError, RequestError
from samekind.manifest import (
    read_active_model,
    read_finished_run_manifest,
    read_model_manifest,
    read_predictions_manifest,
    write_active_model,
)
from samekind.server.inference.active_model import ActiveModel, Loaded
from samekind.server.inference.predictions import Predictions, read_predictions, write_predictions
from samekind.server.jobs.background import BackgroundAnalysis
from samekind.server.media.array_images import ArrayImages, unique_names
from samekind.server.media.thumbnails import ImageSource, Thumbnails, file_in, of_file
from samekind.server.store import label_classes
from samekind.server.store.content_hashes import ContentHasher, follow_renames, stamp_of
from samekind.server.store.csv_sync import CsvSync, back_up
from samekind.server.store.label_store import LABELLED, BatchRequest, ItemStates, LabelStore
from samekind.server.store.server_lock import ServerLock
from samekind.server.unlabelled_project import BASELINE_VERSION, ensure_features

Say = Callable[[str], None]
AFTER = 1.5  # seconds after a person came, the model is loaded


class Session:
    """An opened run. Close it when done."""

    def __init__(self, run: Path, *, read_only: bool = False, say: Say = lambda _: None) -> None:
        self.run, self.read_only, self._closed = run, read_only, False
        self.words = read_finished_run_manifest(run)
        self.encoding = Encoding.from_json(self.words["result"]["encoding"])
        self.folder = run / "serve"
        self.lock = None
        if not read_only:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self.folder.chmod(0o700)
            self.lock = ServerLock(self.folder / "lock")
        self.store = LabelStore(self.folder / "labels.sqlite", read_only=read_only)
        if not read_only and not self.store.meta("begun"):
            self._begin(say)
        self.csv_sync: CsvSync | None = None
        self.content_hasher: ContentHasher | None = None
        if not read_only:
            self._know_again(say)
            back_up(self.store, self.folder / "backups")
            self.csv_sync = CsvSync(self.store, self.folder / "labels.csv")
        self.thumbs = Thumbnails(self.folder / "thumbs")
        self.rows = ArrayImages(self.words, self.encoding, run / "cache")
        self._working = False
        self._changing = threading.Lock()  # held by whoever puts another model into use
        self._ensure_answers(say)
        version, before = self.active_version(), read_active_model(run).get("previous")
        before_that = self._read(before) if before in self.models() else None
        self._active_model = ActiveModel(self._read(version), before_that, Loaded(self.model_folder(version)))
        self.background = None if read_only else BackgroundAnalysis()

    def close(self) -> None:
        """Once or twice."""
        if self._closed:
            return
        self._closed = True
        if self.background is not None:
            self.background.close()
        if self.content_hasher is not None:
            self.content_hasher.close()
        if self.csv_sync is not None:
            self.csv_sync.close()
        self.store.close()
        if self.lock is not None:
            self.lock.close()

    def __len__(self) -> int:
        return len(self.predictions)  # items that a refit has just found are shown when its answers are

    def work_on(self) -> None:
        """Begins what is worked out in the background, and loads the model, so that the first question is quick. Once."""
        if self._working:
            return
        self._working = True
        if self.background is not None:
            self.background.start(self.folder / f"model-{self.predictions.version}")
        load = threading.Timer(AFTER, lambda: self.active_model().alike)  # the page itself comes first
        load.daemon = True
        load.start()

    def active_model(self) -> ActiveModel:
        """The model in use with its answers. Ask once, and use that: a refit may end between two questions."""
        return self._active_model

    @property
    def predictions(self) -> Predictions:
        return self._active_model.predictions

    @property
    def states(self) -> ItemStates:
        """What all items hold now."""
        return self.store.states.first(len(self))

    @property
    def name(self) -> str:
        return self.run.resolve().name

    @property
    def is_unlabelled_project(self) -> bool:
        """Whether the run began without labels, and so without a model."""
        return bool(self.words.get("unlabelled"))

    # ---------------------------------------------------------------- the first time

    def _begin(self, say: Say) -> None:
        """Items and labels of the fit become the first lines of the log."""
        listed = self.run / ("items.csv" if self.is_unlabelled_project else "labels.csv")
        names, labels = _fitted_items(listed, self.words["result"]["n_items"])
        say(f"reading {len(names)} items for the first time")
        if not self.store.names:
            self.store.add_images(unique_names(names))
            self.store.stamp_images(self._stamps(self.store.names))
        given = sorted({label for label in labels if label is not None})
        classes = (
            [] if self.is_unlabelled_project else [str(name) for name in read_model_manifest(self.run / "model")["classes"]]
        )
        numbers = dict(zip([*classes, *given], label_classes.by_name(self.store, [*classes, *given]), strict=True))
        targets = {i: (numbers[label], LABELLED) for i, label in enumerate(labels) if label is not None}
        if targets:
            self.store.apply(BatchRequest("fit", targets, source="fit", request_id="labels of the fit"))
        self.store.set_meta("begun", "yes")

    def _know_again(self, say: Say) -> None:
        """Labelled files that have other names now keep their labels; the content of others is noted for the next time."""
        if self.root is None:
            return
        if n := follow_renames(self.store, self.root, self.run / "cache"):
            say(f"{n} renamed {'file is' if n == 1 else 'files are'} known again by the content")
        self.content_hasher = ContentHasher(self.store, self.root)

    def _stamps(self, names: list[str]) -> dict[int, tuple[int, int]]:
        """Size and time of change of the files that are there."""
        if self.root is None:
            return {}
        found = ((item, stamp_of(str(self.root), name)) for item, name in enumerate(names))
        return {item: stamp for item, stamp in found if stamp is not None}

    # ---------------------------------------------------------------- models

    def versions(self) -> list[int]:
        """The models that there are; 1 is that of the fit, 0 what is known before the first one."""
        found = (
            path.name.removeprefix("model-") for path in self.folder.glob("model-*") if (path / "predictions.json").exists()
        )
        return sorted(int(number) for number in found if number.isdecimal())

    def models(self) -> list[int]:
        """Those that can be taken into use."""
        return [version for version in self.versions() if version != BASELINE_VERSION]

    def model_folder(self, version: int) -> Path:
        folder = self.folder / f"model-{version}"
        return folder if self.is_unlabelled_project or version != 1 else self.run / "model"

    def active_version(self) -> int:
        version = read_active_model(self.run).get("version")
        return version if version in self.models() else next(iter(self.models()), BASELINE_VERSION)

    def activate(self, version: int) -> None:
        """Takes another model into use; labels stay as they are."""
        if version not in self.models():
            raise RequestError(404, f"There is no model {version}.")
        with self._changing:
            now, before = self.predictions, self._active_model.before
            if version != now.version:
                before = self._read(now.version) if now.trained else None
            predictions = self._read(version)
            if not self.read_only:
                write_active_model(self.run, version, self.model_folder(version), None if before is None else before.version)
            if self.background is not None:
                self.background.start(self.folder / f"model-{version}")
            self._active_model = ActiveModel(predictions, before, Loaded(self.model_folder(version)))

    def add_items(self, names: list[str]) -> None:
        """Files that came after the fit."""
        start = len(self.store.names)
        self.store.add_images(names)
        stamps = self._stamps(self.store.names[start:])
        self.store.stamp_images({start + i: one for i, one in stamps.items()})

    def reread(self) -> None:
        """After a change by which classes may have been merged, or be themselves again."""
        final = label_classes.final(label_classes.all_classes(self.store))
        with self._changing:
            predictions, before, loaded = self._active_model.predictions, self._active_model.before, self._active_model.loaded
            if predictions.is_up_to_date(final) and (before is None or before.is_up_to_date(final)):
                return
            before = None if before is None else self._read(before.version)
            self._active_model = ActiveModel(self._read(predictions.version), before, loaded)

    def _read(self, version: int) -> Predictions:
        final = label_classes.final(label_classes.all_classes(self.store))
        return read_predictions(self.folder / f"model-{version}", version, len(self.store.names), final)

    def require_model(self) -> None:
        """Refuses what only a model can answer."""
        self._active_model.require_model()

    def _ensure_answers(self, say: Say) -> None:
        """What the model of the fit says about all items, kept for the next start."""
        if self.is_unlabelled_project:
            ensure_features(self.words, self.run, self.store.names)
            return
        weights = read_model_manifest(self.run / "model")["weights"]
        folder = self.folder / "model-1"
        if (folder / "predictions.json").exists() and read_predictions_manifest(folder).get("weights") == weights:
            return
        if self.read_only:
            raise ModelFileError(f"{folder} holds no answers yet. Start `samekind serve` once without --read-only.")
        say("asking the model about all items")
        from samekind.estimator import SemiSupervisedClassifier

        model = SemiSupervisedClassifier.load(self.run / "model")
        names = [str(label) for label in model.classes_]
        words = {
            "weights": weights,
            "class_ids": label_classes.by_name(self.store, names),
            "labels_seq": self._first_seq(),
            "created": _written(self.run / "run.json"),
            "mode": "fit",
            "audit_used": False,
            "cost": model.cost_,
        }
        write_predictions(folder, model.fitted_proba(), model.fitted_features(), words)

    def _first_seq(self) -> int:
        rows = self.store.rows("SELECT max(e.seq) AS seq FROM event e JOIN batch b ON b.id = e.batch WHERE b.source = 'fit'")
        return int(rows[0]["seq"] or 0)

    # ---------------------------------------------------------------- what is worked out meanwhile

    def extra(self, name: str, predictions: Predictions) -> npt.NDArray[np.float32] | None:
        """An array about all items that is worked out in the background; None while it is not there."""
        path = self.folder / f"model-{predictions.version}" / f"{name}.npy"
        n = len(predictions)
        with suppress(OSError, ValueError):
            array: npt.NDArray[np.float32] = np.load(path, allow_pickle=False)
            if len(array) <= n:
                return np.concatenate([array, np.full((n - len(array), *array.shape[1:]), 0.5, dtype=np.float32)])
        return None

    def map_kind(self) -> str:
        path = self.folder / f"model-{self.predictions.version}" / "map.npy"
        return "neighbours" if path.exists() else "components"

    def map(self, predictions: Predictions) -> tuple[npt.NDArray[np.float32], str]:
        """Where every item lies (n, 2), and how that was found: by neighbours, or for a start by principal components."""
        found = self.extra("map", predictions)
        if found is not None:
            return found.astype("<f4"), "neighbours"
        from samekind.server.jobs.map_layout import by_components, in_a_square

        return in_a_square(by_components(predictions.z)), "components"

    def more(self, sort: str | None, predictions: Predictions) -> dict[str, Any]:
        """What some orders need besides answers and labels."""
        seqs = self._seqs()[: len(predictions)] if sort == "newest" else None
        return {"seqs": seqs, "disagreement": self.extra("disagreement", predictions) if sort == "disagreement" else None}

    def _seqs(self) -> npt.NDArray[np.int64]:
        """The last event of every item; 0 for none."""
        seqs = np.zeros(len(self.store.names), dtype=np.int64)
        for row in self.store.rows("SELECT image_id, seq FROM state"):
            seqs[row["image_id"]] = row["seq"]
        return seqs

    # ---------------------------------------------------------------- items

    @property
    def root(self) -> Path | None:
        """The folder of pictures; None if the items are rows of an array or a table."""
        return Path(self.words["config"]["data"]) if self.encoding.source == "images" else None

    def size(self, item: int) -> tuple[int, int] | None:
        """Width and height of a picture; None if it cannot be read, or is no picture."""
        if self.root is None:
            return None
        with suppress(RequestError):
            look = read_image_header(file_in(self.root, self.store.names[item]))
            return None if isinstance(look, str) else (look.width, look.height)
        return None

    def original(self, item: int) -> ImageSource:
        """What an item is made of, by its number only."""
        if not 0 <= item < len(self):
            raise RequestError(404, f"There is no item {item}.")
        root = self.root
        return self.rows.original(item) if root is None else of_file(root, self.store.names[item])


def _fitted_items(path: Path, n: int) -> tuple[list[str], list[str | None]]:
    """Names of the items in their order, and the labels that were given, as they were written down at the beginning."""
    try:
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            rows = list(csv.DictReader(file))
        names = [row["path"] for row in rows]
        labels = [row["label"] if row["given"] == "yes" else None for row in rows]
    except (OSError, KeyError, csv.Error) as error:
        raise ModelFileError(f"{path} cannot be read ({error}). It lists the items of the run; fit again.") from error
    if len(names) != n:
        raise ModelFileError(f"{path} lists {len(names)} items, and the run has {n}. It was changed; fit again.")
    return names, labels


def _written(path: Path) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).isoformat(timespec="seconds")
