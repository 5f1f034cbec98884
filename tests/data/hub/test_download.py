"""A download ends with the official file, or with a clear error and no file, whatever a host does."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from samekind.data.hub.catalogue import DATASETS
from samekind.data.hub.cifar_dataset import CIFAR10
from samekind.data.hub.download import RetryPolicy, download_dataset, download_file, unpack
from samekind.data.hub.source import DatasetFile, DatasetSource, SplitFiles, digest
from samekind.data.hub.svhn_dataset import SVHN
from samekind.errors import DownloadError, SettingError

BLOB = np.random.default_rng(0).bytes(200_000)
HURRY = RetryPolicy(timeout=10, tries=2, backoff=0.01)
NERVOUS = RetryPolicy(timeout=0.5, tries=2, backoff=0.01)


def official(name: str, blob: bytes) -> DatasetFile:
    """Return the description of a file with these bytes."""
    return DatasetFile(name, *digest([blob]))


FILE = official("digits.bin", BLOB)


class Host:
    """A web server on this machine. `plan` says how it answers its next requests; after that it is a good one."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.plan, self.requests = files, list[str](), list[tuple[str, str]]()
        self.released = threading.Event()
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host.respond(self)

            def log_message(self, *message: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def ranges(self) -> list[str]:
        return [requests for _, requests in self.requests]

    def respond(self, request: BaseHTTPRequestHandler) -> None:
        name, behaviour = request.path.removeprefix("/"), request.headers.get("Range", "")
        self.requests.append((name, behaviour))
        manner = self.plan.pop(0) if self.plan else "good"
        if manner.isdecimal() or name not in self.files:
            request.send_error(int(manner) if manner.isdecimal() else 404)
            return
        blob = self.files[name]
        start = 0 if "no ranges" in manner or not behaviour else int(behaviour.removeprefix("bytes=").removesuffix("-"))
        if manner == "elsewhere":
            start, behaviour = 7, "bytes=7-"
        body = {"wrong": bytes(len(blob) - start), "page": b"<html>Log in first.</html>"}.get(manner, blob[start:])
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(body)))
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(blob) - 1}/{len(blob)}")
        request.end_headers()
        request.wfile.write(body[: len(body) // 2] if "drop" in manner or manner == "stall" else body)
        if manner == "stall":
            self.released.wait(20)

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def hosts() -> Iterator[Callable[[dict[str, bytes]], Host]]:
    started: list[Host] = []

    def start(files: dict[str, bytes]) -> Host:
        started.append(Host(files))
        return started[-1]

    yield start
    for host in started:
        host.close()


@pytest.fixture
def host(hosts: Callable[[dict[str, bytes]], Host]) -> Host:
    return hosts({FILE.name: BLOB})


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(host: Host, path: Path, retry: RetryPolicy = HURRY, *others: Host) -> str:
    """Return the error message of a failed download."""
    with pytest.raises(DownloadError) as caught:
        download_file(FILE, [host.url, *(other.url for other in others)], path, retry)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_download_is_complete_leaves_no_other_file_and_reports_progress(host: Host, tmp_path: Path) -> None:
    reported: list[tuple[str, int, int]] = []
    download_file(FILE, [host.url], tmp_path / "new" / FILE.name, HURRY, lambda *step: reported.append(step))
    assert (tmp_path / "new" / FILE.name).read_bytes() == BLOB
    assert left_in(tmp_path / "new") == [FILE.name]
    assert reported[0] == (FILE.name, 0, FILE.size) and reported[-1] == (FILE.name, FILE.size, FILE.size)
    assert reported == sorted(reported)


def test_a_dropped_connection_is_resumed_at_the_last_byte(host: Host, tmp_path: Path) -> None:
    host.plan = ["drop", "drop"]
    download_file(FILE, [host.url], tmp_path / FILE.name, HURRY)
    assert host.ranges == ["", "bytes=100000-", "bytes=150000-"]
    assert (tmp_path / FILE.name).read_bytes() == BLOB


def test_attempts_that_bring_new_data_are_not_counted(host: Host, tmp_path: Path) -> None:
    host.plan = ["drop"] * 7
    download_file(FILE, [host.url], tmp_path / FILE.name, replace(HURRY, tries=1))
    assert len(host.requests) == 8


def test_a_host_without_range_requests_sends_the_whole_file_again(host: Host, tmp_path: Path) -> None:
    host.plan = ["drop", "no ranges"]
    download_file(FILE, [host.url], tmp_path / FILE.name, HURRY)
    assert host.ranges == ["", "bytes=100000-"]
    assert (tmp_path / FILE.name).read_bytes() == BLOB


def test_a_host_without_range_requests_that_always_disconnects_fails(host: Host, tmp_path: Path) -> None:
    host.plan = ["no ranges, drop"] * 9
    assert "ended too early, 2 times in a row" in refused(host, tmp_path / FILE.name)
    assert len(host.requests) == 3


def test_wrong_bytes_are_refused_also_when_they_complete_an_earlier_part(host: Host, tmp_path: Path) -> None:
    host.files[FILE.name] = BLOB[:-1] + b"?"
    (tmp_path / f".{FILE.name}.part").write_bytes(BLOB[:150_000])
    assert "sent other bytes" in refused(host, tmp_path / FILE.name)
    assert host.ranges == ["bytes=150000-", ""]
    assert left_in(tmp_path) == []


def test_a_response_for_another_position_is_dropped(host: Host, tmp_path: Path) -> None:
    host.plan = ["drop", "elsewhere"]
    download_file(FILE, [host.url], tmp_path / FILE.name, HURRY)
    assert host.ranges == ["", "bytes=100000-", ""]
    assert (tmp_path / FILE.name).read_bytes() == BLOB


def test_wrong_bytes_are_refused_and_the_existing_file_stays(host: Host, tmp_path: Path) -> None:
    (tmp_path / FILE.name).write_bytes(b"of yesterday")
    host.plan = ["wrong"]
    sentence = refused(host, tmp_path / FILE.name)
    assert f"{host.url}{FILE.name}: the server sent other bytes than the official file has (sha256 " in sentence
    assert left_in(tmp_path) == [FILE.name]
    assert (tmp_path / FILE.name).read_bytes() == b"of yesterday"


def test_an_html_page_in_place_of_the_file_is_refused(host: Host, tmp_path: Path) -> None:
    host.plan = ["page"]
    assert "offers a file of 26 bytes; expected 200000" in refused(host, tmp_path / FILE.name)
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("stale", [b"?" * 50_000, b"?" * 200_000, b"?" * 300_000], ids=len)
def test_a_damaged_part_is_downloaded_again(stale: bytes, host: Host, tmp_path: Path) -> None:
    (tmp_path / f".{FILE.name}.part").write_bytes(stale)
    download_file(FILE, [host.url], tmp_path / FILE.name, HURRY)
    assert (tmp_path / FILE.name).read_bytes() == BLOB
    assert left_in(tmp_path) == [FILE.name]


def test_after_status_416_the_download_starts_again(host: Host, tmp_path: Path) -> None:
    (tmp_path / f".{FILE.name}.part").write_bytes(BLOB[:10])
    host.plan = ["416"]
    download_file(FILE, [host.url], tmp_path / FILE.name, HURRY)
    assert host.ranges == ["bytes=10-", ""]


def test_after_status_404_the_next_host_is_tried_at_once(hosts: Callable[..., Host], tmp_path: Path) -> None:
    empty, good = hosts({}), hosts({FILE.name: BLOB})
    download_file(FILE, [empty.url, good.url], tmp_path / FILE.name, HURRY)
    assert len(empty.requests) == 1
    assert left_in(tmp_path) == [FILE.name]


def test_the_next_host_resumes_where_the_first_one_stopped(hosts: Callable[..., Host], tmp_path: Path) -> None:
    weak, good = hosts({FILE.name: BLOB}), hosts({FILE.name: BLOB})
    weak.plan = ["drop", "404"]
    download_file(FILE, [weak.url, good.url], tmp_path / FILE.name, HURRY)
    assert good.ranges == ["bytes=100000-"]
    assert (tmp_path / FILE.name).read_bytes() == BLOB


def test_when_every_host_fails_the_error_names_each(hosts: Callable[..., Host], tmp_path: Path) -> None:
    one, two = hosts({}), hosts({FILE.name: BLOB})
    two.plan = ["503", "503"]
    sentence = refused(one, tmp_path / "new" / FILE.name, HURRY, two)
    assert f"{one.url}{FILE.name}: the server responded 404 Not Found" in sentence
    assert f"{two.url}{FILE.name}: the server responded 503 Service Unavailable" in sentence
    assert sentence.endswith(f"Try again later, or put the file into {tmp_path / 'new'} by hand.")
    assert left_in(tmp_path) == []


def test_a_busy_host_is_tried_again(host: Host, tmp_path: Path) -> None:
    host.plan = ["503", "429"]
    download_file(FILE, [host.url], tmp_path / FILE.name, replace(HURRY, tries=3))
    assert len(host.requests) == 3


def test_a_silent_host_fails_and_the_download_resumes_later(host: Host, tmp_path: Path) -> None:
    host.plan = ["stall", "stall", "503", "503"]
    began = time.monotonic()
    sentence = refused(host, tmp_path / FILE.name, NERVOUS)
    assert time.monotonic() - began < 5
    assert "The first 150000 bytes are kept: run the command again to resume, or put" in sentence
    assert left_in(tmp_path) == [f".{FILE.name}.part"]
    download_file(FILE, [host.url], tmp_path / FILE.name, HURRY)
    assert host.ranges[-1] == "bytes=150000-"


def test_a_timeout_is_named_in_the_error(host: Host, tmp_path: Path) -> None:
    host.plan = ["stall"]
    (tmp_path / f".{FILE.name}.part").write_bytes(BLOB[:-1])  # half of one byte is nothing
    assert "sent nothing for 0.5 s. " in refused(host, tmp_path / FILE.name, replace(NERVOUS, tries=1))


def test_an_unreachable_host_is_a_clear_error(host: Host, tmp_path: Path) -> None:
    host.close()
    assert "could not be reached (Connection refused), 2 times in a row" in refused(host, tmp_path / FILE.name)
    assert left_in(tmp_path) == []


def test_a_file_in_place_of_the_folder_is_a_clear_error(host: Host, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    assert f"{tmp_path / 'taken'} is a file or inside a file; expected a folder" in refused(
        host, tmp_path / "taken" / FILE.name
    )
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_a_clear_error(host: Host, tmp_path: Path) -> None:
    (tmp_path / f".{FILE.name}.part").symlink_to("/dev/full")
    assert "could not be written (No space left on device)" in refused(host, tmp_path / FILE.name)


def test_a_second_process_is_refused_while_the_first_downloads(host: Host, tmp_path: Path) -> None:
    with FileLock(tmp_path / f".{FILE.name}.lock"):
        assert "is being downloaded by another process" in refused(host, tmp_path / FILE.name)
    assert host.requests == []


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_killed_download_is_resumed(host: Host, tmp_path: Path) -> None:
    host.plan = ["stall"]
    code = (
        "import sys; from pathlib import Path; from samekind.data.hub.source import DatasetFile\n"
        "from samekind.data.hub.download import download_file\n"
        f"file = DatasetFile({FILE.name!r}, {FILE.size}, {FILE.md5!r}, {FILE.sha256!r})\n"
        "download_file(file, [sys.argv[1]], Path(sys.argv[2]))"
    )
    part = tmp_path / f".{FILE.name}.part"
    with subprocess.Popen([sys.executable, "-c", code, host.url, str(tmp_path / FILE.name)]) as process:
        give_up = time.monotonic() + 15
        while time.monotonic() < give_up and not (part.exists() and part.stat().st_size == 100_000):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert left_in(tmp_path) == [part.with_suffix(".lock").name, part.name]
    download_file(FILE, [host.url], tmp_path / FILE.name, HURRY)
    assert host.ranges == ["", "bytes=100000-"]
    assert (tmp_path / FILE.name).read_bytes() == BLOB


# archives

ONE, TWO = b"one" * 1000, b"two" * 2000


def packed(members: dict[str, bytes], *strange: tarfile.TarInfo) -> bytes:
    """Return a .tar.gz of files by name, and of members of other types."""
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, blob in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(blob)
            tar.addfile(info, io.BytesIO(blob))
        for info in strange:
            tar.addfile(info)
    return stream.getvalue()


def of_kind(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


GOOD = {"set/one": ONE, "set/two": TWO, "set/readme.html": b"<p>"}


def test_only_the_listed_files_are_extracted(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(packed(GOOD, of_kind("set", tarfile.DIRTYPE)))
    unpack(tmp_path / "a.tar.gz", [official("one", ONE), official("two", TWO)], tmp_path / "set")
    assert left_in(tmp_path / "set") == ["one", "two"]
    assert (tmp_path / "set" / "two").read_bytes() == TWO


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (packed({**GOOD, "../evil": b"x"}), "leads out of its folder"),
        (packed({**GOOD, "set/../../evil": b"x"}), "leads out of its folder"),
        (packed({**GOOD, "..\\evil": b"x"}), "leads out of its folder"),
        (packed({**GOOD, "/tmp/evil": b"x"}), "leads out of its folder"),
        (packed({**GOOD, "C:\\evil": b"x"}), "leads out of its folder"),
        (packed(GOOD, of_kind("set/link", tarfile.SYMTYPE, "/etc/passwd")), "neither a file nor a folder"),
        (packed({"set/two": TWO}, of_kind("set/one", tarfile.SYMTYPE, "../evil")), "neither a file nor a folder"),
        (packed({"set/two": TWO}, of_kind("set/one", tarfile.LNKTYPE, "set/two")), "neither a file nor a folder"),
        (packed(GOOD, of_kind("set/pipe", tarfile.FIFOTYPE)), "neither a file nor a folder"),
        (packed({"set/two": TWO}), "holds no file 'one' of 3000 bytes"),
        (packed({"set/one": ONE + b"!"}), "holds no file 'one' of 3000 bytes"),
        (packed({"set/one": b"ONE" * 1000}), "holds another 'one' than the official one"),
        (packed({}, of_kind("set/one", tarfile.DIRTYPE)), "holds no file 'one' of 3000 bytes"),
        (packed(GOOD)[:100], "cannot be unpacked"),
        (b"no archive at all", "cannot be unpacked"),
        (b"", "cannot be unpacked"),
    ],
)
def test_a_strange_archive_is_refused_as_a_whole(blob: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(blob)
    with pytest.raises(DownloadError, match=message) as caught:
        unpack(tmp_path / "a.tar.gz", [official("one", ONE)], tmp_path / "set")
    assert "\n" not in str(caught.value)
    assert left_in(tmp_path) == ["a.tar.gz"]


# whole sets

ARCHIVE = packed(GOOD)


@pytest.fixture
def packed_set(hosts: Callable[..., Host], monkeypatch: pytest.MonkeyPatch) -> tuple[DatasetSource, Host]:
    """Return a dataset of two files in an archive, and its host."""
    host = hosts({"a.tar.gz": ARCHIVE})
    source = replace(
        CIFAR10,
        name="small",
        folders=("set",),
        hosts=(host.url,),
        train=SplitFiles((official("one", ONE),), 1),
        test=SplitFiles((official("two", TWO),), 1),
        names=None,
        archive=official("a.tar.gz", ARCHIVE),
    )
    monkeypatch.setitem(DATASETS, "small", source)
    return source, host


def test_a_dataset_is_downloaded_unpacked_and_not_downloaded_again(
    packed_set: tuple[DatasetSource, Host], tmp_path: Path
) -> None:
    _, host = packed_set
    assert download_dataset("small", tmp_path, retry=HURRY) == tmp_path / "set"
    assert download_dataset("small", tmp_path, retry=HURRY) == tmp_path / "set"
    assert len(host.requests) == 1
    assert left_in(tmp_path) == ["set"]
    assert left_in(tmp_path / "set") == ["one", "two"]


def untouched(path: Path) -> tuple[int, int, int]:
    """Return the state of a file that changes when it is written, but not when it is read."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def test_a_damaged_file_is_replaced_and_the_others_are_not_changed(
    packed_set: tuple[DatasetSource, Host], tmp_path: Path
) -> None:
    download_dataset("small", tmp_path, retry=HURRY)
    (tmp_path / "set" / "one").write_bytes(b"spoilt")
    before = untouched(tmp_path / "set" / "two")
    download_dataset("small", tmp_path, retry=HURRY)
    assert (tmp_path / "set" / "one").read_bytes() == ONE
    assert untouched(tmp_path / "set" / "two") == before


def test_an_archive_copied_by_hand_needs_no_network_and_stays(packed_set: tuple[DatasetSource, Host], tmp_path: Path) -> None:
    _, host = packed_set
    (tmp_path / "a.tar.gz").write_bytes(ARCHIVE)
    download_dataset("small", tmp_path, retry=HURRY)
    assert host.requests == []
    assert left_in(tmp_path) == ["a.tar.gz", "set"]


def test_a_wrong_archive_copied_by_hand_is_refused(packed_set: tuple[DatasetSource, Host], tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(ARCHIVE[:-1])
    with pytest.raises(DownloadError, match=f"is not the official file: {len(ARCHIVE) - 1} bytes instead of {len(ARCHIVE)}"):
        download_dataset("small", tmp_path, retry=HURRY)
    assert left_in(tmp_path) == ["a.tar.gz"]


def test_extra_images_are_downloaded_only_on_request(
    hosts: Callable[..., Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = hosts({"one": ONE, "two": TWO, "more": BLOB})
    one, two, more = (SplitFiles((official(name, blob),), 1) for name, blob in host.files.items())
    monkeypatch.setitem(DATASETS, "small", replace(SVHN, name="small", hosts=(host.url,), train=one, test=two, extra=more))
    download_dataset("small", tmp_path, retry=HURRY)
    assert left_in(tmp_path / "svhn") == ["one", "two"]
    download_dataset("small", tmp_path, extra=True, retry=HURRY)
    assert [name for name, _ in host.requests] == ["one", "two", "more"]


def test_extra_images_of_a_dataset_without_any_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="mnist has no extra images; the only dataset with extra images is svhn"):
        download_dataset("mnist", tmp_path, extra=True)
    assert left_in(tmp_path) == []
