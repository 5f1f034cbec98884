"""An opened run (a session): its items, their labels, and the predictions of the active model.

RUN/serve/labels.sqlite   the label store (store/label_store.py)
RUN/serve/labels.csv      the labels as a table, at most a few seconds old
RUN/serve/backups/        copies of the label store from earlier starts (store/backups.py)
RUN/serve/model-N/        models and their predictions; model-1 holds the predictions of RUN/model, if the run began with a fit
RUN/serve/model-0/        baseline features, if the run began without labels (unlabelled_project.py)
RUN/serve/active.json     which model is active
RUN/serve/thumbs/         thumbnails; those that are missing are made again
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from samekind.data.readers.image_decoder import read_image_header
from samekind.data.readers.reader import Encoding
from samekind.errors import RequestError, StoreError
from samekind.files.manifest import read_active_model, read_finished_run_manifest, write_active_model
from samekind.server.inference.active_model import ActiveModel
from samekind.server.inference.predictions import Predictions, read_predictions
from samekind.server.jobs.background import BackgroundAnalysis
from samekind.server.media.array_images import ArrayImages
from samekind.server.media.data_files import open_data_file
from samekind.server.media.item_texts import ItemTexts
from samekind.server.media.thumbnails import ImageSource, Thumbnails, file_source
from samekind.server.periodic_task import PeriodicTask
from samekind.server.run_setup import add_fitted_items, ensure_fitted_predictions, file_stamps
from samekind.server.store import label_classes
from samekind.server.store.backups import back_up
from samekind.server.store.batches import ItemStates
from samekind.server.store.content_hashes import ContentHasher, update_renamed_items
from samekind.server.store.csv_sync import CsvSync
from samekind.server.store.label_store import LabelStore
from samekind.server.store.lost_labels import require_complete
from samekind.server.store.own_paths import require_own_folders
from samekind.server.store.server_lock import ServerLock
from samekind.server.unlabelled_project import BASELINE_VERSION, ensure_features

LogFunction = Callable[[str], None]
CHECKPOINT_SECONDS = 5.0  # seconds after which the write-ahead log is copied to the database file again
LOAD_DELAY = 1.5  # seconds between a login and the loading of the model, so that the page itself is served first
Layout = Literal["neighbors", "components"]


class Session:
    """An opened run. It must be closed after use.

    With `preload`, the first call of `warm_up` starts the background analysis and loads the model, so that the first search is
    quick.
    """

    def __init__(self, run: Path, *, read_only: bool = False, preload: bool = False, log: LogFunction = lambda _: None) -> None:
        self.run, self.read_only = run, read_only
        self._preload, self._closed = preload, False
        self.manifest = read_finished_run_manifest(run)
        self.encoding = Encoding.from_json(self.manifest["result"]["encoding"])
        self.folder = run / "serve"
        require_own_folders(self.folder)
        self.lock: ServerLock | None = None
        self.csv_sync: CsvSync | None = None
        self.content_hasher: ContentHasher | None = None
        self.checkpoints: PeriodicTask | None = None
        self.background: BackgroundAnalysis | None = None
        if not read_only:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self.folder.chmod(0o700)
            self.lock = ServerLock(self.folder / "lock")
        try:
            self.store = LabelStore(self.folder / "labels.sqlite", read_only=read_only)
        except StoreError:
            self.release_lock()
            raise
        try:
            self._open(log)
        except BaseException:
            self.close()
            raise

    def _open(self, log: LogFunction) -> None:
        run, read_only = self.run, self.read_only
        require_complete(self.store)
        if not read_only:
            self._prepare_store(log)
        self.thumbnails = Thumbnails(self.folder / "thumbs", read_only=read_only)
        self.array_images = ArrayImages(self.manifest, self.encoding, run / "cache")
        is_text = self.encoding.kind == "texts"
        self.texts = ItemTexts(self.manifest, self.encoding, run / "cache", lambda: self.store.names) if is_text else None
        self._switching = threading.Lock()  # held while another model becomes the active one
        if self.is_unlabelled_project:
            ensure_features(self.manifest, run, self.store.names)
        else:
            ensure_fitted_predictions(run, self.store, read_only=read_only, log=log)
        self._active_model = self._open_active_model()
        if not read_only:
            self.background = BackgroundAnalysis()

    def _prepare_store(self, log: LogFunction) -> None:
        if not self.store.meta("begun"):
            add_fitted_items(self.run, self.manifest, self.store, self.root, log)
        if self.root is not None:
            if n := update_renamed_items(self.store, self.root, self.run / "cache"):
                log(f"{n} renamed {'file was' if n == 1 else 'files were'} recognized by content")
            self.content_hasher = ContentHasher(self.store, self.root)
        try:
            back_up(self.store, self.folder / "backups")
        except StoreError as error:
            log(f"Warning: {error} The page works without it.")
        self.csv_sync = CsvSync(self.store, self.folder / "labels.csv")
        self.checkpoints = PeriodicTask(CHECKPOINT_SECONDS, self.store.checkpoint)

    def close(self) -> None:
        """Stop all work in the background and release the run. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            for part in (self.background, self.content_hasher, self.checkpoints, self.csv_sync):
                if part is not None:
                    part.close()
        finally:
            self.store.close()
            self.release_lock()

    def release_lock(self) -> None:
        """Release the lock, so that another server can open the run."""
        if self.lock is not None:
            self.lock.close()

    def warm_up(self) -> None:
        """Start the slow work that later requests need. Only the first call does anything."""
        if not self._preload:
            return
        self._preload = False
        if self.background is not None:
            self.background.start(self.predictions_dir(self.predictions.version))
        load = threading.Timer(LOAD_DELAY, lambda: self.active_model.load())
        load.daemon = True
        load.start()

    # ---------------------------------------------------------------- properties of the run

    @property
    def name(self) -> str:
        return self.run.resolve().name

    @property
    def is_unlabelled_project(self) -> bool:
        """Return whether the run began without labels, and so without a model."""
        return bool(self.manifest.get("unlabelled"))

    @property
    def root(self) -> Path | None:
        """Return the folder of the images; None if the items are texts, or rows of an array or a table."""
        return Path(self.manifest["config"]["data"]) if self.encoding.source == "images" else None

    # ---------------------------------------------------------------- models of the run

    @property
    def active_model(self) -> ActiveModel:
        """Return the active model. A request should read it only once, because a refit can replace it at any time."""
        return self._active_model

    @property
    def predictions(self) -> Predictions:
        return self._active_model.predictions

    def versions(self) -> list[int]:
        """Return the versions that have predictions. Version 1 is the model of the fit, and 0 are the baseline features."""
        found = (
            path.name.removeprefix("model-") for path in self.folder.glob("model-*") if (path / "predictions.json").exists()
        )
        return sorted(int(number) for number in found if number.isdecimal())

    def models(self) -> list[int]:
        """Return the versions of the models that can be activated."""
        return [version for version in self.versions() if version != BASELINE_VERSION]

    def predictions_dir(self, version: int) -> Path:
        """Return the folder with the predictions of this version."""
        return self.folder / f"model-{version}"

    def model_dir(self, version: int) -> Path:
        """Return the folder of a model. The model of the fit is in the run folder, refitted models are in RUN/serve."""
        return self.predictions_dir(version) if self.is_unlabelled_project or version != 1 else self.run / "model"

    def activate(self, version: int) -> None:
        """Make another model the active one. The labels do not change."""
        if version not in self.models():
            raise RequestError(404, f"There is no model {version}.")
        with self._switching:
            current, previous = self.predictions, self._active_model.previous
            if version != current.version:
                previous = self._read_predictions(current.version) if current.trained else None
            predictions = self._read_predictions(version)
            if not self.read_only:
                previous_version = None if previous is None else previous.version
                write_active_model(self.run, version, self.model_dir(version), previous_version)
            if self.background is not None:
                self.background.start(self.predictions_dir(version))
            self._active_model = ActiveModel(self.model_dir(version), predictions, previous)

    def show_update(self, f: npt.NDArray[np.float32], class_ids: list[int], seq: int, quality: Any) -> None:
        """Replace the shown probabilities by others f (n, C), which belong to the labels up to event number `seq`."""
        targets = label_classes.merge_targets(label_classes.all_classes(self.store))
        with self._switching:
            model = self._active_model
            metadata = {"labels_seq": max(seq, model.predictions.metadata["labels_seq"]), "quality": quality}
            updated = model.predictions.updated(f, class_ids, targets, metadata)
            self._active_model = model.with_predictions(updated, model.previous)

    def update_merged_classes(self) -> None:
        """Read the predictions again, if since then a class was merged or deleted, or such a change was undone."""
        targets = label_classes.merge_targets(label_classes.all_classes(self.store))
        with self._switching:
            predictions, previous = self._active_model.predictions, self._active_model.previous
            if predictions.is_up_to_date(targets) and (previous is None or previous.is_up_to_date(targets)):
                return
            previous = None if previous is None else self._read_predictions(previous.version)
            self._active_model = self._active_model.with_predictions(self._read_predictions(predictions.version), previous)

    def _open_active_model(self) -> ActiveModel:
        stored, models = read_active_model(self.run), self.models()
        version = stored.get("version")
        if version not in models:
            version = next(iter(models), BASELINE_VERSION)
        previous = stored.get("previous")
        before = self._read_predictions(previous) if previous in models else None
        return ActiveModel(self.model_dir(version), self._read_predictions(version), before)

    def _read_predictions(self, version: int) -> Predictions:
        targets = label_classes.merge_targets(label_classes.all_classes(self.store))
        return read_predictions(self.predictions_dir(version), version, len(self.store.names), targets)

    # ---------------------------------------------------------------- results of the background analysis

    def background_array(self, name: str, predictions: Predictions) -> npt.NDArray[np.float32] | None:
        """Return an array of the background analysis, with a row for each item; None if it is not computed yet."""
        path, n = self.predictions_dir(predictions.version) / f"{name}.npy", len(predictions)
        with suppress(OSError, ValueError):
            array: npt.NDArray[np.float32] = np.load(path, allow_pickle=False)
            if len(array) <= n:
                return np.concatenate([array, np.full((n - len(array), *array.shape[1:]), 0.5, dtype=np.float32)])
        return None

    def map_layout(self) -> Layout:
        """Return "neighbors" if the map by nearest neighbours has been computed, else "components" (principal components)."""
        exists = (self.predictions_dir(self.predictions.version) / "map.npy").exists()
        return "neighbors" if exists else "components"

    def map(self, predictions: Predictions) -> tuple[npt.NDArray[np.float32], Layout]:
        """Return the position of every item on the map (n, 2), and the name of the layout."""
        found = self.background_array("map", predictions)
        if found is not None:
            return found.astype("<f4"), "neighbors"
        from samekind.server.jobs.map_layout import fit_into_square, principal_components

        return fit_into_square(principal_components(predictions.z)), "components"

    # ---------------------------------------------------------------- items of the run

    def __len__(self) -> int:
        """Return the number of items. Files that a refit has found count as soon as they have predictions."""
        return len(self.predictions)

    @property
    def states(self) -> ItemStates:
        """Return the present labels of all items."""
        return self.store.states.first(len(self))

    def last_events(self, n: int) -> npt.NDArray[np.int64]:
        """Return for each of the first n items the number of its last event; 0 for an item without events."""
        seqs = np.zeros(len(self.store.names), dtype=np.int64)
        for item, seq in self.store.last_events().items():
            seqs[item] = seq
        return seqs[:n]

    def add_items(self, names: list[str]) -> None:
        """Add items for files that were put into the folder of the data after the fit."""
        start = len(self.store.names)
        self.store.add_items(names)
        stamps = file_stamps(self.root, self.store.names[start:])
        self.store.set_file_stamps({start + i: stamp for i, stamp in stamps.items()})

    def folded_items(self, n: int) -> list[str]:
        """Return the texts that a search compares, for the first n items: names, and of texts also the words, all
        case-folded.
        """
        return (self.store.folded_names() if self.texts is None else self.texts.folded())[:n]

    def image_size(self, item: int) -> tuple[int, int] | None:
        """Return (width, height) of the image of an item; None if the image cannot be read, or if items are not image files."""
        if self.root is None:
            return None
        with suppress(RequestError), open_data_file(self.root, self.store.names[item]) as file:
            header = read_image_header(file)
            return None if isinstance(header, str) else (header.width, header.height)
        return None

    def image_source(self, item: int) -> ImageSource:
        """Return the source of the image of an item. Requests name an item by its id, never by a path."""
        if not 0 <= item < len(self):
            raise RequestError(404, f"There is no item {item}.")
        if self.texts is not None:
            return self.texts.source(item)
        root = self.root
        return self.array_images.source(item) if root is None else file_source(root, self.store.names[item])
