"""Renamed files: recognized by content if labelled, else by size and modification time."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.conftest import striped

from samekind.server.session import Session
from samekind.server.store import content_hashes
from samekind.server.store.batches import LABELLED, BatchRequest, ItemFileStamp
from samekind.server.store.content_hashes import ContentHasher, file_sha256, find_renamed_files
from samekind.server.store.label_store import LabelStore


def stamp(root: Path, name: str, *, hashed: bool) -> ItemFileStamp:
    about = (root / name).stat()
    return ItemFileStamp(name, about.st_size, about.st_mtime_ns, file_sha256(str(root / name)) if hashed else None)


def files(root: Path, **contents: str) -> list[str]:
    for name, text in contents.items():
        (root / name).write_text(text)
    return sorted(contents)


def test_a_labelled_file_is_known_by_its_content_whatever_its_time(tmp_path: Path) -> None:
    files(tmp_path, a="one", b="two")
    known = [stamp(tmp_path, name, hashed=True) for name in "ab"]
    (tmp_path / "a").rename(tmp_path / "c")
    os.utime(tmp_path / "c", (1, 1))
    files(tmp_path, d="six")  # a new file of the same size
    assert find_renamed_files(str(tmp_path), known, ["b", "c", "d"]) == {"c": "a"}


def test_another_content_with_the_same_size_and_time_is_another_file(tmp_path: Path) -> None:
    files(tmp_path, a="one")
    known = [stamp(tmp_path, "a", hashed=True)]
    about = (tmp_path / "a").stat()
    (tmp_path / "a").unlink()
    files(tmp_path, b="six")
    os.utime(tmp_path / "b", ns=(about.st_mtime_ns, about.st_mtime_ns))
    assert find_renamed_files(str(tmp_path), known, ["b"]) == {}
    assert find_renamed_files(str(tmp_path), [known[0]._replace(sha256=None)], ["b"]) == {
        "b": "a"
    }  # without a hash, size and time decide


def test_an_ambiguous_rename_is_not_followed(tmp_path: Path) -> None:
    files(tmp_path, a="one", b="one")
    known = [stamp(tmp_path, name, hashed=True) for name in "ab"]
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "d")
    assert find_renamed_files(str(tmp_path), known, ["c", "d"]) == {}


def test_only_files_of_the_same_size_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, a="one")
    known = [stamp(tmp_path, "a", hashed=True)]
    (tmp_path / "a").rename(tmp_path / "b")
    files(tmp_path, c="longer", d="two")
    read: list[str] = []

    def noted(path: str) -> str | None:
        read.append(Path(path).name)
        return file_sha256(path)

    monkeypatch.setattr(content_hashes, "file_sha256", noted)
    assert find_renamed_files(str(tmp_path), known, ["b", "c", "d"]) == {"b": "a"}
    assert sorted(read) == ["b", "d"]


def test_at_the_next_start_the_label_follows_the_file(run: Path) -> None:
    images = run.parent / "photos"
    session = Session(run)
    assert session.content_hasher is not None
    session.content_hasher.hash_labelled()
    session.close()
    (images / "roll0" / "03.png").rename(images / "moved.png")
    (images / "roll0" / "04.png").unlink()
    striped(1, 77).save(images / "roll0" / "new.png")
    os.utime(images / "moved.png", (1, 1))
    messages: list[str] = []
    again = Session(run, log=messages.append)
    assert again.store.names[3] == "moved.png" and again.states.class_id[3] == 1
    assert again.store.names[4] == "roll0/04.png" and again.states.class_id[4] == 0  # the file is gone, its label stays
    assert messages == ["1 renamed file was recognized by content"]
    again.close()


def test_the_folder_is_not_read_if_no_labelled_file_is_gone(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run.parent / "photos" / "roll1" / "30.png").unlink()  # has no label
    monkeypatch.setattr(content_hashes, "find_images", lambda *_, **__: pytest.fail("the folder was read"))
    Session(run).close()


def test_labelled_files_are_hashed_in_the_background(tmp_path: Path) -> None:
    files(tmp_path, a="one", b="two")
    store = LabelStore(tmp_path / "labels.sqlite")
    store.add_items(["a", "b", "gone"])
    with store.transaction() as db:
        db.execute("INSERT INTO class(id, name, colour) VALUES (0, 'x', '#000000')")
    store.apply(BatchRequest("set", {1: (0, LABELLED), 2: (0, LABELLED)}))
    content_hasher = ContentHasher(store, tmp_path, seconds=0.01)
    for _ in range(500):
        if store.unhashed_items() == [2]:
            break
        time.sleep(0.01)
    content_hasher.close()
    assert store.rows("SELECT id, sha256 FROM image WHERE sha256 IS NOT NULL") == [
        {"id": 1, "sha256": file_sha256(str(tmp_path / "b"))}
    ]
    store.close()


def test_a_closed_hasher_reads_no_file_to_its_end(run: Path) -> None:
    with closing(LabelStore(run / "serve" / "labels.sqlite")) as store:
        store.apply(BatchRequest("set", {30: (1, LABELLED)}))
        before = store.unhashed_items()
        content_hasher = ContentHasher(store, run.parent / "photos", seconds=600.0)
        content_hasher.close()
        content_hasher.hash_labelled()
        assert 30 in before and store.unhashed_items() == before


def test_an_old_store_gets_the_column_for_hashes(run: Path) -> None:
    path = run / "serve" / "labels.sqlite"
    shutil.rmtree(run / "serve" / "backups", ignore_errors=True)
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE image DROP COLUMN sha256")
    store = LabelStore(path)
    assert store.unhashed_items() and all(one.sha256 is None for one in store.file_stamps())
    store.close()


def renamed_onto_a_deleted_item(run: Path, *, known: bool) -> list[str]:
    """Label item 3 in a session, rename its file to the name of item 30, whose file is deleted, and return the names after."""
    images = run.parent / "photos"
    if not known:  # deleted before the first start, so that its size and time are unknown
        for file in (run / "serve").iterdir():
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        (images / "roll1" / "30.png").unlink()
    session = Session(run)
    assert session.content_hasher is not None
    session.content_hasher.hash_labelled()
    session.close()
    (images / "roll0" / "03.png").replace(images / "roll1" / "30.png")
    with closing(Session(run)) as again:
        assert again.states.class_id[3] == 1
        return again.store.names


@pytest.mark.parametrize("known", [False, True])
def test_a_label_follows_a_file_that_takes_the_name_of_a_deleted_item(run: Path, known: bool) -> None:
    names = renamed_onto_a_deleted_item(run, known=known)
    assert names[3] == "roll1/30.png" and names[30] == "roll1/30.png (deleted)"


def test_two_items_can_exchange_their_names(tmp_path: Path) -> None:
    store = LabelStore(tmp_path / "labels.sqlite")
    store.add_items(["a", "b", "c", "c (deleted)"])
    store.rename_items({0: "b", 1: "a"})
    assert store.names == ["b", "a", "c", "c (deleted)"]
    store.rename_items({0: "c"})
    assert store.names == ["c", "a", "c (deleted 2)", "c (deleted)"]


def test_a_file_that_replaces_another_displaces_it_and_both_are_followed(tmp_path: Path) -> None:
    files(tmp_path, a="one", b="three")
    known = [stamp(tmp_path, name, hashed=True) for name in "ab"]
    (tmp_path / "b").rename(tmp_path / "c")
    (tmp_path / "a").rename(tmp_path / "b")
    assert find_renamed_files(str(tmp_path), known, ["b", "c"]) == {"b": "a", "c": "b"}
