"""Suggestion of a label column, for a table in which no column has a usual name such as label."""

from __future__ import annotations

from samekind.data.columns.typed_table import Column, TypedTable
from samekind.data.readers.label_file import LABEL_NAMES
from samekind.data.readers.reader import shorten
from samekind.errors import LabelError

MAX_CLASSES = 50  # a column with more different values than this is not suggested
# Names that label columns have in tables of many fields. The names that most surely mean a label come first.
TELLING_NAMES = (
    *("labels", "category", "tag", "diagnosis", "outcome", "species", "survived", "churn", "default", "result", "status"),
    *("type", "income", "quality", "grade", "topic", "sentiment", "response", "approved", "fraud", "disease", "decision"),
)


def suggest_label_column(table: TypedTable) -> str | None:
    """Return the name of the column that is most likely the label column; None if no column contains classes."""
    names = [name for name, column in table.columns.items() if _holds_classes(column)]
    for telling in TELLING_NAMES:
        found = [name for name in names if telling in name.lower()]
        if found:
            return found[0]
    if not names:
        return None
    # Suggest a column that is empty in most rows, because most samples have no label. Otherwise suggest the last or the first
    # column, where labels often are.
    sparse = [name for name in names if table.columns[name].missing().mean() > 0.5]
    ends = [name for name in (table.names[-1], table.names[0]) if name in names]
    texts = [name for name in names if table.columns[name].kind != "number"]
    return [*sparse, *ends, *texts, *names][0]


def missing_label_column(path: str, table: TypedTable) -> LabelError:
    """Return the error for a fit to a table without a label column. Its message suggests a column."""
    found = suggest_label_column(table)
    columns = shorten(", ".join(table.names))
    if found is None:
        return LabelError(
            f"{path} has no column called {', '.join(LABEL_NAMES)} (columns: {columns}). Add one with a class in some rows, or "
            "pass a file of labels with --labels."
        )
    return LabelError(
        f"{path} has no column called {', '.join(LABEL_NAMES)}. Is it {found!r}? Pass --label-column {_quoted(found)} "
        f"(columns: {columns})."
    )


def _quoted(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else f"'{name}'"


def _holds_classes(column: Column) -> bool:
    """Return whether a column looks like classes: 2 to MAX_CLASSES different values that repeat and are no fractions."""
    if column.kind in ("date", "image"):
        return False
    present = column.values[~column.missing()]
    if column.kind == "number" and (present != present.round()).any():
        return False
    n = len(set(present.tolist()))
    return 2 <= n <= MAX_CLASSES and 2 * n <= len(present)
