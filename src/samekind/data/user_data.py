"""User data: a folder, an array or a table, with labels for some samples; and new data that is read in the same way.

data = open_data("photos", cache=Path("run/cache"))      # labels from photos/labels.csv, or from class folders
more = open_like("new_photos", data.encoding, cache=Path("run/cache"))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from samekind.data.cache import DecodedImages, cached_images, decode_images
from samekind.data.readers.arrow_dataset import is_arrow_dataset
from samekind.data.readers.image_decoder import SUFFIXES
from samekind.data.readers.image_folder import FileFolder, find_images, read_folder_labels
from samekind.data.readers.label_file import LabelFile, label_array
from samekind.data.readers.reader import (
    Encoding,
    Reader,
    Skipped,
    UserData,
    find_reader,
    raise_on_skipped,
    readers_by_suffix,
    shorten,
)
from samekind.data.readers.tar_shards import is_shard_folder
from samekind.data.readers.text_column import read_text_table, read_text_table_like
from samekind.data.readers.text_folder import TEXTS, is_text_folder, read_text_files, read_text_folder
from samekind.data.target_shape import Channels, PlannedSide, PreferredSide, Size, TargetShape, target_shape
from samekind.errors import DataError, SettingError
from samekind.progress import Progress

ARCHIVES = (".zip", ".gz", ".tgz", ".7z", ".rar")
SPREADSHEETS = (".xlsx", ".xls", ".ods")
NO_LABELS = LabelFile({}, ())


def open_data(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    size: Size = "auto",
    channels: Channels = "auto",
    strict: bool = False,
    cache: Path,
    label_column: str | None = None,
    text: str | None = None,
    progress: Progress | None = None,
) -> UserData:
    """Read a folder of images or texts, or a file of any format in data/readers. docs/own_data.md describes the layouts.

    Parameters
    ----------
    path : str or Path
        The folder or file.
    labels : str or Path, default=None
        A label file. Without it, labels are read from the data itself.
    size : int, (int, int), PreferredSide, PlannedSide or "auto", default="auto"
        Size of decoded images in pixels, only for a folder of images.
    channels : 1, 3 or "auto", default="auto"
        Channels of decoded images, only for a folder of images.
    strict : bool, default=False
        Raise DataError at the first file or row that cannot be used, instead of skipping it.
    cache : Path
        Folder for decoded images.
    label_column : str, default=None
        Name of the label column in a table or label file.
    text : str, default=None
        Name of the column of a table that holds the texts to classify; the other columns are then no features.
    progress : callable, default=None
        Called as `progress(title, done, total)`.
    """
    path, label_file = Path(path), None if labels is None else Path(labels)
    shape = target_shape(size, channels)
    require_data_path(path)
    table = table_folder_reader(path)
    if table is not None and text is not None and table.open_table is not None:
        return _checked(read_text_table(table.open_table(path), text, label_file, label_column), strict)
    if table is not None:
        return _checked(table.read(path, label_file, label_column), strict)
    if path.is_dir() and text is not None:
        raise SettingError(f"text is {text!r}, the name of a column, but {path} is a folder and not a table. Leave text out.")
    if path.is_dir() and is_text_folder(path, exclude=cache):
        return read_text_folder(path, label_file, label_column, exclude=cache, strict=strict)
    if path.is_dir():
        folder = find_images(path, exclude=cache)
        return _read_images(
            folder, shape, read_folder_labels(folder, label_file, label_column), _Options(cache, strict, progress)
        )
    if not (isinstance(size, (PreferredSide, PlannedSide)) or size == "auto") or channels != "auto":
        raise SettingError(f"size and channels apply only to a folder of images, and {path} is not one. Leave both out.")
    reader = find_reader(path)
    if reader is None:
        raise DataError(_unknown_format(path))
    if text is not None:
        if reader.open_table is None:
            raise SettingError(f"text is {text!r}, the name of a column, but {path} is not a table. Leave text out.")
        return _checked(read_text_table(reader.open_table(path), text, label_file, label_column), strict)
    return _checked(reader.read(path, label_file, label_column), strict)


def open_like(
    path: str | Path | Sequence[str | Path],
    encoding: Encoding,
    *,
    labels: str | Path | None = None,
    strict: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> UserData:
    """Read new data in the way that `encoding` describes: a folder, a file, one image, or a list of image files.

    Labels are read only from the file `labels`; class folders are ignored. Without `cache`, decoded images are held in memory.
    """
    label_file = None if labels is None else Path(labels)
    if encoding.text is not None:
        return _open_texts_like(path, encoding, label_file, strict=strict, cache=cache)
    if not isinstance(path, (str, Path)):
        return _read_images(_image_list(path), _fitted_shape(encoding, path), NO_LABELS, _Options(None, strict, progress))
    path = Path(path)
    require_data_path(path)
    table = table_folder_reader(path)
    if table is not None:
        return _checked(table.read_like(path, encoding, label_file), strict)
    if path.is_dir():
        folder = find_images(path, exclude=cache)
        known = read_folder_labels(folder, label_file) if label_file else NO_LABELS
        return _read_images(folder, _fitted_shape(encoding, path), known, _Options(cache, strict, progress))
    reader = find_reader(path)
    if reader is None:
        return _read_images(_image_list([path]), _fitted_shape(encoding, path), NO_LABELS, _Options(None, strict, progress))
    return _checked(reader.read_like(path, encoding, label_file), strict)


def table_folder_reader(path: Path) -> Reader | None:
    """Return the reader of a folder that is read as a table: Arrow files of the library `datasets`, or WebDataset shards.

    For any other folder, return None.
    """
    if not path.is_dir():
        return None
    if is_arrow_dataset(path):
        return find_reader(Path("data.arrow"))
    return find_reader(Path("shard.tar")) if is_shard_folder(path) else None


def _open_texts_like(
    path: str | Path | Sequence[str | Path], encoding: Encoding, labels: Path | None, *, strict: bool, cache: Path | None
) -> UserData:
    """Read new texts: a folder of .txt files, one .txt file, a list of .txt files, or a table with the column of the texts."""
    assert encoding.text is not None
    if not isinstance(path, (str, Path)):
        return read_text_files([Path(one) for one in path], strict=strict)
    path = Path(path)
    require_data_path(path)
    if path.is_dir() and table_folder_reader(path) is None:
        return read_text_folder(path, labels, exclude=cache, strict=strict, class_folders=False)
    if TEXTS.has_suffix(path.name):
        return read_text_files([path], strict=strict)
    reader = table_folder_reader(path) or find_reader(path)
    if reader is None or reader.open_table is None:
        raise DataError(
            f"the model was fitted on {encoding}, but {path} is neither a table nor a .txt file. Pass the same kind of data."
        )
    return _checked(read_text_table_like(reader.open_table(path), encoding.text, labels), strict)


# ---------------------------------------------------------------- reading of images


@dataclass(frozen=True)
class _Options:
    """Options of reading that do not change the pixels of images."""

    cache: Path | None
    strict: bool
    progress: Progress | None


def _read_images(folder: FileFolder, shape: TargetShape, known: LabelFile, options: _Options) -> UserData:
    if options.strict:
        raise_on_skipped([*folder.skipped, *known.missing])
    images = _decode(folder, shape, options)
    failed = [Skipped(folder.names[i], reason) for i, reason in images.failed.items()]
    if len(images.x) == 0:
        raise DataError(f"none of the {len(failed)} images can be read; the first is {failed[0]}.")
    kept = [i for i in range(len(folder.names)) if i not in images.failed]
    return UserData(
        x=images.x,
        y=label_array(len(kept), {at: known.labels.get(i) for at, i in enumerate(kept)}),
        names=tuple(folder.names[i] for i in kept),
        skipped=(*folder.skipped, *failed, *known.missing),
        encoding=Encoding("images", "images", images.x.shape[1:], "uint8"),
    )


def _decode(folder: FileFolder, shape: TargetShape, options: _Options) -> DecodedImages:
    def refuse(i: int, reason: str) -> None:
        raise_on_skipped([Skipped(folder.names[i], reason)])

    on_failure = refuse if options.strict else None
    if options.cache is None:
        return decode_images(folder.files, shape, on_failure=on_failure, progress=options.progress)
    source = str(folder.root.resolve())
    images = cached_images(folder.files, shape, options.cache, source=source, on_failure=on_failure, progress=options.progress)
    if options.strict:
        # An entry of the cache contains failed images only if a call without strict has written it. Here they are an error.
        for i, reason in images.failed.items():
            refuse(i, reason)
    return images


def _image_list(files: Sequence[str | Path]) -> FileFolder:
    if not files:
        raise DataError("the list of images is empty. Pass at least one file.")
    return FileFolder(Path(), tuple(map(str, files)), ())


def _fitted_shape(encoding: Encoding, path: Any) -> TargetShape:
    """Return the rule by which new images are decoded to the size and the channels of the images at fit."""
    is_decoded = encoding.kind == "images" and encoding.dtype == "uint8" and encoding.shape[2] in (1, 3)
    if not is_decoded:
        raise DataError(f"the model was fitted on {encoding}, but {path} holds uint8 images. Pass the same kind of data.")
    height, width, channels = encoding.shape
    return target_shape((height, width), cast(Channels, channels))


# ---------------------------------------------------------------- checks and error messages


def require_data_path(path: Path, *, missing_ok: bool = False) -> None:
    """Raise DataError if there is no file or folder at this path. With `missing_ok`, a missing one raises no error."""
    try:
        path.stat()
    except FileNotFoundError as error:
        if missing_ok:
            return
        raise DataError(f"{shorten(path)} does not exist. Expected {_expected()}.") from error
    except (OSError, ValueError) as error:  # ValueError is raised if the path contains a NUL character
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{shorten(path)} cannot be opened ({reason}). Expected {_expected()}.") from error


def _checked(data: UserData, strict: bool) -> UserData:
    if strict:
        raise_on_skipped(data.skipped)
    return data


def _unknown_format(path: Path) -> str:
    hints = {
        **dict.fromkeys(SUFFIXES, "It is one image: pass the folder that holds it."),
        **dict.fromkeys(ARCHIVES, "Unpack it, and pass the folder."),
        **dict.fromkeys(SPREADSHEETS, "Save the table as CSV UTF-8."),
    }
    hint = hints.get(path.suffix.lower(), "")
    return f"{path} cannot be read; expected {_expected()}. {hint}".rstrip()


def _expected() -> str:
    return f"a folder of images or of .txt files, or a file of type {', '.join(readers_by_suffix())}"
