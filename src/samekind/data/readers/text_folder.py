"""A folder of .txt files. Each file is a text; labels come from a label file or from the names of subfolders.

data = read_text_folder(Path("letters"))      # labels from letters/labels.csv, or from subfolders
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from samekind.data.readers.delimited_text import BYTE_ORDER_MARKS
from samekind.data.readers.image_folder import IMAGES, FileFolder, FileKind, find_files, holds_files, read_folder_labels
from samekind.data.readers.label_file import LabelFile, label_array
from samekind.data.readers.reader import Encoding, Skipped, TextLayout, UserData, raise_on_skipped
from samekind.data.texts import text_array
from samekind.errors import DataError
from samekind.files.io import open_regular

TEXTS = FileKind("text", (".txt",))
MAX_BYTES = 100 << 20  # largest size of a file in bytes; a larger file is hardly one text


def is_text_folder(path: Path, *, exclude: Path | None = None) -> bool:
    """Return whether a folder has .txt files, but no images. Beside images, .txt files are usually notes."""
    return not holds_files(path, IMAGES, exclude=exclude) and holds_files(path, TEXTS, exclude=exclude)


def read_text_folder(
    path: Path,
    labels: Path | None = None,
    label_column: str | None = None,
    *,
    exclude: Path | None = None,
    strict: bool = False,
    class_folders: bool = True,
) -> UserData:
    """Return the texts in a folder. Files that are not texts are skipped; with `strict`, they raise DataError.

    Without `class_folders`, labels are only read from the file `labels`.
    """
    folder = find_files(path, TEXTS, exclude=exclude)
    known = read_folder_labels(folder, labels, label_column) if labels or class_folders else LabelFile({}, ())
    return _read(folder, known, strict=strict)


def read_text_files(files: Sequence[Path], *, strict: bool = False) -> UserData:
    """Return the texts in these files."""
    return _read(FileFolder(Path(), tuple(map(str, files)), (), TEXTS), LabelFile({}, ()), strict=strict)


def _read(folder: FileFolder, known: LabelFile, *, strict: bool) -> UserData:
    texts: dict[int, str] = {}
    failed: list[Skipped] = []
    for i, file in enumerate(folder.files):
        try:
            texts[i] = read_text_file(file)
        except DataError as error:
            failed.append(Skipped(folder.names[i], str(error)))
    skipped = (*folder.skipped, *failed, *known.missing)
    if strict:
        raise_on_skipped(skipped)
    if not texts:
        raise DataError(f"none of the {len(failed)} texts can be read; the first is {failed[0]}.")
    return UserData(
        x=text_array(texts.values()),
        y=label_array(len(texts), {at: known.labels.get(i) for at, i in enumerate(texts)}),
        names=tuple(folder.names[i] for i in texts),
        skipped=skipped,
        encoding=Encoding("texts", "text_folder", (1,), "str", text=TextLayout()),
    )


def read_text_file(path: Path) -> str:
    """Return the text in a file in UTF-8, or in UTF-16 with a byte order mark.

    For any other file, DataError is raised; its message is only the reason, without the name of the file.
    """
    try:
        with open_regular(path) as file:
            blob = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError((error.strerror or str(error)).lower()) from error
    if len(blob) > MAX_BYTES:
        raise DataError(f"the file is larger than {MAX_BYTES >> 20} MB; split it into several texts")
    encoding = next((name for mark, name in BYTE_ORDER_MARKS.items() if blob.startswith(mark)), "utf-8")
    if encoding != "utf-16" and b"\0" in blob:
        raise DataError("the file is not a text: it holds NUL bytes, like a binary file or UTF-16 without a byte order mark")
    try:
        return blob.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(
            f"the file is not UTF-8 text (byte {blob[error.start]:#04x} at position {error.start}); save it as UTF-8"
        ) from error
