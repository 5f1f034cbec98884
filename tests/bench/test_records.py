"""Records of runs: a line is complete or ignored, and the next writer continues after the last complete line."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from samekind.bench.grid import RunSpec
from samekind.bench.records import RecordFile, append_records, read_records, read_runs
from samekind.errors import DataError, SamekindError

RESULTS = Path(__file__).parents[2] / "results"


def record(key: str, error: float = 1.0) -> dict[str, object]:
    return {"key": key, "row": "supervised", "data": "digits", "labels": 20, "seed": 0, "error": error}


def test_an_appended_record_is_found_by_its_key(tmp_path: Path) -> None:
    with RecordFile(tmp_path / "runs.jsonl") as records:
        records.append(record("a", 2.5))
        assert "a" in records and "b" not in records
    with RecordFile(tmp_path / "runs.jsonl") as records:
        assert records["a"]["error"] == 2.5


@pytest.mark.parametrize("incomplete", [b'{"key": "b", "err', b'{"key": "b"}', b"\xc3"])
def test_an_incomplete_last_line_is_ignored_and_then_removed(incomplete: bytes, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with RecordFile(path) as records:
        records.append(record("a"))
    complete = path.read_bytes()
    path.write_bytes(complete + incomplete)
    assert [one["key"] for one in read_records(path)] == ["a"]
    with RecordFile(path) as records:
        assert path.read_bytes() == complete
        records.append(record("c"))
    assert [one["key"] for one in read_records(path)] == ["a", "c"]


def test_records_are_appended_after_the_last_complete_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"key": "a"}\n{"key": "b", "err')
    append_records(path, record("c"), record("d"))
    assert [one["key"] for one in read_records(path)] == ["a", "c", "d"]


def test_the_error_names_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"key": "a"}\n{"key": \n{"key": "b"}\n')
    with pytest.raises(DataError, match=r"line 2 of .* is damaged"):
        read_records(path)
    path.write_bytes(b"[1]\n")
    with pytest.raises(DataError, match=r"line 1 of .* not a JSON object"):
        read_records(path)


def test_a_failed_run_does_not_count_as_finished(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with RecordFile(path) as records:
        records.append({"key": "a", "failed": "the loss is NaN"})
        assert "a" not in records
    with RecordFile(path) as records:
        assert "a" not in records
    assert read_runs([path]) == []


def test_only_one_process_may_open_a_record_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with RecordFile(path), pytest.raises(SamekindError, match="another process is writing"), RecordFile(path):
        pass


def test_files_and_folders_are_read_together_and_the_last_record_of_a_key_counts(tmp_path: Path) -> None:
    for folder, error in (("one", 1.0), ("two", 2.0)):
        (tmp_path / folder).mkdir()
        with RecordFile(tmp_path / folder / "runs.jsonl") as records:
            records.append(record("a", error))
            records.append(record(folder))
    found = read_runs([tmp_path / "one", tmp_path / "two" / "runs.jsonl"])
    assert {one["key"]: one["error"] for one in found} == {"a": 2.0, "one": 1.0, "two": 1.0}


def test_a_path_without_runs_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(DataError, match="found no recorded runs in"):
            read_runs([path])
    (tmp_path / "other.jsonl").write_text('{"step": 3}\n')
    with pytest.raises(DataError, match=r"line 1 of .* does not describe a run of `samekind bench`"):
        read_runs([tmp_path / "other.jsonl"])


@pytest.mark.parametrize("name", ["ablation_mnist", "cifar10", "cpu", "mnist", "mnist_compute", "toy"])
def test_published_records_have_the_keys_of_their_runs(name: str) -> None:
    for one in read_runs([RESULTS / f"{name}.jsonl"]):
        assert RunSpec(**{field.name: one[field.name] for field in fields(RunSpec) if field.name in one}).key == one["key"]
