"""Download of benchmark datasets from the hosts of their authors.

A file is written to a temporary .part file, from which an interrupted download resumes. It gets its final name only after its
size and its checksums were compared with the official ones. So a file with its final name is always complete.
"""

from __future__ import annotations

import os
import re
import tarfile
import time
import zlib
from collections.abc import Iterable, Iterator
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
from samekind.files.io import atomic_write
from samekind.progress import Progress

CHUNK = 1 << 18
TEMPORARY_STATUS = (408, 425, 429)  # HTTP status codes of requests that may succeed later


@dataclass(frozen=True)
class RetryPolicy:
    """Timeouts and repeated attempts of a download."""

    timeout: float = 30.0  # seconds without data after which a connection is closed
    tries: int = 4  # number of attempts in a row without new data after which the download fails
    backoff: float = 1.0  # seconds before the second attempt; each further wait is twice as long


DEFAULT_RETRY = RetryPolicy()


def no_progress(file: str, n_bytes: int, size: int) -> None:
    """Ignore the progress of a download."""


def download_dataset(
    name: str,
    root: str | Path | None = None,
    *,
    extra: bool = False,
    retry: RetryPolicy = DEFAULT_RETRY,
    on_progress: Progress = no_progress,
) -> Path:
    """Download those files of a dataset that are missing or damaged; return the folder of the dataset."""
    source = find_dataset(name)
    require_extra(source, extra)
    folder = dataset_folder(source, root)
    bad = {MISSING, DAMAGED, *([OPTIONAL] if extra else [])}
    names = {found.file for found in verify_dataset(name, root) if found.state in bad}
    needed = [file for file in (*source.needed, *(source.optional if extra else ())) if file.name in names]
    if needed and source.archive:
        _download_archive(source, source.archive, needed, data_root(root), retry, on_progress)
    elif needed:
        for file in needed:
            download_file(file, source.hosts, folder / file.name, retry, on_progress)
    return folder


def download_file(
    file: DatasetFile, hosts: Iterable[str], path: Path, retry: RetryPolicy = DEFAULT_RETRY, on_progress: Progress = no_progress
) -> None:
    """Download an official file to `path`. The hosts are tried in turn; each continues where the one before stopped."""
    part = path.with_name(f".{path.name}.part")
    new = [folder for folder in path.parents if not os.path.exists(folder)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked_part(part) as stream:
            _try_hosts(file, hosts, stream, part, retry, on_progress)
        os.replace(part, path)
    except (FileExistsError, NotADirectoryError):
        raise DownloadError(
            f"{path.parent} is a file or inside a file; expected a folder or an unused name. Choose another folder."
        ) from None
    except OSError as error:
        raise DownloadError(f"{path} could not be written ({error.strerror or error}). Choose another folder.") from error
    finally:
        _remove_empty(part, new)


def unpack(archive: Path, files: Iterable[DatasetFile], folder: Path) -> None:
    """Extract the given files of a .tar.gz archive into `folder`, after comparing them with the official checksums.

    In the archive, the files are in a folder that has the same name as `folder`. An archive with a link, or with a path that
    leads out of this folder, is refused as a whole.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            members = {member.name: member for member in map(_checked_member, tar)}
            for file in files:
                blob = _read_member(tar, members.get(f"{folder.name}/{file.name}"), file)
                folder.mkdir(parents=True, exist_ok=True)
                atomic_write(folder / file.name, blob, DownloadError)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DownloadError(f"{archive} cannot be unpacked ({error}). Delete it and download it again.") from error
    except _DownloadFailed as reason:
        raise DownloadError(
            f"{archive} cannot be used: {reason}. No file was taken from it. Delete it and download it again."
        ) from None


class _DownloadFailed(Exception):
    """A failed download. The text of the exception is the reason."""


def _download_archive(
    source: DatasetSource,
    archive: DatasetFile,
    needed: list[DatasetFile],
    root: Path,
    retry: RetryPolicy,
    on_progress: Progress,
) -> None:
    """Unpack the archive in `root`. If it is not there, download it first, and delete it afterwards."""
    path = root / archive.name
    existed = is_file(path)
    if not existed:
        download_file(archive, source.hosts, path, retry, on_progress)
    elif (found := file_digest(path)) != archive.digest:
        raise DownloadError(
            f"{path} is not the official file: {describe_difference(found, archive.digest)}. "
            "Delete it and run the command again."
        )
    unpack(path, needed, root / source.folders[0])
    if not existed:
        path.unlink()


def _remove_empty(part: Path, folders: Iterable[Path]) -> None:
    """Remove an empty .part file, and the folders that were created for it."""
    with suppress(OSError):
        if not part.stat().st_size:
            part.unlink()
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _try_hosts(
    file: DatasetFile, hosts: Iterable[str], stream: IO[bytes], part: Path, retry: RetryPolicy, on_progress: Progress
) -> None:
    failures = []
    for host in hosts:
        try:
            return _download_url(host + file.name, file, stream, part, retry, on_progress)
        except _DownloadFailed as reason:
            failures.append(f"{host}{file.name}: {reason}")
    n_bytes = _stream_size(stream)
    advice = f"The first {n_bytes} bytes are kept: run the command again to resume" if n_bytes else "Try again later"
    raise DownloadError(
        f"{file.name} could not be downloaded: {'; '.join(failures)}. {advice}, or put the file into {part.parent} by hand."
    )


def _download_url(
    url: str, file: DatasetFile, stream: IO[bytes], part: Path, retry: RetryPolicy, on_progress: Progress
) -> None:
    """Download into the stream until it holds the official file.

    If the bytes of an earlier attempt turn out to be wrong, the download starts again.
    """
    while True:
        had_bytes = _stream_size(stream)
        _download_rest(url, file, stream, retry, on_progress)
        found = file_digest(part)
        if found == file.digest:
            return
        stream.truncate(0)
        if not had_bytes:
            raise _DownloadFailed(
                f"the server sent other bytes than the official file has ({describe_difference(found, file.digest)})"
            )


def _download_rest(url: str, file: DatasetFile, stream: IO[bytes], retry: RetryPolicy, on_progress: Progress) -> None:
    """Request the missing bytes until the file is complete.

    After several attempts in a row without new data, raise an error.
    """
    if _stream_size(stream) > file.size:
        stream.truncate(0)
    on_progress(file.name, _stream_size(stream), file.size)
    max_bytes, failures = _stream_size(stream), 0
    while _stream_size(stream) < file.size:
        reason = _attempt(url, file, stream, retry, on_progress)
        failures = 0 if _stream_size(stream) > max_bytes else failures + 1
        max_bytes = max(max_bytes, _stream_size(stream))
        if failures == retry.tries:
            raise _DownloadFailed(reason if failures == 1 else f"{reason}, {failures} times in a row")
        if _stream_size(stream) < file.size:
            time.sleep(retry.backoff * 2 ** max(failures - 1, 0))


def _attempt(url: str, file: DatasetFile, stream: IO[bytes], retry: RetryPolicy, on_progress: Progress) -> str:
    """Make one request, write the data that arrives to the stream, and return in words why the transfer ended."""
    try:
        with _open_url(url, _stream_size(stream), retry.timeout) as response:
            _copy(response, file, stream, on_progress)
        return "the transfer ended too early"
    except HTTPError as error:
        error.close()
        if error.code == 416:  # "range not satisfiable": the bytes downloaded so far do not belong to this file
            stream.truncate(0)
        elif error.code < 500 and error.code not in TEMPORARY_STATUS:
            raise _DownloadFailed(f"the server responded {error.code} {error.reason}") from None
        return f"the server responded {error.code} {error.reason}"
    except (OSError, HTTPException) as error:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, TimeoutError):
            return f"the server sent nothing for {retry.timeout:g} s"
        reason = getattr(cause, "strerror", None) or cause
        return (
            f"the server could not be reached ({reason})"
            if isinstance(error, URLError)
            else f"the transfer broke off ({reason})"
        )


def _open_url(url: str, n_bytes: int, timeout: float) -> HTTPResponse:
    headers = {"Range": f"bytes={n_bytes}-"} if n_bytes else {}
    response: HTTPResponse = urlopen(Request(url, headers={"User-Agent": "samekind", **headers}), timeout=timeout)
    return response


def _copy(response: HTTPResponse, file: DatasetFile, stream: IO[bytes], on_progress: Progress) -> None:
    """Append the response of the host to the stream.

    A response that does not begin at the end of the stream empties the stream. It is then used only if it begins at byte 0.
    """
    n_bytes = _stream_size(stream)
    start = _first_byte(response)
    if start != n_bytes:
        stream.truncate(0)
        n_bytes = 0
    if start != n_bytes:
        return
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and n_bytes + int(length) != file.size:
        raise _DownloadFailed(f"the server offers a file of {n_bytes + int(length)} bytes; expected {file.size}")
    while n_bytes < file.size and (chunk := response.read1(CHUNK)):
        _write(stream, chunk[: file.size - n_bytes])
        n_bytes += len(chunk)
        on_progress(file.name, min(n_bytes, file.size), file.size)


def _first_byte(response: HTTPResponse) -> int:
    """Return at which byte of the file the response begins: 0 if the host always sends whole files, -1 if it is unknown."""
    if response.status != 206:
        return 0
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found[1]) if found else -1


def _write(stream: IO[bytes], chunk: bytes) -> None:
    try:
        stream.write(chunk)
        stream.flush()
    except OSError as error:
        raise DownloadError(
            f"{stream.name} could not be written ({error.strerror or error}). The download is kept; free some space and resume."
        ) from error


def _stream_size(stream: IO[bytes]) -> int:
    return os.fstat(stream.fileno()).st_size


@contextmanager
def _locked_part(part: Path) -> Iterator[IO[bytes]]:
    """Open the .part file for appending and lock it. The operating system releases the lock if the process is killed."""
    lock = part.with_suffix(".lock")
    try:
        with FileLock(lock, timeout=0), part.open("ab") as stream:
            try:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            finally:
                # deleted while it is locked, so that the next process creates a lock file of its own
                lock.unlink(missing_ok=True)
    except Timeout:
        raise DownloadError(f"{part} is being downloaded by another process. Wait for it, or stop it.") from None


def _checked_member(member: tarfile.TarInfo) -> tarfile.TarInfo:
    path = PurePosixPath(member.name)
    if path.is_absolute() or PureWindowsPath(member.name).anchor or ".." in re.split(r"[/\\]", member.name):
        raise _DownloadFailed(f"the archive holds the path {member.name[:80]!r}, which leads out of its folder")
    if not (member.isreg() or member.isdir()):
        raise _DownloadFailed(f"the archive holds {member.name[:80]!r}, which is neither a file nor a folder")
    return member


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo | None, file: DatasetFile) -> bytes:
    stream = tar.extractfile(member) if member and member.size == file.size else None
    if stream is None:
        raise _DownloadFailed(f"the archive holds no file {file.name!r} of {file.size} bytes")
    with stream:
        blob = stream.read(file.size + 1)
    found = digest([blob])
    if found != file.digest:
        raise _DownloadFailed(
            f"the archive holds another {file.name!r} than the official one ({describe_difference(found, file.digest)})"
        )
    return blob
