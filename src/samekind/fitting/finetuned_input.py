"""Input of a fit with a fine-tuned encoder: decides whether an encoder is fine-tuned, and computes what the rounds train on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from samekind.clock import Clock
from samekind.data.inputs import Labels
from samekind.defaults import classes_are_characters
from samekind.errors import CheckpointError, SettingError
from samekind.files.io import atomic_write
from samekind.fitting.finetuning import TunedEncoder, tune_encoder
from samekind.fitting.finetuning_plan import (
    END_PART,
    LEAST_VIEWS,
    MOST_VIEWS,
    Blocks,
    affordable_views,
    plan_finetuning,
    rounds_end_at,
    views_end_at,
)
from samekind.fitting.fit_options import FitOptions
from samekind.fitting.tuning_data import TuningData, TuningImages, TuningMaps
from samekind.flops import count_flops
from samekind.image_layout import as_tensor
from samekind.methods import ensemble_teacher
from samekind.nets.encoders.efficientnet import EfficientNetLite
from samekind.nets.encoders.frozen_features import Encoder, extract_features
from samekind.nets.encoders.trainable_blocks import FrozenBlocks, count_frozen_blocks
from samekind.preprocessing.augmented_maps import as_bytes, compute_maps
from samekind.preprocessing.preprocessor import FitInput
from samekind.progress import counting_bar, show_line
from samekind.training.engine import processes

EXPLICIT = ("last", "all")  # values of finetune= that are an error where no encoder can be fine-tuned
MAPS = "maps"  # folder of the stored feature maps, below the folder of the cache
VIEWS_FILE = "finetuning.json"  # in the folder of the checkpoints
TIMED_IMAGES = 64  # number of images that are timed to estimate the time for their feature maps


def finetune_input(
    fit_input: FitInput,
    labels: Labels,
    options: FitOptions,
    device: torch.device,
    clock: Clock,
    method: str = ensemble_teacher.SPEC.name,
) -> tuple[FitInput, TunedEncoder | None]:
    """Return the input of a fit with a fine-tuned encoder, and the result of the fine-tuning.

    `method` trains the encoder. Without fine-tuning, the input is returned as it is, with None.
    """
    encoder = fit_input.preprocessor.encoder
    require_tunable(encoder, options)
    enabled = options.finetune in EXPLICIT or (options.finetune == "auto" and options.minutes is not None and processes() == 1)
    if not isinstance(encoder, EfficientNetLite) or not enabled:
        return fit_input, None
    features = torch.from_numpy(np.array(fit_input.samples()))
    encoded = fit_input.with_encoder(encoder, features.numpy())
    frozen = FrozenBlocks(encoder, count_frozen_blocks(encoder))
    timing = _timing(frozen, fit_input.images, options, clock)
    data = _tuning_data(frozen, timing, encoded, labels, options, device, clock)
    if data is None:
        return encoded, None
    blocks: Blocks = "all" if options.finetune == "all" else "last"
    ends_at = rounds_end_at(options.minutes, len(data), timing.seconds_per_image)
    plan = plan_finetuning(encoder, blocks, 0 if blocks == "all" else frozen.n_frozen, len(data), ends_at)
    tuned = tune_encoder(encoder, data, labels.codes, options, plan, clock, method)
    if options.verbose:
        show_line(str(tuned))
    if tuned.encoder is None:
        return encoded, tuned
    # the features are computed from the images, as `predict` computes them, and not from stored maps, which may differ in the
    # last bits
    return fit_input.with_encoder(tuned.encoder, fit_input.encode(tuned.encoder)), tuned


def require_tunable(encoder: Encoder | None, options: FitOptions) -> None:
    """Raise SettingError if the user asks for fine-tuning, and this encoder cannot be fine-tuned or there are several
    processes.
    """
    if options.finetune not in EXPLICIT:
        return
    if not isinstance(encoder, EfficientNetLite):
        used = "no encoder of images" if encoder is None else "another encoder"
        raise SettingError(
            f"finetune is {options.finetune!r}, but only EfficientNet-lite on images can be fine-tuned, and this fit uses "
            f"{used}. For images, pass encoder='efficientnet_lite0'; for other data, leave finetune out."
        )
    if processes() > 1:
        raise SettingError(
            f"finetune is {options.finetune!r} in {processes()} processes; an encoder is fine-tuned in one process only. "
            "Start one process, or pass finetune='none'."
        )


class _Timing(NamedTuple):
    """Number of strong views to store, and the seconds that the maps of one image take."""

    views: int
    seconds_per_image: float


def _tuning_data(
    frozen: FrozenBlocks,
    timing: _Timing,
    fit_input: FitInput,
    labels: Labels,
    options: FitOptions,
    device: torch.device,
    clock: Clock,
) -> TuningData | None:
    """Return the samples of the fine-tuning; None if finetune="auto" has too little time for it."""
    flip = not classes_are_characters(labels.classes.tolist())
    images, n_classes = fit_input.images, len(labels.classes)
    frozen_features = torch.from_numpy(np.array(fit_input.samples()))
    if options.finetune == "all":
        stored = as_tensor(images if images.dtype == np.uint8 else as_bytes(images))
        return TuningImages(frozen_features, n_classes, device, 0.0, stored, flip)
    if options.finetune == "auto" and timing.views < LEAST_VIEWS:
        if options.verbose:
            show_line(f"fine-tuning: not used; {options.minutes:g} minutes are too short for it")
        return None
    n_views = max(1, timing.views)
    ends_at = rounds_end_at(options.minutes, len(images), timing.seconds_per_image)
    path = _views_file(options)
    resumes = path is not None and path.exists()
    deadline = math.inf if ends_at is None or resumes else views_end_at(clock.seconds(), 60.0 * ends_at)
    cache = None if fit_input.cache is None else replace(fit_input.cache, folder=Path(fit_input.cache.folder) / MAPS)
    with counting_bar((n_views + 1) * len(images), "computing feature maps", visible=options.verbose) as draw:
        late = partial(_is_late, clock, deadline)
        maps = compute_maps(frozen, images, n_views, flip=flip, cache=cache, on_samples=draw, is_late=late)
    _save_timing(timing._replace(views=len(maps.strong)), options)  # a fit that resumes must have the same views
    with count_flops() as counted:
        frozen.map_shape()
    return TuningMaps(frozen_features, n_classes, device, counted() * len(images) * (n_views + 1), maps, frozen.n_frozen)


def _timing(frozen: FrozenBlocks, images: Any, options: FitOptions, clock: Clock) -> _Timing:
    """Return the number of strong views for which there is time and memory, and the seconds per image.

    A fit that resumes uses the number with which it began.
    """
    path = _views_file(options)
    if path is not None and path.exists():
        return _read_timing(path)
    left = None if options.minutes is None else 60.0 * END_PART * options.minutes - clock.seconds()
    timed = images[:TIMED_IMAGES]
    extract_features(frozen, timed[:1])
    timer = Clock()
    extract_features(frozen, timed)
    seconds = timer.seconds() / len(timed)
    n_bytes = 4 * int(np.prod(frozen.map_shape()))
    return _Timing(affordable_views(len(images), n_bytes, seconds, left), seconds)


def _is_late(clock: Clock, deadline: float) -> bool:
    return clock.seconds() > deadline


def _views_file(options: FitOptions) -> Path | None:
    return None if options.checkpoint is None else Path(options.checkpoint) / VIEWS_FILE


def _save_timing(timing: _Timing, options: FitOptions) -> None:
    path = _views_file(options)
    if path is not None and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(timing._asdict()).encode())


def _read_timing(path: Path) -> _Timing:
    try:
        found = _Timing(**json.loads(path.read_text(encoding="utf-8")))
        if isinstance(found.views, int) and 0 <= found.views <= MOST_VIEWS and 0.0 < float(found.seconds_per_image) < math.inf:
            return found
    except (OSError, ValueError, TypeError, RecursionError):
        pass
    raise CheckpointError(
        f"{path} was changed or cannot be read: it must hold the number of stored views and the seconds per image. To start "
        f"again, remove the folder {path.parent}; its checkpoints are then lost."
    )
