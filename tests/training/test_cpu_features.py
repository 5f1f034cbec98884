"""A processor that ends programs is found out by another program, and bfloat16 is refused there."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from samekind.errors import SettingError
from samekind.training import cpu_features, engine
from samekind.training.engine import open_engine


@pytest.mark.skipif(sys.platform == "win32", reason="there a process is not ended by a signal")
def test_only_an_illegal_instruction_speaks_against_a_processor() -> None:
    ended_by = "import os; os.kill(os.getpid(), {})"
    assert cpu_features.survives("pass")
    assert cpu_features.survives("raise SystemExit(1)")
    assert cpu_features.survives(ended_by.format(int(signal.SIGTERM)))
    assert not cpu_features.survives(ended_by.format(int(signal.SIGILL)))


def test_amx_is_found_only_as_a_complete_flag(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    assert not cpu_features._lists_amx(cpuinfo)
    cpuinfo.write_text("flags : fpu avx512f amx_tiles\n")
    assert not cpu_features._lists_amx(cpuinfo)
    cpuinfo.write_text("flags : fpu avx512f amx_tile amx_bf16\n")
    assert cpu_features._lists_amx(cpuinfo)


def test_a_processor_without_amx_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_features, "_lists_amx", lambda: False)
    monkeypatch.setattr(cpu_features, "survives", lambda code: pytest.fail("tried"))
    assert cpu_features.bfloat16_works.__wrapped__()


def test_the_trial_is_a_bfloat16_product() -> None:
    # run here, where the environment of the tests makes it safe
    made: dict[str, Any] = {}
    exec(cpu_features.PRODUCT, made)
    assert made["x"].dtype == torch.bfloat16
    assert cpu_features.survives(cpu_features.PRODUCT)


def test_bfloat16_is_refused_if_it_would_kill_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "bfloat16_works", lambda: False)
    message = r"stops programs that use its AMX instructions\. Use 'float32', or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
    with pytest.raises(SettingError, match=message), open_engine(torch.device("cpu"), "bfloat16"):
        pass
    with open_engine(torch.device("cpu"), "float32"):
        pass
