"""Tables as the X of a fit and of predictions: data frames, Arrow tables and table files are turned into features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.columns.frames import is_frame, object_column, table_from_frame
from samekind.data.columns.typed_table import Column, TypedTable
from samekind.data.feature_names import feature_names, require_same_names
from samekind.errors import DataError, SettingError
from samekind.nets.encoders.frozen_features import FeatureCache, SliceableImages
from samekind.nets.encoders.names import AUTO
from samekind.nets.text.text_encoder_names import PREFERRED, is_text_encoder
from samekind.preprocessing.lazy_features import input_description
from samekind.tabular.column_plan import ColumnPlan
from samekind.tabular.table_encoder import EncodedTexts, TableEncoder

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TablePreprocessor:
    """Turns new tables into features in the same way as at the fit. It has the same members as `Preprocessor`.

    `feature_names` are the names of all columns, if they are strings. New data frames must have the same columns in the same
    order, as in scikit-learn. In tables from files, columns are found by their names.
    """

    columns: TableEncoder
    feature_names: tuple[str, ...] | None
    encoder: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Return (number of columns,)."""
        return (len(self.columns.plans),)

    @property
    def plans(self) -> tuple[ColumnPlan, ...]:
        """Return the plans of all columns, which say how the fit uses them."""
        return self.columns.plans

    def samples(self, X: Any, cache: str | Path | FeatureCache | None = None, *, verbose: bool = False) -> SliceableImages:
        """Return the features of the rows of a new table."""
        if isinstance(X, TypedTable):
            return self.columns.transform(X, "the table")
        if is_frame(X):
            table = table_from_frame(X)
            require_same_names(_names(X, table), self.feature_names)
        else:
            require_same_names(None, self.feature_names)
            table = self._from_array(X)
        if self.feature_names is None:
            self._require_width(len(table.names))
            table = TypedTable(dict(zip(self.columns.names, table.columns.values(), strict=True)), len(table))
        return self.columns.transform(table)

    def _from_array(self, X: Any) -> TypedTable:
        """Return an array, or a list of rows, as a table with the columns of the fit."""
        array = np.asarray(X)
        if array.ndim != 2:
            raise DataError(
                f"Expected 2D array, got {array.ndim}D array of shape {array.shape} instead: the model was fitted on a table "
                f"of {self.shape[0]} columns. Pass a data frame with these columns. Reshape your data if it is a single row."
            )
        self._require_width(array.shape[1])
        names = self.columns.names
        if array.dtype.kind in "biuf":
            columns = {name: Column("number", array[:, at].astype(np.float64)) for at, name in enumerate(names)}
        else:
            columns = {name: object_column(array[:, at].tolist(), name) for at, name in enumerate(names)}
        return TypedTable(columns, len(array))

    def _require_width(self, found: int) -> None:
        if found != self.shape[0]:
            raise DataError(
                f"X has {found} features, but SemiSupervisedClassifier is expecting {self.shape[0]} features as input, as at "
                "fit. Pass the same columns in the same order."
            )

    def probe(self) -> Floats:
        """Return an empty array, because a table has no encoder that must be recognized when a model is loaded."""
        return np.empty((0, self.columns.width), dtype=np.float32)

    def require_probe(self, expected: Floats) -> None:
        """Accept any probe, because the encoders of text columns are restored from the model itself."""

    def description(self) -> dict[str, Any]:
        """Return the entry "input" of model.json, which describes the input of the model."""
        more = {"feature_names": self.feature_names, "table": self.columns.to_json()}
        return input_description(self.shape, kind="table", **more)

    def state(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return the arrays of the encoders of text columns, by name."""
        return self.columns.state()

    @classmethod
    def restored(cls, content: Mapping[str, Any], state: Mapping[str, npt.NDArray[Any]]) -> TablePreprocessor:
        """Return the preprocessor of a saved model, from the entry "input" of model.json and the saved arrays."""
        names = content["feature_names"]
        return cls(TableEncoder.restored(content["table"], state), None if names is None else tuple(names))


@dataclass(frozen=True)
class TableInput:
    """The table of a fit, with the preprocessor that was fitted to it, and the features of its text columns."""

    table: TypedTable
    preprocessor: TablePreprocessor
    encoded: EncodedTexts

    def __len__(self) -> int:
        return len(self.table)

    @property
    def like_array(self) -> bool:
        """Whether an array would have the same features: all columns are complete numbers, or all are texts or images."""
        return self.preprocessor.columns.like_array

    def samples(self) -> Floats:
        """Return the features (n, d) of the table, on which the model is trained."""
        return self.preprocessor.columns.transform(self.table, encoded=self.encoded)


def table_input(X: Any, encoder: Any) -> TableInput:
    """Return the table of a fit as an input. `encoder` is the user's choice for text columns, or "auto"."""
    if not (encoder is None or encoder == AUTO or (isinstance(encoder, str) and is_text_encoder(encoder))):
        raise SettingError(
            f"encoder is {encoder!r}, but X is a table; expected 'tfidf' or 'use', which encode its text columns. Or "
            "leave out encoder."
        )
    table = table_from_frame(X)
    encoded: EncodedTexts = {}
    columns = TableEncoder.fit(table, PREFERRED if encoder in (None, AUTO) else encoder, encoded)
    return TableInput(table, TablePreprocessor(columns, _names(X, table)), encoded)


def _names(X: Any, table: TypedTable) -> tuple[str, ...] | None:
    """Return the names of the columns; None for a pandas data frame whose column names are not strings."""
    return feature_names(X) if hasattr(X, "iloc") else table.names
