"""A run on somebody's own data, in one folder: read, train, answer; stopped anywhere, it goes on where it was.

RUN/
  run.json         what was asked for, how the data was read, what came of it
  labels.csv       a label and a confidence for every item of the data
  items.csv        in a run that began without labels: the items, and labels that were there (`begin`)
  skipped.csv      what was left out, and why
  model/           the trained model
  history.jsonl    the course of the training
  cache/           decoded pictures, and what an encoder said about them; can be made again
  checkpoints/     the training as it goes
  serve/           labels given on the page, and the models refitted there (docs/serve.md)
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from samekind.data.cache import Progress
from samekind.data.folders import LABEL_FILES
from samekind.data.labels import as_labels
from samekind.data.own import Channels, Encoding, OwnData, Size, open_data, open_like
from samekind.data.skipped import Skipped
from samekind.errors import DataError, LabelError, ModelFileError, SettingError
from samekind.estimator import SemiSupervisedClassifier
from samekind.io import atomic_write
from samekind.manifest import FORMAT, read_active_model, read_finished_run_manifest, read_run_manifest
from samekind.preprocessing import decode_size

Say = Callable[[str], None]
Answers = list[tuple[str, float]]


@dataclass(frozen=True)
class FitConfig:
    """What a fit is asked for. Two fits into one folder must want the same."""

    data: str
    labels: str | None = None
    label_column: str | None = None
    size: Size = "auto"
    channels: Channels = "auto"
    strict: bool = False
    method: str | None = None  # None: what the estimator has by default
    settings: Mapping[str, Any] = field(default_factory=dict)
    epochs: float | Literal["auto", "quick"] = "auto"
    minutes: float | None = None  # instead of epochs
    device: str = "auto"
    seed: int = 0
    encoder: str | None = None
    net: str = "auto"
    views: str = "auto"


@dataclass(frozen=True)
class Keep:
    """What is kept of a fit on the way; it may differ from one sitting to the next."""

    every: float = 60.0  # seconds between two checkpoints
    tensorboard: Path | None = None  # a folder for its events


@dataclass(frozen=True)
class Done:
    """A finished fit: where it is, how many items it sorted, and how many of each label."""

    folder: Path
    n_items: int
    given: dict[str, int]  # labels that were there
    sorted: dict[str, int]  # labels after
    skipped: tuple[Skipped, ...]
    cost: dict[str, float]
    new: bool  # whether anything had to be done
    epochs: float | None = None  # passes over the data; runs of earlier versions do not say

    def __str__(self) -> str:
        spread = ", ".join(f"{label} {count}" for label, count in sorted(self.sorted.items(), key=lambda one: -one[1])[:12])
        before = "" if self.new else " (finished before; nothing had to be done)"
        return f"{self.n_items} items sorted{before}: {spread}"

    def bill(self) -> str:
        """What the training cost, in a line; empty where nothing was trained in steps."""
        if "seconds" not in self.cost:
            return ""
        c = self.cost
        speed = f"{c['rows_per_second']:.0f} rows/s, {c['flops'] / 1e12:.3g} TFLOP at {c['flops_per_second'] / 1e9:.3g} GFLOP/s"
        return f"{c['steps']:.0f} steps in {c['seconds']:.0f} s, {speed}, {c['peak_memory_mb']:.0f} MB at most"


def fit(
    wanted: FitConfig,
    out: Path,
    *,
    keep: Keep | None = None,
    say: Say = lambda _: None,
    progress: Progress | None = None,
    verbose: bool = False,
) -> Done:
    """Trains on the data and sorts all of it. A folder with an unfinished fit is taken up, a finished one only read."""
    before = _taken_up(wanted, out)
    if before is not None and before["finished"]:
        return _done(out, before["result"], new=False)
    out.mkdir(parents=True, exist_ok=True)
    _write_json(out / "run.json", {"format": FORMAT, "finished": False, "wanted": _plain(wanted)})
    try:
        data = _opened(wanted, out, progress)
        _write_skipped(out / "skipped.csv", data.skipped)
        say(_summary(data))
        model = _model(wanted, out, keep or Keep(), verbose=verbose).fit(data.x, data.y)
    except (DataError, LabelError, SettingError):
        # nothing half-made is left of a fit that could not begin
        if before is None and not any((out / "checkpoints").rglob("step-*")):
            shutil.rmtree(out)
        raise
    model.save(out / "model")
    found = _best(model, model.fitted_proba())
    _write_answers(out / "labels.csv", data.names, found, given=data.y)
    result = {
        "n_items": len(data),
        "given": dict(Counter(label for label in data.y if label is not None)),
        "sorted": dict(Counter(label for label, _ in found)),
        "skipped": [asdict(one) for one in data.skipped],
        "cost": model.cost_,
        "epochs": model.epochs_,
        "split": _split_hash(data),
        "encoding": data.encoding.to_json(),
    }
    _write_json(out / "run.json", {"format": FORMAT, "finished": True, "wanted": _plain(wanted), "result": result})
    return _done(out, result, new=True)


def _model(wanted: FitConfig, out: Path, keep: Keep, *, verbose: bool) -> SemiSupervisedClassifier:
    model = SemiSupervisedClassifier(
        settings=dict(wanted.settings),
        net=wanted.net,
        views=wanted.views,
        epochs=wanted.epochs,
        minutes=wanted.minutes,
        device=wanted.device,
        random_state=wanted.seed,
        verbose=verbose,
        history=out / "history.jsonl",
        tensorboard=keep.tensorboard,
        checkpoint=out / "checkpoints",
        save_every=keep.every,
        encoder=wanted.encoder,
        cache=out / "cache",
    )
    return model if wanted.method is None else model.set_params(method=wanted.method)


def begin(
    data: str, out: Path, *, say: Say = lambda _: None, progress: Progress | None = None
) -> tuple[OwnData, dict[str, Any]]:
    """A run without a model, for labels to come: the data as it was read, and what run.json shall say when all is done.

    Folders of pictures are not taken for classes here: a pile has folders for other reasons. One that was interrupted is begun
    again; one that cannot be begun leaves nothing.
    """
    wanted = FitConfig(data)
    before = read_run_manifest(out) if (out / "run.json").exists() else None
    words = {"format": FORMAT, "finished": False, "pile": True, "wanted": _plain(wanted)}
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"{out} cannot be made ({error.strerror}). Choose another folder with --out.") from error
    _write_json(out / "run.json", words)
    try:
        opened = _opened(wanted, out, progress)
    except (DataError, LabelError, SettingError):
        if before is None:
            shutil.rmtree(out)
        raise
    if Path(data).is_dir() and not any((Path(data) / name).is_file() for name in LABEL_FILES):
        opened = replace(opened, y=as_labels(len(opened), {}))
    _write_skipped(out / "skipped.csv", opened.skipped)
    given = zip(opened.names, opened.y, strict=True)
    rows = [[name, "", ""] if label is None else [name, str(label), "yes"] for name, label in given]
    atomic_write(out / "items.csv", _as_csv(["path", "label", "given"], rows), DataError)
    say(_summary(opened))
    result = {"n_items": len(opened), "skipped": [asdict(one) for one in opened.skipped], "encoding": opened.encoding.to_json()}
    return opened, {**words, "result": result}


def predict(
    run: Path, data: str | Path, out: Path, *, strict: bool = False, progress: Progress | None = None
) -> tuple[int, tuple[Skipped, ...]]:
    """Labels and confidences of new data as CSV in `out`; how many, and what was left out."""
    opened = open_run(run)
    model = opened.model
    new = open_like(data, opened.encoding, strict=strict, cache=run / "cache", progress=progress)
    out.parent.mkdir(parents=True, exist_ok=True)
    _write_answers(out, new.names, _best(model, model.predict_proba(new.x)))
    return len(new), new.skipped


def active_model_dir(run: Path) -> Path:
    """The folder of the model: that of the fit, or the one that the page took into use after a refit."""
    folder = run / read_active_model(run).get("model", "model")
    return folder if (folder / "model.json").exists() else run / "model"


def refit(
    run: Path,
    labels: Callable[[OwnData], list[str | None]],
    out: Path,
    *,
    quick: bool = False,
    progress: Progress | None = None,
) -> tuple[SemiSupervisedClassifier, OwnData]:
    """Learns again from the data of a run, with the labels that `labels` gives for it; model and labels.csv go to `out`."""
    words = read_run_manifest(run)
    wanted = FitConfig(**{one.name: words["wanted"][one.name] for one in fields(FitConfig) if one.name in words["wanted"]})
    if quick and wanted.minutes is not None:
        wanted = replace(wanted, minutes=wanted.minutes / 4)
    elif quick:
        wanted = replace(wanted, epochs="quick" if wanted.epochs == "auto" else float(wanted.epochs) / 4)
    data = open_like(wanted.data, Encoding.from_json(words["result"]["encoding"]), cache=run / "cache", progress=progress)
    model = _model(wanted, out, Keep(), verbose=False).set_params(cache=run / "cache", checkpoint=None)
    if progress is not None:
        model.set_params(progress=lambda title, done, total: progress(_phase(title), done, total))
    y = labels(data)
    model.fit(data.x, y)
    model.save(out)
    _write_answers(out / "labels.csv", data.names, _best(model, model.fitted_proba()), given=y)
    return model, data


def _phase(title: str) -> str:
    """What a step of the training does, without the name of the method."""
    return "learning from labels first" if title.endswith("labels first") else "learning"


def parse_settings(words: Iterable[str]) -> dict[str, Any]:
    """NAME=VALUE as given on the command line: numbers, true, false, null and lists as in JSON, anything else a word."""
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise SettingError(f"{word!r} is no setting; expected NAME=VALUE, for example lambda2=0.3.")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


# ---------------------------------------------------------------- a finished run


@dataclass(frozen=True)
class Run:
    """A finished fit with its model: what to ask about it, and how to read more data of its kind."""

    folder: Path
    model: SemiSupervisedClassifier
    encoding: Encoding
    data: str  # where its data was

    def answers(self) -> tuple[list[str], list[str], list[float]]:
        """Name, label and confidence of every item, from labels.csv of the model in use."""
        beside = active_model_dir(self.folder) / "labels.csv"  # of a model that was refitted on the page
        path = beside if beside.exists() else self.folder / "labels.csv"
        try:
            with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
                rows = [(row["path"], row["label"], float(row["confidence"])) for row in csv.DictReader(file)]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{path} cannot be read ({error!r}). Fit again.") from error
        if len(rows) != len(self.model.transduction_):
            found = f"{len(rows)} items, and the model was fitted on {len(self.model.transduction_)}"
            raise ModelFileError(f"{path} names {found}. Bring the file back, or fit again.")
        return [name for name, _, _ in rows], [label for _, label, _ in rows], [share for _, _, share in rows]


def open_run(folder: Path) -> Run:
    """The run in a folder, with the model that is in use; one that is not finished is refused."""
    words = read_finished_run_manifest(folder)
    if words.get("pile") and not (active_model_dir(folder) / "model.json").exists():
        raise ModelFileError(f"{folder} has no model yet. Label on its page (`samekind serve {folder}`), and press r there.")
    model = SemiSupervisedClassifier.load(active_model_dir(folder)).set_params(cache=folder / "cache")
    return Run(folder, model, Encoding.from_json(words["result"]["encoding"]), words["wanted"]["data"])


# ---------------------------------------------------------------- the folder


def _taken_up(wanted: FitConfig, out: Path) -> dict[str, Any] | None:
    """What the folder knows of this same fit; None if it is new. Another fit, or another thing, is refused."""
    if not (out / "run.json").exists():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise SettingError(f"{out} exists and holds no run. Choose a folder that is empty or not there yet.")
        return None
    words = read_run_manifest(out)
    if words.get("pile"):
        raise SettingError(
            f"{out} was begun by `samekind serve` and learns on its page. Choose another folder with --out, and to learn from "
            f"the labels of the page give --labels {out / 'serve' / 'labels.csv'}."
        )
    before, now = words["wanted"], _plain(wanted)
    for name in now:
        if before.get(name) != now[name]:
            raise SettingError(
                f"{out} holds a run with {name} = {before.get(name)!r}, and now {now[name]!r} is asked for. "
                "Choose another folder with --out, or remove that one."
            )
    return words


def _done(out: Path, result: Mapping[str, Any], *, new: bool) -> Done:
    skipped = tuple(Skipped(**one) for one in result["skipped"])
    return Done(out, result["n_items"], result["given"], result["sorted"], skipped, result["cost"], new, result.get("epochs"))


def _plain(wanted: FitConfig) -> dict[str, Any]:
    """As it comes back from JSON; paths without a doubt about where they start."""
    words = asdict(wanted)
    words["data"] = str(Path(wanted.data).resolve())
    words["labels"] = None if wanted.labels is None else str(Path(wanted.labels).resolve())
    plain: dict[str, Any] = json.loads(json.dumps(words))
    return plain


# ---------------------------------------------------------------- data in, answers out


def _opened(wanted: FitConfig, out: Path, progress: Progress | None) -> OwnData:
    natural = decode_size(wanted.encoder)  # an encoder that is not there is an error before anything is read
    data = open_data(
        wanted.data,
        labels=wanted.labels,
        size=natural if wanted.size == "auto" else wanted.size,
        channels=wanted.channels,
        strict=wanted.strict,
        cache=out / "cache",
        label_column=wanted.label_column,
        progress=progress,
    )
    if wanted.encoder is not None and data.kind == "vectors":
        raise SettingError(f"{wanted.data} holds vectors, and the encoder {wanted.encoder} is for images. Leave it out.")
    return data


def _summary(data: OwnData) -> str:
    """One line that shows at a glance if the data was taken for what it is."""
    given = Counter(label for label in data.y if label is not None)
    named = ", ".join(f"{label} {count}" for label, count in given.most_common(12))
    more = f" and {len(given) - 12} more" if len(given) > 12 else ""
    shape = " x ".join(str(side) for side in data.encoding.shape)
    left_out = f"; {len(data.skipped)} left out, see skipped.csv" if data.skipped else ""
    return f"{len(data)} items ({data.kind}, {shape}), {sum(given.values())} with a label: {named or 'none'}{more}{left_out}"


def _best(model: SemiSupervisedClassifier, shares: npt.NDArray[Any]) -> Answers:
    """The most probable label of each item and how probable it is, from the probabilities of all classes (n, C)."""
    best = shares.argmax(axis=1)
    return [(str(model.classes_[c]), float(shares[row, c])) for row, c in enumerate(best)]


def _write_answers(
    path: Path, names: Iterable[str], found: list[tuple[str, float]], given: Iterable[Any] | None = None
) -> None:
    """path, label, confidence; for the data of the fit also whether a person gave the label, which then stays."""
    header = ["path", "label", "confidence", *(["given"] if given is not None else [])]
    rows = []
    labels = [None] * len(found) if given is None else list(given)
    for name, (label, share), told in zip(names, found, labels, strict=True):
        row = [name, label, f"{share:.6f}"] if told is None else [name, str(told), "1.000000"]
        rows.append([*row, *(["" if told is None else "yes"] if given is not None else [])])
    atomic_write(path, _as_csv(header, rows), DataError)


def _write_skipped(path: Path, skipped: Iterable[Skipped]) -> None:
    atomic_write(path, _as_csv(["path", "reason"], [[one.path, one.reason] for one in skipped]), DataError)


def _as_csv(header: list[str], rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "surrogateescape")


def _write_json(path: Path, words: Mapping[str, Any]) -> None:
    atomic_write(path, (json.dumps(words, indent=2) + "\n").encode(), ModelFileError)


def _split_hash(data: OwnData) -> str:
    """Which items had a label, and which one: the same for the same split, whatever the order of the files."""
    known = sorted((name, str(label)) for name, label in zip(data.names, data.y, strict=True) if label is not None)
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
