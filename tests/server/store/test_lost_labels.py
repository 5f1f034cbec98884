"""A store that has lost labels is refused with the command that restores them, and no backup is lost meanwhile."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.conftest import N
from typer.testing import CliRunner

from samekind.cli import app
from samekind.errors import StoreError
from samekind.server.session import Session
from samekind.server.store.batches import LABELLED, BatchRequest
from samekind.server.store.label_store import LabelStore
from samekind.server.store.verify import verify

DOWN = 1


def label(run: Path, items: range) -> None:
    """Label items on the page, one batch each."""
    with closing(Session(run)) as session:
        for item in items:
            session.store.apply(BatchRequest("set", {item: (DOWN, LABELLED)}))


def killed_copy(run: Path) -> Path:
    """Return a copy of an open run, as a killed server leaves it."""
    return Path(shutil.copytree(run, run.with_name("killed")))


def restore(run: Path) -> str:
    done = CliRunner().invoke(app, ["labels", "restore", str(run)])
    assert done.exit_code == 0, done.output
    return done.output


def labelled(run: Path) -> int:
    with closing(Session(run)) as session:
        assert verify(session.store.path) == []
        return len(session.store.labels())


def empty(folder: Path) -> None:
    (folder / "labels.sqlite").write_bytes(b"")


def delete(folder: Path) -> None:
    (folder / "labels.sqlite").unlink()


def keep_only_the_table(folder: Path) -> None:
    shutil.rmtree(folder / "backups")
    empty(folder)


def keep_only_the_backup(folder: Path) -> None:
    (folder / "labels.csv").unlink()
    empty(folder)


@pytest.mark.parametrize("loss", [empty, delete, keep_only_the_table, keep_only_the_backup])
def test_an_emptied_store_is_refused_and_restored(run: Path, loss: Callable[[Path], object]) -> None:
    label(run, range(6, N - 1))
    Session(run).close()  # makes a backup
    loss(run / "serve")
    with pytest.raises(StoreError, match=r"has lost labels.*`samekind labels restore"):
        Session(run)
    assert f"{N - 1} labels restored" in restore(run)
    assert labelled(run) == N - 1
    assert (run / "serve" / "labels.csv").read_text().count("\n") == N


def test_a_refused_store_changes_neither_the_table_nor_the_backups(run: Path) -> None:
    label(run, range(6, N))
    Session(run).close()
    empty(run / "serve")
    kept = [run / "serve" / "labels.csv", *(run / "serve" / "backups").iterdir()]
    before = [path.read_bytes() for path in kept]
    for _ in range(6):
        with pytest.raises(StoreError, match="lost labels"):
            Session(run)
    assert [path.read_bytes() for path in kept] == before


def test_a_store_whose_log_was_deleted_after_a_kill_is_refused_and_restored(run: Path) -> None:
    with closing(Session(run)) as session:
        for item in range(6, 20):
            session.store.apply(BatchRequest("set", {item: (DOWN, LABELLED)}))
        assert session.csv_sync is not None
        session.csv_sync.write()
        run = killed_copy(run)
    (run / "serve" / "labels.sqlite-wal").unlink()
    with pytest.raises(StoreError, match=r"labels\.csv has 14 labels that are not in it"):
        Session(run)
    restore(run)
    assert labelled(run) == 20


def test_after_a_checkpoint_a_deleted_log_costs_nothing(run: Path) -> None:
    with closing(Session(run)) as session:
        session.store.apply(BatchRequest("set", dict.fromkeys(range(6, 20), (DOWN, LABELLED))))
        session.store.checkpoint()
        run = killed_copy(run)
    (run / "serve" / "labels.sqlite-wal").unlink()
    assert labelled(run) == 20


def test_a_model_fitted_on_more_events_than_the_store_has_is_found_until_a_restore(run: Path) -> None:
    Session(run).close()
    manifest = run / "serve" / "model-1" / "predictions.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "labels_seq": 60}))
    with pytest.raises(StoreError, match="model-1 was fitted after event 60"):
        Session(run)
    restore(run)
    with closing(Session(run)) as session:
        result = session.store.apply(BatchRequest("set", {7: (DOWN, LABELLED)}))
        assert result.seq == 61 and len(session.store.changed_since(60)) == 1


def test_what_a_restore_replaces_is_kept(run: Path) -> None:
    label(run, range(6, 10))
    Session(run).close()
    damaged = b"SQLite format 3\0" + os.urandom(5000)
    (run / "serve" / "labels.sqlite").write_bytes(damaged)
    with pytest.raises(StoreError, match="labels restore"):
        Session(run)
    restore(run)
    (kept,) = (run / "serve").glob("replaced-*")
    assert (kept / "labels.sqlite").read_bytes() == damaged
    assert labelled(run) == 10


def test_skipped_and_audited_labels_are_restored_as_such(run: Path) -> None:
    with closing(Session(run)) as session:
        session.store.apply(BatchRequest("skip", {30: (None, "skipped")}))
        session.store.apply(BatchRequest("set", {31: (DOWN, LABELLED)}, source="audit"))
    keep_only_the_table(run / "serve")
    restore(run)
    with closing(LabelStore(run / "serve" / "labels.sqlite")) as store:
        found = {row["id"]: (row["status"], row["source"]) for row in store.labels()}
    assert found[30][0] == "skipped" and found[31] == ("labelled", "audit")


def test_a_store_with_a_torn_page_is_refused_and_restored(run: Path) -> None:
    label(run, range(6, N))
    Session(run).close()
    blob = (run / "serve" / "labels.sqlite").read_bytes()
    (run / "serve" / "labels.sqlite").write_bytes(blob[:8192] + os.urandom(4096) + blob[12288:])
    with pytest.raises(StoreError, match=r"is damaged.*labels restore"):
        Session(run)
    restore(run)
    assert labelled(run) == N


def test_a_reader_beside_a_server_is_not_refused(run: Path) -> None:
    with closing(Session(run)) as session:
        session.store.apply(BatchRequest("set", {20: (DOWN, LABELLED)}))
        assert session.csv_sync is not None
        session.csv_sync.write()
        with closing(Session(run, read_only=True)) as reader:
            assert len(reader.store.labels()) == 7
