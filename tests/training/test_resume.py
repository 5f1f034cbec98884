"""A run that was stopped or killed resumes bit for bit, or is refused with the reason."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from tests.training import tiny
from torch import Tensor, nn

from samekind import SemiSupervisedClassifier
from samekind.data.augment.transforms import GaussianNoise, Views
from samekind.data.dataset import Dataset
from samekind.errors import CheckpointError, CheckpointWarning, Interrupted
from samekind.training.checkpoint import LOCK, CheckpointDir, decode, encode, newest
from samekind.training.schedules import Schedule
from samekind.training.trainer import TrainConfig, TrainResult, train

NOISE = GaussianNoise(0.1)


class At:
    """Noise that runs a function at its n-th call."""

    def __init__(self, n_calls: int, what: Callable[[], Any]) -> None:
        self.left, self.what = n_calls, what

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        self.left -= 1
        if self.left == 0:
            self.what()
        return NOISE(x, rows, generator)


def at_step(step: int, what: Callable[[], Any]) -> Views:
    """Return views that run a function in this step; mean_teacher uses three views per step."""
    return {"weak": At(3 * step + 1, what)}


def send(*signals: signal.Signals) -> Callable[[], None]:
    def what() -> None:
        for number in signals:
            os.kill(os.getpid(), number)

    return what


def run(folder: Path | None, views: Views | None = None, **changes: Any) -> tuple[dict[str, Tensor], TrainResult]:
    method = tiny.method()
    trained = train(method, tiny.dataset(), views or tiny.views(), tiny.plan(folder, **changes))
    return {name: tensor.clone() for name, tensor in method.state_dict().items()}, trained


@pytest.fixture(scope="module")
def whole() -> tuple[dict[str, Tensor], TrainResult]:
    return run(None)


def require_equal(one: tuple[dict[str, Tensor], TrainResult], other: tuple[dict[str, Tensor], TrainResult]) -> None:
    assert all(torch.equal(tensor, other[0][name]) for name, tensor in one[0].items())
    assert one[1].history == other[1].history
    assert one[1].cost["flops"] == other[1].cost["flops"]


def stopped(folder: Path, step: int, **changes: Any) -> Interrupted:
    with pytest.raises(Interrupted) as caught:
        run(folder, at_step(step, send(signal.SIGINT)), **changes)
    return caught.value


# ---------------------------------------------------------------- killed


def test_twenty_runs_killed_at_random_moments_all_end_with_the_same_weights(tmp_path: Path) -> None:
    # SIGKILL, once or twice each; with a checkpoint after every step, many a kill falls into the writing of one
    result = subprocess.run([sys.executable, tiny.__file__, "kill", tmp_path, "20"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["same"] == found["runs"] == 20
    assert min(found["kills"]) >= 1
    assert found["torn"] > 0


# ---------------------------------------------------------------- stopped and resumed


def test_writing_checkpoints_changes_no_result(tmp_path: Path, whole: tuple[dict[str, Tensor], TrainResult]) -> None:
    require_equal(run(tmp_path), whole)


@pytest.mark.parametrize("step", [0, 17, tiny.STEPS - 1])
def test_a_stopped_run_resumes_bit_for_bit(tmp_path: Path, step: int, whole: tuple[dict[str, Tensor], TrainResult]) -> None:
    stopped(tmp_path, step)
    require_equal(run(tmp_path), whole)


def test_a_run_can_be_stopped_again_and_again(tmp_path: Path, whole: tuple[dict[str, Tensor], TrainResult]) -> None:
    for _ in range(4):
        stopped(tmp_path, 6)  # six steps further each time
    require_equal(run(tmp_path), whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_the_step_and_the_message_explains_resuming(tmp_path: Path, number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as caught:
        run(tmp_path, at_step(5, send(number)), save_every=1e9)
    assert str(caught.value) == (
        f"stopped by {number.name} after step 6 of {tiny.STEPS}. The run is saved in {tmp_path}. Run the same "
        "command again to resume."
    )
    assert caught.value.exit_code == code
    assert CheckpointDir(tmp_path).newest() is not None
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, at_step(5, send(signal.SIGINT, signal.SIGINT)), save_every=1e9)
    assert newest(tmp_path) is None


def test_a_second_sigterm_does_not_disturb_the_saving(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match="stopped by SIGTERM after step 6"):
        run(tmp_path, at_step(5, send(signal.SIGTERM, signal.SIGTERM)), save_every=1e9)


def test_without_a_checkpoint_signals_keep_their_usual_handlers() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(None, at_step(5, send(signal.SIGINT)))


def test_in_another_thread_a_run_is_saved_too_and_signal_handlers_stay(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=run, args=(tmp_path,))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is before
    assert CheckpointDir(tmp_path).newest() is not None


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    first = run(tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}

    def refuse() -> None:
        raise AssertionError("a step was taken")

    again = run(tmp_path, at_step(0, refuse))
    require_equal(again, first)
    assert again[1].cost == first[1].cost
    assert files == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_without_time_to_save_there_is_one_checkpoint_at_the_end(tmp_path: Path) -> None:
    run(tmp_path, save_every=1e9)
    assert sorted(path.name[:14] for path in tmp_path.iterdir()) == [LOCK, f"step-{tiny.STEPS:09d}"]


def test_the_global_random_states_of_python_numpy_and_torch_are_saved(tmp_path: Path) -> None:
    # A net may draw from torch, from Python and from numpy; the caller's own states are left as they were

    class Restless(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * (1.0 + 0.1 * random.random() + 0.1 * float(np.random.random()) + 0.1 * torch.rand(x.shape))

    def its_run(folder: Path, views: Views) -> dict[str, Tensor]:
        random.seed(4)
        np.random.seed(4)
        method = tiny.method()
        method.student.features = nn.Sequential(Restless(), method.student.features)
        train(method, tiny.dataset(), views, tiny.plan(folder))
        return dict(method.state_dict())

    expected = its_run(tmp_path / "whole", tiny.views())
    with pytest.raises(Interrupted):
        its_run(tmp_path / "run", at_step(9, send(signal.SIGINT)))
    found = its_run(tmp_path / "run", tiny.views())
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_resuming_a_run_leaves_the_random_state_of_the_caller_unchanged(tmp_path: Path) -> None:
    stopped(tmp_path, 9)
    random.seed(5)
    np.random.seed(5)
    run(tmp_path)
    assert random.random() == random.Random(5).random()
    assert np.random.random() == np.random.RandomState(5).random()


# ---------------------------------------------------------------- what is recorded


def test_the_history_file_of_a_run_with_a_break_is_that_of_one_without(tmp_path: Path) -> None:
    run(None, history=tmp_path / "whole.jsonl")
    stopped(tmp_path / "run", 20, history=tmp_path / "run.jsonl", save_every=1e9)
    with (tmp_path / "run.jsonl").open("a") as file:
        file.write('{"step": 99}\n{"ste')  # what a killed run wrote after its last checkpoint
    run(tmp_path / "run", history=tmp_path / "run.jsonl")
    expected, found = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()] for name in ("whole.jsonl", "run.jsonl")
    )
    for lines in (expected, found):
        seconds = [line.pop("seconds") for line in lines]
        assert seconds == sorted(seconds)
    assert found == expected


def test_a_history_file_that_is_gone_is_written_again(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 20, history=tmp_path / "history.jsonl")
    (tmp_path / "history.jsonl").unlink()
    _, trained = run(tmp_path / "run", history=tmp_path / "history.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [record["step"] for record in trained.history]


def test_the_time_of_all_sessions_counts(tmp_path: Path) -> None:
    stopped(tmp_path, 20)
    blob = newest(tmp_path)
    assert blob is not None
    earlier = decode(blob).metadata["meter"]["seconds"]
    assert run(tmp_path)[1].cost["seconds"] > earlier > 0


# ---------------------------------------------------------------- damaged and full


def test_a_run_resumes_from_the_previous_checkpoint_if_the_last_is_damaged(
    tmp_path: Path, whole: tuple[dict[str, Tensor], TrainResult]
) -> None:
    stopped(tmp_path, 20)
    last = max(tmp_path.iterdir())
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.warns(CheckpointWarning, match="step-000000021.* is damaged.*step-000000020"):
        again = run(tmp_path)
    require_equal(again, whole)


def test_on_a_full_disk_training_continues_and_the_previous_checkpoint_is_kept(
    tmp_path: Path, whole: tuple[dict[str, Tensor], TrainResult]
) -> None:
    stopped(tmp_path, 9)
    with pytest.warns(CheckpointWarning) as caught, tiny.full_disk():
        result = run(tmp_path)
    messages = [str(warning.message) for warning in caught]
    assert "the checkpoint of step 11 was not saved" in messages[0]
    assert "File too large" in messages[0]
    assert messages[0].endswith(f"The checkpoint of step 10 is kept. Make room in {tmp_path}. Training continues.")
    assert "Training is complete; if the run is repeated, it resumes from the last checkpoint that was saved." in messages[-1]
    require_equal(result, whole)
    require_equal(run(tmp_path), whole)  # room again: from step 10 on, once more


def test_if_stopped_on_a_full_disk_the_message_reports_that_the_last_steps_are_lost(tmp_path: Path) -> None:
    with (
        pytest.raises(Interrupted, match=r"the checkpoint of step 1 was not saved.*There is no earlier checkpoint"),
        tiny.full_disk(),
    ):
        run(tmp_path, at_step(0, send(signal.SIGINT)), save_every=1e9)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


# ---------------------------------------------------------------- another run


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"seed": 3}, "seed was 2 and is 3"),
        ({"n_unlabelled": 12}, r"batch_size was \[8, 16\] and is \[8, 12\]"),
        ({"schedule": Schedule(lr_max=0.02)}, "lr_max was 0.01 and is 0.02"),
        ({"settings": {"colour": "red"}}, "colour was None and is 'red'"),
    ],
)
def test_the_run_of_other_settings_is_refused_and_left_as_it_is(
    tmp_path: Path, changes: dict[str, Any], difference: str
) -> None:
    stopped(tmp_path, 5)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other: TrainConfig = replace(tiny.plan(tmp_path), **changes)
    with pytest.raises(CheckpointError, match=f"holds another run: {difference}. Use the same arguments to resume it"):
        train(tiny.method(), tiny.dataset(), tiny.views(), other)
    assert files == {path: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.parametrize("what", ["X", "y", "net", "settings"])
def test_the_run_of_other_data_another_net_or_another_method_is_refused(tmp_path: Path, what: str) -> None:
    stopped(tmp_path, 5)
    dataset, method = tiny.dataset(), tiny.method()
    if what == "X":
        dataset = Dataset(dataset.x + 1e-6, dataset.y, 3)
    elif what == "y":
        dataset = Dataset(dataset.x, torch.where(torch.arange(48) == 0, -1, dataset.y), 3)
    elif what == "net":
        method.student.features.append(nn.Linear(8, 8))
    else:
        method.config = replace(method.config, rampup=0.5)
    differences = {
        "X": "X has changed",
        "y": "y has changed",
        "net": "student.features.3.weight was None",
        "settings": "rampup was",
    }
    with pytest.raises(CheckpointError, match=differences[what]):
        train(method, dataset, tiny.views(), tiny.plan(tmp_path))


# ---------------------------------------------------------------- the estimator


def blobs() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    X, y = make_blobs(60, n_features=4, centers=3, random_state=3)
    return X, np.where(np.arange(60) < 12, y, -1)


def estimator(folder: Path | None, views: Views | None = None, **changes: Any) -> SemiSupervisedClassifier:
    views = views or {"labelled_only": NOISE, "weak": NOISE}
    return SemiSupervisedClassifier(**{"epochs": 20, "views": views, "random_state": 0, "checkpoint": folder, **changes})


class Stopping(At):
    """Of the same name at every fit: views are known to a checkpoint by the names of their kinds."""


def test_a_stopped_fit_resumes_and_gives_the_same_predictions(tmp_path: Path) -> None:
    X, y = blobs()
    never = Stopping(0, lambda: None)
    expected = estimator(None, {"labelled_only": NOISE, "weak": never}).fit(X, y)
    with pytest.raises(Interrupted, match="Run the same command again"):
        estimator(tmp_path, {"labelled_only": NOISE, "weak": Stopping(40, send(signal.SIGINT))}).fit(X, y)
    found = estimator(tmp_path, {"labelled_only": NOISE, "weak": never}).fit(X, y)
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    np.testing.assert_array_equal(found.similarity(X), expected.similarity(X))
    assert found.history_ == expected.history_


def test_a_finished_fit_is_read_and_not_repeated(tmp_path: Path) -> None:
    X, y = blobs()
    first = estimator(tmp_path).fit(X, y)
    again = estimator(tmp_path).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), first.predict_proba(X))
    assert again.cost_ == first.cost_


@pytest.mark.parametrize(("save_every", "steps"), [(1e9, ["last"]), (0.0, ["last but one", "last"])])
def test_a_fit_is_saved_every_save_every_seconds(tmp_path: Path, save_every: float, steps: list[str]) -> None:
    fitted = estimator(tmp_path, epochs=3, save_every=save_every).fit(*blobs())
    names = {fitted.n_iter_ - 1: "last but one", fitted.n_iter_: "last"}
    assert [names[int(path.name[5:14])] for path in sorted(tmp_path.glob("step-*"))] == steps


def test_without_a_random_state_a_fit_keeps_the_seed_it_began_with(tmp_path: Path) -> None:
    X, y = blobs()
    first = estimator(tmp_path, random_state=None).fit(X, y)
    again = estimator(tmp_path, random_state=None).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), first.predict_proba(X))


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"learning_rate": 0.01}, "lr_max was 0.003 and is 0.01"),
        ({"settings": {"beta": 2.0}}, "beta was 3.0 and is 2.0"),
        ({"method": "mean_teacher"}, "method was 'learned_graph' and is 'mean_teacher'"),
        ({"epochs": 21}, "steps was 20 and is 21"),
        ({"random_state": 1}, r"seed was \d+ and is \d+"),
        ({"precision": "bfloat16"}, "precision was 'auto' and is 'bfloat16'"),
    ],
)
def test_a_fit_with_other_settings_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], difference: str) -> None:
    X, y = blobs()
    estimator(tmp_path).fit(X, y)
    with pytest.raises(CheckpointError, match=difference):
        estimator(tmp_path, **changes).fit(X, y)


def test_a_fit_on_other_labels_is_refused(tmp_path: Path) -> None:
    X, y = blobs()
    estimator(tmp_path).fit(X, y)
    y[30] = 0
    with pytest.raises(CheckpointError, match="y has changed"):
        estimator(tmp_path).fit(X, y)


# ---------------------------------------------------------------- supervised warm-up


@pytest.mark.parametrize("n_calls", [5, 29, 33, 60])
def test_a_fit_with_a_supervised_warmup_resumes_bit_for_bit_from_either_stage(tmp_path: Path, n_calls: int) -> None:
    # 30 views in the warm-up, then three per step; dropout draws from the global random state
    x, y = make_blobs(40, centers=2, random_state=0)
    shown = np.where(np.arange(40) < 10, y, -1)

    def fitted(at: At | None, checkpoint: Path | None) -> SemiSupervisedClassifier:
        net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.3))
        with torch.no_grad():
            for p in net.parameters():
                p.copy_(torch.linspace(-1, 1, p.numel()).view(p.shape))
        views = dict.fromkeys(("labelled_only", "weak"), at or NOISE)
        model = SemiSupervisedClassifier(
            "mean_teacher",
            net=net,
            views=views,
            epochs=30,
            batch_size=(8, 20),
            supervised_warmup=0.5,
            random_state=0,
            checkpoint=checkpoint,
        )
        return model.fit(x, shown)

    whole = fitted(At(10**9, int), None)
    with pytest.raises(Interrupted):
        fitted(At(n_calls, send(signal.SIGINT)), tmp_path)
    resumed = fitted(At(10**9, int), tmp_path)
    assert np.array_equal(whole.predict_proba(x), resumed.predict_proba(x))
    assert whole.history_ == resumed.history_
    assert resumed.cost_["steps"] == 60


# ---------------------------------------------------------------- methods with a state for every sample


@pytest.mark.parametrize(
    "name", ["mean_teacher+sntg", "mean_teacher+fast_swa", "lpdssl", "lpdssl+mean_teacher", "gscnn", "dataset_graph"]
)
def test_the_state_that_a_method_keeps_for_every_sample_is_restored(tmp_path: Path, name: str) -> None:
    # stopped at the 61st view, in the middle of the run and between two full passes

    def run_of(folder: Path | None, views: Views) -> dict[str, Tensor]:
        method = tiny.method(name)
        train(method, tiny.dataset(), views, tiny.plan(folder))
        return {key: tensor.clone() for key, tensor in method.state_dict().items()}

    expected = run_of(None, tiny.views())
    with pytest.raises(Interrupted):
        run_of(tmp_path, {"weak": At(61, send(signal.SIGINT))})
    found = run_of(tmp_path, tiny.views())
    assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())


# ---------------------------------------------------------------- checkpoints that were changed


@pytest.fixture(scope="module")
def middle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint from the middle of a fit."""
    folder = tmp_path_factory.mktemp("middle")
    changed_fit(folder)
    max(folder.glob("step-*")).unlink()
    return next(folder.glob("step-*"))


def changed_fit(folder: Path) -> SemiSupervisedClassifier:
    X, y = make_blobs(40, n_features=3, centers=2, random_state=0)
    y[10:] = -1
    model = SemiSupervisedClassifier("mean_teacher", epochs=4, random_state=0, checkpoint=folder, save_every=0)
    return model.fit(X, y)


def write_changed(middle: Path, folder: Path, change: Callable[[dict[str, Any], dict[str, Tensor]], object]) -> None:
    """Write the checkpoint with other metadata or tensors, under a name that fits its content."""
    checkpoint = decode(middle.read_bytes())
    metadata, tensors = json.loads(json.dumps(checkpoint.metadata)), dict(checkpoint.tensors)
    change(metadata, tensors)
    with CheckpointDir(folder) as directory:
        directory.put(checkpoint.step, encode(replace(checkpoint, tensors=tensors, metadata=metadata)))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda metadata, _: metadata.update(step="1"), "step is '1'"),
        (lambda metadata, _: metadata.update(step=10**9), "is of step 1000000000, and this run has only"),
        (lambda metadata, _: metadata.pop("run"), "run is missing"),
        (lambda metadata, _: metadata.update(run=[1]), "run is"),
        (lambda metadata, _: metadata["monitor"].update(records=[{}]), r"records\[0\].step is missing"),
        (lambda metadata, _: metadata["meter"].update(seconds=None), "seconds is None"),
        (lambda metadata, _: metadata.update(cost={"steps": 1}), "is missing"),
        (lambda _, tensors: tensors.pop("random"), "random is missing"),
        (lambda _, tensors: tensors.pop("method.ema_schedule.step"), "ema_schedule.step is missing"),
        (lambda _, tensors: tensors.pop("sampler.generator"), "sampler.generator is missing"),
        (lambda _, tensors: tensors.pop("optimizer.0.exp_avg"), "optimizer.0.exp_avg is missing"),
        (lambda _, tensors: tensors.pop("optimizer.1.step"), "optimizer.1.step is missing"),
        (lambda _, tensors: tensors.update(more=torch.zeros(2)), "'more' has the shape"),
        (lambda _, tensors: tensors.update({"optimizer.99.exp_avg": torch.zeros(2)}), "has the shape"),
        (lambda _, tensors: tensors.update({"optimizer.x": torch.zeros(2)}), "does not fit this run"),
        (lambda _, tensors: tensors.update(random=tensors["random"][:, :9]), "the saved random state"),
        (lambda _, tensors: tensors.update(random=tensors["random"].fill_(255)), "does not fit this run"),
        (lambda _, tensors: tensors.update({"sampler.first.at": torch.tensor(-3)}), "outside the order"),
        (lambda _, tensors: tensors.update({"sampler.generator": tensors["sampler.generator"].fill_(255)}), "does not fit"),
    ],
)
def test_a_changed_checkpoint_ends_in_one_sentence(
    middle: Path, tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Tensor]], object], match: str
) -> None:
    write_changed(middle, tmp_path, change)
    with pytest.raises(CheckpointError, match=match) as caught:
        changed_fit(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_checkpoint_that_is_a_pipe_or_a_folder_counts_as_damaged(
    middle: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / middle.name)
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* is complete"):
        changed_fit(tmp_path)


def test_an_unchanged_copy_of_the_checkpoint_resumes(middle: Path, tmp_path: Path) -> None:
    write_changed(middle, tmp_path / "copy", lambda metadata, tensors: None)
    resumed, whole = changed_fit(tmp_path / "copy"), changed_fit(tmp_path / "whole")
    assert np.array_equal(resumed.fitted_proba(), whole.fitted_proba())
