"""Atomic writes: files are complete, on disk, and never have more permissions than requested."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from samekind.errors import ModelFileError, SettingError
from samekind.files.io import (
    atomic_write,
    atomic_write_array,
    is_part,
    read_regular,
    read_versioned_json,
    remove_parts,
    write_output,
)


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Record name and permissions of every file in the folder at each flush and each rename."""
    found: list[tuple[str, int]] = []
    flush, rename = os.fsync, os.replace

    def record() -> None:
        found.extend((path.name, path.stat().st_mode & 0o777) for path in tmp_path.iterdir())

    def fsync(file: int) -> None:
        record()
        flush(file)

    def replace(old: Path, new: Path) -> None:
        record()
        rename(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return found


def test_a_secret_is_readable_only_by_its_owner_from_the_start(tmp_path: Path, seen: list[tuple[str, int]]) -> None:
    path = tmp_path / "token"
    atomic_write(path, b"secret", mode=0o600)
    assert path.read_bytes() == b"secret" and path.stat().st_mode & 0o777 == 0o600
    assert len(seen) == 3 and {mode for _, mode in seen} == {0o600}


def test_a_world_readable_file_is_replaced_by_a_private_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"old")
    path.chmod(0o644)
    atomic_write(path, b"secret", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_array_is_flushed_to_disk_before_it_gets_its_name(tmp_path: Path, seen: list[tuple[str, int]]) -> None:
    atomic_write_array(tmp_path / "z.npy", np.arange(6.0).reshape(2, 3))
    assert len(seen) == 3 and "z.npy" not in {name for name, _ in seen[:2]}
    assert np.load(tmp_path / "z.npy", allow_pickle=False).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert [path.name for path in tmp_path.iterdir()] == ["z.npy"]


def test_a_failed_write_keeps_the_old_file_and_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "z.npy"
    atomic_write_array(path, np.zeros(3))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelFileError, match="No space left on device"):
        atomic_write_array(path, np.ones(3), ModelFileError)
    assert np.load(path, allow_pickle=False).sum() == 0 and [one.name for one in tmp_path.iterdir()] == ["z.npy"]


def test_the_folder_is_flushed_after_the_file_got_its_name(tmp_path: Path, seen: list[tuple[str, int]]) -> None:
    atomic_write(tmp_path / "run.json", b"{}")
    assert [name for name, _ in seen][-1] == "run.json"


def test_a_missing_folder_raises_the_given_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="could not be written"):
        atomic_write(tmp_path / "no" / "token", b"secret", SettingError, mode=0o600)


def test_a_name_of_the_greatest_length_can_be_written(tmp_path: Path) -> None:
    for name in ("x" * 255, "é" * 127):
        atomic_write(tmp_path / name, b"all")
        assert (tmp_path / name).read_bytes() == b"all"
    assert len(list(tmp_path.iterdir())) == 2


# ---------------------------------------------------------------- links, pipes and devices


def test_an_output_leaves_a_link_in_place_and_writes_the_file_behind_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "real.csv").write_bytes(b"old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "folder" / "real.csv")
    write_output(tmp_path / "link.csv", b"new")
    assert (tmp_path / "link.csv").is_symlink()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["real.csv"]
    assert (tmp_path / "folder" / "real.csv").read_bytes() == b"new"


def test_an_output_creates_the_file_to_which_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "later.csv")
    write_output(tmp_path / "link.csv", b"new")
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "later.csv").read_bytes() == b"new"


def test_a_pipe_gets_the_output_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, received = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    (tmp_path / "link").symlink_to(pipe)
    write_output(tmp_path / "link", b"all of it")
    reader.join()
    assert received == [b"all of it"] and stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_device_gets_the_output_and_stays_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("only root can make devices here")
    write_output(device, b"all of it")
    assert stat.S_ISCHR(device.lstat().st_mode)


def test_links_in_a_circle_and_folders_are_no_output(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for path in (tmp_path / "circle", tmp_path, tmp_path / "circle" / "below"):
        with pytest.raises(SettingError, match="could not be written"):
            write_output(path, b"new", SettingError)


def test_a_file_of_ours_replaces_a_link_and_changes_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"old")
    (tmp_path / "run.json").symlink_to(tmp_path / "theirs")
    atomic_write(tmp_path / "run.json", b"new")
    assert (tmp_path / "theirs").read_bytes() == b"old"
    assert (tmp_path / "run.json").read_bytes() == b"new" and not (tmp_path / "run.json").is_symlink()


def test_a_file_of_ours_does_not_replace_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(ModelFileError, match="it is not a regular file"):
        atomic_write(tmp_path / "run.json", b"new", ModelFileError)
    assert stat.S_ISFIFO((tmp_path / "run.json").lstat().st_mode)


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "weights")
    with pytest.raises(OSError, match="it is not a regular file"):
        read_regular(tmp_path / "weights")
    with pytest.raises(OSError, match="it is not a regular file"):
        read_regular(tmp_path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2**40)  # a sparse file
    with pytest.raises(OSError, match="at most 1,000 are expected"):
        read_regular(tmp_path / "x", 1000)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"format": true}', b"\xff", b"", b"[1]", b'{"format": 1e400}', b"1" * 5000])
def test_what_is_no_manifest_is_refused_with_one_sentence(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "run.json").write_bytes(text)
    with pytest.raises(ModelFileError, match=r"cannot be read|has format"):
        read_versioned_json(tmp_path / "run.json", 1, made_by="fit", next_step="Fit again.")


def test_only_parts_of_our_own_writes_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".run.json.12-34.part").write_bytes(b"{")
    (tmp_path / ".mine.part").write_bytes(b"")
    (tmp_path / ".link.12-34.part").symlink_to(tmp_path / ".mine.part")
    assert is_part(tmp_path / ".run.json.12-34.part")
    remove_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".link.12-34.part", ".mine.part"]
