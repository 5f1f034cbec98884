"""Benchmark datasets by name, and the folders in which they are on this machine.

`root` is the folder of all datasets: the argument if it is given, else $SAMEKIND_DATA, else "data".
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from samekind.data.hub.cifar_dataset import CIFAR10, CIFAR100
from samekind.data.hub.mnist_dataset import FASHION_MNIST, MNIST
from samekind.data.hub.source import DatasetSource, is_file
from samekind.data.hub.svhn_dataset import SVHN
from samekind.errors import DataError, SettingError, did_you_mean

DATASETS = {source.name: source for source in (CIFAR10, CIFAR100, SVHN, MNIST, FASHION_MNIST)}


def find_dataset(name: str) -> DatasetSource:
    """Return the dataset with this name; raise SettingError for an unknown name."""
    if name not in DATASETS:
        raise SettingError(f"there is no dataset {name!r}; {did_you_mean(name.lower(), DATASETS)}")
    return DATASETS[name]


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder of all datasets: `root`, else $SAMEKIND_DATA, else "data"."""
    return Path(root if root is not None else os.environ.get("SAMEKIND_DATA") or "data").expanduser()


def dataset_folder(source: DatasetSource, root: str | Path | None = None) -> Path:
    """Return the folder in which the dataset is. If it is not there yet, return the folder for its download."""
    folders = [data_root(root) / name for name in source.folders]
    files = (*source.needed, *source.optional)
    return next((folder for folder in folders if any(is_file(folder / file.name) for file in files)), folders[0])


def fetch_command(source: DatasetSource, root: str | Path | None = None, extra: bool = False) -> str:
    """Return the shell command that downloads the dataset."""
    where = f" --root {shlex.quote(str(root))}" if root is not None else ""
    return f"samekind data fetch {source.name}{where}{' --extra' if extra else ''}"


def require_extra(source: DatasetSource, extra: bool) -> None:
    """Raise SettingError if `extra` is True for a dataset that has no extra images."""
    if extra and source.extra is None:
        having = ", ".join(other.name for other in DATASETS.values() if other.extra)
        raise SettingError(
            f"{source.name} has no extra images; the only dataset with extra images is {having}. Leave out extra."
        )


def require_downloaded(name: str, root: str | Path | None = None, *, extra: bool = False) -> None:
    """Raise DataError, with the command to run, if a file of the dataset is missing. No file is opened."""
    source = find_dataset(name)
    require_extra(source, extra)
    splits = [source.train, source.test, *([source.extra] if extra and source.extra else [])]
    folder = dataset_folder(source, root)
    missing = [file.name for split in splits for file in split.files if not is_file(folder / file.name)]
    if missing:
        more = f" and {len(missing) - 1} more file(s) are" if len(missing) > 1 else " is"
        raise DataError(
            f"the dataset {name} is not in {folder}: {missing[0]}{more} missing. Run: {fetch_command(source, root, extra)}"
        )
