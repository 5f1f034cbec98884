"""The label store: no label is lost, every batch can be undone, and the state follows from the log."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samekind.errors import RequestError, StoreError
from samekind.server.store import label_classes
from samekind.server.store.backups import back_up
from samekind.server.store.batches import HOTKEYS, LABELLED, BatchRequest
from samekind.server.store.csv_sync import CsvSync
from samekind.server.store.label_store import LabelStore
from samekind.server.store.server_lock import ServerLock
from samekind.server.store.verify import verify

CAT, DOG = 0, 1


def fresh(path: Path, n: int = 6) -> LabelStore:
    store = LabelStore(path / "labels.sqlite")
    store.add_items([f"{k}.png" for k in range(n)])
    label_classes.ids_of_names(store, ["cat", "dog"])
    return store


@pytest.fixture
def store(tmp_path: Path) -> LabelStore:
    return fresh(tmp_path)


def put(store: LabelStore, images: list[int], kind: int | None, **more: Any) -> Any:
    targets = dict.fromkeys(images, (kind, LABELLED if kind is not None else None))
    return store.apply(BatchRequest("set" if kind is not None else "clear", targets, **more))


def held(store: LabelStore) -> list[int]:
    return store.states.class_id.tolist()


def test_a_label_is_there_after_the_store_was_opened_again(store: LabelStore) -> None:
    put(store, [1, 2], DOG)
    again = LabelStore(store.path)
    assert held(again) == [-1, DOG, DOG, -1, -1, -1]
    assert again.last_seq == 2


def test_the_same_request_twice_is_done_once(store: LabelStore) -> None:
    first = put(store, [1], DOG, request_id="a")
    put(store, [1], CAT, request_id="b")
    assert put(store, [1], DOG, request_id="a") == first
    assert held(store)[1] == CAT


def test_a_request_id_cannot_be_used_for_something_else(store: LabelStore) -> None:
    put(store, [1], DOG, request_id="a")
    with pytest.raises(RequestError, match="used before"):
        put(store, [2], DOG, request_id="a")


def test_undo_reverts_a_whole_batch_and_redo_restores_it(store: LabelStore) -> None:
    put(store, [0, 1], CAT)
    put(store, [1, 2], DOG)
    assert store.undo().changed == 2
    assert held(store)[:3] == [CAT, CAT, -1]
    assert store.redo().changed == 2
    assert held(store)[:3] == [CAT, DOG, DOG]


def test_a_batch_without_changes_cannot_be_undone(store: LabelStore) -> None:
    put(store, [0], CAT)
    assert put(store, [0], CAT).batch is None
    assert store.undo().changed == 1


def test_undo_works_after_a_restart(store: LabelStore) -> None:
    put(store, [0], CAT)
    put(store, [0], DOG)
    store.undo()
    again = LabelStore(store.path)
    again.undo()
    assert held(again)[0] == -1
    again.redo()
    again.redo()
    assert held(again)[0] == DOG


def test_a_new_label_ends_redoing(store: LabelStore) -> None:
    put(store, [0], CAT)
    store.undo()
    put(store, [1], DOG)
    with pytest.raises(RequestError, match="nothing to redo"):
        store.redo()


def test_undoing_an_old_batch_keeps_later_labels_and_reports_them(store: LabelStore) -> None:
    old = put(store, [0, 1], CAT).batch
    put(store, [0], DOG)
    undone = store.undo(old)
    assert undone.conflicts == (0,)
    assert held(store)[:2] == [DOG, -1]


def test_a_label_of_an_undone_batch_does_not_come_back_with_the_next_undo(store: LabelStore) -> None:
    old = put(store, [0], CAT).batch
    put(store, [0], DOG)
    store.undo(old)
    store.undo()
    assert held(store)[0] == -1


def test_the_labels_of_the_fit_are_not_undone(store: LabelStore) -> None:
    store.apply(BatchRequest("fit", {0: (CAT, LABELLED)}, source="fit"))
    with pytest.raises(RequestError, match="nothing to undo"):
        store.undo()
    put(store, [0], DOG)
    store.undo()
    assert held(store)[0] == CAT


def test_items_changed_by_another_tab_are_skipped_and_reported(store: LabelStore) -> None:
    seen = put(store, [0], CAT).seq
    put(store, [1], CAT)
    result = put(store, [0, 1], DOG, seen=seen)
    assert result.conflicts == (1,) and held(store)[:2] == [DOG, CAT]


def test_more_items_than_one_request_takes_are_one_batch(store: LabelStore) -> None:
    first = put(store, [0, 1], DOG)
    put(store, [2, 3], DOG, batch=first.batch)
    assert store.undo().changed == 4
    assert held(store) == [-1] * 6


def test_only_the_last_batch_can_be_continued(store: LabelStore) -> None:
    first = put(store, [0], DOG)
    put(store, [1], CAT)
    with pytest.raises(RequestError, match="not the last"):
        put(store, [2], DOG, batch=first.batch)


@pytest.mark.parametrize("change", ["UPDATE event SET new_class = 0", "DELETE FROM event", "DELETE FROM batch"])
def test_nothing_in_the_log_can_be_changed(store: LabelStore, change: str) -> None:
    put(store, [0], DOG)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        sqlite3.connect(store.path).execute(change)


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "clear", "undo", "redo"]), st.integers(0, 2), st.integers(0, 1)), max_size=25
)


@given(STEPS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_after_any_operations_the_state_follows_from_the_log_and_undo_reverts_everything(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    store = fresh(tmp_path_factory.mktemp("any"), 3)
    for what, image, kind in steps:
        if what in ("set", "clear"):
            put(store, [image, (image + 1) % 3], kind if what == "set" else None)
        elif (store.undo_log.last() if what == "undo" else store.undo_log.last_undone()) is not None:
            getattr(store, what)()
    assert verify(store.path) == []
    assert held(LabelStore(store.path)) == held(store)
    while store.undo_log.last() is not None:
        store.undo()
    assert held(store) == [-1, -1, -1]
    assert verify(store.path) == []


def test_verify_finds_a_state_that_does_not_follow_from_the_log(store: LabelStore) -> None:
    put(store, [0, 1], DOG)
    assert verify(store.path) == []
    sqlite3.connect(store.path, isolation_level=None).execute("UPDATE state SET class_id = 0 WHERE image_id = 1")
    (found,) = verify(store.path)
    assert "1.png" in found


def test_a_class_keeps_its_images_under_a_new_name(store: LabelStore) -> None:
    put(store, [0], DOG)
    label_classes.change(store, DOG, {"name": "hound"})
    assert [one["name"] for one in label_classes.all_classes(store)] == ["cat", "hound"]
    assert held(store)[0] == DOG


def test_merging_moves_all_images_and_undo_brings_the_class_back(store: LabelStore) -> None:
    put(store, [0, 1], DOG)
    label_classes.merge(store, DOG, CAT)
    assert held(store)[:2] == [CAT, CAT] and label_classes.one_class(store, DOG)["archived"]
    assert label_classes.merge_targets(label_classes.all_classes(store))[DOG] == CAT
    store.undo()
    assert held(store)[:2] == [DOG, DOG] and not label_classes.one_class(store, DOG)["archived"]


def test_a_class_with_labels_is_not_archived_and_names_are_unique(store: LabelStore) -> None:
    put(store, [0], DOG)
    with pytest.raises(RequestError, match="labelled 'dog'"):
        label_classes.change(store, DOG, {"archived": True})
    with pytest.raises(RequestError, match="already"):
        label_classes.add(store, "dog")
    with pytest.raises(RequestError, match="Another class"):
        label_classes.change(store, DOG, {"name": "cat"})


def test_adding_an_archived_class_restores_it_with_a_key(store: LabelStore) -> None:
    label_classes.change(store, DOG, {"archived": True})
    assert label_classes.add(store, "dog")["id"] == DOG
    restored = label_classes.one_class(store, DOG)
    assert (restored["archived"], restored["key"]) == (False, "2")


def test_the_ids_of_a_models_classes_are_found_without_restoring_deleted_ones(store: LabelStore) -> None:
    label_classes.delete(store, DOG, clear_labels=False)
    assert label_classes.ids_of_names(store, ["cat", "dog"], restore=False) == [CAT, DOG]
    assert label_classes.merge_targets(label_classes.all_classes(store)) == {CAT: CAT, DOG: None}
    assert label_classes.ids_of_names(store, ["dog"]) == [DOG] and not label_classes.one_class(store, DOG)["archived"]


@pytest.mark.parametrize("merge", [True, False])
def test_undoing_an_older_batch_restores_the_class_that_has_labels_again(store: LabelStore, merge: bool) -> None:
    put(store, [0], DOG)
    older = put(store, [0], CAT).batch
    put(store, [1], DOG)
    label_classes.merge(store, DOG, CAT) if merge else label_classes.delete(store, DOG, clear_labels=True)
    store.undo(older)
    assert held(store)[:2] == [DOG, CAT if merge else -1] and not label_classes.one_class(store, DOG)["archived"]


def test_a_deletion_without_labels_is_undone_and_redone(store: LabelStore) -> None:
    label_classes.delete(store, DOG, clear_labels=False)
    store.undo()
    assert not label_classes.one_class(store, DOG)["archived"]
    store.redo()
    assert label_classes.one_class(store, DOG)["archived"] and not verify(store.path)


def test_the_first_classes_have_keys_of_their_own(store: LabelStore) -> None:
    label_classes.ids_of_names(store, [f"kind {k}" for k in range(20)])
    keys = [one["key"] for one in label_classes.all_classes(store)]
    assert keys[:3] == ["1", "2", "3"] and keys[9:11] == ["0", "shift+1"] and keys[20:] == [None, None]


def test_a_second_writer_is_refused_and_named(tmp_path: Path) -> None:
    lock = ServerLock(tmp_path / "lock")
    with pytest.raises(StoreError, match=r"process \d+.*--read-only"):
        ServerLock(tmp_path / "lock")
    lock.close()
    ServerLock(tmp_path / "lock").close()


def test_reading_only_changes_nothing(store: LabelStore) -> None:
    put(store, [0], DOG)
    reader = LabelStore(store.path, read_only=True)
    assert held(reader)[0] == DOG
    with pytest.raises(RequestError, match="reading only"):
        put(reader, [0], CAT)


def test_a_reader_sees_what_is_written_meanwhile(store: LabelStore) -> None:
    reader = LabelStore(store.path, read_only=True)
    put(store, [3], DOG)
    reader.refresh()
    assert held(reader)[3] == DOG


def test_a_file_name_that_is_not_utf8_is_stored_unchanged(tmp_path: Path) -> None:
    odd = b"caf\xe9.png".decode("utf-8", "surrogateescape")
    store = LabelStore(tmp_path / "labels.sqlite")
    store.add_items(["a.png", odd])
    label_classes.ids_of_names(store, ["cat"])
    put(store, [1], CAT)
    assert LabelStore(store.path).names == ["a.png", odd]
    CsvSync(store, tmp_path / "labels.csv").close()
    assert b"caf\xe9.png,cat" in (tmp_path / "labels.csv").read_bytes()
    assert verify(store.path) == []


def test_the_csv_holds_every_label_under_its_path(store: LabelStore, tmp_path: Path) -> None:
    put(store, [2], DOG)
    store.apply(BatchRequest("skip", {3: (None, "skipped")}))
    csv_sync = CsvSync(store, tmp_path / "labels.csv", seconds=0.0)
    csv_sync.close()
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    assert lines[0] == "path,label,status,source,labelled_at"
    assert lines[1].startswith("2.png,dog,labelled,page,") and lines[2].startswith("3.png,,skipped,page,")


def test_the_csv_is_written_only_after_a_change(store: LabelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, whole = [], store.snapshot

    def snapshot() -> tuple[int, list[dict[str, Any]]]:
        read.append(store.last_seq)
        return whole()

    monkeypatch.setattr(store, "snapshot", snapshot)
    csv_sync = CsvSync(store, tmp_path / "labels.csv", seconds=60.0)
    csv_sync.write()
    csv_sync.write()
    assert len(read) == 1
    label_classes.change(store, DOG, {"name": "hound"})  # changes the file without an event
    put(store, [2], DOG)
    csv_sync.write()
    csv_sync.write()
    csv_sync.close()
    assert len(read) == 2 and "2.png,hound," in (tmp_path / "labels.csv").read_text()


def test_backups_are_complete_stores_and_the_oldest_are_removed(store: LabelStore, tmp_path: Path) -> None:
    for item in range(4):
        put(store, [item], DOG)
        back_up(store, tmp_path / "backups", keep=3)
    copies = sorted((tmp_path / "backups").iterdir())
    assert [len(LabelStore(copy, read_only=True).labels()) for copy in copies] == [2, 3, 4]


def test_a_restart_without_changes_makes_no_backup(store: LabelStore, tmp_path: Path) -> None:
    put(store, [0], DOG)
    first = back_up(store, tmp_path / "backups", keep=2)
    put(store, [1], DOG)
    second = back_up(store, tmp_path / "backups", keep=2)
    for _ in range(3):
        again = LabelStore(store.path)
        assert back_up(again, tmp_path / "backups", keep=2) == second
        again.close()
    assert sorted((tmp_path / "backups").iterdir()) == [first, second]


def test_a_file_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.sqlite").write_bytes(b"something else, and quite long" * 100)
    with pytest.raises(StoreError, match="Restore it from a backup"):
        LabelStore(tmp_path / "labels.sqlite")


def test_many_classes_are_added_in_one_transaction(store: LabelStore) -> None:
    names = [f"kind {k}" for k in range(3000)]
    ids = label_classes.ids_of_names(store, ["dog", *names, "kind 7"])
    assert ids == [DOG, *range(2, 3002), 9]
    found = label_classes.all_classes(store)
    assert [one["name"] for one in found] == ["cat", "dog", *names]
    assert len({one["key"] for one in found} - {None}) == len(HOTKEYS)
