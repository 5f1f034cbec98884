"""Verification: compares the benchmark datasets on disk with the official checksums. It needs no network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from samekind.data.hub.catalogue import DATASETS, dataset_folder, fetch_command, find_dataset
from samekind.data.hub.source import DatasetFile, DatasetSource, describe_difference, file_digest, is_file
from samekind.errors import DataError

OK, REPACKED, OPTIONAL, MISSING, DAMAGED = "ok", "repacked", "optional", "missing", "damaged"


class FileCheck(NamedTuple):
    """Result of the verification for one file. `state` is "ok", "repacked", "optional", "missing" or "damaged"."""

    file: str
    state: str
    reason: str


class DatasetSummary(NamedTuple):
    """Description of one benchmark dataset for the table of all datasets."""

    name: str
    images: str  # numbers of training and test images, such as "50,000 + 10,000"
    shape: str
    classes: str
    download: str
    in_place: str


def verify_dataset(name: str, root: str | Path | None = None) -> list[FileCheck]:
    """Return the result of the verification for each file of the dataset.

    A file with the official bytes is "ok". A file with other bytes, but with the official pixels and labels, was compressed or
    pickled again; it is "repacked", and may be used. Any other file is "damaged".
    """
    source = find_dataset(name)
    folder = dataset_folder(source, root)
    return [_check(source, file, folder) for file in (*source.needed, *source.optional)]


def require_intact(name: str, checks: Iterable[FileCheck], root: str | Path | None = None) -> None:
    """Raise DataError, with the command to run, if one of the results is "damaged" or "missing"."""
    checks = list(checks)
    counts = {state: sum(check.state == state for check in checks) for state in (DAMAGED, MISSING)}
    bad = [f"{count} {state}" for state, count in counts.items() if count]
    if bad:
        source = find_dataset(name)
        optional = {file.name for file in source.optional}
        needs_extra = any(check.state == DAMAGED and check.file in optional for check in checks)
        raise DataError(
            f"{name} in {dataset_folder(source, root)} is not complete: of {len(checks)} files {' and '.join(bad)}. "
            f"Run: {fetch_command(source, root, needs_extra)}"
        )


def list_datasets(root: str | Path | None = None) -> list[DatasetSummary]:
    """Return a description of each dataset. `in_place` says whether its files exist; their content is not verified."""
    return [_summary(source, dataset_folder(source, root)) for source in DATASETS.values()]


def _check(source: DatasetSource, file: DatasetFile, folder: Path) -> FileCheck:
    path = folder / file.name
    if not is_file(path) and file in source.optional:
        return FileCheck(file.name, OPTIONAL, f"not in place; {_readable_size(file.size)} more with --extra")
    if not is_file(path):
        return FileCheck(file.name, MISSING, "not in place")
    try:
        found = file_digest(path)
        if found == file.digest:
            return FileCheck(file.name, OK, "the official file")
        difference = describe_difference(found, file.digest)
        if source.content_hash is None or not file.content:
            return FileCheck(file.name, DAMAGED, difference)
        if source.content_hash(source, file, path) == file.content:
            return FileCheck(file.name, REPACKED, "other bytes than the official file, the same content")
        return FileCheck(file.name, DAMAGED, f"other content than the official file ({difference})")
    except DataError as error:
        return FileCheck(file.name, DAMAGED, str(error).removeprefix(f"{path} ").removesuffix(" Get a fresh copy of it."))


def _summary(source: DatasetSource, folder: Path) -> DatasetSummary:
    n_present = sum(is_file(folder / file.name) for file in source.needed)
    partly = f"{n_present} of {len(source.needed)} files"
    return DatasetSummary(
        source.name,
        f"{source.train.n_images:,} + {source.test.n_images:,}",
        "x".join(map(str, source.shape)),
        str(len(source.classes)),
        _readable_size(source.download_size),
        "yes" if n_present == len(source.needed) else partly if n_present else "no",
    )


def _readable_size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
