"""Links in the run folder: nothing that they lead to is written, emptied or deleted."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from samekind.cli import app
from samekind.errors import StoreError
from samekind.server.media.thumbnails import clear
from samekind.server.session import Session
from samekind.server.store.label_store import LabelStore
from samekind.server.store.schema import connect
from samekind.server.store.server_lock import ServerLock

BEFORE_OPENING, AFTER_OPENING = "sqlite3.connect", "sqlite3.connect/handle"  # audit events of Python


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


class AuditEvents:
    """Actions at audit events: Python raises one just before, and one just after, it lets SQLite open a file."""

    def __init__(self) -> None:
        self.actions: dict[str, Callable[[], object]] = {}
        sys.addaudithook(self._act)  # a hook cannot be removed; without actions it does nothing

    def _act(self, event: str, arguments: tuple[Any, ...]) -> None:
        action = self.actions.pop(event, None) if self.actions else None
        if action is not None:
            action()


@pytest.fixture(scope="module")
def all_events() -> AuditEvents:
    return AuditEvents()


@pytest.fixture
def events(all_events: AuditEvents) -> Iterator[dict[str, Callable[[], object]]]:
    yield all_events.actions
    all_events.actions.clear()


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    """Return a label store, and another file of the user in a folder elsewhere: a database that is not in WAL mode."""
    own, other = tmp_path / "run" / "serve" / "labels.sqlite", tmp_path / "elsewhere" / "labels.sqlite"
    for path in (own, other):
        path.parent.mkdir(parents=True)
        with closing(LabelStore(path)) as store:
            store.add_items([f"{path.parent.name}.png"])
    with closing(sqlite3.connect(other)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
    return own, other


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("replaced", ["file", "folder"])
@pytest.mark.parametrize("put_back", [False, True])
def test_a_store_that_is_replaced_by_a_link_after_the_check_is_not_opened(
    stores: tuple[Path, Path], events: dict[str, Callable[[], object]], read_only: bool, replaced: str, put_back: bool
) -> None:
    own, target = (path if replaced == "file" else path.parent for path in stores)
    link, kept = own.with_name("link"), own.with_name("kept")
    link.symlink_to(target)
    before = stores[1].read_bytes()
    events[BEFORE_OPENING] = lambda: (own.rename(kept), link.rename(own))
    if put_back:
        events[AFTER_OPENING] = lambda: (own.rename(link), kept.rename(own))
    with pytest.raises(StoreError, match="was replaced while it was opened"):
        connect(stores[0], read_only=read_only)
    assert not events, "the file was not swapped"
    assert stores[1].read_bytes() == before and os.listdir(stores[1].parent) == ["labels.sqlite"]


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_log_that_is_replaced_by_a_link_after_the_check_changes_no_file_elsewhere(
    stores: tuple[Path, Path], outside: Path, events: dict[str, Callable[[], object]], suffix: str
) -> None:
    log = stores[0].with_name(f"labels.sqlite{suffix}")
    events[BEFORE_OPENING] = lambda: log.symlink_to(outside / "diary.txt")
    with pytest.raises(StoreError, match="cannot be opened"):
        connect(stores[0], read_only=False)
    assert not events and (outside / "diary.txt").read_text() == "mine"


def test_a_store_that_is_deleted_after_the_check_is_not_replaced_by_an_empty_one(
    stores: tuple[Path, Path], events: dict[str, Callable[[], object]]
) -> None:
    events[BEFORE_OPENING] = stores[0].unlink
    with pytest.raises(StoreError, match="cannot be opened"):
        connect(stores[0], read_only=False)
    assert not stores[0].exists()
