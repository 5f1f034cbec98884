"""Fine-tuning of an encoder in a fit: half of the labels judge it, and a killed fit resumes it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samekind import SemiSupervisedClassifier
from samekind.clock import Clock
from samekind.errors import CheckpointError, SettingError
from samekind.fitting.finetuned_input import MAPS, VIEWS_FILE
from samekind.fitting.finetuning import hold_out_half
from samekind.fitting.finetuning_plan import FinetuningPlan, affordable_views, plan_finetuning, rounds_end_at, views_end_at
from samekind.nets.encoders.efficientnet import efficientnet_lite
from samekind.nets.encoders.finetuned import is_finetuned

SIDE = 32
ENCODER = f"efficientnet_lite0@{SIDE}"
# predictions for a few images may have other class fractions than the labels, which raises a warning
pytestmark = pytest.mark.filterwarnings("ignore::samekind.errors.ClassFractionWarning")


def images(n: int = 60) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return noisy images that are bright above or below, and their labels; two of three are unlabelled."""
    classes = np.arange(n) % 2
    found = np.random.default_rng(0).integers(0, 160, (n, SIDE, SIDE, 3))
    found[classes == 0, :16] += 90
    found[classes == 1, 16:] += 90
    return found.astype(np.uint8), np.where(np.arange(n) < n // 3, classes, -1)


def tuned(**options: Any) -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier(**{"encoder": ENCODER, "finetune": "last", "random_state": 0, **options}).fit(*images())


@pytest.fixture(scope="module")
def fitted() -> SemiSupervisedClassifier:
    return tuned()


@pytest.fixture(scope="module")
def frozen() -> SemiSupervisedClassifier:
    return tuned(finetune="none")


def encoder_of(model: SemiSupervisedClassifier) -> Any:
    return model.model_.preprocessor.encoder


def test_the_last_blocks_are_trained_and_the_first_stay(fitted: SemiSupervisedClassifier) -> None:
    before, after = efficientnet_lite(side=SIDE), encoder_of(fitted)
    same = [
        all(torch.equal(a, b) for a, b in zip(old.parameters(), new.parameters(), strict=True))
        for old, new in zip(before.blocks, after.blocks, strict=True)
    ]
    assert is_finetuned(after) and same == [True] * 11 + [False] * 5


def test_the_model_predicts_new_images_with_the_encoder_that_it_was_fitted_with(
    fitted: SemiSupervisedClassifier, tmp_path: Path
) -> None:
    x, _ = images()
    assert np.array_equal(fitted.transform(x), fitted.model_.train_features.numpy())
    np.testing.assert_allclose(fitted.predict_proba(x), fitted.fitted_proba(), atol=0.01)  # mixtures know the labels in the fit
    fitted.save(tmp_path / "model")
    loaded = SemiSupervisedClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(x), fitted.predict_proba(x)) and is_finetuned(encoder_of(loaded))


def test_only_labels_that_round_1_has_not_seen_tell_the_quality(
    fitted: SemiSupervisedClassifier, frozen: SemiSupervisedClassifier
) -> None:
    assert fitted.quality_ is not None and frozen.quality_ is not None
    assert (fitted.quality_.n_labels, frozen.quality_.n_labels) == (10, 20)


def test_the_cost_counts_the_operations_of_the_maps_and_of_both_rounds(
    fitted: SemiSupervisedClassifier, frozen: SemiSupervisedClassifier
) -> None:
    # 120 steps with 80 views and 64 more for the teacher; the last blocks have more than 1 MFLOP per image of 32 pixels
    assert fitted.cost_["flops"] - frozen.cost_["flops"] > 120 * (3 * 80 + 64) * 1e6


def test_updates_keep_the_weights_of_the_models_also_after_a_refit(fitted: SemiSupervisedClassifier) -> None:
    model = SemiSupervisedClassifier()
    model.__dict__ = dict(vars(fitted))
    before: Any = model.model_.predictor
    model.update([30], [1]).refit()
    after: Any = model.model_.predictor
    assert torch.equal(before.base_weights, after.base_weights)
    assert model.transduction_[30] == 1


def test_without_minutes_auto_leaves_the_encoder_frozen(frozen: SemiSupervisedClassifier) -> None:
    auto = tuned(finetune="auto")
    assert not is_finetuned(encoder_of(auto))
    assert np.array_equal(auto.fitted_proba(), frozen.fitted_proba())


def test_auto_fine_tunes_if_the_minutes_allow_it_and_logs_what_held_out_labels_show(capsys: Any) -> None:
    model = tuned(finetune="auto", minutes=1.0, verbose=True)
    logged = " ".join(capsys.readouterr().err.split())
    assert "held-out labels:" in logged and "with the frozen encoder" in logged
    assert is_finetuned(encoder_of(model)) == ("fine-tuning: not used" not in logged)


def test_too_few_minutes_leave_the_encoder_frozen_with_a_reason(capsys: Any) -> None:
    model = tuned(finetune="auto", minutes=0.001, verbose=True)
    assert not is_finetuned(encoder_of(model))
    assert "fine-tuning: not used; 0.001 minutes are too short for it" in capsys.readouterr().err


def test_all_blocks_can_be_trained() -> None:
    x, y = images(12)
    model = SemiSupervisedClassifier(encoder=ENCODER, finetune="all", random_state=0, minutes=0.02).fit(x, y)
    first = encoder_of(model).stem.weight
    assert not torch.equal(first, efficientnet_lite(side=SIDE).stem.weight)


def test_float_images_are_fine_tuned_as_well() -> None:
    x, y = images(12)
    model = SemiSupervisedClassifier(encoder=ENCODER, finetune="last", random_state=0, minutes=0.02)
    assert is_finetuned(encoder_of(model.fit((x / 255.0).astype(np.float32), y)))


def test_one_label_per_class_is_fine_tuned_without_a_test() -> None:
    x, y = images(12)
    y[2:] = -1
    model = SemiSupervisedClassifier(encoder=ENCODER, finetune="last", random_state=0, minutes=0.02).fit(x, y)
    assert is_finetuned(encoder_of(model)) and model.quality_ is not None and model.quality_.accuracy is None


@pytest.mark.parametrize("encoder", [None, lambda batch: np.asarray(batch).reshape(len(batch), -1)[:, :5]])
def test_only_efficientnet_lite_can_be_fine_tuned(encoder: Any) -> None:
    with pytest.raises(SettingError, match="finetune is 'last', but only EfficientNet-lite on images can be fine-tuned"):
        tuned(encoder=encoder, epochs="quick")
    with pytest.raises(SettingError, match="finetune is 'some'; expected 'auto', 'none', 'last' or 'all'"):
        SemiSupervisedClassifier(finetune="some").validate_parameters()  # type: ignore[arg-type]


def test_texts_and_vectors_have_no_encoder_to_fine_tune() -> None:
    for X in (["a goal", "a match", "a bank", "a loan"], np.eye(4)):
        with pytest.raises(SettingError, match="finetune is 'all', but only EfficientNet-lite on images can be fine-tuned"):
            SemiSupervisedClassifier(finetune="all").fit(X, [0, -1, 1, -1])


# ---------------------------------------------------------------- killed and resumed


@pytest.mark.parametrize("killed_round", [1, 2])
def test_a_killed_fine_tuning_resumes_to_the_same_model_bit_for_bit(
    fitted: SemiSupervisedClassifier, tmp_path: Path, killed_round: int
) -> None:
    steps = [0]

    def kill(title: str, done: int, total: int) -> None:
        steps.append(done)
        if sum(after <= before for before, after in itertools.pairwise(steps)) == killed_round - 1 and done > 1:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"checkpoint": tmp_path / "checkpoints", "cache": tmp_path / "cache", "save_every": 0.0}
    with pytest.raises(KeyboardInterrupt):
        tuned(**options, progress=kill)
    resumed = tuned(**options)
    assert np.array_equal(resumed.fitted_proba(), fitted.fitted_proba())
    assert (tmp_path / "checkpoints" / VIEWS_FILE).exists() and list((tmp_path / "cache" / MAPS).glob("features-*.npy"))


@pytest.mark.parametrize(
    "content", ["", "{}", '{"views": -1, "seconds_per_image": 1}', '{"views": "4", "seconds_per_image": 1}', "[" * 100_000]
)
def test_a_changed_number_of_views_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / VIEWS_FILE).write_text(content)
    with pytest.raises(CheckpointError, match="must hold the number of stored views and the seconds per image"):
        tuned(checkpoint=tmp_path)


# ---------------------------------------------------------------- labels, time and memory


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=60), st.integers(0, 9))
def test_half_of_the_labels_of_each_class_are_held_out(codes: list[int], seed: int) -> None:
    y = np.array(codes)
    kept = hold_out_half(y, np.random.default_rng(seed))
    assert ((kept == y) | (kept == -1)).all() and (kept[y < 0] == -1).all()
    for label in set(codes) - {-1}:
        assert (kept == label).sum() == -(-(y == label).sum() // 2)


@pytest.mark.parametrize(
    ("n", "n_bytes", "seconds", "left", "views"),
    [
        (1000, 1000, 0.01, None, 4),  # four views if there is no limit
        (1000, 1000, 0.01, 1e6, 4),
        (1000, 1000, 0.01, 120.0, 3),  # 7 s for the ensemble and 13 s for the last pass; 40 of 100 s for maps, 10 s each
        (1000, 1000, 0.01, 50.0, 0),
        (1000, 2**20, 0.01, None, 2),  # three passes of 1000 MiB fit into 3 GiB
        (100_000, 2**20, 0.01, None, 1),
    ],
)
def test_time_and_memory_limit_the_number_of_views(
    n: int, n_bytes: int, seconds: float, left: float | None, views: int
) -> None:
    assert affordable_views(n, n_bytes, seconds, left) == views


def test_round_1_gets_half_of_the_time_and_round_2_the_rest() -> None:
    plan = FinetuningPlan("last", 5, 16, 100, ends_at=rounds_end_at(10.0, 1000, 6.0 / 1300))
    first, second = (plan.end_of_round(number, Clock(earlier=180.0)) for number in (1, 2))
    assert second == pytest.approx(10.0 * 0.9 - 0.1) and first == pytest.approx((3.0 + 8.9) / 2, abs=0.1)
    assert FinetuningPlan("last", 5, 16, 100).end_of_round(1, Clock()) is None


def test_no_view_begins_after_half_of_the_time_until_the_rounds_end() -> None:
    assert views_end_at(20.0, 100.0) == 60.0
    assert views_end_at(120.0, 100.0) == 120.0


@pytest.mark.parametrize(("n", "steps"), [(10, 60), (2000, 150), (8000, 300), (10**6, 600)])
def test_steps_grow_with_the_square_root_of_the_number_of_images(n: int, steps: int) -> None:
    assert plan_finetuning(efficientnet_lite(side=SIDE), "last", 11, n, None).steps == steps
