"""Power cuts: what was acknowledged is on the disk, also if nothing else is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from tests.server.power_cut import Disk, Record, cut_power, label_plan, record_labelling

LABELS, CUTS = 60, 25
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="records calls by LD_PRELOAD, which needs Linux and cc"
)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("power")


@pytest.fixture(scope="module")
def records(work: Path) -> list[Record]:
    return record_labelling(work, LABELS, 0)


def test_without_a_cut_the_replayed_disk_equals_the_real_one(records: list[Record], work: Path, tmp_path: Path) -> None:
    disk = Disk(str(work / "run"))
    for record in records:
        disk.apply(record)
    disk.write_all(tmp_path / "whole")
    real = work / "run" / "serve"
    found = {path.relative_to(real): path.read_bytes() for path in real.rglob("*") if path.is_file()}
    replayed = tmp_path / "whole" / "serve"
    assert found == {path.relative_to(replayed): path.read_bytes() for path in replayed.rglob("*") if path.is_file()}


def test_after_a_power_cut_no_acknowledged_label_is_missing(records: list[Record], work: Path) -> None:
    result = cut_power(records, work, CUTS, label_plan(LABELS, 0), 0)
    assert result.cuts == CUTS and result.acknowledged > LABELS and result.missing == 0


def test_without_syncs_the_simulation_finds_missing_labels(records: list[Record], work: Path) -> None:
    assert cut_power(records, work, CUTS, label_plan(LABELS, 0), 0, ignore_syncs=True).missing > 0
