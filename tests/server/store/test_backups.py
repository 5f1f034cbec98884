"""Backups: ordered by events, so that neither a clock nor a full disk costs labels."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from samekind.errors import StoreError
from samekind.server.session import Session
from samekind.server.store.backups import back_up
from samekind.server.store.batches import LABELLED, BatchRequest
from samekind.server.store.label_store import LabelStore


@contextmanager
def full_disk(largest: int) -> Iterator[None]:
    """Let every write fail that makes a file larger than `largest` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LabelStore]:
    store = LabelStore(tmp_path / "labels.sqlite")
    store.add_items([f"{k}.png" for k in range(20)])
    with store.transaction() as db:
        db.execute("INSERT INTO class(id, name, colour) VALUES (0, 'x', '#000000')")
    yield store
    store.close()


def add_label(store: LabelStore, item: int) -> None:
    store.apply(BatchRequest("set", {item: (0, LABELLED)}))


def test_after_the_clock_went_back_the_new_backup_stays(store: LabelStore, tmp_path: Path) -> None:
    for item in range(5):
        add_label(store, item)
        path = back_up(store, tmp_path / "backups", keep=5)
        path.rename(path.with_name(f"labels-2{item}990101T000000000000.sqlite"))  # made before the clock went back
    add_label(store, 5)
    newest = back_up(store, tmp_path / "backups", keep=5)
    assert newest.exists() and len(list((tmp_path / "backups").iterdir())) == 5


def test_a_backup_with_more_events_than_the_store_is_never_deleted(store: LabelStore, tmp_path: Path) -> None:
    larger = LabelStore(tmp_path / "larger.sqlite")
    larger.add_items(store.names)
    with larger.transaction() as db:
        db.execute("INSERT INTO class(id, name, colour) VALUES (0, 'x', '#000000')")
    for item in range(20):
        add_label(larger, item)
    kept = back_up(larger, tmp_path / "backups", keep=2)
    larger.close()
    for item in range(6):
        add_label(store, item)
        back_up(store, tmp_path / "backups", keep=2)
    assert kept.exists() and len(list((tmp_path / "backups").iterdir())) == 2


def test_a_file_of_another_name_among_the_backups_stays(store: LabelStore, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    mine = tmp_path / "backups" / "labels-mine.sqlite"
    mine.write_bytes(b"mine")
    for item in range(3):
        add_label(store, item)
        back_up(store, tmp_path / "backups", keep=1)
    assert mine.read_bytes() == b"mine" and len(list((tmp_path / "backups").iterdir())) == 2


def test_on_a_full_disk_a_backup_fails_and_leaves_nothing(store: LabelStore, tmp_path: Path) -> None:
    with full_disk(10_000), pytest.raises(StoreError, match="no backup of the labels could be written"):
        back_up(store, tmp_path / "backups")
    assert list((tmp_path / "backups").iterdir()) == []


def test_on_a_full_disk_the_run_is_served_with_a_warning(run: Path) -> None:
    with closing(Session(run)) as session:
        session.store.apply(BatchRequest("set", {20: (1, LABELLED)}))
    messages: list[str] = []
    with full_disk(40_000):  # room for the lock and the shared memory of SQLite, none for a copy of the store
        session = Session(run, log=messages.append)
    assert len(session.store.labels()) == 7
    session.close()
    assert any(message.startswith("Warning: no backup") for message in messages)
