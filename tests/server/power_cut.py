"""Simulated power cuts: record what labelling writes, drop what was not synced, and count the labels that are missing.

`record_writes.c` records each write, sync and rename of a process. `Disk` replays the records and returns what a disk may hold
after a power cut: what was synced, and of everything else any 512-byte sectors. A new, renamed or deleted name counts as
synced only when its folder was.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from samekind.server.store import label_classes
from samekind.server.store.backups import back_up
from samekind.server.store.batches import LABELLED, BatchRequest
from samekind.server.store.csv_sync import write_csv
from samekind.server.store.label_store import LabelStore
from samekind.server.store.lost_labels import require_complete
from samekind.server.store.verify import verify

SECTOR, N_ITEMS = 512, 40
CHECKPOINT_EVERY, CSV_EVERY, BACKUP_EVERY = 25, 15, 40  # labels
HEADER = struct.Struct("=c3Q")


class Record(NamedTuple):
    """One call: c create, o open, d mkdir, w write, t truncate, s sync, r rename, u unlink."""

    call: str
    inode: int
    offset: int
    data: bytes


@dataclass
class DiskFile:
    """A file: what is certainly on the disk, and the writes and truncations since the last sync."""

    synced: bytes = b""
    pending: list[Record] = field(default_factory=list)


@dataclass
class PowerCuts:
    """Result of some power cuts: labels acknowledged before each, and those missing after it."""

    cuts: int = 0
    acknowledged: int = 0
    missing: int = 0


class Disk:
    """Files and names below a folder, as far as they are synced, and what is pending."""

    def __init__(self, root: str, *, ignore_syncs: bool = False) -> None:
        self._root, self._ignore_syncs = root, ignore_syncs
        self._files: dict[int, DiskFile] = {}  # by inode; a new file gets a new object
        self._names: dict[str, DiskFile | None] = {root: None}  # None: a folder
        self._synced_names = dict(self._names)
        self._pending_names: list[tuple[str, str, DiskFile | None]] = []  # (call, path, file)
        self._folders: dict[int, str] = {}  # inode -> path

    def apply(self, record: Record) -> None:
        """Apply one recorded call."""
        path = os.fsdecode(record.data)
        if record.call == "c":
            self._files[record.inode] = DiskFile()
            self._set_name("set", path, self._files[record.inode])
        elif record.call == "d":
            self._folders[record.inode] = path
            self._set_name("set", path, None)
        elif record.call == "o" and record.offset:
            self._folders[record.inode] = path
        elif record.call == "r":
            old, _, new = path.partition("\0")
            self._set_name("set", new, self._names.get(old))
            self._set_name("drop", old, None)
        elif record.call == "u":
            self._set_name("drop", path, None)
        elif record.call in "wt":
            self._files[record.inode].pending.append(record)
        elif record.call == "s" and not self._ignore_syncs:
            self._sync(record.inode)

    def write_all(self, to: Path) -> None:
        """Write everything into a new folder, as if nothing were lost."""
        self._write(to, self._names, lambda file: _write_all(file.synced, file.pending))

    def write_after_cut(self, to: Path, rng: random.Random) -> None:
        """Write what the disk may hold after a power cut now into a new folder."""
        names, kept = dict(self._synced_names), rng.choice([0.0, 0.5, 1.0])
        stopped: set[str] = set()  # of each folder, the first changes are on the disk
        for change in self._pending_names:
            folder = os.path.dirname(change[1])
            if rng.random() >= kept:
                stopped.add(folder)
            if folder not in stopped:
                _change_name(names, *change)
        self._write(to, names, lambda file: _content_after_cut(file, rng, kept))

    def _write(self, to: Path, names: dict[str, DiskFile | None], content: Callable[[DiskFile], bytes]) -> None:
        to.mkdir()
        for path in sorted(names):
            place, file = to / os.path.relpath(path, self._root), names[path]
            if path == self._root or not place.parent.is_dir():
                continue
            if file is None:
                place.mkdir()
            else:
                place.write_bytes(content(file))

    def _set_name(self, call: str, path: str, file: DiskFile | None) -> None:
        self._pending_names.append((call, path, file))
        _change_name(self._names, call, path, file)

    def _sync(self, inode: int) -> None:
        if inode in self._folders:
            folder = self._folders[inode]
            for change in self._pending_names:
                if os.path.dirname(change[1]) == folder:
                    _change_name(self._synced_names, *change)
            self._pending_names = [one for one in self._pending_names if os.path.dirname(one[1]) != folder]
        elif inode in self._files:
            file = self._files[inode]
            file.synced, file.pending = _write_all(file.synced, file.pending), []


def _change_name(names: dict[str, DiskFile | None], call: str, path: str, file: DiskFile | None) -> None:
    if call == "set":
        names[path] = file
    else:
        names.pop(path, None)


def _write_all(content: bytes, records: list[Record]) -> bytes:
    blob = bytearray(content)
    for record in records:
        if record.call == "t":
            del blob[record.offset :]
            blob.extend(bytes(record.offset - len(blob)))
        else:
            blob.extend(bytes(max(0, record.offset - len(blob))))
            blob[record.offset : record.offset + len(record.data)] = record.data
    return bytes(blob)


def _content_after_cut(file: DiskFile, rng: random.Random, kept: float) -> bytes:
    """Return the synced content with some of the sectors that were written since, and some of the truncations."""
    sectors = (part for record in file.pending for part in _split_into_sectors(record))
    return _write_all(file.synced, [part for part in sectors if rng.random() < kept])


def _split_into_sectors(record: Record) -> Iterator[Record]:
    if record.call == "t":
        yield record
        return
    at, end = record.offset, record.offset + len(record.data)
    while at < end:
        stop = min(end, (at // SECTOR + 1) * SECTOR)
        yield Record("w", record.inode, at, record.data[at - record.offset : stop - record.offset])
        at = stop


# ---------------------------------------------------------------- labelling, recording and checking


def label_plan(n: int, seed: int) -> list[tuple[int, int]]:
    """Return n labels as (item, class), each of which changes something."""
    rng, current, plan = random.Random(seed), dict.fromkeys(range(N_ITEMS), 0), []
    for _ in range(n):
        item = rng.randrange(N_ITEMS)
        current[item] = 1 - current[item]
        plan.append((item, current[item]))
    return plan


def label_items(folder: Path, n: int, seed: int) -> None:
    """Create a store and label items, with copies of the log, labels.csv and backups as the server makes them."""
    folder.mkdir(mode=0o700)
    with (
        closing(LabelStore(folder / "labels.sqlite")) as store,
        open(folder / "acknowledged", "wb", buffering=0) as acknowledged,
    ):
        store.add_items([f"{k}.png" for k in range(N_ITEMS)])
        label_classes.ids_of_names(store, ["cat", "dog"])
        for k, (item, class_id) in enumerate(label_plan(n, seed), 1):
            store.apply(BatchRequest("set", {item: (class_id, LABELLED)}, request_id=str(k)))
            acknowledged.write(b"x")
            if k % CHECKPOINT_EVERY == 0:
                store.checkpoint()
            if k % CSV_EVERY == 0:
                write_csv(store, folder / "labels.csv")
            if k % BACKUP_EVERY == 0:
                back_up(store, folder / "backups", keep=2)


def record_labelling(work: Path, n: int, seed: int) -> list[Record]:
    """Label items in a process whose writes are recorded; return the records."""
    library, log, run = work / "record_writes.so", work / "records", work / "run"
    source = Path(__file__).with_name("record_writes.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    run.mkdir()
    recording = {"LD_PRELOAD": str(library), "RECORD_BELOW": str(run), "RECORD_TO": str(log)}
    command = [sys.executable, "-m", "tests.server.power_cut", str(run / "serve"), str(n), str(seed)]
    subprocess.run(command, env={**os.environ, **recording}, cwd=source.parents[2], check=True)
    return list(read_records(log.read_bytes()))


def read_records(blob: bytes) -> Iterator[Record]:
    at = 0
    while at < len(blob):
        call, inode, offset, length = HEADER.unpack_from(blob, at)
        at += HEADER.size
        yield Record(call.decode(), inode, offset, blob[at : at + length])
        at += length


def cut_power(
    records: list[Record], work: Path, cuts: int, plan: list[tuple[int, int]], seed: int, *, ignore_syncs: bool = False
) -> PowerCuts:
    """Cut the power at random records; open the store after each cut, and count the acknowledged labels that are missing."""
    rng, result = random.Random(seed), PowerCuts()
    disk = Disk(str(work / "run"), ignore_syncs=ignore_syncs)
    places = sorted(rng.sample(range(len(records)), min(cuts, len(records))))
    marker, acknowledged = -1, 0
    for place, record in enumerate(records):
        disk.apply(record)
        if record.call == "c" and record.data.endswith(b"/acknowledged"):
            marker = record.inode
        acknowledged += record.call == "w" and record.inode == marker
        if places and place == places[0]:
            places.pop(0)
            after = work / "after"
            disk.write_after_cut(after, rng)
            result.cuts += 1
            result.acknowledged += acknowledged
            result.missing += max(0, acknowledged - _count_kept(after / "serve", plan, acknowledged))
            shutil.rmtree(after)
    return result


def _count_kept(folder: Path, plan: list[tuple[int, int]], acknowledged: int) -> int:
    """Return how many labels of the plan the store still has, in order; 0 if it cannot be opened or is not consistent."""
    if not folder.is_dir():
        return 0
    try:
        with closing(LabelStore(folder / "labels.sqlite")) as store:
            require_complete(store)
            found = [(event["id"], event["new_class"]) for event in store.events(0, len(plan) + 1)]
        faults = verify(folder / "labels.sqlite")
    except Exception as error:  # any error counts as a loss
        sys.stderr.write(f"after {acknowledged} labels: {error}\n")
        return -1
    return len(found) if found == plan[: len(found)] and not faults else 0


if __name__ == "__main__":
    label_items(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
