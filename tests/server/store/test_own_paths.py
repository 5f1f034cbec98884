"""Links in the run folder: nothing that they lead to is written, emptied or deleted."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from samekind.cli import app
from samekind.errors import StoreError
from samekind.server.media.thumbnails import clear
from samekind.server.session import Session
from samekind.server.store.server_lock import ServerLock


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder with a file of the user, and files under names that the server makes."""
    folder = tmp_path / "outside"
    (folder / "ab").mkdir(parents=True)
    for name in ("diary.txt", f"ab/{'ab' * 20}", "labels-20200101T000000000000.sqlite", "map.npy"):
        (folder / name).write_text("mine")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_clearing_the_cache_behind_a_link_is_refused_and_deletes_nothing(run: Path, outside: Path) -> None:
    before = contents(outside)
    (run / "serve" / "thumbs").symlink_to(outside)
    done = CliRunner().invoke(app, ["cache", "clear", str(run)])
    assert done.exit_code == 2 and "is a link to" in done.output
    assert contents(outside) == before


def test_clearing_the_cache_deletes_only_thumbnails(run: Path, outside: Path) -> None:
    before = contents(outside)
    with closing(Session(run)) as session:
        session.thumbnails.get(session.image_source(0), 128)
    thumbs = run / "serve" / "thumbs"
    (thumbs / "notes.txt").write_text("mine")
    (thumbs / "cd").symlink_to(outside / "ab")
    clear(thumbs)
    assert contents(outside) == before
    assert [path.name for path in thumbs.rglob("*") if path.is_file()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["thumbs", "backups", "model-2", "model-3.part"])
def test_a_link_in_place_of_a_folder_is_refused(run: Path, outside: Path, name: str) -> None:
    before = contents(outside)
    path = run / "serve" / name
    if path.exists():
        path.rename(outside.with_name("moved"))
    path.symlink_to(outside)
    with pytest.raises(StoreError, match="is a link to"):
        Session(run)
    assert contents(outside) == before


@pytest.mark.parametrize("name", ["lock", "labels.sqlite", "labels.sqlite-wal"])
def test_a_link_in_place_of_a_file_is_refused_and_its_target_unchanged(run: Path, outside: Path, name: str) -> None:
    (run / "serve" / name).unlink(missing_ok=True)
    (run / "serve" / name).symlink_to(outside / "diary.txt")
    with pytest.raises(StoreError, match="is a link to"):
        Session(run)
    assert (outside / "diary.txt").read_text() == "mine"


def test_a_hard_link_in_place_of_the_lock_is_not_emptied(outside: Path, tmp_path: Path) -> None:
    os.link(outside / "diary.txt", tmp_path / "lock")
    with pytest.raises(StoreError, match="has content"):
        ServerLock(tmp_path / "lock")
    assert (outside / "diary.txt").read_text() == "mine"


def test_a_link_in_place_of_the_whole_folder_is_refused(run: Path, outside: Path) -> None:
    (run / "serve").rename(run / "moved")
    (run / "serve").symlink_to(outside)
    mode = outside.stat().st_mode
    with pytest.raises(StoreError, match="is a link to"):
        Session(run)
    assert outside.stat().st_mode == mode


def test_a_pipe_in_place_of_the_lock_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(StoreError, match="is a pipe"):
        ServerLock(tmp_path / "lock")
