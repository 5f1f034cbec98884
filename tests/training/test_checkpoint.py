"""Checkpoints as files: whole or recognised as damaged, two at a time, and only for the run they are of."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from tests.training.tiny import full_disk

from samekind.errors import CheckpointError, CheckpointWarning
from samekind.training.checkpoint import (
    FORMAT,
    LOCK,
    Checkpoint,
    CheckpointDir,
    decode,
    encode,
    newest,
    require_same_run,
    tensor_digest,
)

CHECKPOINT = Checkpoint(
    7,
    {"method.w": torch.tensor([1.5, -0.0]), "method.step": torch.tensor(3), "random": torch.zeros(2, 9, dtype=torch.uint8)},
    {"run": {"seed": 1}, "watch": {"records": [{"step": 0, "loss": 0.1}]}},
)


def blob(step: int) -> bytes:
    return encode(Checkpoint(step, {"w": torch.full((100,), float(step))}, {}))


def names(folder: Path) -> list[str]:
    return sorted(path.name[:14] for path in folder.iterdir() if path.name != LOCK)


# ---------------------------------------------------------------- one file


def test_tensors_and_metadata_are_read_as_they_were_written() -> None:
    again = decode(encode(CHECKPOINT))
    assert again.step == 7
    assert {name: tensor.dtype for name, tensor in again.tensors.items()} == {
        name: tensor.dtype for name, tensor in CHECKPOINT.tensors.items()
    }
    assert all(torch.equal(tensor, CHECKPOINT.tensors[name]) for name, tensor in again.tensors.items())
    assert {key: again.metadata[key] for key in CHECKPOINT.metadata} == CHECKPOINT.metadata
    assert set(again.under("method")) == {"w", "step"}


def test_tensors_that_share_memory_are_no_problem() -> None:
    x = torch.arange(6.0).view(2, 3)
    again = decode(encode(Checkpoint(0, {"a": x, "b": x, "c": x.t()}, {})))
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in (("a", x), ("b", x), ("c", x.t())))


def test_there_is_no_pickle_in_it_and_the_metadata_is_readable_text() -> None:
    file = encode(CHECKPOINT)
    with pytest.raises((pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError, AttributeError)):
        pickle.loads(file)
    header = json.loads(file[8 : 8 + int.from_bytes(file[:8], "little")])
    assert json.loads(header["__metadata__"]["samekind"])["step"] == 7


def test_a_format_from_the_future_is_refused() -> None:
    with pytest.raises(
        CheckpointError, match=rf"has format 99, but this version of samekind reads format {FORMAT}\. Finish the run with"
    ):
        decode(encode(Checkpoint(0, {}, {"format": 99})))


# ---------------------------------------------------------------- the folder


def test_a_new_folder_holds_nothing(tmp_path: Path) -> None:
    assert newest(tmp_path / "new") is None
    with CheckpointDir(tmp_path / "a" / "new") as directory:
        assert directory.newest() is None
        assert directory.last_step is None


def test_the_last_two_are_kept_and_the_last_is_found(tmp_path: Path) -> None:
    with CheckpointDir(tmp_path) as directory:
        for step in (1, 2, 9, 10):
            directory.put(step, blob(step))
        assert names(tmp_path) == ["step-000000009", "step-000000010"]
        assert directory.newest() == blob(10)
        assert directory.last_step == 10


@pytest.mark.parametrize("place", [0, 5, 40, 200, -1])
def test_a_flipped_bit_is_recognised_wherever_it_is(tmp_path: Path, place: int) -> None:
    with CheckpointDir(tmp_path) as directory:
        directory.put(1, blob(1))
        directory.put(2, blob(2))
    newest_file = max(tmp_path.iterdir())
    content = bytearray(newest_file.read_bytes())
    content[place] ^= 1
    newest_file.write_bytes(content)
    with pytest.warns(
        CheckpointWarning, match=r"step-000000002.* is damaged.*resumes from .* previous checkpoint, step-000000001"
    ):
        assert newest(tmp_path) == blob(1)


@pytest.mark.parametrize("left", [0, 7, 100])
def test_a_torn_one_is_recognised_and_goes_with_the_next_that_is_written(tmp_path: Path, left: int) -> None:
    with CheckpointDir(tmp_path) as directory:
        for step in (1, 2):
            directory.put(step, blob(step))
    torn = max(tmp_path.iterdir())
    torn.write_bytes(torn.read_bytes()[:left])
    with CheckpointDir(tmp_path) as directory:
        with pytest.warns(CheckpointWarning, match="is damaged"):
            assert directory.newest() == blob(1)
        assert directory.last_step == 1
        assert len(names(tmp_path)) == 2
        directory.put(2, blob(22))
    assert newest(tmp_path) == blob(22)
    assert names(tmp_path) == ["step-000000001", "step-000000002"]
    assert not torn.exists()


def test_if_no_checkpoint_is_complete_the_run_is_not_silently_restarted(tmp_path: Path) -> None:
    (tmp_path / "step-000000002-0123456789abcdef.safetensors").write_bytes(b"nonsense")
    with pytest.raises(
        CheckpointError, match=r"no checkpoint in .* is complete.*delete these files to start again, or choose another"
    ):
        newest(tmp_path)


def test_only_the_partial_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    for name in (".step-000000003-0123456789abcdef.safetensors.123.part", "notes.txt", ".hidden"):
        (tmp_path / name).write_text("x")
    with CheckpointDir(tmp_path) as directory:
        directory.put(4, blob(4))
    assert names(tmp_path) == [".hidden", "notes.txt", "step-000000004"]


def test_on_a_full_disk_earlier_checkpoints_survive_and_no_partial_file_stays(tmp_path: Path) -> None:
    with CheckpointDir(tmp_path) as directory:
        for step in (1, 2):
            directory.put(step, blob(step))
        with full_disk(), pytest.raises(CheckpointError, match=r"could not be written .*The previous file is unchanged"):
            directory.put(3, blob(3))
        assert directory.last_step == 2
    assert newest(tmp_path) == blob(2)
    assert names(tmp_path) == ["step-000000001", "step-000000002"]


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    with (
        CheckpointDir(tmp_path),
        pytest.raises(CheckpointError, match="another process is training in"),
        CheckpointDir(tmp_path),
    ):
        pass
    with CheckpointDir(tmp_path):  # free again
        pass


def test_a_file_where_a_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    with pytest.raises(CheckpointError, match="is a file; expected a directory"), CheckpointDir(tmp_path / "run"):
        pass


# ---------------------------------------------------------------- the right run


def test_the_same_run_is_not_refused_though_json_knows_no_tuples(tmp_path: Path) -> None:
    require_same_run({"batch": [8, 16], "net": {"w": [2, 3]}}, {"batch": (8, 16), "net": {"w": (2, 3)}}, tmp_path)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"steps": 500}, "steps was 400 and is 500"),
        ({"settings": {"alpha": 0.9, "w_max": 1.0}}, "alpha was 0.5 and is 0.9"),
        ({"X": "sha256:2"}, "X has changed"),
        ({"new": 1}, "new was None and is 1"),
        ({"steps": 1, "X": "sha256:2"}, "steps was 400 and is 1; X has changed"),
    ],
)
def test_another_run_is_refused_and_what_differs_is_named(tmp_path: Path, change: dict[str, object], difference: str) -> None:
    was = {"steps": 400, "settings": {"alpha": 0.5, "w_max": 1.0}, "X": "sha256:1"}
    with pytest.raises(CheckpointError, match=f"holds another run: {difference}. Use the same arguments to resume it"):
        require_same_run(was, {**was, **change}, tmp_path)


def test_tensors_of_other_values_shapes_or_types_have_other_digests() -> None:
    x = torch.arange(6.0)
    others = [x.view(2, 3), x.double(), x.bfloat16(), x + 1e-6, x.flip(0), torch.zeros(0)]
    assert tensor_digest(x) == tensor_digest(x.clone())
    assert len({tensor_digest(x), *(tensor_digest(other) for other in others)}) == 7
