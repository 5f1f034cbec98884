"""Manifests: the JSON files that describe a run and its models. Works without torch.

RUN/run.json                         configuration and result of the fit
RUN/model/model.json                 architecture, parameters and weights file of a model
RUN/serve/active.json                which model is in use
RUN/serve/model-N/predictions.json   which model made the predictions in the same folder
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from samekind.errors import ModelFileError
from samekind.files.io import atomic_write, parse_json, read_regular, read_versioned_json, shorten
from samekind.files.json_rules import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    NUMBER,
    SHAPE,
    TEXT,
    ListOf,
    MapOf,
    OrNull,
    Record,
    Rule,
    Value,
    either,
    matching,
    number,
    one_of_texts,
    whole,
)

# version of the format of run.json; in version 2, keys such as "config", "unlabelled" and "predicted" got their names
RUN_FORMAT = 2
ACTIVE_FORMAT = 2  # version of the format of active.json; 2 renamed the key "before" to "previous"
PREDICTIONS_FORMAT = 2  # version of the format of predictions.json; 2 gave the file this name
# Version of the format of model.json. 2: the compact net has GELU and mean pooling. 3: its pooling drops an odd pixel. 4: keys
# were renamed. 5: it has the column names of a data frame. 6: it has the hash of the encoder, and the side of images for the
# net.
MODEL_FORMAT = 6
MAX_SEED = 2**32

# ---------------------------------------------------------------- schemas of the manifests

DEVICE = matching(r"[a-z]{1,20}(:\d{1,4})?", "a device such as 'cpu' or 'cuda:1'")
SIZE = Value(
    "'auto', a number of pixels, or two",
    lambda value: value == "auto" or whole(1).accepts(value) or ListOf(whole(1), 2, 2).problem(value) is None,
)
EPOCHS = either(number(0), one_of_texts("auto", "quick"))
CONFIG: dict[str, Rule] = {
    "labels": OrNull(TEXT),
    "label_column": OrNull(TEXT),
    "text": OrNull(TEXT),
    "size": SIZE,
    "channels": either(whole(1, 3), one_of_texts("auto")),
    "strict": BOOLEAN,
    "method": OrNull(TEXT),
    "settings": MapOf(ANYTHING),
    "epochs": EPOCHS,
    "minutes": OrNull(number(0)),
    "device": DEVICE,
    "seed": whole(-MAX_SEED, MAX_SEED),
    "encoder": OrNull(TEXT),
    "net": TEXT,
    "views": TEXT,
}
COLUMN_KIND = one_of_texts("number", "boolean", "category", "date", "text", "image")
COLUMN = Record({"name": TEXT, "kind": COLUMN_KIND, "date_format": TEXT})
LAYOUT = Record({"columns": ListOf(COLUMN), "label": OrNull(TEXT), "name": OrNull(TEXT)})
TEXT_LAYOUT = Record({"text": OrNull(TEXT), "label": OrNull(TEXT), "name": OrNull(TEXT)}, closed=True)
ENCODING = Record(
    {
        "kind": one_of_texts("images", "vectors", "texts"),
        "source": one_of_texts("images", "array", "table", "text_table", "text_folder"),
        "shape": SHAPE,
        "dtype": matching(r"[<>|=]?[a-zA-Z]+\d*", "the name of a dtype"),
        "layout": OrNull(LAYOUT),
    },
    {"text": OrNull(TEXT_LAYOUT)},
)
SKIPPED = ListOf(Record({"path": TEXT, "reason": TEXT}, closed=True))
DATA_RESULT: dict[str, Rule] = {"n_items": COUNT, "skipped": SKIPPED, "encoding": ENCODING}
FIT_RESULT: dict[str, Rule] = {"labelled": MapOf(COUNT), "predicted": MapOf(COUNT), "cost": MapOf(NUMBER), "epochs": number(0)}
BEGUN_RUN = Record({"finished": BOOLEAN, "config": Record({}, {"data": TEXT, **CONFIG})}, {"unlabelled": BOOLEAN})
FULL_CONFIG = Record({"data": TEXT}, CONFIG)
UNLABELLED_RUN = Record({"config": FULL_CONFIG, "result": Record(DATA_RESULT)})
FRACTION = number(0)
QUALITY = Record(
    {"n_labels": COUNT, "accuracy": OrNull(FRACTION), "low": FRACTION, "high": FRACTION, "advice": ListOf(TEXT)}, closed=True
)
FITTED_RUN = Record({"config": FULL_CONFIG, "result": Record({**DATA_RESULT, **FIT_RESULT}, {"quality": OrNull(QUALITY)})})
ACTIVE = Record(
    {"version": whole(0), "model": matching(r"(serve/)?model(-\d{1,9})?", "the folder of a model in this run")},
    {"previous": OrNull(whole(0))},
)
PREDICTIONS = Record(
    {},
    {
        "weights": TEXT,
        "class_ids": ListOf(whole(0)),
        "labels_seq": COUNT,
        "created": TEXT,
        "mode": TEXT,
        "audit_used": BOOLEAN,
        "cost": MapOf(NUMBER),
    },
)
FEATURE_COLUMN = Record(
    {
        "name": TEXT,
        "kind": COLUMN_KIND,
        "role": one_of_texts("number", "one_hot", "frequent", "date", "text", "image", "dropped"),
        "note": TEXT,
        "date_format": TEXT,
        "categories": ListOf(TEXT),
        "counts": MapOf(whole(1)),
        "origin": NUMBER,
    },
    closed=True,
)
NUMBER_FEATURES = Record({name: ListOf(NUMBER) for name in ("medians", "flagged", "center", "scale")}, closed=True)
TABLE = Record(
    {
        "columns": ListOf(FEATURE_COLUMN, 1),
        "numbers": NUMBER_FEATURES,
        "categories": ListOf(ListOf(TEXT, 1)),
        "texts": ListOf(Record({"name": TEXT, "width": whole(1), "factor": NUMBER}, closed=True)),
        "text_encoder": TEXT,
        "parts_factor": NUMBER,
        "images": ListOf(Record({"name": TEXT, "encoder": TEXT, "width": whole(1)}, closed=True)),
    },
    closed=True,
)
MODEL = Record(
    {
        "weights": matching(r"weights-[0-9a-f]{16}\.safetensors", "the name of a weights file beside it"),
        "net": OrNull(TEXT),
        "encoder": OrNull(TEXT),
        "encoder_hash": OrNull(TEXT),
        "custom_encoder": BOOLEAN,
        "device": DEVICE,
        "input": Record(
            {"shape": SHAPE, "is_uint8": BOOLEAN, "feature_names": OrNull(ListOf(TEXT, 1)), "side": OrNull(whole(1))},
            {"kind": one_of_texts("text", "table"), "table": TABLE},
        ),
        "shape": SHAPE,
        "classes": ListOf(either(TEXT, NUMBER, BOOLEAN), 1),
        "classes_dtype": matching(r"[<>|=][biufUS]\d{1,6}", "the dtype of class labels"),
        "predictor": MapOf(ANYTHING),
        "metadata": MapOf(ANYTHING),
    },
    {"encoder_weights": OrNull(matching(r"encoder-[0-9a-f]{16}\.safetensors", "the name of a weights file of an encoder"))},
)
SCALAR = either(TEXT, NUMBER, BOOLEAN, Value("a list of numbers", lambda value: ListOf(NUMBER, most=8).problem(value) is None))
PARAMETERS = Record(
    {},
    {
        "method": TEXT,
        "settings": OrNull(MapOf(ANYTHING)),
        "preset": TEXT,
        "views": TEXT,
        "epochs": EPOCHS,
        "minutes": OrNull(number(0)),
        "device": DEVICE,
        "random_state": OrNull(whole(-MAX_SEED, MAX_SEED)),
        "encoder": OrNull(TEXT),
    },
)
FIT_METADATA = Record(
    {
        "parameters": PARAMETERS,
        "history": ListOf(MapOf(ANYTHING)),
        "cost": MapOf(NUMBER),
        "n_iter": COUNT,
        "epochs": number(0),
    },
    {"quality": OrNull(QUALITY)},
)

# ---------------------------------------------------------------- reading and writing manifests


def read_run_manifest(run: Path) -> dict[str, Any]:
    """Return the content of run.json of a run, which may be unfinished."""
    path, next_step = run / "run.json", "Fit again into another folder."
    manifest = read_versioned_json(path, RUN_FORMAT, made_by="`samekind fit`", next_step=next_step)
    _require(BEGUN_RUN, manifest, path, next_step)
    if manifest["finished"]:
        _require(FITTED_RUN, manifest, path, next_step)
    elif manifest.get("unlabelled"):
        _require(UNLABELLED_RUN if "result" in manifest else Record({"config": FULL_CONFIG}), manifest, path, next_step)
    return manifest


def read_finished_run_manifest(run: Path) -> dict[str, Any]:
    """Return the content of run.json; raise ModelFileError unless the fit is finished, or the data of an unlabelled
    project read.
    """
    manifest = read_run_manifest(run)
    is_ready = manifest["finished"] or (manifest.get("unlabelled") and "result" in manifest)
    if not is_ready:
        raise ModelFileError(f"{run} holds a fit that is not finished. Run its `samekind fit` command again to resume it.")
    return manifest


def is_run(folder: Path) -> bool:
    """Return whether a folder is a run, finished or not, of any format version, and even if its run.json is damaged."""
    try:
        content = parse_json(read_regular(folder / "run.json"))
    except OSError:
        return False
    except ValueError:
        return any((folder / name).is_dir() for name in ("model", "checkpoints", "serve"))
    return isinstance(content, dict) and {"format", "finished"} <= content.keys()


def read_model_manifest(folder: Path) -> dict[str, Any]:
    """Return the content of model.json in the folder of a model."""
    path, next_step = folder / "model.json", "Save the model again."
    manifest = read_versioned_json(path, MODEL_FORMAT, made_by="save()", next_step=next_step)
    _require(MODEL, manifest, path, next_step)
    return manifest


def require_fit_metadata(metadata: Mapping[str, Any], saved: Collection[str]) -> None:
    """Raise ModelFileError unless the metadata have the form in which an estimator saves them.

    `saved` are the names of the parameters that are saved.
    """
    problem = FIT_METADATA.problem(dict(metadata), "metadata")
    for name, value in metadata["parameters"].items() if problem is None else ():
        if name not in saved:
            problem = f"metadata.parameters holds {shorten(name)}, which is never saved"
        elif name not in PARAMETERS.optional:
            problem = problem or OrNull(SCALAR).problem(value, f"metadata.parameters.{name}")
    if problem is not None:
        raise ModelFileError(f"model.json was changed: {problem}. Save the model again.")


def read_predictions_manifest(folder: Path) -> dict[str, Any]:
    """Return the content of predictions.json in the folder of a model's predictions."""
    path, next_step = folder / "predictions.json", "Remove that folder, then start samekind serve again."
    manifest = read_versioned_json(path, PREDICTIONS_FORMAT, made_by="`samekind serve`", next_step=next_step)
    _require(PREDICTIONS, manifest, path, next_step)
    return manifest


def read_active_model(run: Path) -> dict[str, Any]:
    """Return the content of active.json: `version`, `model` (a folder in the run) and `previous`.

    If no model was activated on the page, an empty dict is returned.
    """
    path, next_step = run / "serve" / "active.json", "Remove this file to use the model of the fit."
    if not path.exists():
        return {}
    manifest = read_versioned_json(path, ACTIVE_FORMAT, made_by="`samekind serve`", next_step=next_step)
    _require(ACTIVE, manifest, path, next_step)
    return manifest


def _require(rule: Rule, manifest: Any, path: Path, next_step: str) -> None:
    """Raise ModelFileError if the content of a file breaks the rule for such files."""
    problem = rule.problem(manifest)
    if problem is not None:
        raise ModelFileError(f"{path} was changed: {problem}. {next_step}")


def write_active_model(run: Path, version: int, folder: Path, previous: int | None) -> None:
    """Write active.json: the version and folder of the model that is active from now on, and the version before it."""
    model = folder.relative_to(run).as_posix()
    manifest = {"format": ACTIVE_FORMAT, "version": version, "model": model, "previous": previous}
    atomic_write(run / "serve" / "active.json", (json.dumps(manifest) + "\n").encode(), ModelFileError)
