"""What a run costs, and what is shown of it while it lasts."""

from __future__ import annotations

import io
import mmap
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from tests.training import tiny
from torch import nn

from samekind import SemiSupervisedClassifier
from samekind.data.augment.transforms import GaussianNoise
from samekind.data.dataset import Dataset
from samekind.errors import SettingError
from samekind.flops import count_flops
from samekind.graphs.linear_systems import conjugate_gradients
from samekind.graphs.propagation import local_global_consistency
from samekind.methods import supervised_method
from samekind.methods.base import Task
from samekind.nets.classifier import Classifier
from samekind.progress import TrainingBar
from samekind.training.metering import MB, Meter, memory, merge_costs
from samekind.training.monitor import TensorBoardWriter, scalars
from samekind.training.schedules import Schedule
from samekind.training.trainer import TrainConfig, train


def test_a_summary_holds_time_speed_and_memory() -> None:
    cost = train(tiny.method(), tiny.dataset(), tiny.views(), tiny.plan(None)).cost
    times = {"seconds", "cpu_seconds", "steps_per_second", "rows_per_second", "flops_per_second"}
    assert set(cost) == {"steps", "rows", "flops", "full_pass_flops", "peak_memory_mb"} | times
    assert cost["steps"] == tiny.STEPS and cost["rows"] == 24 * tiny.STEPS
    assert cost["steps_per_second"] == pytest.approx(tiny.STEPS / cost["seconds"], rel=0.05)
    assert cost["rows_per_second"] == pytest.approx(24 * cost["steps_per_second"], rel=0.05)
    assert 10 < cost["peak_memory_mb"] < 100_000


def test_the_work_of_all_steps_is_counted() -> None:
    # of a linear net 2 x 2: 4 multiplications and additions a row forward, and 4 for the gradient of its weights
    net = Classifier(nn.Identity(), 2, 2, head=nn.Linear(2, 2, bias=False))
    dataset = Dataset(torch.randn(9, 2), torch.tensor([0, 1] + [-1] * 7), 2)
    plan = TrainConfig(3, n_labelled=4, n_unlabelled=6, schedule=Schedule(), seed=0)
    alone = train(supervised_method(net, Task(2, 2, 9, 3)), dataset, {"labelled_only": GaussianNoise(0.1)}, plan).cost
    assert alone["flops"] == 3 * 4 * (8 + 8)
    assert alone["flops_per_second"] > 0


class Product(nn.Module):
    """Count the operations of one product of a 2 x 3 and a 3 x n matrix."""

    def forward(self, n: int) -> torch.Tensor:
        return torch.ones(2, 3) @ torch.ones(3, n)


def test_steps_are_counted_again_when_a_loss_term_starts() -> None:
    meter, product = Meter(), Product()
    sizes = [1] * 10 + [5] * 10  # from step 10 on there is another term, which costs more
    for step, n in enumerate(sizes):
        with meter.step(step, 100):
            product(n)
        meter.note_terms(["a", "b"] if n == 5 else ["a"])
    assert meter.summary(20, 1)["flops"] == 11 * 12 + 9 * 60  # step 10 itself is taken to cost as much as step 9


def test_a_step_that_costs_more_without_a_new_term_is_noticed_within_a_fifth_of_the_run() -> None:
    meter, product = Meter(), Product()
    for step in range(100):
        with meter.step(step, 100):
            product(1 if step < 50 else 5)
        meter.note_terms(["a"])
    assert meter.summary(100, 1)["flops"] == 60 * 12 + 40 * 60  # counted again at step 60


def test_operations_of_numpy_and_scipy_count_inside_a_full_pass() -> None:
    meter = Meter()
    with meter.full_pass():
        Product()(1)
        W = csr_array(np.ones((4, 4)) - np.eye(4))
        F = local_global_consistency(W, np.array([0, 1, -1, -1]), 2, 0.9)
    assert F.shape == (4, 2)
    cholesky_and_triangles = round(4**3 / 3 + 2 * 4**2 * 2)
    assert meter.summary(1, 1)["full_pass_flops"] == 12 + cholesky_and_triangles


def test_operations_of_conjugate_gradients_are_counted_for_each_iteration() -> None:
    A, B = csr_array(np.diag([1.0, 2.0])), np.array([[1.0], [1.0]])
    with count_flops() as flops:
        conjugate_gradients(A, B)  # two different eigenvalues: two iterations
    assert flops() == 2 * (2 * 2 * 1 + 10 * 2)


def test_only_labelled_samples_count_if_the_method_uses_no_others() -> None:
    cost = train(tiny.method("supervised"), tiny.dataset(), tiny.views(), tiny.plan(None)).cost
    assert cost["rows_per_second"] == pytest.approx(8 * cost["steps_per_second"], rel=0.05)


def test_a_meter_adds_the_cost_of_earlier_sessions() -> None:
    meter = Meter()
    meter.load_state_dict({**Meter().state_dict(), "seconds": 100.0, "cpu_seconds": 50.0, "peak_memory": 10**15, "flops": 7})
    time.sleep(0.01)
    assert 100.01 <= meter.seconds < 101
    assert 50.0 <= meter.cpu_seconds < 51
    assert meter.summary(1, 1)["flops"] == 7
    assert meter.summary(1, 1)["peak_memory_mb"] == pytest.approx(10**15 / MB, rel=1e-3)


def test_memory_counts_private_pages_and_not_mapped_files(tmp_path: Path) -> None:
    np.save(tmp_path / "zeros.npy", np.zeros(64 * MB, dtype=np.uint8))
    before = memory()
    mapped = np.load(tmp_path / "zeros.npy", mmap_mode="r")
    assert mapped.sum() == 0  # every page was touched
    assert memory() - before < 16 * MB
    # asked for outside the heap, which may have as much to spare from other tests
    with mmap.mmap(-1, 64 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        held.write(b"x" * (64 * MB))
        assert memory() - before > 48 * MB


def test_uint8_images_on_disk_are_never_held_as_floats(tmp_path: Path) -> None:
    # 24,000 images of 32 x 32 x 3 bytes: 281 MB as floats, and the net sees them all after training
    n = 24_000
    images = np.lib.format.open_memmap(tmp_path / "images.npy", mode="w+", dtype=np.uint8, shape=(n, 32, 32, 3))
    images[:] = np.arange(32, dtype=np.uint8)[:, None, None] * 8
    y = np.where(np.arange(n) < 20, np.arange(n) % 2, -1)
    views = {"labelled_only": GaussianNoise(0.1), "weak": GaussianNoise(0.1)}
    quick: dict[str, Any] = {"net": Mean(), "views": views, "random_state": 0}
    SemiSupervisedClassifier("supervised", **quick, epochs=1).fit(images[:100], y[:100])  # all that torch loads
    before = memory()
    model = SemiSupervisedClassifier("supervised", **quick, epochs=0.01).fit(images, y)
    assert model.cost_["peak_memory_mb"] - before / MB < 100
    assert memory() - before < 100 * MB
    assert model.predict(images[:10]).shape == (10,)


class Mean(torch.nn.Module):
    """The mean colour: as cheap as features can be."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


# ---------------------------------------------------------------- shown


def test_the_bar_shows_speed_and_terms_and_starts_where_the_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with redirect_stderr(screen := io.StringIO()):
        bar = TrainingBar(10, "demo", done=8, batch_size=24)
        for step in (8, 9):
            bar(step, {"supervised": torch.tensor(0.25)})
        bar.close()
    shown = screen.getvalue()
    assert "demo" in shown
    assert "10/10" in shown
    assert "steps/s" in shown
    assert "samples/s" in shown
    assert "supervised 0.250" in shown


def test_a_verbose_run_shows_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    train(tiny.method(), tiny.dataset(), tiny.views(), tiny.plan(None, verbose=True, title="tiny"))
    assert f"{tiny.STEPS}/{tiny.STEPS}" in capsys.readouterr().err


def test_every_number_of_a_record_has_a_name_of_its_own() -> None:
    record = {"step": 3, "loss": {"a": 0.5}, "mean_w": 0.25, "class_fractions": [0.75, 0.125]}
    assert dict(scalars(record)) == {"loss/a": 0.5, "mean_w": 0.25, "class_fractions/0": 0.75, "class_fractions/1": 0.125}


@pytest.mark.filterwarnings("ignore")  # of TensorBoard's own
def test_the_history_also_goes_to_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = train(tiny.method(), tiny.dataset(), tiny.views(), tiny.plan(None, tensorboard=tmp_path)).history
    events = EventAccumulator(str(tmp_path)).Reload()
    found = [(event.step, event.value) for event in events.Scalars("loss/supervised")]
    assert found == [(record["step"], pytest.approx(record["loss"]["supervised"])) for record in history]


def test_without_tensorboard_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(
        SettingError, match=r"TensorBoard is not installed\. Install samekind\[tensorboard\], or leave out tensorboard="
    ):
        TensorBoardWriter(tmp_path)


def test_the_cost_of_two_stages_is_their_sum() -> None:
    first = {
        "steps": 10,
        "rows": 100,
        "seconds": 2.0,
        "cpu_seconds": 1.0,
        "peak_memory_mb": 70.0,
        "flops": 6,
        "full_pass_flops": 1,
    }
    then = {
        "steps": 30,
        "rows": 60,
        "seconds": 6.0,
        "cpu_seconds": 5.0,
        "peak_memory_mb": 60.0,
        "flops": 10,
        "full_pass_flops": 2,
    }
    assert merge_costs(first, then) == {
        "steps": 40,
        "rows": 160,
        "seconds": 8.0,
        "cpu_seconds": 6.0,
        "steps_per_second": 5.0,
        "rows_per_second": 20.0,
        "peak_memory_mb": 70.0,
        "flops": 16,
        "full_pass_flops": 3,
        "flops_per_second": 2,
    }
