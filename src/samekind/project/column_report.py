"""Report about the columns of a table after a fit, and the error for a table without labels."""

from __future__ import annotations

from pathlib import Path

from samekind.data.columns.typed_table import TypedTable
from samekind.data.readers.label_column import missing_label_column
from samekind.data.readers.reader import UserData, find_reader
from samekind.errors import LabelError
from samekind.estimator import SemiSupervisedClassifier
from samekind.project.run_folder import LogFunction, write_csv

MAX_LOGGED = 40  # largest number of columns that are logged; the file lists all columns


def require_label_column(data: UserData, path: str, labels: str | None) -> None:
    """Raise LabelError if a table has no label column, or an empty one, and no label file was given."""
    layout, text = data.encoding.layout, data.encoding.text
    if text is not None and text.text is not None and text.label is None and labels is None:
        reader = find_reader(Path(path))
        table = None if reader is None else reader.read(Path(path), None, None).x
        if isinstance(table, TypedTable):
            raise missing_label_column(path, table)
    if layout is None or labels is not None or not isinstance(data.x, TypedTable):
        return
    if layout.label is None:
        raise missing_label_column(path, data.x)
    if all(label is None for label in data.y):
        raise LabelError(
            f"{path}: the label column {layout.label!r} is empty in all {len(data)} rows. Fill in the class of a few rows of "
            "each class, or name another column with --label-column."
        )


def report_columns(model: SemiSupervisedClassifier, out: Path, log: LogFunction) -> None:
    """Log how the fit uses each column of a table, and write columns.csv. If the data is not a table, do nothing."""
    plans = getattr(model, "columns_", ())
    if not plans:
        return
    for plan in plans[:MAX_LOGGED]:
        log(f"column {plan}")
    if len(plans) > MAX_LOGGED:
        log(f"{len(plans) - MAX_LOGGED} more columns are listed in {out / 'columns.csv'}")
    used = [plan for plan in plans if plan.role != "dropped"]
    if len(used) == 1 and used[0].role == "text":
        name = used[0].name
        log(f"the only feature is the text in {name!r}: with --text {name}, the page shows it, and a query may be typed words")
    rows = ([plan.name, plan.kind, plan.role, plan.note] for plan in plans)
    write_csv(out / "columns.csv", ["column", "kind", "use", "note"], rows)
