"""Recorded runs: a line is there or not, and whoever comes next goes on after the last whole one."""

from __future__ import annotations

from pathlib import Path

import pytest

from samekind.bench.records import RecordFile, add, read, read_runs
from samekind.errors import DataError, SamekindError


def line(key: str, error: float = 1.0) -> dict[str, object]:
    return {"key": key, "row": "supervised", "data": "digits", "labels": 20, "seed": 0, "error": error}


def test_what_was_appended_is_found_again_by_its_key(tmp_path: Path) -> None:
    with RecordFile(tmp_path / "runs.jsonl") as records:
        records.append(line("a", 2.5))
        assert "a" in records and "b" not in records
    with RecordFile(tmp_path / "runs.jsonl") as records:
        assert records["a"]["error"] == 2.5


@pytest.mark.parametrize("torn", [b'{"key": "b", "err', b'{"key": "b"}', b"\xc3"])
def test_a_torn_last_line_is_passed_over_and_then_cut_off(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with RecordFile(path) as records:
        records.append(line("a"))
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert [record["key"] for record in read(path)] == ["a"]
    with RecordFile(path) as records:
        assert path.read_bytes() == whole
        records.append(line("c"))
    assert [record["key"] for record in read(path)] == ["a", "c"]


def test_lines_are_added_after_the_last_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"key": "a"}\n{"key": "b", "err')
    add(path, line("c"), line("d"))
    assert [record["key"] for record in read(path)] == ["a", "c", "d"]


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"key": "a"}\n{"key": \n{"key": "b"}\n')
    with pytest.raises(DataError, match=r"line 2 of .* is damaged"):
        read(path)
    path.write_bytes(b"[1]\n")
    with pytest.raises(DataError, match=r"line 1 of .* no JSON object"):
        read(path)


def test_a_run_that_failed_counts_as_not_done(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with RecordFile(path) as records:
        records.append({"key": "a", "failed": "the loss is no number"})
        assert "a" not in records
    with RecordFile(path) as records:
        assert "a" not in records
    assert read_runs([path]) == []


def test_two_may_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with RecordFile(path), pytest.raises(SamekindError, match="another process is writing"), RecordFile(path):
        pass


def test_files_and_folders_are_read_together_and_the_last_of_a_key_counts(tmp_path: Path) -> None:
    for folder, error in (("one", 1.0), ("two", 2.0)):
        (tmp_path / folder).mkdir()
        with RecordFile(tmp_path / folder / "runs.jsonl") as records:
            records.append(line("a", error))
            records.append(line(folder))
    found = read_runs([tmp_path / "one", tmp_path / "two" / "runs.jsonl"])
    assert {record["key"]: record["error"] for record in found} == {"a": 2.0, "one": 1.0, "two": 1.0}


def test_what_holds_no_runs_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(DataError, match="no recorded runs in"):
            read_runs([place])
    (tmp_path / "other.jsonl").write_text('{"step": 3}\n')
    with pytest.raises(DataError, match=r"line 1 of .* is no run of `samekind bench`"):
        read_runs([tmp_path / "other.jsonl"])
