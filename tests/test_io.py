"""Atomic writes: files are complete, on disk, and never have more permissions than requested."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from samekind.errors import ModelFileError, SettingError
from samekind.io import atomic_write, atomic_write_array


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
    assert len(seen) == 2 and {mode for _, mode in seen} == {0o600}


def test_a_world_readable_file_is_replaced_by_a_private_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"old")
    path.chmod(0o644)
    atomic_write(path, b"secret", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_array_is_flushed_to_disk_before_it_gets_its_name(tmp_path: Path, seen: list[tuple[str, int]]) -> None:
    atomic_write_array(tmp_path / "z.npy", np.arange(6.0).reshape(2, 3))
    assert len(seen) == 2 and "z.npy" not in {name for name, _ in seen}
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


def test_a_missing_folder_raises_the_given_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="could not be written"):
        atomic_write(tmp_path / "no" / "token", b"secret", SettingError, mode=0o600)
