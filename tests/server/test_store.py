"""The label store: nothing is lost, everything can be undone, and the state follows from the log."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samekind.errors import RequestError, StoreError
from samekind.server import kinds
from samekind.server.lock import Lock
from samekind.server.mirror import Mirror, back_up
from samekind.server.store import LABELLED, Store, Wish
from samekind.server.verify import verify

CAT, DOG = 0, 1


def fresh(path: Path, n: int = 6) -> Store:
    store = Store(path / "labels.sqlite")
    store.add_images([f"{k}.png" for k in range(n)])
    kinds.by_name(store, ["cat", "dog"])
    return store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return fresh(tmp_path)


def put(store: Store, images: list[int], kind: int | None, **more: Any) -> Any:
    targets = dict.fromkeys(images, (kind, LABELLED if kind is not None else None))
    return store.apply(Wish("set" if kind is not None else "clear", targets, **more))


def held(store: Store) -> list[int]:
    return store.states.class_id.tolist()


def test_a_label_is_there_after_the_store_was_opened_again(store: Store) -> None:
    put(store, [1, 2], DOG)
    again = Store(store.path)
    assert held(again) == [-1, DOG, DOG, -1, -1, -1]
    assert again.last_seq == 2


def test_the_same_request_twice_is_done_once(store: Store) -> None:
    first = put(store, [1], DOG, request_id="a")
    put(store, [1], CAT, request_id="b")
    assert put(store, [1], DOG, request_id="a") == first
    assert held(store)[1] == CAT


def test_a_request_id_cannot_be_used_for_something_else(store: Store) -> None:
    put(store, [1], DOG, request_id="a")
    with pytest.raises(RequestError, match="used before"):
        put(store, [2], DOG, request_id="a")


def test_undo_takes_back_a_batch_at_once_and_redo_brings_it_back(store: Store) -> None:
    put(store, [0, 1], CAT)
    put(store, [1, 2], DOG)
    assert store.undo().changed == 2
    assert held(store)[:3] == [CAT, CAT, -1]
    assert store.redo().changed == 2
    assert held(store)[:3] == [CAT, DOG, DOG]


def test_what_changes_nothing_is_nothing_to_undo(store: Store) -> None:
    put(store, [0], CAT)
    assert put(store, [0], CAT).batch is None
    assert store.undo().changed == 1


def test_undo_goes_on_after_a_restart(store: Store) -> None:
    put(store, [0], CAT)
    put(store, [0], DOG)
    store.undo()
    again = Store(store.path)
    again.undo()
    assert held(again)[0] == -1
    again.redo()
    again.redo()
    assert held(again)[0] == DOG


def test_a_new_label_ends_redoing(store: Store) -> None:
    put(store, [0], CAT)
    store.undo()
    put(store, [1], DOG)
    with pytest.raises(RequestError, match="nothing to redo"):
        store.redo()


def test_undoing_an_old_batch_leaves_what_was_said_later_and_reports_it(store: Store) -> None:
    old = put(store, [0, 1], CAT).batch
    put(store, [0], DOG)
    undone = store.undo(old)
    assert undone.conflicts == (0,)
    assert held(store)[:2] == [DOG, -1]


def test_a_label_of_an_undone_batch_does_not_come_back_with_the_next_undo(store: Store) -> None:
    old = put(store, [0], CAT).batch
    put(store, [0], DOG)
    store.undo(old)
    store.undo()
    assert held(store)[0] == -1


def test_the_labels_of_the_fit_are_not_undone(store: Store) -> None:
    store.apply(Wish("fit", {0: (CAT, LABELLED)}, source="fit"))
    with pytest.raises(RequestError, match="nothing to undo"):
        store.undo()
    put(store, [0], DOG)
    store.undo()
    assert held(store)[0] == CAT


def test_what_another_tab_changed_is_left_alone_and_reported(store: Store) -> None:
    seen = put(store, [0], CAT).seq
    put(store, [1], CAT)
    outcome = put(store, [0, 1], DOG, seen=seen)
    assert outcome.conflicts == (1,) and held(store)[:2] == [DOG, CAT]


def test_more_items_than_one_request_takes_are_one_batch(store: Store) -> None:
    first = put(store, [0, 1], DOG)
    put(store, [2, 3], DOG, batch=first.batch)
    assert store.undo().changed == 4
    assert held(store) == [-1] * 6


def test_a_batch_goes_on_only_while_it_is_the_last(store: Store) -> None:
    first = put(store, [0], DOG)
    put(store, [1], CAT)
    with pytest.raises(RequestError, match="not the last"):
        put(store, [2], DOG, batch=first.batch)


@pytest.mark.parametrize("change", ["UPDATE event SET new_class = 0", "DELETE FROM event", "DELETE FROM batch"])
def test_nothing_in_the_log_can_be_changed(store: Store, change: str) -> None:
    put(store, [0], DOG)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        sqlite3.connect(store.path).execute(change)


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "clear", "undo", "redo"]), st.integers(0, 2), st.integers(0, 1)), max_size=25
)


@given(STEPS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_done_the_state_follows_from_the_log_and_undoing_all_leaves_nothing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    store = fresh(tmp_path_factory.mktemp("any"), 3)
    for what, image, kind in steps:
        if what in ("set", "clear"):
            put(store, [image, (image + 1) % 3], kind if what == "set" else None)
        elif (store.stack.last() if what == "undo" else store.stack.last_undone()) is not None:
            getattr(store, what)()
    assert verify(store.path) == []
    assert held(Store(store.path)) == held(store)
    while store.stack.last() is not None:
        store.undo()
    assert held(store) == [-1, -1, -1]
    assert verify(store.path) == []


def test_verify_finds_a_state_that_does_not_follow_from_the_log(store: Store) -> None:
    put(store, [0, 1], DOG)
    assert verify(store.path) == []
    sqlite3.connect(store.path, isolation_level=None).execute("UPDATE state SET class_id = 0 WHERE image_id = 1")
    (found,) = verify(store.path)
    assert "1.png" in found


def test_a_class_keeps_its_images_under_a_new_name(store: Store) -> None:
    put(store, [0], DOG)
    kinds.change(store, DOG, {"name": "hound"})
    assert [kind.name for kind in kinds.kinds(store)] == ["cat", "hound"]
    assert held(store)[0] == DOG


def test_merging_moves_all_images_and_undo_brings_the_class_back(store: Store) -> None:
    put(store, [0, 1], DOG)
    kinds.merge(store, DOG, CAT)
    assert held(store)[:2] == [CAT, CAT] and kinds.one(store, DOG).archived
    assert kinds.final(kinds.kinds(store))[DOG] == CAT
    store.undo()
    assert held(store)[:2] == [DOG, DOG] and not kinds.one(store, DOG).archived


def test_a_class_in_use_is_not_put_away_and_no_name_is_there_twice(store: Store) -> None:
    put(store, [0], DOG)
    with pytest.raises(RequestError, match="labelled 'dog'"):
        kinds.change(store, DOG, {"archived": True})
    with pytest.raises(RequestError, match="already"):
        kinds.add(store, "dog")
    with pytest.raises(RequestError, match="Another class"):
        kinds.change(store, DOG, {"name": "cat"})


def test_a_class_that_was_put_away_comes_back_by_its_name(store: Store) -> None:
    kinds.change(store, DOG, {"archived": True})
    assert kinds.add(store, "dog").id == DOG
    assert not kinds.one(store, DOG).archived


def test_the_first_classes_have_keys_of_their_own(store: Store) -> None:
    kinds.by_name(store, [f"kind {k}" for k in range(20)])
    keys = [kind.key for kind in kinds.kinds(store)]
    assert keys[:3] == ["1", "2", "3"] and keys[9:11] == ["0", "shift+1"] and keys[20:] == [None, None]


def test_a_second_writer_is_refused_and_named(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    with pytest.raises(StoreError, match=r"process \d+.*--read-only"):
        Lock(tmp_path / "lock")
    lock.close()
    Lock(tmp_path / "lock").close()


def test_reading_only_changes_nothing(store: Store) -> None:
    put(store, [0], DOG)
    reader = Store(store.path, read_only=True)
    assert held(reader)[0] == DOG
    with pytest.raises(RequestError, match="reading only"):
        put(reader, [0], CAT)


def test_a_reader_sees_what_is_written_meanwhile(store: Store) -> None:
    reader = Store(store.path, read_only=True)
    put(store, [3], DOG)
    reader.refresh()
    assert held(reader)[3] == DOG


def test_a_file_name_that_is_no_text_is_kept_as_it_is(tmp_path: Path) -> None:
    odd = b"caf\xe9.png".decode("utf-8", "surrogateescape")
    store = Store(tmp_path / "labels.sqlite")
    store.add_images(["a.png", odd])
    kinds.by_name(store, ["cat"])
    put(store, [1], CAT)
    assert Store(store.path).names == ["a.png", odd]
    Mirror(store, tmp_path / "labels.csv").close()
    assert b"caf\xe9.png,cat" in (tmp_path / "labels.csv").read_bytes()
    assert verify(store.path) == []


def test_the_mirror_holds_every_label_under_its_path(store: Store, tmp_path: Path) -> None:
    put(store, [2], DOG)
    store.apply(Wish("skip", {3: (None, "skipped")}))
    mirror = Mirror(store, tmp_path / "labels.csv", seconds=0.0)
    mirror.close()
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    assert lines[0] == "path,label,status,source,labelled_at"
    assert lines[1].startswith("2.png,dog,labelled,page,") and lines[2].startswith("3.png,,skipped,page,")


def test_the_mirror_reads_the_labels_only_when_something_changed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, whole = [], store.snapshot

    def snapshot() -> tuple[int, list[dict[str, Any]]]:
        read.append(store.last_seq)
        return whole()

    monkeypatch.setattr(store, "snapshot", snapshot)
    mirror = Mirror(store, tmp_path / "labels.csv", seconds=60.0)
    mirror._write()
    mirror._write()
    assert len(read) == 1
    kinds.change(store, DOG, {"name": "hound"})  # no event of the log, and still another file
    put(store, [2], DOG)
    mirror._write()
    mirror._write()
    mirror.close()
    assert len(read) == 2 and "2.png,hound," in (tmp_path / "labels.csv").read_text()


def test_backups_are_whole_stores_and_the_oldest_go(store: Store, tmp_path: Path) -> None:
    for item in range(4):
        put(store, [item], DOG)
        back_up(store, tmp_path / "backups", keep=3)
    copies = sorted((tmp_path / "backups").iterdir())
    assert [len(Store(copy, read_only=True).labels()) for copy in copies] == [2, 3, 4]


def test_a_start_after_which_nothing_was_done_pushes_no_backup_out(store: Store, tmp_path: Path) -> None:
    put(store, [0], DOG)
    first = back_up(store, tmp_path / "backups", keep=2)
    put(store, [1], DOG)
    second = back_up(store, tmp_path / "backups", keep=2)
    for _ in range(3):
        again = Store(store.path)
        assert back_up(again, tmp_path / "backups", keep=2) == second
        again.close()
    assert sorted((tmp_path / "backups").iterdir()) == [first, second]


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.sqlite").write_bytes(b"something else, and quite long" * 100)
    with pytest.raises(StoreError, match="backups"):
        Store(tmp_path / "labels.sqlite")
