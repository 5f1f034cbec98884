"""Data sets from where their authors keep them, with nothing but the standard library.

A file grows beside its place under a name that ends in .part, goes on from there after any interruption, and is renamed once
its size and checksums are those of the official file. What is in place is whole, and what is wrong is never in place.
"""

from __future__ import annotations

import os
import re
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from filelock import FileLock, Timeout

from samekind.data.hub.catalogue import data_root, dataset_folder, find_dataset, require_extra
from samekind.data.hub.source import DatasetFile, DatasetSource, describe_difference, digest, file_digest, is_file
from samekind.data.hub.verification import DAMAGED, MISSING, OPTIONAL, verify_dataset
from samekind.errors import DownloadError
from samekind.io import atomic_write

Progress = Callable[[str, int, int], None]  # name of the file, bytes that are there, bytes of the whole

CHUNK = 1 << 18
TEMPORARY_STATUS = (408, 425, 429)  # of the answers from 400 to 499, those that may be different next time


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait for a host."""

    timeout: float = 30.0  # seconds without a byte after which a connection is given up
    tries: int = 4  # how many in a row may bring nothing new
    backoff: float = 1.0  # seconds before the second try; twice as long before each further one


DEFAULT_RETRY = RetryPolicy()


def ignore(file: str, have: int, size: int) -> None:
    """Progress that nobody watches."""


def download_dataset(
    name: str,
    root: str | Path | None = None,
    *,
    extra: bool = False,
    retry: RetryPolicy = DEFAULT_RETRY,
    on_progress: Progress = ignore,
) -> Path:
    """Puts what is missing or damaged of a set into place, and returns its folder."""
    source = find_dataset(name)
    require_extra(source, extra)
    folder = dataset_folder(source, root)
    bad = {MISSING, DAMAGED, *([OPTIONAL] if extra else [])}
    names = {found.file for found in verify_dataset(name, root) if found.state in bad}
    lacking = [file for file in (*source.needed, *(source.optional if extra else ())) if file.name in names]
    if lacking and source.archive:
        _from_archive(source, source.archive, lacking, data_root(root), retry, on_progress)
    elif lacking:
        for file in lacking:
            download_file(file, source.hosts, folder / file.name, retry, on_progress)
    return folder


def download_file(
    file: DatasetFile, hosts: Iterable[str], path: Path, retry: RetryPolicy = DEFAULT_RETRY, on_progress: Progress = ignore
) -> None:
    """Puts the official file at `path`. The hosts are asked in turn; what one has sent, the next need not send again."""
    part = path.with_name(f".{path.name}.part")
    new = [folder for folder in path.parents if not os.path.exists(folder)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked_part(part) as stream:
            _from_hosts(file, hosts, stream, part, retry, on_progress)
        os.replace(part, path)
    except (FileExistsError, NotADirectoryError):
        raise DownloadError(f"{path.parent} is a file, or lies below one; expected a folder or a free name.") from None
    except OSError as error:
        raise DownloadError(f"{path} could not be written ({error.strerror or error}). Choose another folder.") from error
    finally:
        _remove_empty(part, new)


def unpack(archive: Path, files: Iterable[DatasetFile], folder: Path) -> None:
    """Takes the given files out of a .tar.gz, from the folder of the same name in it, if each is the official one.

    Other files are left in it. An archive with a link, or with a path that leads elsewhere, is refused as a whole.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            members = {member.name: member for member in map(_checked_member, tar)}
            for file in files:
                blob = _read_member(tar, members.get(f"{folder.name}/{file.name}"), file)
                folder.mkdir(parents=True, exist_ok=True)
                atomic_write(folder / file.name, blob, DownloadError)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DownloadError(f"{archive} cannot be unpacked ({error}). Delete it and fetch it again.") from error
    except _DownloadFailed as reason:
        raise DownloadError(f"{archive} {reason}. Nothing of it was used. Delete it and fetch it again.") from None


class _DownloadFailed(Exception):
    """Why something gave no file, said so that it can follow its name."""


def _from_archive(
    source: DatasetSource,
    archive: DatasetFile,
    lacking: list[DatasetFile],
    root: Path,
    retry: RetryPolicy,
    on_progress: Progress,
) -> None:
    """An archive that already lies in the root is used and left there; a fetched one is removed in the end."""
    path = root / archive.name
    was_there = is_file(path)
    if not was_there:
        download_file(archive, source.hosts, path, retry, on_progress)
    elif (found := file_digest(path)) != archive.digest:
        raise DownloadError(
            f"{path} is not the official file: {describe_difference(found, archive.digest)}. "
            "Delete it and run the command again."
        )
    unpack(path, lacking, root / source.folders[0])
    if not was_there:
        path.unlink()


def _remove_empty(part: Path, folders: Iterable[Path]) -> None:
    """Removes what is empty: a part without a byte, and folders made for it."""
    with suppress(OSError):
        if not part.stat().st_size:
            part.unlink()
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _from_hosts(
    file: DatasetFile, hosts: Iterable[str], stream: IO[bytes], part: Path, retry: RetryPolicy, on_progress: Progress
) -> None:
    setbacks = []
    for host in hosts:
        try:
            return _from_url(host + file.name, file, stream, part, retry, on_progress)
        except _DownloadFailed as reason:
            setbacks.append(f"{host}{file.name} {reason}")
    have = _size(stream)
    advice = f"The first {have} bytes are kept: run the command again to go on" if have else "Try again later"
    raise DownloadError(
        f"{file.name} could not be fetched: {'; '.join(setbacks)}. {advice}, or put the file into {part.parent} by hand."
    )


def _from_url(url: str, file: DatasetFile, stream: IO[bytes], part: Path, retry: RetryPolicy, on_progress: Progress) -> None:
    """Fills the stream until it is the official file. Wrong bytes may be of an earlier day, so these get a second chance."""
    while True:
        begun = _size(stream)
        _download_rest(url, file, stream, retry, on_progress)
        found = file_digest(part)
        if found == file.digest:
            return
        stream.truncate(0)
        if not begun:
            raise _DownloadFailed(f"sent other bytes than the official file has ({describe_difference(found, file.digest)})")


def _download_rest(url: str, file: DatasetFile, stream: IO[bytes], retry: RetryPolicy, on_progress: Progress) -> None:
    """Asks for the rest until all is there, or until some tries in a row have brought nothing new."""
    if _size(stream) > file.size:
        stream.truncate(0)
    on_progress(file.name, _size(stream), file.size)
    most, failures = _size(stream), 0
    while _size(stream) < file.size:
        reason = _attempt(url, file, stream, retry, on_progress)
        failures = 0 if _size(stream) > most else failures + 1
        most = max(most, _size(stream))
        if failures == retry.tries:
            raise _DownloadFailed(f"{reason}{f', {failures} times in a row' if failures > 1 else ''}")
        if _size(stream) < file.size:
            time.sleep(retry.backoff * 2 ** max(failures - 1, 0))


def _attempt(url: str, file: DatasetFile, stream: IO[bytes], retry: RetryPolicy, on_progress: Progress) -> str:
    """Writes what comes, and says why no more came."""
    try:
        with _open_url(url, _size(stream), retry.timeout) as answer:
            _copy(answer, file, stream, on_progress)
        return "ended too early"
    except HTTPError as error:
        error.close()
        if error.code == 416:  # there is nothing after what we have, so what we have is wrong
            stream.truncate(0)
        elif error.code < 500 and error.code not in TEMPORARY_STATUS:
            raise _DownloadFailed(f"answered {error.code} {error.reason}") from None
        return f"answered {error.code} {error.reason}"
    except (OSError, HTTPException) as error:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, TimeoutError):
            return f"sent nothing for {retry.timeout:g} s"
        words = getattr(cause, "strerror", None) or cause
        return f"could not be reached ({words})" if isinstance(error, URLError) else f"broke off ({words})"


def _open_url(url: str, have: int, stall: float) -> HTTPResponse:
    rest = {"Range": f"bytes={have}-"} if have else {}
    answer: HTTPResponse = urlopen(Request(url, headers={"User-Agent": "samekind", **rest}), timeout=stall)
    return answer


def _copy(answer: HTTPResponse, file: DatasetFile, stream: IO[bytes], on_progress: Progress) -> None:
    """Appends the answer; one that starts elsewhere than asked replaces what is there, or is dropped."""
    have = _size(stream)
    starts_at = _start(answer)
    if starts_at != have:
        stream.truncate(0)
        have = 0
    if starts_at != have:
        return
    offered = answer.headers.get("Content-Length", "")
    if offered.isdecimal() and have + int(offered) != file.size:
        raise _DownloadFailed(f"offers a file of {have + int(offered)} bytes; expected {file.size}")
    while have < file.size and (block := answer.read1(CHUNK)):
        _write(stream, block[: file.size - have])
        have += len(block)
        on_progress(file.name, min(have, file.size), file.size)


def _start(answer: HTTPResponse) -> int:
    """The first byte of the whole file that an answer holds; a host that knows no ranges sends all of it."""
    if answer.status != 206:
        return 0
    found = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(found[1]) if found else -1


def _write(stream: IO[bytes], block: bytes) -> None:
    try:
        stream.write(block)
        stream.flush()
    except OSError as error:
        raise DownloadError(
            f"{stream.name} could not be written ({error.strerror or error}). What came is kept; make room and go on."
        ) from error


def _size(stream: IO[bytes]) -> int:
    return os.fstat(stream.fileno()).st_size


@contextmanager
def _locked_part(part: Path) -> Iterator[IO[bytes]]:
    """Open the part for appending, and hold its lock; the operating system releases the lock if the process is killed."""
    lock = part.with_suffix(".lock")
    try:
        with FileLock(lock, timeout=0), part.open("ab") as stream:
            try:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            finally:
                lock.unlink(missing_ok=True)  # while it is held: the next process makes its own
    except Timeout:
        raise DownloadError(f"{part} is being downloaded by another process. Wait for it, or stop it.") from None


def _checked_member(member: tarfile.TarInfo) -> tarfile.TarInfo:
    path = PurePosixPath(member.name)
    if path.is_absolute() or PureWindowsPath(member.name).anchor or ".." in re.split(r"[/\\]", member.name):
        raise _DownloadFailed(f"holds the path {member.name[:80]!r}, which leads out of its folder")
    if not (member.isreg() or member.isdir()):
        raise _DownloadFailed(f"holds {member.name[:80]!r}, which is neither a file nor a folder")
    return member


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo | None, file: DatasetFile) -> bytes:
    stream = tar.extractfile(member) if member and member.size == file.size else None
    if stream is None:
        raise _DownloadFailed(f"holds no file {file.name!r} of {file.size} bytes")
    with stream:
        blob = stream.read(file.size + 1)
    found = digest([blob])
    if found != file.digest:
        raise _DownloadFailed(f"holds another {file.name!r} than the official one ({describe_difference(found, file.digest)})")
    return blob
