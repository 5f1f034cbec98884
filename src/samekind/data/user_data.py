"""Somebody's own data: a folder of pictures, an array or a table, with labels for a few. One way in, and the same way again.

data = open_data("photos", cache=Path("run/cache"))      # photos/labels.csv, or class folders
more = open_like("new_photos", data.encoding, cache=Path("run/cache"))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, cast

import numpy.typing as npt

from samekind.data.cache import DecodedImages, Progress, Shape, TargetShape, cached_images, decode_images
from samekind.data.readers import array_file, table
from samekind.data.readers.image_decoder import SUFFIXES, ImageHeader
from samekind.data.readers.image_folder import ImageFolder, find_images, labels_of
from samekind.data.readers.label_file import LabelFile, Objects, label_array
from samekind.data.readers.skipped import Skipped, raise_on_skipped
from samekind.data.readers.table import FeatureColumn, TableLayout
from samekind.errors import DataError, SettingError

Kind = Literal["images", "vectors"]
Source = Literal["pictures", "array", "table"]
Channels = Literal[1, 3, "auto"]

KEPT_SIDE = 96  # pictures of one size are kept as they are up to here,
KEPT_SHARE = 0.9  # and a few strays among them are brought to that size
TINY_SIDE, SIDE = 32, 64
TINY_BELOW = 48  # median of the shorter sides
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")
EXPECTED = "a folder of pictures, a .npy or .npz, or a .csv or .parquet"
SHEETS = (".xlsx", ".xls", ".ods")


@dataclass(frozen=True)
class PreferredSide:
    """The side that an encoder likes best. It enlarges for itself, so pictures that are all smaller are kept as they are."""

    side: int


Size = int | tuple[int, int] | PreferredSide | Literal["auto"]


@dataclass(frozen=True)
class Encoding:
    """How the data was read, so that new data can be read in the same way. `shape` is that of a row: (H, W, C) or (d,)."""

    kind: Kind
    source: Source
    shape: tuple[int, ...]
    dtype: str
    layout: TableLayout | None = None  # of a table

    def to_json(self) -> dict[str, Any]:
        """As plain lists and words."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Encoding:
        """What `to_json` gave, also after a way through a file."""
        try:
            layout = _layout_from(plain["layout"]) if plain["layout"] else None
            return cls(plain["kind"], plain["source"], tuple(plain["shape"]), plain["dtype"], layout)
        except (KeyError, TypeError) as error:
            raise DataError(f"this is not how data was read ({error!r}). Expected what Encoding.to_json gave.") from error


@dataclass(frozen=True)
class UserData:
    """All rows x (n, ...), a label or None for each, a name for each, and what was left out.

    Pictures are uint8 (n, H, W, C) on disk, opened as a memory map; vectors are (n, d).
    """

    x: npt.NDArray[Any]
    y: Objects
    names: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    encoding: Encoding

    def __len__(self) -> int:
        return len(self.x)

    @property
    def kind(self) -> Kind:
        """What the rows are."""
        return self.encoding.kind


def open_data(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    size: Size = "auto",
    channels: Channels = "auto",
    strict: bool = False,
    cache: Path,
    label_column: str | None = None,
    progress: Progress | None = None,
) -> UserData:
    """Reads a folder of pictures, a .npy or .npz, or a .csv or .parquet. See docs/own_data.md for the layouts.

    `labels` is a file of labels; without it, they are looked for in the data. `strict` raises at the first file or row that
    cannot be used, instead of leaving it out. `cache` is a folder for decoded pictures. `progress(what, done, total)` is
    called now and then.
    """
    path, label_file = Path(path), None if labels is None else Path(labels)
    wish = target_shape(size, channels)
    reading = _Reading(cache, strict, progress)
    if path.is_dir():
        found = find_images(path, leave_out=cache)
        return _pictures(found, wish, labels_of(found, label_file, label_column), reading)
    if not (isinstance(size, PreferredSide) or size == "auto") or channels != "auto":
        raise SettingError(f"size and channels are for folders of pictures, and {path} is none. Leave them out.")
    suffix = path.suffix.lower()
    if path.exists() and suffix in array_file.SUFFIXES:
        return _strictly(strict, _from_array(array_file.read_array_file(path, label_file, label_column)))
    if path.exists() and suffix in table.SUFFIXES:
        return _strictly(strict, _from_table(table.read_table(path, label_file, label_column)))
    raise DataError(_no_data(path))


def open_like(
    path: str | Path | Sequence[str | Path],
    encoding: Encoding,
    *,
    labels: str | Path | None = None,
    strict: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> UserData:
    """Reads new data exactly as `encoding` says: a folder, an array, a table, one picture, or a list of pictures.

    Labels are not needed, and class folders are not taken for labels; give `labels` to have them. Without `cache`, decoded
    pictures stay in memory.
    """
    label_file = None if labels is None else Path(labels)
    reading = _Reading(cache, strict, progress)
    if not isinstance(path, (str, Path)):
        return _pictures(_listed(path), _same_wish(encoding, path), LabelFile({}, ()), replace(reading, cache=None))
    path = Path(path)
    suffix = path.suffix.lower()
    if path.is_dir():
        found = find_images(path, leave_out=cache)
        known = labels_of(found, label_file) if label_file else LabelFile({}, ())
        return _pictures(found, _same_wish(encoding, path), known, reading)
    if not path.exists():
        raise DataError(_no_data(path))
    if suffix in array_file.SUFFIXES:
        new = _from_array(array_file.read_array_file(path, label_file))
        _require_same(encoding, new.encoding, path)
        return _strictly(strict, replace(new, encoding=encoding))
    if suffix in table.SUFFIXES:
        new_table = _from_table(table.read_table_like(path, _layout_of(encoding, path), label_file))
        return _strictly(strict, replace(new_table, encoding=encoding))
    return _pictures(_listed([path]), _same_wish(encoding, path), LabelFile({}, ()), replace(reading, cache=None))


# ---------------------------------------------------------------- pictures


@dataclass(frozen=True)
class _Reading:
    """How pictures are read, whatever they are."""

    cache: Path | None
    strict: bool
    progress: Progress | None


def _pictures(found: ImageFolder, wish: TargetShape, known: LabelFile, reading: _Reading) -> UserData:
    if reading.strict:
        raise_on_skipped([*found.skipped, *known.missing])
    rows = _rows(found, wish, reading)
    unread = [Skipped(found.names[i], reason) for i, reason in rows.failed.items()]
    if len(rows.x) == 0:
        raise DataError(f"none of the {len(unread)} pictures can be read; the first is {unread[0]}.")
    kept = [i for i in range(len(found.names)) if i not in rows.failed]
    return UserData(
        x=rows.x,
        y=label_array(len(kept), {at: known.labels.get(i) for at, i in enumerate(kept)}),
        names=tuple(found.names[i] for i in kept),
        skipped=(*found.skipped, *unread, *known.missing),
        encoding=Encoding("images", "pictures", rows.x.shape[1:], "uint8"),
    )


def _rows(found: ImageFolder, wish: TargetShape, reading: _Reading) -> DecodedImages:
    def refuse(i: int, reason: str) -> None:
        raise_on_skipped([Skipped(found.names[i], reason)])

    on_failure = refuse if reading.strict else None
    if reading.cache is None:
        return decode_images(found.files, wish, on_failure=on_failure, progress=reading.progress)
    source = str(found.root.resolve())
    rows = cached_images(found.files, wish, reading.cache, source=source, on_failure=on_failure, progress=reading.progress)
    if reading.strict:
        for i, reason in rows.failed.items():
            refuse(i, reason)
    return rows


def _listed(files: Sequence[str | Path]) -> ImageFolder:
    if not files:
        raise DataError("the list of pictures is empty. Pass at least one file.")
    return ImageFolder(Path(), tuple(map(str, files)), ())


def target_shape(size: Size, channels: Channels) -> TargetShape:
    """Pictures of this size and with these channels; "auto" is decided by what the heads of all of them say."""
    sides: tuple[Any, ...] = size if isinstance(size, tuple) else (size, size)
    open_size = isinstance(size, PreferredSide) or size == "auto"
    if not open_size and not (len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides)):
        raise SettingError(f"size is {size!r}; expected 'auto', a number of pixels, or (height, width)")
    if channels not in ("auto", 1, 3):
        raise SettingError(f"channels is {channels!r}; expected 'auto', 1 for grey or 3 for colour")
    return TargetShape(f"{sides[0]} {sides[1]} {channels}", partial(_chosen, size, channels), open_size or channels == "auto")


def _chosen(size: Size, channels: Channels, looks: Sequence[ImageHeader]) -> Shape:
    """The shape of all rows, from the heads of all pictures that can be read."""
    if channels == "auto":
        channels = 1 if looks and all(look.grey for look in looks) else 3
    if isinstance(size, int):
        return size, size, channels
    if isinstance(size, tuple):
        return *size, channels
    natural = size.side if isinstance(size, PreferredSide) else None
    if not looks:
        return natural or SIDE, natural or SIDE, channels
    (common, n_common), *_ = Counter((look.height, look.width) for look in looks).most_common(1)
    if max(common) <= (natural or KEPT_SIDE) and n_common >= KEPT_SHARE * len(looks):
        return *common, channels
    tiny = median(min(look.height, look.width) for look in looks) < TINY_BELOW
    side = natural or (TINY_SIDE if tiny else SIDE)
    return side, side, channels


# ---------------------------------------------------------------- arrays and tables


def _from_array(read: array_file.ArrayFile) -> UserData:
    kind: Kind = "vectors" if read.x.ndim == 2 else "images"
    return UserData(read.x, read.y, read.names, read.skipped, Encoding(kind, "array", read.x.shape[1:], read.x.dtype.name))


def _from_table(read: table.Table) -> UserData:
    encoding = Encoding("vectors", "table", read.x.shape[1:], read.x.dtype.name, read.layout)
    return UserData(read.x, read.y, read.names, read.skipped, encoding)


def _strictly(strict: bool, data: UserData) -> UserData:
    if strict:
        raise_on_skipped(data.skipped)
    return data


# ---------------------------------------------------------------- the same way again


def _same_wish(encoding: Encoding, path: Any) -> TargetShape:
    """Pictures as at fit: of the same size and number of channels."""
    bytes_of_pictures = encoding.kind == "images" and encoding.dtype == "uint8" and encoding.shape[2] in (1, 3)
    if not bytes_of_pictures:
        raise DataError(f"the model was fitted on {_words(encoding)}, and {path} is not that. Pass the same kind of data.")
    height, width, channels = encoding.shape
    return target_shape((height, width), cast(Channels, channels))


def _layout_of(encoding: Encoding, path: Path) -> TableLayout:
    if encoding.layout is None:
        raise DataError(f"the model was fitted on {_words(encoding)}, and {path} is a table. Pass the same kind of data.")
    return encoding.layout


def _require_same(fitted: Encoding, new: Encoding, path: Path) -> None:
    # a scale of 0 to 1 and one of 0 to 255 cannot be told apart later
    same_scale = fitted.kind == "vectors" or (fitted.dtype == "uint8") == (new.dtype == "uint8")
    if fitted.shape != new.shape or not same_scale:
        raise DataError(
            f"the model was fitted on {_words(fitted)}, and {path} holds {_words(new)}. Pass the same kind of data."
        )


def _words(encoding: Encoding) -> str:
    if encoding.source == "table":
        return f"a table with {len(encoding.layout.columns) if encoding.layout else 0} columns of features"
    if encoding.kind == "vectors":
        return f"an array with {encoding.shape[0]} columns"
    height, width, channels = encoding.shape
    colour = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    what = "pictures" if encoding.source == "pictures" else f"an array of {encoding.dtype} images"
    return f"{what} of {height} x {width} pixels, {colour}"


def _layout_from(plain: Mapping[str, Any]) -> TableLayout:
    columns = (FeatureColumn(one["name"], None if one["words"] is None else tuple(one["words"])) for one in plain["columns"])
    return TableLayout(tuple(columns), plain["label"], plain["name"])


def _no_data(path: Path) -> str:
    if not path.exists():
        return f"{path} does not exist. Expected {EXPECTED}."
    hints = {
        **dict.fromkeys(SUFFIXES, "It is one picture: pass the folder that holds it."),
        **dict.fromkeys(ARCHIVES, "Unpack it, and pass the folder."),
        **dict.fromkeys(SHEETS, "Save the table as CSV UTF-8."),
    }
    hint = hints.get(path.suffix.lower(), "")
    return f"{path} cannot be read; expected {EXPECTED}. {hint}".rstrip()
