"""Two processes under torchrun: the same steps as one process, every sample once, and a clear end if one is killed.

Starting torchrun takes seconds, so several tests share one start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training import tiny

from samekind.training.engine import LocalEngine

Results = list[dict[str, Any]]


def launch(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start tiny.py in two processes whose messages go to one pipe."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    together = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}
    return subprocess.Popen([*launcher, tiny.__file__, *map(str, arguments)], **together)  # type: ignore[call-overload, no-any-return]


def read_results(out: Path) -> Results:
    return [json.loads(out.with_suffix(f".{rank}").read_text()) for rank in (0, 1)]


def wait_for(process: subprocess.Popen[str]) -> str:
    """Return the output of a process when it has ended."""
    output, _ = process.communicate(timeout=600)
    return output


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("many") / "out"
    process = launch("many", out)
    output = wait_for(process)
    assert process.returncode == 0, output
    return read_results(out)


@pytest.mark.parametrize("name", tiny.METHODS)
def test_gradients_are_those_of_one_process_with_the_same_batch(many: Results, name: str) -> None:
    one = torch.tensor(tiny.gradients(name, LocalEngine()))
    assert one.abs().max() > 1e-3
    for result in many:
        torch.testing.assert_close(torch.tensor(result[name]), one, atol=1e-5, rtol=0.0)
    assert many[0][name] == many[1][name]


def test_no_sample_is_lost_or_taken_twice_in_an_epoch(many: Results) -> None:
    taken = [row for result in many for rows in result["rows"] for row in rows]
    assert sorted(taken) == list(range(48))
    assert [len(result["rows"]) for result in many] == [3, 3]


def test_after_a_run_both_processes_hold_the_same_weights_and_records(many: Results) -> None:
    assert many[0]["run"]["weights"] == many[1]["run"]["weights"]
    assert many[0]["run"]["history"] == many[1]["run"]["history"]


def test_each_process_draws_its_own_random_numbers(many: Results) -> None:
    # or dropout would drop the same units in all parts of a batch
    assert many[0]["chance"] != many[1]["chance"]


def test_nets_that_differ_at_the_start_and_batch_norm_end_with_the_same_weights(many: Results) -> None:
    assert many[0]["own"] == many[1]["own"]


def test_a_method_that_stores_something_of_each_batch_is_detected(many: Results) -> None:
    for result in many:
        assert "after step 1 the processes of this run hold different weights or buffers" in result["drifting"]


def test_one_killed_process_ends_the_run_and_the_run_resumes_later(many: Results, tmp_path: Path) -> None:
    folder, out = tmp_path / "run", tmp_path / "out"
    process = launch("run", folder, out, "0.05")
    until = time.monotonic() + 300
    while not list(folder.glob("step-00000000[5-9]*")) and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(int(out.with_suffix(".pid1").read_text()), signal.SIGKILL)
    output = wait_for(process)
    assert process.returncode != 0
    assert "(SIGKILL)" in output  # the other process may report it too, if the launcher does not end it first
    assert list(folder.glob("step-*.safetensors"))

    process = launch("run", folder, out)
    output = wait_for(process)
    assert process.returncode == 0, output
    for result in read_results(out):
        assert result["weights"] == many[0]["run"]["weights"]
        assert result["history"] == many[0]["run"]["history"]
