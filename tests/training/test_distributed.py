"""Two processes under torchrun: the steps of one process, every row once, and a clear end when one of them is killed.

Starting torchrun takes seconds, so one start answers several questions.
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

Answers = list[dict[str, Any]]


def launched(*arguments: str | Path) -> subprocess.Popen[str]:
    """tiny.py in two processes; messages go to one pipe."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    together = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}
    return subprocess.Popen([*launcher, tiny.__file__, *map(str, arguments)], **together)  # type: ignore[call-overload, no-any-return]


def answers(out: Path) -> Answers:
    return [json.loads(out.with_suffix(f".{rank}").read_text()) for rank in (0, 1)]


def waited_for(process: subprocess.Popen[str]) -> str:
    """What it said."""
    said, _ = process.communicate(timeout=600)
    return said


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    out = tmp_path_factory.mktemp("many") / "out"
    process = launched("many", out)
    said = waited_for(process)
    assert process.returncode == 0, said
    return answers(out)


@pytest.mark.parametrize("name", tiny.METHODS)
def test_gradients_are_those_of_one_process_with_the_same_batch(many: Answers, name: str) -> None:
    one = torch.tensor(tiny.gradients(name, LocalEngine()))
    assert one.abs().max() > 1e-3
    for answer in many:
        torch.testing.assert_close(torch.tensor(answer[name]), one, atol=1e-5, rtol=0.0)
    assert many[0][name] == many[1][name]


def test_no_row_is_lost_or_taken_twice_in_an_epoch(many: Answers) -> None:
    taken = [row for answer in many for rows in answer["rows"] for row in rows]
    assert sorted(taken) == list(range(48))
    assert [len(answer["rows"]) for answer in many] == [3, 3]


def test_after_a_run_both_processes_hold_the_same_numbers_and_records(many: Answers) -> None:
    assert many[0]["run"]["weights"] == many[1]["run"]["weights"]
    assert many[0]["run"]["history"] == many[1]["run"]["history"]


def test_each_process_has_chances_of_its_own(many: Answers) -> None:
    """Or dropout would lose the same units in all parts of a batch."""
    assert many[0]["chance"] != many[1]["chance"]


def test_nets_that_differ_at_the_start_and_batch_norm_end_with_the_same_numbers_too(many: Answers) -> None:
    assert many[0]["own"] == many[1]["own"]


def test_a_method_that_keeps_something_of_each_batch_is_found_out(many: Answers) -> None:
    for answer in many:
        assert "after step 1 the processes of this run hold different weights or buffers" in answer["drifting"]


def test_one_killed_process_ends_the_run_clearly_and_the_run_goes_on_later(many: Answers, tmp_path: Path) -> None:
    folder, out = tmp_path / "run", tmp_path / "out"
    process = launched("run", folder, out, "0.05")
    until = time.monotonic() + 300
    while not list(folder.glob("step-00000000[5-9]*")) and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(int(out.with_suffix(".pid1").read_text()), signal.SIGKILL)
    said = waited_for(process)
    assert process.returncode != 0
    assert "(SIGKILL)" in said  # the other one may say so too, if the launcher does not end it first
    assert list(folder.glob("step-*.safetensors"))

    process = launched("run", folder, out)
    said = waited_for(process)
    assert process.returncode == 0, said
    for answer in answers(out):
        assert answer["weights"] == many[0]["run"]["weights"]
        assert answer["history"] == many[0]["run"]["history"]
