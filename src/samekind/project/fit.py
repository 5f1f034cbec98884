"""Fit of a classifier to a user's data, in a run folder. An interrupted fit resumes, and a finished one is not repeated.

result = fit(FitConfig("photos"), Path("runs/photos"))
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

from samekind.clock import Clock
from samekind.data.readers.image_folder import LABEL_FILES
from samekind.data.readers.label_file import label_array
from samekind.data.readers.reader import Encoding, Skipped, UserData
from samekind.data.target_shape import Channels, Size
from samekind.data.user_data import open_data, open_like, require_data_path
from samekind.errors import DataError, LabelError, ModelFileError, SettingError
from samekind.estimator import SemiSupervisedClassifier
from samekind.files.manifest import RUN_FORMAT, read_run_manifest
from samekind.files.output_paths import require_output_path
from samekind.fitting.finetuned_input import MAPS
from samekind.fitting.fit_options import Finetune, FitOptions
from samekind.fitting.label_quality import LabelQuality
from samekind.nets.encoders.frozen_features import Encoder
from samekind.nets.encoders.names import AUTO, runs_code
from samekind.preprocessing.preprocessor import decode_size
from samekind.progress import Progress
from samekind.project.column_report import report_columns, require_label_column
from samekind.project.predict import top_predictions, write_predictions
from samekind.project.run_folder import (
    LogFunction,
    discard_log,
    find_existing_fit,
    locked_run_folder,
    remove_begun_run,
    write_csv,
    write_run_manifest,
    write_skipped,
)
from samekind.training.engine import is_main_process

# Errors of the data, the labels, the options and the file of the encoder. A fit that ends with one of them leaves no files
# behind, so that the corrected command can use the same folder.
CANNOT_START = (DataError, LabelError, SettingError, ModelFileError)
CLASSES_SHOWN = 12  # largest number of classes that a summary line names


@dataclass(frozen=True)
class FitConfig:
    """Configuration of a fit. An interrupted fit can only be resumed with the configuration with which it started."""

    data: str
    labels: str | None = None
    label_column: str | None = None
    size: Size = "auto"
    channels: Channels = "auto"
    strict: bool = False
    method: str | None = None  # None: the estimator chooses the method
    settings: Mapping[str, Any] = field(default_factory=dict)
    epochs: float | Literal["auto", "quick"] = "auto"
    minutes: float | None = None  # time budget of the fit in minutes; it replaces `epochs`
    device: str = "auto"
    seed: int = 0
    encoder: str | None = "auto"
    net: str = "auto"
    views: str = "auto"
    text: str | None = None  # name of the column of a table that contains the texts to classify
    finetune: str = "auto"  # which blocks of the pretrained encoder are trained further: auto, none, last or all
    propagate: bool = False  # True: labels are propagated over the features of the trained network at the end

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as a dict of JSON values, with absolute paths."""
        config = asdict(self)
        config["data"] = str(Path(self.data).resolve())
        config["labels"] = None if self.labels is None else str(Path(self.labels).resolve())
        plain: dict[str, Any] = json.loads(json.dumps(config))
        return plain


@dataclass(frozen=True)
class OutputOptions:
    """Checkpoints and logs of a fit. They do not change the result, so a fit may be resumed with other options."""

    save_every: float = 60.0  # seconds between two checkpoints
    tensorboard: Path | None = None  # folder of the TensorBoard event files


@dataclass(frozen=True)
class FitResult:
    """Finished fit: its folder, the number of items, the number of items of each class, and the cost of training."""

    folder: Path
    n_items: int
    labelled: dict[str, int]  # {class: number of training labels}
    predicted: dict[str, int]  # {class: number of items with this predicted class}
    skipped: tuple[Skipped, ...]
    cost: dict[str, float]
    epochs: float
    already_finished: bool  # True: the folder had the finished fit already, and nothing was trained
    quality: LabelQuality | None = None  # None for methods that hold out no labels

    def __str__(self) -> str:
        per_class = sorted(self.predicted.items(), key=lambda pair: -pair[1])[:CLASSES_SHOWN]
        counts = ", ".join(f"{label} {count}" for label, count in per_class)
        note = " (finished before; nothing to do)" if self.already_finished else ""
        return f"{self.n_items} items classified{note}: {counts}"

    def quality_summary(self) -> list[str]:
        """Return lines about the accuracy and about what to label next; an empty list if the method holds out no labels."""
        return [] if self.quality is None else [str(self.quality), *self.quality.advice]

    def cost_summary(self) -> str:
        """Return one line with the steps, time, speed and memory of training; empty for a method without training steps."""
        if "seconds" not in self.cost:
            return ""
        c = self.cost
        speed = (
            f"{c['rows_per_second']:.0f} samples/s, {c['flops'] / 1e12:.3g} TFLOP at {c['flops_per_second'] / 1e9:.3g} GFLOP/s"
        )
        return f"{c['steps']:.0f} steps in {c['seconds']:.0f} s, {speed}, {c['peak_memory_mb']:.0f} MB peak memory"


def fit(
    config: FitConfig,
    out: Path,
    *,
    output: OutputOptions | None = None,
    log: LogFunction = discard_log,
    progress: Progress | None = None,
    verbose: bool = False,
    clock: Clock | None = None,
) -> FitResult:
    """Train on the data, predict all of it, and return the result. If `out` has an unfinished fit, resume it.

    The minutes of the configuration begin when `clock` was started; without a clock, now.
    """
    clock = clock or Clock()
    require_output_path(out)
    _estimator(config, out, output or OutputOptions(), verbose=False).validate_parameters()
    for path in (config.data, config.labels):
        if path is not None:
            require_data_path(Path(path), missing_ok=True)  # the data may be missing if the fit is finished
    # checked before locking, so that a folder with other content is refused and not changed
    before = find_existing_fit(out, config.to_json(), FitConfig("").to_json())
    if before is not None and before["finished"]:
        return _result(out, before["result"], already_finished=True)
    if not is_main_process():
        return _fit_in(config, out, output or OutputOptions(), log, progress, clock, existed=True, verbose=verbose)
    with locked_run_folder(out) as existed:
        return _fit_in(config, out, output or OutputOptions(), log, progress, clock, existed=existed, verbose=verbose)


def _fit_in(
    config: FitConfig,
    out: Path,
    output: OutputOptions,
    log: LogFunction,
    progress: Progress | None,
    clock: Clock,
    *,
    existed: bool,
    verbose: bool,
) -> FitResult:
    """Train in a folder that is locked.

    `existed` says whether the folder existed before: if so, a failed fit must not delete it.
    """
    # checked again, because another process may have finished the fit while it held the lock
    before = find_existing_fit(out, config.to_json(), FitConfig("").to_json())
    if before is not None and before["finished"]:
        return _result(out, before["result"], already_finished=True)
    write_run_manifest(out, {"finished": False, "config": config.to_json()})
    try:
        data = _read_data(config, out, progress)
        write_skipped(out / "skipped.csv", data.skipped)
        log(_summary(data))
        require_label_column(data, config.data, config.labels)
        _require_a_label(data, config.data)
        model = _estimator(config, out, output, verbose=verbose).fit(data.x, data.y, elapsed=clock.seconds())
    except CANNOT_START:
        if before is None and not any((out / "checkpoints").rglob("step-*")):
            remove_begun_run(out, keep_folder=existed)
        raise
    report_columns(model, out, log)
    model.save(out / "model")
    predictions = top_predictions(model, model.fitted_proba())
    write_predictions(out / "labels.csv", data.names, predictions, given=data.y, header=data.encoding.name_column)
    result = {
        "n_items": len(data),
        "labelled": dict(Counter(label for label in data.y if label is not None)),
        "predicted": dict(Counter(label for label, _ in predictions)),
        "skipped": [asdict(file) for file in data.skipped],
        "cost": model.cost_,
        "epochs": model.epochs_,
        "quality": None if model.quality_ is None else model.quality_.to_json(),
        "split": _split_hash(data),
        "encoding": data.encoding.to_json(),
    }
    write_run_manifest(out, {"finished": True, "config": config.to_json(), "result": result})
    shutil.rmtree(out / "cache" / MAPS, ignore_errors=True)  # gigabytes that only an interrupted fine-tuning needs again
    return _result(out, result, already_finished=False)


def _require_a_label(data: UserData, path: str) -> None:
    """Raise LabelError if no item has a label."""
    if all(label is None for label in data.y):
        raise LabelError(
            f"{path}: none of the {len(data)} items has a label. Name a file of labels with --labels, or label a few items of "
            f"each class on the page: `samekind serve {path}`."
        )


def refit(
    run: Path,
    labels: Callable[[UserData], list[str | None]],
    out: Path,
    *,
    quick: bool = False,
    progress: Progress | None = None,
) -> tuple[SemiSupervisedClassifier, UserData]:
    """Train again on the data of a run, with the labels that `labels(data)` returns; write the model and labels.csv to
    `out`.
    """
    model, data, y = fit_again(run, labels, out, quick=quick, progress=progress)
    model.save(out)
    predictions = top_predictions(model, model.fitted_proba())
    write_predictions(out / "labels.csv", data.names, predictions, given=y, header=data.encoding.name_column)
    return model, data


def fit_again(
    run: Path,
    labels: Callable[[UserData], list[str | None]],
    out: Path,
    *,
    quick: bool = False,
    encoder: Encoder | None = None,
    progress: Progress | None = None,
) -> tuple[SemiSupervisedClassifier, UserData, list[str | None]]:
    """Train again on the data of a run; return the model, the data, and the labels that `labels(data)` returned.

    Only history.jsonl is written to `out`. `encoder` takes the place of the encoder of the run, and is not fine-tuned further.
    """
    manifest = read_run_manifest(run)
    clock, stored = Clock(), manifest["config"]
    config = FitConfig(**{option.name: stored[option.name] for option in fields(FitConfig) if option.name in stored})
    if quick and config.minutes is not None:
        config = replace(config, minutes=config.minutes / 4)
    elif quick:
        config = replace(config, epochs="quick" if config.epochs == "auto" else float(config.epochs) / 4)
    data = open_like(config.data, Encoding.from_json(manifest["result"]["encoding"]), cache=run / "cache", progress=progress)
    model = _estimator(config, out, OutputOptions(), verbose=False).set_params(cache=run / "cache", checkpoint=None)
    if encoder is not None:
        model.set_params(encoder=encoder, finetune="none", minutes=None)
    if progress is not None:
        model.set_params(progress=lambda title, done, total: progress(_stage(title), done, total))
    y = labels(data)
    model.fit(data.x, y, elapsed=clock.seconds())
    return model, data, y


def create_unlabelled_project(
    data: str,
    out: Path,
    *,
    encoder: str | None = AUTO,
    text: str | None = None,
    log: LogFunction = discard_log,
    progress: Progress | None = None,
) -> tuple[UserData, dict[str, Any]]:
    """Create a run without a model, whose items are then labelled on the page. Return its data and the content of run.json.

    Folder names are not read as classes, because for unlabelled data they usually mean something else. An interrupted creation
    starts again at the next call. A creation that fails leaves no files behind.
    """
    config = FitConfig(data, encoder=encoder, text=text)
    with locked_run_folder(out) as existed:
        return _create_project_in(config, out, log, progress, existed=existed)


def _create_project_in(
    config: FitConfig, out: Path, log: LogFunction, progress: Progress | None, *, existed: bool
) -> tuple[UserData, dict[str, Any]]:
    before = read_run_manifest(out) if (out / "run.json").exists() else None
    manifest = {"finished": False, "unlabelled": True, "config": config.to_json()}
    write_run_manifest(out, manifest)
    try:
        opened = _read_data(config, out, progress)
    except CANNOT_START:
        if before is None:
            remove_begun_run(out, keep_folder=existed)
        raise
    if Path(config.data).is_dir() and not any((Path(config.data) / name).is_file() for name in LABEL_FILES):
        opened = replace(opened, y=label_array(len(opened), {}))
    write_skipped(out / "skipped.csv", opened.skipped)
    items = zip(opened.names, opened.y, strict=True)
    rows = ([name, "", ""] if label is None else [name, str(label), "yes"] for name, label in items)
    write_csv(out / "items.csv", [opened.encoding.name_column, "label", "given"], rows)
    log(_summary(opened))
    skipped = [asdict(file) for file in opened.skipped]
    result = {"n_items": len(opened), "skipped": skipped, "encoding": opened.encoding.to_json()}
    return opened, {"format": RUN_FORMAT, **manifest, "result": result}


def parse_settings(assignments: Iterable[str]) -> dict[str, Any]:
    """Return arguments NAME=VALUE as a dict. A value that is not JSON (a number, true, null, a list) is a string."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not name or not equals:
            raise SettingError(f"{assignment!r} does not set anything; expected NAME=VALUE, for example lambda2=0.3.")
        try:
            settings[name] = json.loads(value)
        except (ValueError, RecursionError):
            settings[name] = value
    return settings


def _estimator(config: FitConfig, out: Path, output: OutputOptions, *, verbose: bool) -> SemiSupervisedClassifier:
    model = SemiSupervisedClassifier(
        settings=dict(config.settings),
        net=config.net,
        views=config.views,
        epochs=config.epochs,
        minutes=config.minutes,
        device=config.device,
        random_state=config.seed,
        verbose=verbose,
        history=out / "history.jsonl",
        tensorboard=output.tensorboard,
        checkpoint=out / "checkpoints",
        save_every=output.save_every,
        encoder=config.encoder,
        cache=out / "cache",
        propagate=config.propagate,
        finetune=cast(Finetune, config.finetune),  # `validate_parameters` has checked the value
    )
    return model if config.method is None else model.set_params(method=config.method)


def _options(config: FitConfig) -> FitOptions:
    """Return the options that decide whether encoder="auto" uses an encoder, or trains a network on the images themselves."""
    options = FitOptions(
        method=config.method or AUTO,
        net=config.net,
        views=config.views,
        epochs=config.epochs,
        minutes=config.minutes,
        encoder=config.encoder,
    )
    return options.resolve_encoder()


def _stage(title: str) -> str:
    """Return the name of the training stage for the page, from the title of a progress bar."""
    return "supervised warm-up" if title.endswith("supervised warm-up") else "training"


def _result(out: Path, result: Mapping[str, Any], *, already_finished: bool) -> FitResult:
    skipped = tuple(Skipped(**file) for file in result["skipped"])
    return FitResult(
        folder=out,
        n_items=result["n_items"],
        labelled=result["labelled"],
        predicted=result["predicted"],
        skipped=skipped,
        cost=result["cost"],
        epochs=result["epochs"],
        quality=None if result.get("quality") is None else LabelQuality.from_json(result["quality"]),
        already_finished=already_finished,
    )


def _read_data(config: FitConfig, out: Path, progress: Progress | None) -> UserData:
    options = _options(config)
    encoder = options.encoder
    if isinstance(encoder, str) and runs_code(encoder):
        raise SettingError(
            f"the encoder {encoder} would run code of its repository each time the run is opened. Export the model as "
            ".onnx, and pass that file as the encoder."
        )
    image_size = decode_size(encoder, config.minutes)  # raises an error for an unknown encoder, before any data is read
    data = open_data(
        config.data,
        labels=config.labels,
        size=image_size if config.size == "auto" else config.size,
        channels=config.channels,
        strict=config.strict,
        cache=out / "cache",
        label_column=config.label_column,
        text=config.text,
        progress=progress,
    )
    if encoder not in (None, AUTO) and data.kind == "vectors" and data.encoding.source != "table":
        raise SettingError(f"{config.data} holds vectors, but the encoder {encoder} is for images. Leave out the encoder.")
    return data


def _summary(data: UserData) -> str:
    """Return a line about the data, in which the user can see whether it was read as intended."""
    counts = Counter(label for label in data.y if label is not None)
    named = ", ".join(f"{label} {count}" for label, count in counts.most_common(CLASSES_SHOWN))
    more = f" and {len(counts) - CLASSES_SHOWN} more" if len(counts) > CLASSES_SHOWN else ""
    sides = " x ".join(str(side) for side in data.encoding.shape)
    empty = sum(not text.strip() for text in data.x) if data.kind == "texts" else 0
    what = f"texts{f', {empty} of them empty' if empty else ''}" if data.kind == "texts" else f"{data.kind}, {sides}"
    what = f"{sides} columns" if data.encoding.source == "table" else what
    skipped = f"; {len(data.skipped)} skipped, see skipped.csv" if data.skipped else ""
    return f"{len(data)} items ({what}), {sum(counts.values())} labelled: {named or 'none'}{more}{skipped}"


def _split_hash(data: UserData) -> str:
    """Return a hash of the labelled items and their labels. The order of the files does not change it."""
    labelled = sorted((name, str(label)) for name, label in zip(data.names, data.y, strict=True) if label is not None)
    return hashlib.sha256(json.dumps(labelled).encode()).hexdigest()[:16]
